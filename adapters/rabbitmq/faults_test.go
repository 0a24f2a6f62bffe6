package rabbitmq_test

import (
	"errors"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/spillway-mq/spillway"
	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/adapters/adaptertest"
	"github.com/spillway-mq/spillway/adapters/rabbitmq"
	"github.com/spillway-mq/spillway/envelope"
	"github.com/spillway-mq/spillway/failure"
)

// R6: consumers that die with a message in hand, again and again. RabbitMQ 4
// drops a message after 20 times if nobody sets another limit.
func TestCrashLoopIsNeverALoss(t *testing.T) {
	t.Parallel()
	b := setup(t, rabbitmq.Config{})
	patient, limited := b.consumer(1), b.consumer(1)
	b.Ensure(patient)
	strict := open(t, b.rawURL, rabbitmq.Config{Prefix: b.cfg.Prefix, DeliveryLimit: 24})
	if err := strict.Ensure(t.Context(), limited); err != nil {
		t.Fatal(err)
	}
	for _, c := range []adapters.Consumer{patient, limited} {
		b.publish(c.Topic, "", persistent("m"))
		for range 25 {
			b.crashWith(queueOf(adapters.StreamMain, c))
		}
	}
	b.depthBecomes(queueOf(adapters.StreamMain, patient), 1)
	b.depthBecomes(queueOf(adapters.StreamDeadLetter, limited), 1)
	if got := b.Drain(queueOf(adapters.StreamDeadLetter, limited)); got[0].ID != "m" {
		t.Errorf("dead letter %+v", got[0])
	}
}

// crashWith takes a message in a connection that is cut then.
func (b *bench) crashWith(queue string) {
	b.Helper()
	var nc net.Conn
	conn, err := amqp.DialConfig(b.rawURL, amqp.Config{Dial: func(network, addr string) (c net.Conn, err error) {
		nc, err = net.DialTimeout(network, addr, patience)
		return nc, err
	}})
	if err != nil {
		b.Fatal(err)
	}
	ch, err := conn.Channel()
	if err != nil {
		b.Fatal(err)
	}
	b.Eventually("queue "+queue+" has a message", func() bool {
		_, ok, err := ch.Get(queue, false)
		if err != nil {
			b.Fatal(err)
		}
		return ok
	})
	closed := conn.NotifyClose(make(chan *amqp.Error, 1))
	_ = nc.Close()
	<-closed
}

// R7, R26, R27 and O32: whatever counts the message brings along, it has exactly
// its attempts; and as many again after a replay, which starts without anything
// that the broker wrote.
func TestAttemptsAreExactAlsoAfterAReplay(t *testing.T) {
	t.Parallel()
	b := setup(t, rabbitmq.Config{})
	c := b.consumer(1)
	sw := openFacade(t, b, spillway.Config{Group: c.Group, Policy: fastPolicy()})
	var mu sync.Mutex
	var attempts []int
	runRouter(t, sw, c.Topic, func(msg *message.Message) error {
		d, _ := spillway.DeliveryFrom(msg.Context())
		mu.Lock()
		defer mu.Unlock()
		attempts = append(attempts, d.State.Attempt)
		return failure.Transient(errors.New("never"))
	})
	main, dlq := queueOf(adapters.StreamMain, c), queueOf(adapters.StreamDeadLetter, c)
	b.publish(c.Topic, "", amqp.Publishing{
		Headers: amqp.Table{
			"_watermill_message_uuid": "m", "kept": "yes", "x-delivery-count": int64(50),
			"x-death": []any{
				amqp.Table{"queue": main, "exchange": c.Topic, "reason": "expired", "count": int64(99), "routing-keys": []any{""}, "time": time.Unix(1_700_000_000, 0)},
				amqp.Table{"queue": dlq, "exchange": "", "reason": "rejected", "count": int64(99), "routing-keys": []any{dlq}, "time": time.Unix(1_700_000_000, 0)},
			},
		},
		Body: []byte("x"),
	})
	dead := func() (adapters.Record, envelope.State) {
		t.Helper()
		b.depthBecomes(dlq, 1)
		r := b.Drain(dlq)[0]
		for _, h := range r.Headers {
			if !envelope.IsOwn(h.Key) && h.Type != "property" && h.Key != "kept" {
				t.Errorf("the dead letter has the header %s", h.Key)
			}
		}
		return r, envelope.Parse(r.Headers, time.Now())
	}
	r, first := dead()

	replayed := first
	replayed.Attempt, replayed.ReplayID, replayed.ReplayOf, replayed.ReplayCount = 1, "r-1", first.DeadLetterID, 1
	r.Native = nil // it was kept elsewhere
	b.Handoff(adapters.Handoff{Consumer: c, Stream: adapters.StreamRetry, Record: r, State: pairs(replayed)})
	_, second := dead()

	mu.Lock()
	defer mu.Unlock()
	if want := []int{1, 2, 3, 4, 1, 2, 3, 4}; !slices.Equal(attempts, want) {
		t.Errorf("attempts %v, want %v", attempts, want)
	}
	if first.Reason != "attempts_exhausted" || second.Reason != first.Reason || second.ReplayOf != first.DeadLetterID || second.DeadLetterID == first.DeadLetterID {
		t.Errorf("first %+v\nsecond %+v", first, second)
	}
}

