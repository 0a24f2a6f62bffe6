package memory_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/adapters/memory"
)

const dlq = "orders.billing.dlq"

func deadLetter(t *testing.T, process adapters.Broker, id string) error {
	t.Helper()
	return process.Handoff(t.Context(), adapters.Handoff{Consumer: consumer, Stream: adapters.StreamDeadLetter, Record: adapters.Record{ID: id}})
}

func wantUsedUp(t *testing.T, broker *memory.Broker) {
	t.Helper()
	if left := broker.FaultsLeft(); len(left) > 0 {
		t.Errorf("faults left: %v", left)
	}
}

// K1, K27: a failed hand-off writes nothing, its repetition one copy.
func TestThirdHandoffFailsTwice(t *testing.T) {
	t.Parallel()
	broker, process := setup(t, memory.Config{})
	quorum := errors.New("no quorum")
	broker.Inject(memory.Fault{On: memory.Handoff, Stream: dlq, Skip: 2, Times: 2, Do: memory.Fail(quorum)})
	handoff(t, process, adapters.StreamRetry, "elsewhere", time.Time{})
	for i, want := range []error{nil, nil, quorum, quorum, nil} {
		if err := deadLetter(t, process, fmt.Sprint(i)); !errors.Is(err, want) {
			t.Errorf("hand-off %d: %v, want %v", i, err, want)
		}
	}
	wantRecords(t, broker, dlq, "0", "1", "4")
	wantUsedUp(t, broker)
}

func TestFaultsAreAScript(t *testing.T) {
	t.Parallel()
	broker, process := setup(t, memory.Config{})
	broker.Inject(
		memory.Fault{On: memory.Handoff, Do: memory.Fail(adapters.ErrRefused)},
		memory.Fault{On: memory.Handoff, ID: "x", Skip: 1, Do: memory.Fail(adapters.ErrTooLarge)},
		memory.Fault{On: memory.Handoff, Group: "mailing", Times: memory.Always, Do: memory.Fail(nil)},
	)
	if got := len(broker.FaultsLeft()); got != 3 {
		t.Errorf("%d faults left, want 3", got)
	}
	var got []string
	for _, id := range []string{"x", "x", "y", "x", "x"} {
		got = append(got, fmt.Sprint(deadLetter(t, process, id)))
	}
	want := []string{
		"memory: hand-off orders.billing.dlq: broker refuses the message",
		"<nil>", "<nil>",
		"memory: hand-off orders.billing.dlq: message is larger than the broker accepts",
		"<nil>",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if left := fmt.Sprint(broker.FaultsLeft()); left != `[on hand-off group "mailing", always: fail: injected fault]` {
		t.Errorf("left: %s", left)
	}
	mailing := adapters.Handoff{Consumer: adapters.Consumer{Topic: "orders", Group: "mailing"}, Stream: adapters.StreamRetry}
	for range 2 {
		if err := process.Handoff(t.Context(), mailing); !errors.Is(err, memory.ErrInjected) {
			t.Errorf("hand-off: %v, want ErrInjected", err)
		}
	}
	wantUsedUp(t, broker) // an endless fault is used up once it has happened
	broker.ClearFaults()
	if err := process.Handoff(t.Context(), mailing); err != nil {
		t.Errorf("hand-off after ClearFaults: %v", err)
	}
}

func TestWritesWithUnknownOutcome(t *testing.T) {
	t.Parallel()
	broker, process := setup(t, memory.Config{})
	broker.Inject(
		memory.Fault{On: memory.Handoff, Do: memory.FailAfter(nil)},
		memory.Fault{On: memory.Handoff, Do: memory.Twice()},
		memory.Fault{On: memory.Publish, Stream: "orders", Do: memory.Fail(nil)},
		memory.Fault{On: memory.Publish, ID: "b", Do: memory.FailAfter(nil)},
		memory.Fault{On: memory.Publish, ID: "c", Do: memory.Twice()},
	)
	if err := deadLetter(t, process, "a"); !errors.Is(err, memory.ErrInjected) {
		t.Errorf("hand-off: %v, want ErrInjected", err)
	}
	if err := deadLetter(t, process, "b"); err != nil {
		t.Errorf("hand-off: %v", err)
	}
	wantRecords(t, broker, dlq, "a", "b", "b")
	for _, id := range []string{"a", "b"} {
		if err := broker.Publish("orders", adapters.Record{ID: id}); !errors.Is(err, memory.ErrInjected) {
			t.Errorf("publish: %v, want ErrInjected", err)
		}
	}
	publish(t, broker, "c", "d")
	wantRecords(t, broker, "orders", "b", "c", "c", "d")
	wantUsedUp(t, broker)
}

func TestLostAcks(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name      string
		do        memory.Effect
		err       error
		delivered bool // again
	}{
		{"fails", memory.Fail(nil), memory.ErrInjected, true},
		{"is lost unnoticed", memory.Lose(), nil, true},
		{"arrives but reports an error", memory.FailAfter(nil), memory.ErrInjected, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			broker, process := setup(t, memory.Config{})
			broker.Inject(memory.Fault{On: memory.Ack, Stream: "orders", Group: "billing", ID: "a", Do: test.do})
			publish(t, broker, "a")
			sub := subscribe(t, process, consumer)
			d := receive(t, sub)
			for range 2 { // the second call is ignored
				if err := d.Settler.Ack(t.Context(), d); !errors.Is(err, test.err) {
					t.Errorf("ack: %v, want %v", err, test.err)
				}
			}
			if test.delivered {
				ack(t, receiveID(t, sub, "a", 2))
			}
			receiveNothing(t, sub)
			wantRecords(t, broker, "orders")
			wantUsedUp(t, broker)
		})
	}
}

