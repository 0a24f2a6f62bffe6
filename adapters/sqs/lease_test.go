package sqs_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/adapters/sqs"
	"github.com/spillway-mq/spillway/adapters/sqs/sqsfake"
	"github.com/spillway-mq/spillway/envelope"
)

// S23: what runs longer than the visibility is nobody else's meanwhile.
func TestLeaseIsRenewedWhileItIsHeld(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		c := orders
		c.Concurrency = 2
		s := b.Subscribe(c)
		b.publish("orders", "long", nil)
		d := b.Next(s)
		select {
		case twice := <-s.Deliveries():
			t.Errorf("%q was delivered again, count %d, while its handler runs", twice.ID, twice.Count)
		case <-d.Lost:
			t.Error("the lease was lost")
		case <-time.After(time.Hour):
		}
		beats := b.fake.Count()["ChangeMessageVisibility"]
		if beats < 340 || beats > 400 {
			t.Errorf("%d renewals in an hour, want about 360: three in each visibility of 30 s", beats)
		}
		b.Ack(d)
		if left := b.fake.Messages("orders"); len(left) != 0 {
			t.Errorf("the queue still holds %v", left)
		}
	})
}

// S10: a message is deleted after the last renewal, not while it is on its way.
func TestRenewalEndsBeforeTheMessageIsDeleted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		s := b.Subscribe(orders)
		b.fake.Inject(sqsfake.Fault{Action: "ChangeMessageVisibility", Do: sqsfake.Delay(5 * time.Second)})
		b.publish("orders", "a", nil)
		d := b.Next(s)
		time.Sleep(12 * time.Second) // the renewal after 9 to 11 seconds has begun
		b.Ack(d)
		calls := b.fake.Calls("")
		var beat, deletion sqsfake.Call
		for _, c := range calls {
			switch c.Action {
			case "ChangeMessageVisibility":
				beat = c
			case "DeleteMessage":
				deletion = c
			}
		}
		if beat.Began.IsZero() || deletion.Began.Before(beat.Ended) {
			t.Errorf("the renewal took from %s to %s, and the deletion began at %s", beat.Began, beat.Ended, deletion.Began)
		}
		time.Sleep(time.Minute)
		if n := b.fake.Count()["ChangeMessageVisibility"]; n != 1 {
			t.Errorf("%d renewals, want none after the deletion", n)
		}
	})
}

// S22, and the 12 hours of SQS: a lease ends with its delivery, and by itself.
func TestLeaseIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		s := b.Subscribe(orders)
		b.publish("orders", "endless", nil)
		d, from := b.Next(s), time.Now()
		<-d.Lost
		if held := time.Since(from); held > 12*time.Hour || held < 11*time.Hour+50*time.Minute {
			t.Errorf("the lease was held for %s, want nearly 12h", held)
		}
		if err := d.Settler.Return(t.Context(), d); err != nil {
			t.Errorf("return after the lease was lost: %v", err)
		}
		if again := b.Next(s); again.Count != 2 {
			t.Errorf("it came again with count %d, want 2", again.Count)
		}
		for _, c := range b.fake.Calls("ChangeMessageVisibility") {
			if c.Code != "" {
				t.Errorf("SQS refused a renewal: %s", c.Code)
			}
		}
	})
}

// A network that is away for less than the visibility costs nothing; for longer,
// the lease. The handler's work is deleted all the same if SQS lets us, and the
// settlement says that it may not have.
func TestLeaseSurvivesAShortOutageOnly(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		outage int // of renewals
		lost   bool
	}{"short": {2, false}, "long": {sqsfake.Always, true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := setup(t)
				s := b.Subscribe(orders)
				b.publish("orders", "a", nil)
				d := b.Next(s)
				b.fake.Inject(sqsfake.Fault{Action: "ChangeMessageVisibility", Times: tc.outage, Do: sqsfake.Refuse()})
				select {
				case <-d.Lost:
					if !tc.lost {
						t.Error("the lease was lost")
					}
				case <-time.After(5 * time.Minute):
					if tc.lost {
						t.Error("the lease was not lost, although it could not be renewed")
					}
				}
				err := d.Settler.Ack(t.Context(), d)
				if tc.lost != errors.Is(err, adapters.ErrLeaseLost) {
					t.Errorf("ack: %v", err)
				}
				if err != nil && !strings.Contains(err.Error(), "received 1 times") {
					t.Errorf("the error does not say how often it was received: %v", err)
				}
				b.fake.ClearFaults()
			})
		})
	}
}

// A message that SQS gave to somebody else is noticed at the next renewal.
func TestLeaseThatSomebodyElseHasIsLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		s := b.Subscribe(orders)
		b.publish("orders", "a", nil)
		d := b.Next(s)
		b.fake.Inject(sqsfake.Fault{Action: "ChangeMessageVisibility", Do: sqsfake.Fail("ReceiptHandleIsInvalid")})
		<-d.Lost
		if err := d.Settler.Return(t.Context(), d); err != nil {
			t.Errorf("return: %v", err)
		}
	})
}

// S12 and S13: what is returned comes again after a second, and later the more
// often; not at the end of a long visibility, and not at once.
func TestReturnBacksOff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, sqs.Config{Visibility: 10 * time.Minute, MaxReceiveCount: 1000})
		s := b.Subscribe(orders)
		b.publish("orders", "a", nil)
		d := b.Next(s)
		for i, want := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second} {
			from := time.Now()
			b.Return(d)
			d = b.Next(s)
			if got := time.Since(from); got != want || d.Count != i+2 {
				t.Errorf("after return %d it came after %s with count %d, want %s and %d", i+1, got, d.Count, want, i+2)
			}
		}
	})
}

