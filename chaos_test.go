package spillway_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/spillway-mq/spillway"
	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/adapters/memory"
	"github.com/spillway-mq/spillway/failure"
	"github.com/spillway-mq/spillway/policy"
)

// randomFaults is a script of things that go wrong. None of them is final.
func randomFaults(rng *rand.Rand) []memory.Fault {
	pick := func(effects ...memory.Effect) memory.Effect { return effects[rng.IntN(len(effects))] }
	after := memory.FailAfter(nil)
	var faults []memory.Fault
	for range 12 {
		f := memory.Fault{Skip: rng.IntN(20), Times: 1 + rng.IntN(3)}
		switch rng.IntN(6) {
		case 0, 1:
			f.On, f.Do = memory.Handoff, pick(memory.Fail(nil), after, memory.Twice(), memory.Delay(3*time.Second), memory.Crash())
		case 2:
			f.On, f.Do = memory.Ack, pick(memory.Fail(nil), after, memory.Lose(), memory.Delay(time.Second), memory.Crash(), memory.Disconnect())
		case 3:
			f.On, f.Do = memory.Return, pick(memory.Fail(nil), memory.Delay(time.Second), memory.Disconnect())
		case 4:
			f.On, f.Do = memory.Deliver, pick(memory.Twice(), memory.Delay(time.Second), memory.Disconnect(), memory.Crash())
		case 5:
			f.On, f.Stream, f.Do = memory.Publish, outTopic, pick(memory.Fail(nil), after, memory.Twice(), memory.Delay(2*time.Second))
		}
		faults = append(faults, f)
	}
	return faults
}

// misbehave does one of the things that handlers do.
func misbehave(rng *rand.Rand, msg *message.Message) ([]*message.Message, error) {
	switch rng.IntN(10) {
	case 0, 1:
		return nil, errors.New("no")
	case 2:
		return nil, failure.Permanent(errors.New("no"))
	case 3:
		return nil, failure.Missing("customer", msg.UUID)
	case 4:
		panic("no")
	case 5:
		msg.Nack()
		return nil, nil
	case 6:
		return outputs("of " + msg.UUID), nil
	case 7:
		return message.Messages{nil}, nil
	case 8:
		clear(msg.Payload)
		return nil, failure.Transient(errors.New("no"))
	}
	return nil, nil
}

// Invariant 2: whatever the handlers, the broker and the processes do, at every
// quiet moment each message is done, or lies somewhere, and in the end nothing
// is left but what is done and what is dead.
func TestNothingIsLostWhateverHappens(t *testing.T) {
	for seed := range uint64(12) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				const messages = 60
				rng, handlers := rand.New(rand.NewPCG(seed, 0)), rand.New(rand.NewPCG(seed, 1))
				broker := memory.New(memory.Config{Partitions: 3})
				var mu sync.Mutex
				done := map[string]bool{}
				dead := func() (ids map[string]bool) {
					ids = map[string]bool{}
					for _, rec := range broker.Records(dlqOf) {
						ids[rec.ID] = true
					}
					return ids
				}

				process := func(h func(*message.Message) ([]*message.Message, error)) *service {
					s := installedOn(t, broker, spillway.Config{Concurrency: 1 + rng.IntN(4)})
					s.produce(func(msg *message.Message) ([]*message.Message, error) {
						mu.Lock()
						defer mu.Unlock()
						out, err := h(msg)
						if err == nil && len(out) == 0 {
							select {
							case <-msg.Nacked():
							default:
								done[msg.UUID] = true
							}
						}
						return out, err
					})
					s.start()
					return s
				}
				conserved := func(when string) {
					t.Helper()
					mu.Lock()
					defer mu.Unlock()
					somewhere := map[string]bool{}
					for _, stream := range broker.Streams() {
						for _, rec := range broker.Records(stream) {
							somewhere[strings.TrimPrefix(rec.ID, "of ")] = true
							if string(rec.Payload) != "body of "+rec.ID && !strings.HasPrefix(rec.ID, "of ") {
								t.Errorf("%s: %s holds %q of %s", when, stream, rec.Payload, rec.ID)
							}
						}
					}
					for i := range messages {
						if id := fmt.Sprint(i); !somewhere[id] && !done[id] {
							t.Fatalf("%s: message %s is lost", when, id)
						}
					}
				}

				for i := range messages {
					id := fmt.Sprint(i)
					if err := broker.Publish(topic, adapters.Record{ID: id, Key: []byte{byte(i % 7)}, Payload: []byte("body of " + id)}); err != nil {
						t.Fatal(err)
					}
				}
				for run := range 30 { // a process that lost its subscription does nothing until the next
					if run%4 == 0 {
						broker.Inject(randomFaults(rng)...)
					}
					s := process(func(msg *message.Message) ([]*message.Message, error) { return misbehave(handlers, msg) })
					after(time.Duration(rng.IntN(90)) * time.Second)
					conserved(fmt.Sprintf("during run %d", run))
					s.end()
					conserved(fmt.Sprintf("after run %d", run))
				}

				broker.ClearFaults()
				s := process(func(*message.Message) ([]*message.Message, error) { return nil, nil })
				after(48 * time.Hour)
				conserved("at the end")
				s.stop()
				for stream := range depths(broker) {
					if stream != dlqOf && stream != outTopic {
						t.Errorf("%d records are left in %s", broker.Depth(stream), stream)
					}
				}
				if d := dead(); len(d) == 0 || len(d) == messages {
					t.Errorf("%d messages are dead: the test proves little", len(d))
				}
			})
		})
	}
}