func TestFailedReturn(t *testing.T) {
	t.Parallel()
	broker, process := setup(t, memory.Config{})
	broker.Inject(memory.Fault{On: memory.Return, Do: memory.Fail(nil)})
	publish(t, broker, "a")
	sub := subscribe(t, process, consumer)
	d := receive(t, sub)
	if err := d.Settler.Return(t.Context(), d); !errors.Is(err, memory.ErrInjected) {
		t.Errorf("return: %v, want ErrInjected", err)
	}
	receiveID(t, sub, "a", 2)
	wantUsedUp(t, broker)
}

func TestRedeliveryWhileTheFirstIsUnsettled(t *testing.T) {
	t.Parallel()
	broker, process := setup(t, memory.Config{})
	broker.Inject(memory.Fault{On: memory.Deliver, ID: "a", Do: memory.Twice()})
	publish(t, broker, "a", "b")
	one, two := subscribe(t, process, consumer), subscribe(t, process, consumer)
	first, second := receiveID(t, one, "a", 1), receiveID(t, two, "a", 2)
	ack(t, second)
	b := receiveID(t, two, "b", 1)
	giveBack(t, first) // of a record that is gone
	receiveNothing(t, one)
	ack(t, b)
	wantRecords(t, broker, "orders")

	// With one place only, the second delivery waits for it, and is not made
	// if the first was acknowledged.
	ended := two.Close(t.Context())
	if ended != nil {
		t.Fatal(ended)
	}
	broker.Inject(memory.Fault{On: memory.Deliver, ID: "c", Do: memory.Twice()})
	publish(t, broker, "c")
	c := receiveID(t, one, "c", 1)
	receiveNothing(t, one)
	ack(t, c)
	receiveNothing(t, one)
	wantUsedUp(t, broker)
}

func TestUndecodableDelivery(t *testing.T) {
	t.Parallel()
	broker, process := setup(t, memory.Config{})
	framing := errors.New("no magic byte")
	broker.Inject(memory.Fault{On: memory.Deliver, Do: memory.Undecodable(framing)})
	if err := broker.Publish("orders", adapters.Record{Payload: []byte{1}}); err != nil {
		t.Fatal(err)
	}
	sub := subscribe(t, process, consumer)
	d := receive(t, sub)
	if d.Undecodable != framing || string(d.Payload) != "\x01" {
		t.Errorf("undecodable %v with payload %v", d.Undecodable, d.Payload)
	}
	giveBack(t, d)
	if d := receive(t, sub); d.Undecodable != nil {
		t.Errorf("the second delivery is undecodable too: %v", d.Undecodable)
	}
}

