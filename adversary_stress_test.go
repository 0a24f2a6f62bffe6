package spillway_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/spillway-mq/spillway"
	"github.com/spillway-mq/spillway/adapters/memory"
	"github.com/spillway-mq/spillway/failure"
	"github.com/spillway-mq/spillway/policy"
)

// Conservation, by id, in real time: processes come and go, gently and not,
// while subscriptions break, confirmations get lost, and handlers do all that
// handlers do.
func TestAdversaryConservation(t *testing.T) {
	const n = 1500
	b := memory.New(memory.Config{Partitions: 3})
	for _, f := range []memory.Fault{
		{On: memory.Handoff, Skip: 20, Times: 20, Do: memory.Fail(nil)},
		{On: memory.Handoff, Skip: 10, Times: 20, Do: memory.FailAfter(nil)},
		{On: memory.Ack, Skip: 50, Times: 20, Do: memory.Fail(nil)},
		{On: memory.Ack, Skip: 90, Times: 20, Do: memory.Lose()},
		{On: memory.Deliver, Skip: 100, Times: 30, Do: memory.Twice()},
		{On: memory.Deliver, Skip: 300, Times: 1, Do: memory.Disconnect()},
		{On: memory.Publish, Stream: "out", Skip: 30, Times: 30, Do: memory.Fail(nil)},
		{On: memory.Return, Skip: 3, Times: 5, Do: memory.Fail(nil)},
	} {
		b.Inject(f)
	}
	var mu sync.Mutex
	done := map[string]int{}
	handler := func(msg *message.Message) ([]*message.Message, error) {
		clear(msg.Payload)
		msg.Metadata.Set("spillway-attempt", "99")
		switch r := rand.IntN(20); {
		case r == 0:
			return nil, failure.Permanent(errors.New("bad"))
		case r == 1:
			panic("boom")
		case r < 5:
			return nil, failure.Transient(errors.New("later"))
		case r == 5:
			select {
			case <-time.After(20 * time.Millisecond):
			case <-msg.Context().Done():
				return nil, msg.Context().Err()
			}
		}
		mu.Lock()
		done[msg.UUID]++
		mu.Unlock()
		if rand.IntN(3) == 0 {
			return message.Messages{message.NewMessage("o"+msg.UUID, nil)}, nil
		}
		return nil, nil
	}
	cfg := spillway.Config{Concurrency: 8, CloseGrace: 300 * time.Millisecond, Policy: policy.Policy{Backoff: policy.Backoff{Base: 5 * time.Millisecond, Max: 20 * time.Millisecond}}}
	start := func() *adv {
		a := advOpen(t, b, cfg)
		a.router.AddHandler("h", "orders", a.sw.Subscriber(), "out", a.sw.Publisher(), handler)
		return a.run()
	}
	running := []*adv{start(), start()}
	var all []*adv
	all = append(all, running...)
	for i := range n {
		advPublish(t, b, "orders", fmt.Sprint(i))
		if i%150 == 149 {
			<-time.After(30 * time.Millisecond)
			running[0].close()
			running = append(running[1:], start())
			all = append(all, running[len(running)-1])
		}
		if i == 700 {
			b.Crash("orders", "g")
			for range 2 {
				running = append(running, start())
				all = append(all, running[len(running)-1])
			}
		}
	}
	quiet := func() bool {
		return b.Depth("orders")+b.Depth("orders.g.retry")+b.Depth("orders.g.suspect") == 0
	}
	for end := time.Now().Add(20 * time.Second); !quiet() && time.Now().Before(end); {
		<-time.After(20 * time.Millisecond)
	}
	if !quiet() {
		t.Errorf("left: %d main, %d retry, %d suspect", b.Depth("orders"), b.Depth("orders.g.retry"), b.Depth("orders.g.suspect"))
	}
	for _, a := range running {
		a.close()
	}
	dead := map[string]int{}
	for _, r := range b.Records("orders.g.dlq") {
		dead[r.ID]++
		if string(r.Payload) != r.ID {
			t.Errorf("payload of %s was changed to %q", r.ID, r.Payload)
		}
	}
	for i := range n {
		if id := fmt.Sprint(i); done[id]+dead[id] == 0 {
			t.Errorf("%s is lost", id)
		}
	}
	for _, a := range all {
		if got := len(a.told()); got != a.starts {
			t.Errorf("%d starts, %d outcomes", a.starts, got)
		}
	}
	t.Logf("%d processed, %d dead, faults left %d", len(done), len(dead), len(b.FaultsLeft()))
}
