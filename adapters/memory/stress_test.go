package memory_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/adapters/memory"
)

// TestConservation works on a broker from all sides at once, with processes
// that crash and faults that strike, until everything is settled. Then each id
// must have been processed, or lie in the dead letter stream, for each group.
func TestConservation(t *testing.T) {
	t.Parallel()
	const publishers, each, workers = 3, 300, 4
	broker := memory.New(memory.Config{Partitions: 3})
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	groups := []adapters.Consumer{
		{Topic: "orders", Group: "billing", Concurrency: 3},
		{Topic: "orders", Group: "mailing", Concurrency: 1},
	}
	for _, c := range groups {
		ensure(t, open(t, broker), c)
	}
	broker.Inject(
		memory.Fault{On: memory.Handoff, Skip: 20, Times: 20, Do: memory.Fail(nil)},
		memory.Fault{On: memory.Handoff, Skip: 20, Times: 20, Do: memory.FailAfter(nil)},
		memory.Fault{On: memory.Ack, Skip: 50, Times: 20, Do: memory.Lose()},
		memory.Fault{On: memory.Deliver, Skip: 50, Times: 20, Do: memory.Twice()},
		memory.Fault{On: memory.Deliver, Skip: 100, Times: 20, Do: memory.Delay(time.Millisecond)},
		memory.Fault{On: memory.Ack, Skip: 100, Times: 5, Do: memory.Crash()},
		memory.Fault{On: memory.Deliver, Skip: 200, Times: 5, Do: memory.Disconnect()},
	)

	var mu sync.Mutex
	processed := map[string]map[string]int{"billing": {}, "mailing": {}}
	var wg sync.WaitGroup
	for p := range publishers {
		wg.Go(func() {
			for i := range each {
				r := adapters.Record{ID: fmt.Sprint(p, "-", i), Key: fmt.Append(nil, i%10)}
				if err := broker.Publish("orders", r); err != nil {
					t.Errorf("publish: %v", err)
				}
			}
		})
	}
	handle := func(process adapters.Broker, d *adapters.Delivery, random *rand.Rand) {
		settle, to := d.Settler.Ack, adapters.Stream("")
		switch n := random.IntN(20); {
		case n < 1:
			settle = d.Settler.Return
		case n < 2:
			to = adapters.StreamDeadLetter
		case n < 6 && d.Stream == adapters.StreamMain:
			to = []adapters.Stream{adapters.StreamRetry, adapters.StreamParking, adapters.StreamSuspect, adapters.StreamRetry}[n-2]
		default:
			mu.Lock()
			processed[d.Consumer.Group][d.ID]++
			mu.Unlock()
		}
		if to != "" {
			h := adapters.Handoff{Consumer: d.Consumer, Stream: to, Record: d.Record, Due: time.Now().Add(time.Duration(random.IntN(3)) * time.Millisecond)}
			if process.Handoff(ctx, h) != nil {
				settle = d.Settler.Return
			}
		}
		if err := settle(ctx, d); err != nil && !errors.Is(err, adapters.ErrClosed) {
			t.Errorf("settle: %v", err)
		}
	}
	for w := range workers {
		c := groups[w%len(groups)]
		random := rand.New(rand.NewPCG(1, uint64(w)))
		wg.Go(func() {
			// A worker is a series of processes: each dies, or leaves.
			for ctx.Err() == nil {
				process, err := broker.Opener().Open(ctx, adapters.OpenParams{})
				if err != nil {
					return
				}
				sub, err := process.Subscribe(ctx, c)
				life, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
				for err == nil && life.Err() == nil {
					select {
					case d, ok := <-sub.Deliveries():
						if !ok {
							cancel()
							break
						}
						handle(process, d, random)
					case <-life.Done():
					}
				}
				cancel()
				if random.IntN(3) == 0 {
					broker.Crash(c.Topic, c.Group)
				}
				if err := process.Close(context.Background()); err != nil {
					t.Errorf("close: %v", err)
				}
			}
		})
	}
	settled := func() bool {
		n := 0
		for _, c := range groups {
			for _, s := range []string{".retry", ".parking", ".suspect"} {
				n += broker.Depth(c.Topic + "." + c.Group + s)
			}
		}
		mu.Lock()
		defer mu.Unlock()
		ends := func(group string) int { return len(processed[group]) + broker.Depth("orders."+group+".dlq") }
		return n == 0 && broker.Depth("orders") == 0 && ends("billing") >= publishers*each && ends("mailing") >= publishers*each
	}
	deadline := time.After(time.Minute)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for done := false; !done; {
		select {
		case <-tick.C:
			done = settled()
		case <-deadline:
			t.Error("not settled after a minute")
			done = true
		}
	}
	stop()
	wg.Wait()

	for _, c := range groups {
		dead := map[string]bool{}
		for _, r := range broker.Records("orders." + c.Group + ".dlq") {
			dead[r.ID] = true
		}
		for p := range publishers {
			for i := range each {
				if id := fmt.Sprint(p, "-", i); processed[c.Group][id] == 0 && !dead[id] {
					t.Errorf("%s: %s is lost", c.Group, id)
				}
			}
		}
		for _, s := range []string{"orders", "orders." + c.Group + ".retry", "orders." + c.Group + ".suspect"} {
			if lag, flying := broker.Lag(s, c.Group), broker.InFlight(s, c.Group); lag != 0 || flying != 0 {
				t.Errorf("%s of %s: lag %d, %d in flight, want none", s, c.Group, lag, flying)
			}
		}
	}
	wantUsedUp(t, broker)
	if err := broker.Close(context.Background()); err != nil {
		t.Error(err)
	}
}

// TestLargeBacklog: neither deliveries nor releases become slow behind 50,000
// records. It would take minutes if each looked at all others.
func TestLargeBacklog(t *testing.T) {
	t.Parallel()
	const n = 50_000
	broker, process := setup(t, memory.Config{})
	due := time.Now().Add(time.Hour)
	for i := range n {
		if err := broker.Publish("orders", adapters.Record{}); err != nil {
			t.Fatal(err)
		}
		handoff(t, process, adapters.StreamRetry, "", due.Add(-time.Duration(i)*time.Microsecond))
	}
	sub := subscribe(t, process, with(10))
	first := receive(t, sub) // stays unsettled, so that the log cannot shrink
	for range n - 1 {
		d := receive(t, sub)
		if d.Count == 1 && *d.Position.Offset%10 == 0 {
			giveBack(t, d)
			d = receive(t, sub)
		}
		ack(t, d)
	}
	if got := broker.Lag("orders", "billing"); got < 1 {
		t.Errorf("lag %d, want at least the first", got)
	}
	ack(t, first)
	if got := broker.Depth("orders.billing.retry"); got != n {
		t.Errorf("%d records wait, want %d", got, n)
	}
}