func TestHeldOperations(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		broker, process := setup(t, memory.Config{})
		release := make(chan struct{})
		broker.Inject(
			memory.Fault{On: memory.Handoff, Do: memory.Hold(release)},
			memory.Fault{On: memory.Handoff, Do: memory.Hold(nil)},
			memory.Fault{On: memory.Handoff, Do: memory.Delay(time.Minute)},
			memory.Fault{On: memory.Handoff, Do: memory.Hold(nil)},
		)
		result := make(chan error, 1)
		go func() { result <- deadLetter(t, process, "released") }()
		synctest.Wait()
		wantRecords(t, broker, dlq) // also: no lock is held meanwhile
		close(release)
		if err := <-result; err != nil {
			t.Error(err)
		}
		wantRecords(t, broker, dlq, "released")

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := process.Handoff(ctx, adapters.Handoff{Consumer: consumer, Stream: adapters.StreamDeadLetter}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("hand-off: %v, want the context's end", err)
		}
		before := time.Now()
		if err := deadLetter(t, process, "delayed"); err != nil || time.Since(before) != time.Minute {
			t.Errorf("hand-off: %v after %v, want nil after a minute", err, time.Since(before))
		}
		go func() { result <- deadLetter(t, process, "hangs") }()
		synctest.Wait()
		if err := process.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if err := <-result; !errors.Is(err, adapters.ErrClosed) {
			t.Errorf("hand-off: %v, want ErrClosed", err)
		}
		wantRecords(t, broker, dlq, "released", "delayed")
		wantUsedUp(t, broker)
	})
}

func TestHeldDeliveries(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		broker, process := setup(t, memory.Config{})
		broker.Inject(
			memory.Fault{On: memory.Deliver, ID: "a", Do: memory.Delay(time.Minute)},
			memory.Fault{On: memory.Deliver, ID: "c", Do: memory.Hold(nil)},
			memory.Fault{On: memory.Deliver, ID: "d", Do: memory.Hold(nil)},
		)
		publish(t, broker, "a", "b")
		sub := subscribe(t, process, with(2))
		ack(t, receiveID(t, sub, "b", 1)) // a occupies one place only
		receiveNothing(t, sub)
		start := time.Now()
		a := <-sub.Deliveries()
		if a.ID != "a" || time.Since(start) != time.Minute {
			t.Errorf("received %s after %v", a.ID, time.Since(start))
		}
		ack(t, a)

		publish(t, broker, "c")
		if err := sub.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		receiveClosed(t, sub)
		sub = subscribe(t, process, with(2))
		ack(t, receiveID(t, sub, "c", 1)) // nobody had received it

		publish(t, broker, "d")
		if n := broker.Crash("orders", "billing"); n != 1 {
			t.Errorf("%d processes crashed, want 1", n)
		}
		synctest.Wait()
		receiveID(t, subscribe(t, open(t, broker), consumer), "d", 1)
		wantUsedUp(t, broker)
	})
}

func TestHeldAck(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		broker, process := setup(t, memory.Config{})
		broker.Inject(
			memory.Fault{On: memory.Ack, Do: memory.Hold(nil)},
			memory.Fault{On: memory.Ack, Do: memory.Hold(nil)},
			memory.Fault{On: memory.Ack, Do: memory.Delay(time.Second)},
		)
		publish(t, broker, "a")
		sub := subscribe(t, process, consumer)
		a := receive(t, sub)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := a.Settler.Ack(ctx, a); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("ack: %v, want the context's end", err)
		}
		receiveNothing(t, sub) // it is unsettled
		result := make(chan error, 1)
		go func() { result <- a.Settler.Ack(t.Context(), a) }()
		synctest.Wait()
		if n := broker.Disconnect("orders", "billing"); n != 1 {
			t.Errorf("%d disconnected, want 1", n)
		}
		sub = subscribe(t, process, consumer)
		a = receiveID(t, sub, "a", 2)
		if err := process.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := <-result; !errors.Is(err, adapters.ErrClosed) {
			t.Errorf("held ack of a lost delivery: %v, want ErrClosed", err)
		}
		sub = subscribe(t, open(t, broker), consumer)
		ack(t, receiveID(t, sub, "a", 3))
		wantRecords(t, broker, "orders")
		wantUsedUp(t, broker)
	})
}