// S3, S32, S8: Close does not wait for readers nor for long polls, leaves nothing
// in flight, and the request that gives a message back says zero.
func TestCloseLeavesNothingInFlight(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, sqs.Config{BatchSize: 10})
		b.Ensure(orders)
		for _, body := range []string{"a", "b", "c"} {
			b.publish("orders", body, nil)
		}
		s, err := b.Broker.Subscribe(t.Context(), orders)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second) // one waits for a reader that never comes, the others for a slot
		from := time.Now()
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if took := time.Since(from); took > 0 {
			t.Errorf("Close took %s", took)
		}
		b.publish("orders", "d", nil) // for the long polls that are still in flight
		time.Sleep(time.Minute)
		for _, m := range b.fake.Messages("orders") {
			if m.InFlight {
				t.Errorf("%s is still in flight", m.Body)
			}
		}
		for _, c := range b.fake.Calls("ChangeMessageVisibility") {
			if !strings.Contains(string(c.Input), `"VisibilityTimeout":0`) && c.Began.After(from) {
				t.Errorf("a message was given back with %s", c.Input)
			}
		}
		if n := len(b.fake.Messages("orders")); n != 4 {
			t.Errorf("%d messages are left, want 4", n)
		}
	})
}

// With CloseWait, a process that ends right after Close strands nothing.
func TestCloseWaitsForLongPollsOnDemand(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, sqs.Config{CloseWait: time.Minute})
		process := b.open()
		b.Ensure(orders)
		s, err := process.Subscribe(t.Context(), orders)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
		from := time.Now()
		if err := process.Close(context.Background()); err != nil {
			t.Error(err)
		}
		if took := time.Since(from); took != 19*time.Second {
			t.Errorf("Close took %s, want the 19 s that the long polls had left", took)
		}
	})
}

// Many shutdowns make no dead letter of a message that nobody has handled:
// before SQS would take it for failed, it is written anew.
func TestReturnsNeverReachTheRedrive(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		b.Ensure(orders)
		b.publish("orders", "a", nil)
		for range 30 {
			s := b.Subscribe(orders)
			d := b.Next(s)
			if d.Count > 5 {
				t.Errorf("count %d", d.Count)
			}
			if err := s.Stop(t.Context()); err != nil {
				t.Fatal(err)
			}
			b.Return(d)
		}
		if dead := b.fake.Messages("orders_billing_dlq"); len(dead) != 0 {
			t.Errorf("it became a dead letter: %v", dead)
		}
		if left := b.fake.Messages("orders"); len(left) != 1 || left[0].Body != "a" {
			t.Errorf("the queue holds %v", left)
		}
	})
}

// Whoever reads dead letters and cannot process them leaves them as they are: the
// same message with its evidence, and a count that goes on.
func TestDeadLettersAreNotWrittenAnew(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		b.Ensure(orders)
		pairs, _ := envelope.State{Attempt: 3, ConsumerGroup: "billing", Source: envelope.Position{Topic: "orders"}, Message: "why"}.Pairs(0)
		b.Handoff(adapters.Handoff{Consumer: orders, Stream: adapters.StreamDeadLetter, Record: adapters.Record{ID: "a", Payload: []byte("a")}, State: pairs})
		before := b.fake.Messages("orders_billing_dlq")[0]
		s := b.Subscribe(adapters.Consumer{Topic: "orders.billing.dlq", Group: "repair", Concurrency: 1})
		for i := range 12 {
			d := b.Next(s)
			if d.Count != i+1 {
				t.Errorf("count %d, want %d", d.Count, i+1)
			}
			b.Return(d)
		}
		after := b.fake.Messages("orders_billing_dlq")
		if len(after) != 1 || after[0].ID != before.ID || b.dead()[0].Message != "why" {
			t.Errorf("the dead letter was %+v and is %+v", before, after)
		}
	})
}

// A message that is written anew, because it was returned too often, keeps all
// that it had, state included.
func TestWrittenAnewIsUnchanged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		s := b.Subscribe(orders)
		pairs, _ := envelope.State{Attempt: 3, ConsumerGroup: "billing", Source: envelope.Position{Topic: "orders"}}.Pairs(0)
		r := adapters.Record{ID: "a", Payload: []byte("\xff"), Headers: []adapters.Header{{Key: "n", Value: []byte("7"), Type: "Number"}, {Key: "k", Value: []byte{}}}}
		b.Handoff(adapters.Handoff{Consumer: orders, Stream: adapters.StreamRetry, Record: r, State: pairs})
		for range 7 {
			d := b.Next(s)
			st := envelope.Parse(d.Headers, time.Now())
			d.Headers = envelope.StripHeaders(d.Headers)
			if diff := cmp.Diff(r, d.Record, cmpopts.IgnoreFields(adapters.Record{}, "Native", "Position"), cmpopts.SortSlices(func(a, b adapters.Header) bool { return a.Key > b.Key })); diff != "" || st.Attempt != 3 {
				t.Fatalf("attempt %d, record (-want +got):\n%s", st.Attempt, diff)
			}
			b.Return(d)
		}
	})
}