// The same in real time, where the race detector sees what a bubble puts in
// order: processes come and go, gently and not, while subscriptions break,
// confirmations get lost, and handlers do all that handlers do.
func TestNothingIsLostInRealTime(t *testing.T) {
	t.Parallel()
	const n = 1500
	b := memory.New(memory.Config{Partitions: 3})
	b.Inject(
		memory.Fault{On: memory.Handoff, Skip: 20, Times: 20, Do: memory.Fail(nil)},
		memory.Fault{On: memory.Handoff, Skip: 10, Times: 20, Do: memory.FailAfter(nil)},
		memory.Fault{On: memory.Ack, Skip: 50, Times: 20, Do: memory.Fail(nil)},
		memory.Fault{On: memory.Ack, Skip: 90, Times: 20, Do: memory.Lose()},
		memory.Fault{On: memory.Deliver, Skip: 100, Times: 30, Do: memory.Twice()},
		memory.Fault{On: memory.Deliver, Skip: 300, Times: 1, Do: memory.Disconnect()},
		memory.Fault{On: memory.Publish, Stream: outTopic, Skip: 30, Times: 30, Do: memory.Fail(nil)},
		memory.Fault{On: memory.Return, Skip: 3, Times: 5, Do: memory.Fail(nil)},
	)
	var mu sync.Mutex
	done := map[string]bool{}
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
		done[msg.UUID] = true
		mu.Unlock()
		if rand.IntN(3) == 0 {
			return outputs("of " + msg.UUID), nil
		}
		return nil, nil
	}
	cfg := spillway.Config{
		Concurrency: 8, CloseGrace: 300 * time.Millisecond,
		Policy: policy.Policy{Backoff: policy.Backoff{Base: 5 * time.Millisecond, Max: 20 * time.Millisecond}},
	}
	var all []*service
	start := func() *service {
		s := installedOn(t, b, cfg)
		s.produce(handler)
		s.start()
		all = append(all, s)
		return s
	}
	running := []*service{start(), start()}
	for i := range n {
		put(t, b, topic, fmt.Sprint(i))
		if i%150 == 149 {
			<-time.After(30 * time.Millisecond)
			running[0].stop()
			running = append(running[1:], start())
		}
		if i == 700 {
			b.Crash(topic, group)
			running = append(running, start(), start())
		}
	}
	quiet := func() bool { return b.Depth(topic)+b.Depth(retryOf)+b.Depth(suspectOf) == 0 }
	for end := time.Now().Add(20 * time.Second); !quiet() && time.Now().Before(end); {
		<-time.After(20 * time.Millisecond)
	}
	if !quiet() {
		t.Errorf("left: %v", depths(b))
	}
	for _, s := range running {
		s.stop()
	}
	dead := map[string]bool{}
	for _, rec := range b.Records(dlqOf) {
		dead[rec.ID] = true
		if string(rec.Payload) != rec.ID {
			t.Errorf("the payload of %s was changed to %q", rec.ID, rec.Payload)
		}
	}
	for i := range n {
		if id := fmt.Sprint(i); !done[id] && !dead[id] {
			t.Errorf("%s is lost", id)
		}
	}
	for _, s := range all {
		if got := len(s.outcomesNow()); got != s.starts {
			t.Errorf("%d starts, %d outcomes", s.starts, got)
		}
	}
}