func TestCrashBetweenHandoffAndAck(t *testing.T) {
	t.Parallel()
	broker, process := setup(t, memory.Config{})
	broker.Inject(memory.Fault{On: memory.Ack, Stream: "orders", Do: memory.Crash()})
	publish(t, broker, "a", "b", "c", "d")
	sub := subscribe(t, process, with(3))
	a := receiveID(t, sub, "a", 1)
	b := receiveID(t, sub, "b", 1)
	if err := deadLetter(t, process, "a"); err != nil {
		t.Fatal(err)
	}
	if err := a.Settler.Ack(t.Context(), a); !errors.Is(err, adapters.ErrClosed) {
		t.Errorf("ack: %v, want ErrClosed", err)
	}
	if err := b.Settler.Ack(t.Context(), b); !errors.Is(err, adapters.ErrClosed) {
		t.Errorf("ack of another delivery: %v, want ErrClosed", err)
	}
	receiveNothing(t, sub) // a dead process does not even see the end
	if err := deadLetter(t, process, "zombie"); !errors.Is(err, adapters.ErrClosed) {
		t.Errorf("hand-off of a dead process: %v, want ErrClosed", err)
	}
	next := subscribe(t, open(t, broker), with(4))
	receiveID(t, next, "a", 2)
	receiveID(t, next, "b", 2)
	receiveID(t, next, "c", 1) // was on its way to the dead process
	receiveID(t, next, "d", 1)
	wantRecords(t, broker, dlq, "a")
	for range 2 {
		if err := sub.Stop(t.Context()); err != nil {
			t.Errorf("stop after the crash: %v", err)
		}
	}
	receiveClosed(t, sub)
	wantClosed(t, process)
	wantUsedUp(t, broker)
}

func TestCrashHitsWholeProcessesOfTheConsumer(t *testing.T) {
	t.Parallel()
	broker, process := setup(t, memory.Config{})
	mailing := adapters.Consumer{Topic: "orders", Group: "mailing", Concurrency: 1}
	ensure(t, process, mailing)
	publish(t, broker, "a")
	sub, also := subscribe(t, process, consumer), subscribe(t, process, mailing)
	bystander := subscribe(t, open(t, broker), mailing)
	receive(t, sub)
	receive(t, also)
	if n := broker.Crash("orders", "nobody"); n != 0 {
		t.Errorf("%d processes crashed, want 0", n)
	}
	if n := broker.Crash("orders", "billing"); n != 1 {
		t.Errorf("%d processes crashed, want 1", n)
	}
	if n := broker.Crash("orders", "billing"); n != 0 {
		t.Errorf("%d processes crashed again, want 0", n)
	}
	ack(t, receiveID(t, bystander, "a", 2))
	receiveID(t, subscribe(t, open(t, broker), consumer), "a", 2)
}

func TestRecordThatKillsItsProcess(t *testing.T) {
	t.Parallel()
	broker, process := setup(t, memory.Config{})
	broker.Inject(memory.Fault{On: memory.Deliver, ID: "poison", Times: 3, Do: memory.Crash()})
	publish(t, broker, "poison")
	for range 3 {
		receiveNothing(t, subscribe(t, process, consumer))
		wantClosed(t, process)
		process = open(t, broker)
	}
	receiveID(t, subscribe(t, process, consumer), "poison", 4)
	wantUsedUp(t, broker)
}

func TestCrashAtOtherOperations(t *testing.T) {
	t.Parallel()
	for op, call := range map[memory.Op]func(context.Context, adapters.Broker) error{
		memory.Handoff: func(ctx context.Context, p adapters.Broker) error {
			return p.Handoff(ctx, adapters.Handoff{Consumer: consumer, Stream: adapters.StreamRetry})
		},
		memory.Ensure: func(ctx context.Context, p adapters.Broker) error { return p.Ensure(ctx, consumer) },
		memory.Subscribe: func(ctx context.Context, p adapters.Broker) error {
			_, err := p.Subscribe(ctx, consumer)
			return err
		},
		memory.Drain: func(ctx context.Context, p adapters.Broker) error {
			return p.Drain(ctx, "orders", func(context.Context, adapters.Record) error { return nil })
		},
	} {
		t.Run(string(op), func(t *testing.T) {
			t.Parallel()
			broker, process := setup(t, memory.Config{})
			publish(t, broker, "a")
			broker.Inject(memory.Fault{On: op, Do: memory.Fail(nil)}, memory.Fault{On: op, Do: memory.Crash()})
			if err := call(t.Context(), process); !errors.Is(err, memory.ErrInjected) {
				t.Errorf("%s: %v, want ErrInjected", op, err)
			}
			if err := call(t.Context(), process); !errors.Is(err, adapters.ErrClosed) {
				t.Errorf("%s: %v, want ErrClosed", op, err)
			}
			wantClosed(t, process)
			wantRecords(t, broker, "orders", "a")
			wantRecords(t, broker, "orders.billing.retry")
			wantUsedUp(t, broker)
		})
	}
}