// While RabbitMQ starts it may refuse the right password. Connecting anew has to
// go on, whatever the broker answers.
func TestRefusedLoginIsTriedAgain(t *testing.T) {
	t.Parallel()
	b := setup(t, rabbitmq.Config{})
	c := b.consumer(1)
	user := "user-" + watermill.NewShortUUID()
	b.ctl("add_user", user, "pw")
	t.Cleanup(func() { b.ctl("delete_user", user) })
	b.ctl("set_permissions", user, ".*", ".*", ".*")
	tcp := &adaptertest.Connections{}
	cfg := b.cfg
	cfg.Dial = tcp.Dial
	broker := open(t, b.withUser(user, "pw"), cfg)
	if err := broker.Ensure(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	s, err := broker.Subscribe(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close(s) })
	handoff := func() error {
		return broker.Handoff(t.Context(), adapters.Handoff{Consumer: c, Stream: adapters.StreamRetry, Record: adapters.Record{ID: "from a hand-off"}})
	}

	b.ctl("change_password", user, "another")
	tcp.Cut()
	b.Eventually("the login is refused", func() bool {
		err := handoff()
		if errors.Is(err, adapters.ErrRefused) || errors.Is(err, adapters.ErrClosed) {
			t.Fatalf("final: %v", err)
		}
		var ae *amqp.Error
		return errors.As(err, &ae) && ae.Code == amqp.AccessRefused
	})
	b.Quiet(s, time.Second) // and tried again meanwhile
	b.ctl("change_password", user, "pw")

	b.Eventually("hand-offs go on", func() bool { return handoff() == nil })
	if d := b.Next(s); d.ID != "from a hand-off" {
		t.Errorf("got %q", d.ID)
	} else {
		b.Ack(d)
	}
}

// O21: somebody's policy limits the length of every queue. Dead letters are
// refused then, and stay where they are, instead of pushing others out.
func TestLengthLimitDropsNoDeadLetters(t *testing.T) {
	t.Parallel()
	b := setup(t, rabbitmq.Config{})
	c := b.consumer(1)
	b.Ensure(c)
	dlq := queueOf(adapters.StreamDeadLetter, c)
	policy := "length-" + c.Topic
	b.ctl("set_policy", "--apply-to", "queues", policy, "^"+dlq+"$", `{"max-length":3}`)
	t.Cleanup(func() { b.ctl("clear_policy", policy) })

	confirmed := 0
	for range 50 { // the limit is a soft one
		err := b.Broker.Handoff(t.Context(), adapters.Handoff{Consumer: c, Stream: adapters.StreamDeadLetter, Record: adapters.Record{ID: "m"}})
		if err == nil {
			confirmed++
			continue
		}
		if errors.Is(err, adapters.ErrRefused) || errors.Is(err, adapters.ErrTooLarge) {
			t.Errorf("final: %v", err)
		}
		break
	}
	if confirmed == 50 {
		t.Error("the full queue refused nothing")
	}
	if n := len(b.Drain(dlq)); n < confirmed || confirmed < 3 {
		t.Errorf("%d dead letters, and %d were confirmed", n, confirmed)
	}
}
