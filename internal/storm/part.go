package storm

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/spillway-mq/spillway"
	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/failure"
	"github.com/spillway-mq/spillway/middleware"
	"github.com/spillway-mq/spillway/policy"
)

// The topics of a storm. Names with dots and a dash, because names get mapped.
const (
	topicIn  = "storm.orders-in"
	topicOut = "storm.orders-out"
	// groupActing handles by the script; groupWatching takes everything well, so
	// that whatever it sees twice or with state came from the other.
	groupActing   = "billing"
	groupWatching = "audit"
	groupSink     = "sink" // keeps the outputs; nobody consumes for it
)

// shortPolicy gives every path of a message an end within half a minute.
var shortPolicy = policy.Policy{
	Attempts: policy.Attempts{Transient: 6, Unknown: 3, Ambiguous: 2},
	Backoff:  policy.Backoff{Base: 250 * time.Millisecond, Max: 4 * time.Second},
	Parking:  policy.Parking{Interval: 2 * time.Second, Deadline: 45 * time.Second},
}

// closeGrace is short, because the storm closes processes all the time.
const closeGrace = 3 * time.Second

// Role is what a process does.
type Role string

const (
	roleConsumer Role = "consumer"
	roleProducer Role = "producer"
)

// Part is everything that a process of the storm is told. It crosses to the
// process as JSON.
type Part struct {
	Role    Role
	Process string // name of this life of the process
	Broker  string // name of the target
	URL     string // through the proxy, where there is one
	Dir     string // of the ledgers
	Script  Script

	// Of a consumer.
	Group       string
	Concurrency int
	Calm        bool // the storm is over: nothing fails any more

	// Of the producer.
	Begin    time.Time     // when message 0 is due
	Interval time.Duration // between messages
}

// env is what a part needs of the process that it runs in.
type env struct {
	target Target
	// exit ends the process at once. It returns in a process that is played: then
	// everything that the part does from here on has no effect.
	exit func()
	// opened is told the broker, to see whether the process is still alive.
	opened func(adapters.Broker)
}

// run plays a part until ctx ends, which is a graceful stop.
func (p Part) run(ctx context.Context, e env) error {
	ledger, err := OpenLedger(p.Dir, p.Process)
	if err != nil {
		return err
	}
	defer ledger.Close()
	switch p.Role {
	case roleConsumer:
		return p.consume(ctx, e, ledger)
	case roleProducer:
		return p.produce(ctx, e, ledger)
	}
	return fmt.Errorf("storm: no role %q", p.Role)
}

func (p Part) open(ctx context.Context, e env, l *Ledger, hooks middleware.Hooks) (*spillway.Spillway, error) {
	return spillway.Open(ctx, p.URL, spillway.Config{
		Group: p.Group, Policy: shortPolicy, Concurrency: max(1, p.Concurrency), CloseGrace: closeGrace,
		ConsumerVersion: "storm", LastResort: filepath.Join(p.Dir, lastResortPrefix+p.Process),
		Hooks: hooks, Logger: p.loggerOf(e),
	}, recorded(e.target.Opener(), l, e.opened))
}

const lastResortPrefix = "last-resort-"

// loggerOf keeps the logs of played processes to themselves.
func (p Part) loggerOf(e env) *slog.Logger {
	if e.target.InProcess() {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

func (p Part) consume(ctx context.Context, e env, l *Ledger) error {
	sw, err := p.open(ctx, e, l, middleware.Hooks{
		OnOutcome: func(ctx context.Context, o *middleware.OutcomeInfo) {
			ev := stepOf(ctx).event(Outcome)
			ev.Note = string(o.Outcome)
			if o.Reason != "" {
				ev.Note += " " + string(o.Reason)
			}
			l.Write(ev)
		},
	})
	if err != nil {
		return err
	}
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: closeGrace + 10*time.Second}, watermill.NewSlogLogger(p.loggerOf(e)))
	if err != nil {
		return err
	}
	sw.Install(router)
	router.AddHandler("charge", topicIn, sw.Subscriber(), topicOut, sw.Publisher(), func(msg *message.Message) ([]*message.Message, error) {
		return p.handle(msg, e, l)
	})
	err = router.Run(ctx)
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeGrace+10*time.Second)
	defer cancel()
	err = errors.Join(err, sw.Close(closing))
	if err == nil && ctx.Err() == nil {
		return errors.New("storm: the subscription ended by itself")
	}
	return err
}

func stepOf(ctx context.Context) *step {
	if d, ok := adapters.DeliveryFrom(ctx); ok {
		if s, ok := d.Settler.(*step); ok {
			return s
		}
	}
	panic("storm: a delivery that was not recorded")
}