func TestDrainReportsAnErrorAfterRemoving(t *testing.T) {
	t.Parallel()
	broker, process := setup(t, memory.Config{})
	publish(t, broker, "a", "b")
	broker.Inject(memory.Fault{On: memory.Drain, ID: "a", Do: memory.FailAfter(nil)})
	err := process.Drain(t.Context(), "orders", func(context.Context, adapters.Record) error { return nil })
	if !errors.Is(err, memory.ErrInjected) {
		t.Errorf("drain: %v, want ErrInjected", err)
	}
	wantRecords(t, broker, "orders", "b")
}

func TestDisconnectBreaksSubscriptionsOnly(t *testing.T) {
	t.Parallel()
	broker, process := setup(t, memory.Config{})
	broker.Inject(
		memory.Fault{On: memory.Deliver, ID: "b", Do: memory.Disconnect()},
		memory.Fault{On: memory.Ack, ID: "b", Do: memory.Disconnect()},
	)
	publish(t, broker, "a", "b")
	sub := subscribe(t, process, consumer)
	ack(t, receiveID(t, sub, "a", 1))
	receiveClosed(t, sub) // at the delivery of b
	sub = subscribe(t, process, consumer)
	b := receiveID(t, sub, "b", 2)
	if err := b.Settler.Ack(t.Context(), b); !errors.Is(err, adapters.ErrClosed) {
		t.Errorf("ack: %v, want ErrClosed", err)
	}
	receiveClosed(t, sub)
	if err := sub.Close(t.Context()); err != nil {
		t.Error(err)
	}
	sub = subscribe(t, process, consumer)
	receiveID(t, sub, "b", 3)
	if n := broker.Disconnect("orders", "billing"); n != 1 {
		t.Errorf("%d disconnected, want 1", n)
	}
	receiveClosed(t, sub)
	wantUsedUp(t, broker)
}

func TestInjectRefusesWhatCannotHappen(t *testing.T) {
	t.Parallel()
	broker, _ := setup(t, memory.Config{})
	for _, f := range []memory.Fault{
		{},
		{On: memory.Handoff},
		{On: "explode", Do: memory.Crash()},
		{On: memory.Publish, Do: memory.Lose()},
		{On: memory.Deliver, Do: memory.Fail(nil)},
		{On: memory.Ack, Do: memory.Twice()},
		{On: memory.Handoff, Do: memory.Undecodable(nil)},
		{On: memory.Handoff, Do: memory.Fail(nil), Skip: -1},
		{On: memory.Handoff, Do: memory.Fail(nil), Times: -1},
		{On: memory.Publish, Do: memory.Fail(nil), Group: "billing"},
		{On: memory.Ensure, Do: memory.Fail(nil), ID: "a"},
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%v is accepted", f)
				}
			}()
			broker.Inject(memory.Fault{On: memory.Handoff, Do: memory.Fail(nil)}, f)
		}()
	}
	wantUsedUp(t, broker) // a script is taken as a whole or not at all
}

func TestFaultsDescribeThemselves(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		fault memory.Fault
		want  string
	}{
		{memory.Fault{On: memory.Handoff, Stream: dlq, Skip: 2, Times: 2, Do: memory.Fail(errors.New("no quorum"))}, `on hand-off stream "orders.billing.dlq", skip 2, 2 times: fail: no quorum`},
		{memory.Fault{On: memory.Ack, Group: "billing", ID: "a", Do: memory.Crash()}, `on ack group "billing" id "a": crash`},
		{memory.Fault{On: memory.Deliver, Times: memory.Always, Do: memory.Delay(time.Second)}, `on deliver, always: delay 1s`},
	} {
		if got := test.fault.String(); got != test.want {
			t.Errorf("got %s, want %s", got, test.want)
		}
	}
}
