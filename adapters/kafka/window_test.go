package kafka_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/adapters/kafka"
	"github.com/spillway-mq/spillway/internal/brokertest"
)

// logs collects what is logged.
type logs struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logs) contains(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.buf.String(), text)
}

// Issue 4.3: beyond the capacity of the window retries come late, none comes
// early, and none is lost; and that is said.
func TestBeyondTheWindowRetriesComeLate(t *testing.T) {
	t.Parallel()
	const n = 200
	var out logs
	b := setup(t, fake(t), kafka.Config{Window: 10})
	u, err := parseURL(b.rawURL)
	if err != nil {
		t.Fatal(err)
	}
	broker, err := kafka.OpenerWith(b.cfg).Open(t.Context(), adapters.OpenParams{URL: u, Logger: slog.New(slog.NewTextHandler(&out, nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := broker.Close(testContext(t)); err != nil {
			t.Error(err)
		}
	})
	c := b.consumer(4)
	due := map[string]time.Time{}
	for i := range n {
		id := fmt.Sprint(i)
		// The last ones are due first.
		due[id] = time.Now().Add(1900*time.Millisecond - time.Duration(i)*5*time.Millisecond)
		b.Handoff(adapters.Handoff{Consumer: c, Stream: adapters.StreamRetry, Record: adapters.Record{ID: id, Payload: []byte("x")}, Due: due[id]})
	}
	s := b.SubscribeOn(broker, c)
	for range n {
		d := b.Next(s)
		if early := time.Until(due[d.ID]); early > 0 {
			t.Errorf("%s came %s early", d.ID, early)
		}
		if _, ok := due[d.ID]; !ok {
			t.Errorf("%s came twice", d.ID)
		}
		delete(due, d.ID)
		b.Ack(d)
	}
	if !out.contains("more messages wait than are read ahead") {
		t.Error("nothing was logged about it")
	}
}

// Issue 4.3, invariant 5; K17: with jitter at 100 retries a second, none leaves
// early, and all on time and apart, from a tier that exists. It measures time, so it runs before the tests
// that run side by side.
func TestRetriesAreOnTimeAndSpread(t *testing.T) {
	measure := func(b *bench) {
		const n = 400
		c := b.consumer(16)
		s := b.SubscribeOn(b.Broker, c)
		retry := func(id string, due time.Time) {
			b.Handoff(adapters.Handoff{Consumer: c, Stream: adapters.StreamRetry, Record: adapters.Record{ID: id, Payload: []byte("x")}, Due: due})
		}
		retry("first", time.Now()) // who reads has joined
		b.Ack(b.Next(s))
		start, due := time.Now(), map[string]time.Time{}
		r := rand.New(rand.NewPCG(1, 2))
		for i := range n {
			id := fmt.Sprint(i)
			delay := time.Duration(float64(1500*time.Millisecond) * (0.8 + 0.4*r.Float64()))
			due[id] = start.Add(time.Duration(i)*10*time.Millisecond + delay)
		}
		released := map[string]time.Time{}
		var sending sync.WaitGroup
		sending.Go(func() {
			pace := time.NewTicker(10 * time.Millisecond)
			defer pace.Stop()
			for i := range n {
				id := fmt.Sprint(i)
				at := due[id]
				if err := b.Broker.Handoff(b.Context(), adapters.Handoff{
					Consumer: c, Stream: adapters.StreamRetry, Record: adapters.Record{ID: id, Payload: []byte("x")}, Due: at,
				}); err != nil {
					b.Error(err)
				}
				if done := time.Now(); done.After(at) { // the hand-off was late, not its release
					at = done
				}
				released[id] = at
				<-pace.C
			}
		})
		var late []time.Duration
		arrived := map[string]time.Time{}
		var last time.Time
		same := 0
		for range n {
			d := b.Next(s)
			now := time.Now()
			arrived[d.ID] = now
			if early := due[d.ID].Sub(now); early > 0 {
				b.Errorf("a retry came %s early", early)
			}
			if now.Sub(last) < 10*time.Microsecond {
				same++
			}
			last = now
			b.Ack(d)
		}
		sending.Wait()
		for id, at := range arrived {
			late = append(late, at.Sub(released[id]))
		}
		slices.Sort(late)
		p99 := late[n*99/100]
		b.Logf("lateness: median %s, 99%% %s, worst %s; %d of %d with the one before", late[n/2], p99, late[n-1], same, n)
		if p99 > time.Second { // 100 ms where nothing else runs
			b.Errorf("the 99th percentile of lateness is %s", p99)
		}
		// A busy machine lets some leave together; in the topic's order nearly all
		// would. TestJitteredMessagesLeaveAtTheirOwnTimes has the exact share.
		if share := float64(same) / n; share >= 0.2 {
			b.Errorf("%.1f%% left with the one before", 100*share)
		}
	}
	t.Run("fake", func(t *testing.T) { measure(setup(t, fake(t), kafka.Config{})) })
	t.Run("real", func(t *testing.T) { measure(setup(t, brokertest.URL(t, urlVariable), kafka.Config{})) })
}

// Issue 4.4: what is read ahead is bounded by bytes too, and a message larger
// than the bound gets through.
func TestReadAheadIsBoundedByBytes(t *testing.T) {
	t.Parallel()
	b := setup(t, fake(t), kafka.Config{WindowBytes: 10_000})
	c := b.consumer(2)
	for i := range 20 {
		b.send(keyedOf(c.Topic, i, strings.Repeat("x", 9_000)))
	}
	b.send(keyedOf(c.Topic, 20, strings.Repeat("x", 500_000)))
	s := b.SubscribeOn(b.Broker, c)
	for range 21 {
		b.Ack(b.Next(s))
	}
	b.Quiet(s, 300*time.Millisecond)
}

// Topics that are deleted while they are read come back, and are read from their
// beginning.
func TestTopicIsDeletedAndCreatedAnew(t *testing.T) {
	t.Parallel()
	onBoth(t, kafka.Config{}, func(b *bench) {
		c := b.consumer(2)
		s := b.SubscribeOn(b.Broker, c)
		b.publish(c.Topic, 3)
		for range 3 {
			b.Ack(b.Next(s))
		}
		for _, topic := range []string{c.Topic, of(adapters.StreamParking, c)} {
			if err := b.admin.DeleteTopic(topic); err != nil {
				b.Fatal(err)
			}
		}
		// More than there were before, before anybody has noticed: the old position
		// lies in the middle of them.
		one := &sarama.TopicDetail{NumPartitions: 1, ReplicationFactor: 1}
		b.Eventually("it can be created anew", func() bool { return b.admin.CreateTopic(c.Topic, one, false) == nil })
		b.Eventually("it can be published to", func() bool {
			_, _, err := b.producer.SendMessage(keyedOf(c.Topic, 100, "new"))
			return err == nil
		})
		const n = 10
		for i := range n {
			b.send(keyedOf(c.Topic, i, "new"))
		}
		missing := map[string]bool{"100-0": true}
		for i := range n {
			missing[fmt.Sprintf("%d-0", i)] = true
		}
		for len(missing) > 0 {
			d := b.Next(s)
			delete(missing, d.ID)
			b.Ack(d)
		}
		b.Handoff(adapters.Handoff{Consumer: c, Stream: adapters.StreamParking, Record: adapters.Record{ID: "parked", Payload: []byte("x")}, Due: time.Now()})
		for d := b.Next(s); d.ID != "parked"; d = b.Next(s) {
			b.Ack(d) // again, perhaps
		}
	})
}