// handle is the handler: it does what the script says, and writes down that it did.
func (p Part) handle(msg *message.Message, e env, l *Ledger) (outputs []*message.Message, err error) {
	d, _ := adapters.DeliveryFrom(msg.Context())
	s := stepOf(msg.Context())
	ev := s.event(Handling)
	ev.Stream, ev.Attempt, ev.Checks = d.Stream, d.State.Attempt, d.State.ParkChecks
	if !d.State.DueAt.IsZero() {
		ev.Due = d.State.DueAt.UnixNano()
	}
	l.Write(ev)
	note := "panicked"
	defer func() {
		ev := s.event(Handled)
		ev.Note = note
		l.Write(ev)
	}()
	outputs, err = p.act(msg, d, e, s, l)
	note = "succeeded"
	if err != nil {
		note = err.Error()
	}
	return outputs, err
}

func (p Part) act(msg *message.Message, d *adapters.Delivery, e env, s *step, l *Ledger) ([]*message.Message, error) {
	n, ok := p.Script.Number(s.id)
	if !ok {
		return nil, failure.Permanent(fmt.Errorf("no message of this storm: %q", s.id), failure.ClassValidation)
	}
	// A handler that writes into its message must change nothing.
	for i := range msg.Payload {
		msg.Payload[i] ^= 0xff
	}
	msg.Metadata.Set(headerPrefix+"text", "changed")
	if p.Group != groupActing {
		return nil, nil
	}
	fate, attempt := p.Script.Fate(n), d.State.Attempt
	if fate == Output {
		output := []*message.Message{message.NewMessage(s.id, []byte(s.id))}
		if attempt == 1 && p.Script.lateOutput(n) && !p.Calm {
			return output, failure.Transient(errors.New("no output yet"))
		}
		l.Write(s.event(OutputStarted))
		return output, nil
	}
	if p.Calm {
		return nil, nil
	}
	switch fate {
	case Transient:
		if attempt <= p.Script.failures(n) {
			return nil, failure.Transient(fmt.Errorf("attempt %d finds the gateway down", attempt))
		}
	case Exhausted:
		return nil, failure.Transient(errors.New("the gateway is always down"))
	case Permanent:
		return nil, failure.Permanent(errors.New("no such currency"), failure.ClassValidation)
	case Missing:
		if d.State.ParkChecks < 1 {
			return nil, failure.Missing("customer", s.id)
		}
	case Waiting:
		return nil, failure.Missing("customer", s.id)
	case Panics:
		panic("index out of range")
	case Stumbles:
		if attempt == 1 {
			panic("index out of range, once")
		}
	case Exits:
		e.exit()
		return nil, errors.New("the process is over")
	case Slow:
		t := time.NewTimer(p.Script.pause(n))
		defer t.Stop()
		<-t.C
	}
	return nil, nil
}

// publishLanes is how many publishes of the producer wait for their confirms at
// a time.
const publishLanes = 32

// produce publishes every message until it is confirmed, and begins where the
// ledgers of its earlier lives end.
func (p Part) produce(ctx context.Context, e env, l *Ledger) error {
	confirmed := make([]bool, p.Script.Messages)
	err := NewReader(p.Dir).Next(func(e Event) {
		if e.Kind == Confirmed {
			if n, ok := p.Script.Number(e.ID); ok {
				confirmed[n] = true
			}
		}
	})
	if err != nil {
		return err
	}
	p.Group = groupWatching // the name of the publisher's connection; it subscribes to nothing
	sw, err := p.open(ctx, e, l, middleware.Hooks{})
	if err != nil {
		return err
	}
	defer sw.Close(context.WithoutCancel(ctx))
	native, err := e.target.NativePublisher(p.URL)
	if err != nil {
		return err
	}
	defer native.Close()
	pub := sw.Publisher()

	publish := func(n int) error {
		r := p.Script.Record(n, e.target)
		l.Write(Event{Kind: Publishing, ID: r.ID, Digest: Digest(r)})
		var err error
		if p.Script.Native(n) {
			err = native.Publish(ctx, topicIn, r)
		} else {
			msg := message.NewMessage(r.ID, r.Payload)
			for _, h := range r.Headers {
				msg.Metadata[h.Key] = string(h.Value)
			}
			err = pub.Publish(topicIn, msg)
		}
		ev := Event{Kind: Confirmed, ID: r.ID}
		if err != nil {
			ev.Kind, ev.Note = Unconfirmed, err.Error()
		}
		l.Write(ev)
		return err
	}

	numbers := make(chan int)
	var lanes sync.WaitGroup
	for range publishLanes {
		lanes.Go(func() {
			for n := range numbers {
				for publish(n) != nil && pause(ctx, 200*time.Millisecond) {
				}
			}
		})
	}
	for n := range p.Script.Messages {
		if confirmed[n] {
			continue
		}
		if !pause(ctx, time.Until(p.Begin.Add(time.Duration(n)*p.Interval))) {
			break
		}
		select {
		case numbers <- n:
		case <-ctx.Done():
		}
	}
	close(numbers)
	lanes.Wait()
	return ctx.Err() // nil: everything is confirmed
}

// pause waits, and reports false when ctx ended it.
func pause(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// life is the process without the number of its life.
func life(process string) string {
	name, _, _ := strings.Cut(process, ".")
	return name
}
