package rabbitmq_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/adapters/rabbitmq"
)

// R24 and invariant 5: never early, hardly late, and spread.
func TestRetriesComeWhenTheyAreDue(t *testing.T) {
	t.Parallel()
	b := setup(t, rabbitmq.Config{})
	c := b.consumer(64)
	sub := b.Subscribe(c)
	const n = 300
	due := make(map[string]time.Time, n)
	var mu sync.Mutex
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			id := fmt.Sprint(i)
			wanted := 500*time.Millisecond + rand.N(time.Second)
			at := time.Now().Add(b.Broker.Quantize(wanted))
			mu.Lock()
			due[id] = at
			mu.Unlock()
			if err := b.Broker.Handoff(t.Context(), adapters.Handoff{Consumer: c, Stream: adapters.StreamRetry, Record: adapters.Record{ID: id}, Due: at}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	instants := map[time.Duration]int{}
	start := time.Now()
	for range n {
		d := b.Next(sub)
		late := time.Since(due[d.ID])
		if late < 0 {
			t.Errorf("%s came %s early", d.ID, -late)
		}
		if late > 2*time.Second {
			t.Errorf("%s came %s late", d.ID, late)
		}
		instants[time.Since(start).Truncate(50*time.Millisecond)]++
		b.Ack(d)
	}
	if len(instants) < 5 {
		t.Errorf("the burst left at %d instants: %v", len(instants), instants)
	}
}

// Longer delays than the longest rung come early, for another hop; never late.
func TestLongDelaysHop(t *testing.T) {
	t.Parallel()
	b := setup(t, rabbitmq.Config{MaxDelay: 250 * time.Millisecond})
	c := b.consumer(1)
	sub := b.Subscribe(c)
	q := b.Broker.Quantize(700 * time.Millisecond)
	if want := 718 * time.Millisecond; q != want { // twice 250 ms, and 218 ms
		t.Errorf("700ms became %s, want %s", q, want)
	}
	due := time.Now().Add(q)
	rec, hops := adapters.Record{ID: "m"}, 0
	for ; time.Now().Before(due); hops++ {
		b.Handoff(adapters.Handoff{Consumer: c, Stream: adapters.StreamRetry, Record: rec, Due: due})
		d := b.Next(sub)
		rec = d.Record
		b.Ack(d)
	}
	// The third is not needed when the others were late.
	if hops < 2 || hops > 3 {
		t.Errorf("%d hops", hops)
	}
}

func TestParkingMovesToRetryAtDue(t *testing.T) {
	t.Parallel()
	b := setup(t, rabbitmq.Config{})
	c := b.consumer(1)
	sub := b.Subscribe(c)
	due := time.Now().Add(time.Second)
	for i := range 3 {
		b.Handoff(adapters.Handoff{Consumer: c, Stream: adapters.StreamParking, Record: adapters.Record{ID: fmt.Sprint(i)}, Due: due})
	}
	if n := b.parked(c); n != 3 {
		t.Errorf("%d are parked", n)
	}
	for range 3 {
		d := b.Next(sub)
		if early := time.Until(due); early > 0 {
			t.Errorf("%s came %s early", d.ID, early)
		}
		if d.Stream != adapters.StreamRetry || d.Count != 1 || len(d.Headers) != 0 {
			t.Errorf("got %+v from %s, count %d", d.Record, d.Stream, d.Count)
		}
		b.Ack(d)
	}
	// Now means now, and a time that has passed too.
	for _, due := range []time.Time{{}, time.Now().Add(-time.Hour)} {
		for _, stream := range []adapters.Stream{adapters.StreamParking, adapters.StreamRetry, adapters.StreamSuspect} {
			b.Handoff(adapters.Handoff{Consumer: c, Stream: stream, Record: adapters.Record{ID: "now"}, Due: due})
			b.Ack(b.Next(sub))
		}
	}
	// A suspect can wait too, and so can what is due in years.
	b.Handoff(adapters.Handoff{Consumer: c, Stream: adapters.StreamSuspect, Record: adapters.Record{ID: "later"}, Due: time.Now().Add(100 * time.Millisecond)})
	if d := b.Next(sub); d.Stream != adapters.StreamSuspect {
		t.Errorf("got %q from %s", d.ID, d.Stream)
	} else {
		b.Ack(d)
	}
	b.Handoff(adapters.Handoff{Consumer: c, Stream: adapters.StreamParking, Record: adapters.Record{ID: "y"}, Due: time.Now().AddDate(10, 0, 0)})
	if n := b.parked(c); n != 1 {
		t.Errorf("%d are parked", n)
	}
}

// What is parked for long holds up nothing that is parked for less, and Drain
// finds both.
func TestParkingIntervalsDoNotHoldEachOtherUp(t *testing.T) {
	t.Parallel()
	b := setup(t, rabbitmq.Config{})
	c := b.consumer(1)
	sub := b.Subscribe(c)
	park := func(id string, left time.Duration) {
		b.Handoff(adapters.Handoff{Consumer: c, Stream: adapters.StreamParking, Record: adapters.Record{ID: id}, Due: time.Now().Add(left)})
	}
	park("week", 7*24*time.Hour)
	park("hour", time.Hour)
	park("soon", 300*time.Millisecond)
	if d := b.Next(sub); d.ID != "soon" {
		t.Errorf("got %q", d.ID)
	} else {
		b.Ack(d)
	}
	var got []string
	for _, r := range b.Drain(queueOf(adapters.StreamParking, c)) {
		got = append(got, r.ID+" in "+r.Position.Topic)
	}
	name := queueOf(adapters.StreamParking, c)
	if want := "hour in " + name + ", week in " + name; strings.Join(got, ", ") != want {
		t.Errorf("drained %v", got)
	}
}

// R10: however many delays jitter draws, there are no more queues than rungs.
func TestQueuesAreBounded(t *testing.T) {
	t.Parallel()
	b := setup(t, rabbitmq.Config{MaxDelay: time.Second})
	c := b.consumer(100)
	sub := b.Subscribe(c)
	const n, workers = 2000, 50
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for range n / workers {
				h := adapters.Handoff{Consumer: c, Stream: adapters.StreamRetry, Due: time.Now().Add(rand.N(time.Second))}
				if err := b.Broker.Handoff(t.Context(), h); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	for range n {
		b.Ack(b.Next(sub))
	}
	queues := 0
	for _, name := range shared(b.cfg.Prefix) {
		if strings.Contains(name, ".delay.") && b.exists(name) {
			queues++
		}
	}
	if most := len(rabbitmq.NewLadder(125*time.Millisecond, time.Second)); queues < 2 || queues > most {
		t.Errorf("%d queues for %d rungs", queues, most)
	}
}

func (b *bench) exists(queue string) bool {
	ch := b.channel()
	defer ch.Close()
	_, err := ch.QueueDeclarePassive(queue, true, false, false, false, nil)
	return err == nil
}

// Section B of the findings: a publish that no queue takes is an error, and the
// next one finds everything declared anew.
func TestHandoffToWhatIsGone(t *testing.T) {
	t.Parallel()
	b := setup(t, rabbitmq.Config{})
	c := b.consumer(1)
	b.Ensure(c)
	for _, tc := range []struct {
		stream adapters.Stream
		gone   func() error
		due    time.Duration
	}{
		{adapters.StreamDeadLetter, func() error { return b.deleteQueue(queueOf(adapters.StreamDeadLetter, c)) }, 0},
		{adapters.StreamParking, func() error { return b.deleteQueue(queueOf(adapters.StreamParking, c) + ".4096000ms") }, time.Hour},
		{adapters.StreamRetry, func() error { return b.deleteQueue(queueOf(adapters.StreamRetry, c)) }, 0},
		{adapters.StreamRetry, func() error { return b.deleteQueue(b.cfg.Prefix + ".delay.1000ms") }, time.Second},
		{adapters.StreamRetry, func() error { return b.ch.ExchangeDelete(b.cfg.Prefix+".delay.1000ms", false, false) }, time.Second},
	} {
		h := adapters.Handoff{Consumer: c, Stream: tc.stream, Record: adapters.Record{ID: "m"}}
		// Due anew each time: on a busy machine it passes while a queue is deleted,
		// and then no rung is needed.
		due := func() adapters.Handoff {
			if tc.due > 0 {
				h.Due = time.Now().Add(tc.due)
			}
			return h
		}
		b.Handoff(due())
		if err := tc.gone(); err != nil {
			t.Fatal(err)
		}
		err := b.Broker.Handoff(t.Context(), due())
		if err == nil || errors.Is(err, adapters.ErrRefused) || errors.Is(err, adapters.ErrTooLarge) {
			t.Errorf("%s is gone: %v", tc.stream, err)
		}
		b.Handoff(due())
	}
}

func (b *bench) deleteQueue(name string) error {
	_, err := b.ch.QueueDelete(name, false, false, false)
	return err
}

// What returns to a queue that is gone is kept where operators see it, and
// holds up nobody else.
func TestUndeliverableIsKept(t *testing.T) {
	t.Parallel()
	b := setup(t, rabbitmq.Config{})
	c, other := b.consumer(1), b.consumer(1)
	b.Ensure(c)
	sub := b.Subscribe(other)
	due := time.Now().Add(time.Second)
	for range 40 {
		b.Handoff(adapters.Handoff{Consumer: c, Stream: adapters.StreamRetry, Record: adapters.Record{ID: "lost"}, Due: due})
	}
	b.Handoff(adapters.Handoff{Consumer: other, Stream: adapters.StreamRetry, Record: adapters.Record{ID: "fine"}, Due: due})
	if err := b.deleteQueue(queueOf(adapters.StreamRetry, c)); err != nil {
		t.Fatal(err)
	}
	if d := b.Next(sub); d.ID != "fine" {
		t.Errorf("got %q", d.ID)
	} else {
		b.Ack(d)
	}
	b.depthBecomes(b.cfg.Prefix+".undeliverable", 40)
}

// R18: a destination that is full holds up its own ladder only.
func TestFullDestination(t *testing.T) {
	t.Parallel()
	b := setup(t, rabbitmq.Config{})
	full := b.consumer(1)
	if _, err := b.ch.QueueDeclare(queueOf(adapters.StreamRetry, full), true, false, false, false, amqp.Table{
		"x-queue-type": "quorum", "x-max-length": 1, "x-overflow": "reject-publish",
	}); err != nil {
		t.Fatal(err)
	}
	// It is not what we declare, and Ensure says so.
	var topologyError *rabbitmq.TopologyError
	if err := b.Broker.Ensure(t.Context(), full); !errors.As(err, &topologyError) {
		t.Errorf("a retry queue with a maximum length: %v", err)
	}
	// A queue of a user's policy cannot be seen: the hand-off fails, and is not lost.
	for _, s := range []adapters.Stream{adapters.StreamParking, adapters.StreamSuspect} {
		if _, err := b.ch.QueueDeclare(queueOf(s, full), true, false, false, false, amqp.Table{"x-queue-type": "quorum"}); err != nil {
			t.Fatal(err)
		}
	}
	healthy := b.consumer(1)
	sub := b.Subscribe(healthy)
	verify := open(t, b.rawURL, rabbitmq.Config{Prefix: b.cfg.Prefix, VerifyOnly: true})
	var err error
	for range 50 {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		err = verify.Handoff(ctx, adapters.Handoff{Consumer: full, Stream: adapters.StreamRetry, Record: adapters.Record{ID: "m"}})
		cancel()
		if err != nil {
			break
		}
	}
	if err == nil || errors.Is(err, adapters.ErrRefused) {
		t.Errorf("a full queue took everything, or forever: %v", err)
	}
	b.Handoff(adapters.Handoff{Consumer: healthy, Stream: adapters.StreamRetry, Record: adapters.Record{ID: "fine"}, Due: time.Now().Add(200 * time.Millisecond)})
	b.Ack(b.Next(sub))
}

func TestHandoffRefusesMain(t *testing.T) {
	t.Parallel()
	b := setup(t, rabbitmq.Config{})
	c := b.consumer(1)
	if err := b.Broker.Handoff(t.Context(), adapters.Handoff{Consumer: c, Stream: adapters.StreamMain}); !errors.Is(err, adapters.ErrRefused) {
		t.Errorf("got %v", err)
	}
}

func TestDrainKeepsWhatIsNotTaken(t *testing.T) {
	t.Parallel()
	b := setup(t, rabbitmq.Config{})
	c := b.consumer(1)
	b.Ensure(c)
	dlq := queueOf(adapters.StreamDeadLetter, c)
	for i := range 5 {
		b.Handoff(adapters.Handoff{Consumer: c, Stream: adapters.StreamDeadLetter, Record: adapters.Record{ID: fmt.Sprint(i), Payload: []byte{byte(i)}}})
	}
	enough := errors.New("enough")
	var got []string
	err := b.Broker.Drain(t.Context(), dlq, func(_ context.Context, r adapters.Record) error {
		if len(got) == 2 {
			return enough
		}
		got = append(got, r.ID)
		return nil
	})
	if !errors.Is(err, enough) {
		t.Errorf("got %v", err)
	}
	for _, r := range b.Drain(dlq) {
		got = append(got, r.ID)
	}
	if strings.Join(got, " ") != "0 1 2 3 4" {
		t.Errorf("drained %v", got)
	}
	if rest := b.Drain(dlq); len(rest) != 0 {
		t.Errorf("%d came twice", len(rest))
	}
	err = b.Broker.Drain(t.Context(), "no-such-"+dlq, func(context.Context, adapters.Record) error { return nil })
	var te *rabbitmq.TopologyError
	if !errors.As(err, &te) || te.Name != "no-such-"+dlq {
		t.Errorf("a queue that does not exist: %v", err)
	}
}
