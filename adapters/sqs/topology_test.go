package sqs_test

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/go-cmp/cmp"

	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/adapters/sqs"
	"github.com/spillway-mq/spillway/adapters/sqs/sqsfake"
)

// S33: every queue has its net, and the dead letter queue keeps longer than what
// falls into it can have waited.
func TestEnsureMakesQueuesWithANet(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		b.Ensure(orders)
		want := []string{"orders", "orders_billing_dlq", "orders_billing_parking", "orders_billing_retry", "orders_billing_suspect"}
		if diff := cmp.Diff(want, b.fake.Queues()); diff != "" {
			t.Fatalf("queues (-want +got):\n%s", diff)
		}
		dead := b.attributes("orders_billing_dlq")
		keeps, _ := strconv.Atoi(dead["MessageRetentionPeriod"])
		if keeps != 14*24*3600 || dead["RedrivePolicy"] != "" {
			t.Errorf("the dead letter queue keeps %d s, redrive policy %q", keeps, dead["RedrivePolicy"])
		}
		policy := fmt.Sprintf(`{"deadLetterTargetArn":%q,"maxReceiveCount":10}`, dead["QueueArn"])
		for _, name := range []string{"orders", "orders_billing_retry", "orders_billing_suspect"} {
			a := b.attributes(name)
			if a["RedrivePolicy"] != policy {
				t.Errorf("%s has the redrive policy %s, want %s", name, a["RedrivePolicy"], policy)
			}
			if n, _ := strconv.Atoi(a["MessageRetentionPeriod"]); n >= keeps {
				t.Errorf("%s keeps messages for %d s, and the dead letter queue for %d s", name, n, keeps)
			}
		}
		if p := b.attributes("orders_billing_parking")["RedrivePolicy"]; p != "" {
			t.Errorf("the parking queue has the redrive policy %s", p)
		}
		b.Ensure(orders)
	})
}

// A queue of somebody else gets the net that it lacks; one whose net is another
// one is refused, with the way out.
func TestEnsureOfAQueueThatExists(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		b.create("orders", map[string]string{"VisibilityTimeout": "77"})
		b.Ensure(orders)
		a := b.attributes("orders")
		if !strings.Contains(a["RedrivePolicy"], ":orders_billing_dlq") || a["VisibilityTimeout"] != "77" {
			t.Errorf("redrive policy %q, visibility %s", a["RedrivePolicy"], a["VisibilityTimeout"])
		}

		b.create("jobs-dlq", nil)
		arn := b.attributes("jobs-dlq")["QueueArn"]
		b.create("jobs", map[string]string{"RedrivePolicy": fmt.Sprintf(`{"deadLetterTargetArn":%q,"maxReceiveCount":"5"}`, arn)})
		jobs := adapters.Consumer{Topic: "jobs", Group: "billing", Concurrency: 1}
		err := b.Broker.Ensure(t.Context(), jobs)
		differs, ok := errors.AsType[*sqs.QueueError](err)
		if !ok || differs.Queue != "jobs" || differs.Attribute != "RedrivePolicy" || !strings.Contains(differs.Hint, `Config.Queues["jobs.billing.dlq"]`) {
			t.Fatalf("a queue with another net: %v", err)
		}
		b.cfg.Queues = map[string]string{"jobs.billing.dlq": "jobs-dlq"}
		b.Broker = b.open()
		b.Ensure(jobs)
		b.Handoff(adapters.Handoff{Consumer: jobs, Stream: adapters.StreamDeadLetter, Record: adapters.Record{ID: "a"}})
		if n := len(b.fake.Messages("jobs-dlq")); n != 1 {
			t.Errorf("%d dead letters in the queue of that name, want 1", n)
		}
	})
}

// Another process with another group on the same queue is found by the net.
func TestSecondGroupOfAnotherProcessIsRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		b.Ensure(orders)
		other := orders
		other.Group = "shipping"
		if err := b.open().Ensure(t.Context(), other); err == nil || !strings.Contains(err.Error(), "a queue has one group") {
			t.Errorf("a second group: %v", err)
		}
	})
}

func TestParkingQueueMustHaveNoNet(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		b.create("dlq", nil)
		b.create("orders_billing_parking", map[string]string{
			"RedrivePolicy": fmt.Sprintf(`{"deadLetterTargetArn":%q,"maxReceiveCount":"5"}`, b.attributes("dlq")["QueueArn"]),
		})
		if err := b.Broker.Ensure(t.Context(), orders); err == nil || !strings.Contains(err.Error(), "remove it") {
			t.Errorf("a parking queue with a redrive policy: %v", err)
		}
	})
}

func TestVerifyOnlyCreatesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, sqs.Config{VerifyOnly: true})
		err := b.Broker.Ensure(t.Context(), orders)
		if missing, ok := errors.AsType[*sqs.QueueError](err); !ok || missing.Queue != "orders_billing_dlq" {
			t.Errorf("without queues: %v", err)
		}
		if err := b.Broker.Publisher().Publish("orders", message.NewMessage("a", nil)); err == nil {
			t.Error("a publish to a queue that does not exist succeeded")
		}
		if q := b.fake.Queues(); len(q) != 0 {
			t.Errorf("created %v", q)
		}
	})
}

// S1: a topic may be the URL of a queue, for those who may not create or look.
func TestTopicMayBeTheURLOfAQueue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		url := b.create("orders", nil)
		for _, action := range []string{"CreateQueue", "GetQueueUrl", "GetQueueAttributes"} {
			b.fake.Inject(sqsfake.Fault{Action: action, Times: sqsfake.Always, Do: sqsfake.Fail("AccessDenied")})
		}
		if err := b.Broker.Publisher().Publish(url, message.NewMessage("a", []byte("body"))); err != nil {
			t.Fatal(err)
		}
		if n := len(b.fake.Messages("orders")); n != 1 {
			t.Errorf("%d messages, want 1", n)
		}
		b.fake.ClearFaults()
		c := adapters.Consumer{Topic: url, Group: "billing", Concurrency: 1}
		if d := b.Next(b.Subscribe(c)); d.ID != "a" {
			t.Errorf("received %q", d.ID)
		}
	})
}

// S7: the SDK cannot send a delay of zero; a queue's own delay is not added to
// ours.
func TestQueuesOwnDelayDoesNotHold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		b.create("orders_billing_retry", map[string]string{"DelaySeconds": "60"})
		s := b.Subscribe(orders)
		for _, wanted := range []time.Duration{0, time.Second, 5 * time.Second, 90 * time.Second} {
			from := time.Now()
			h := adapters.Handoff{Consumer: orders, Stream: adapters.StreamRetry, Record: adapters.Record{ID: "a"}}
			if wanted > 0 {
				h.Due = from.Add(wanted)
			}
			b.Handoff(h)
			d := b.Next(s)
			if got := time.Since(from); got != max(wanted, time.Second) {
				t.Errorf("wanted %s, waited %s", wanted, got)
			}
			b.Ack(d)
		}
	})
}

// S16: what a FIFO queue cannot do is an error at start.
func TestFIFONeedsAMode(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		fifo := adapters.Consumer{Topic: "orders.fifo", Group: "billing", Concurrency: 1}
		if err := b.Broker.Ensure(t.Context(), fifo); !errors.Is(err, adapters.ErrUnsupported) || !strings.Contains(err.Error(), "RelaxedFIFO") {
			t.Errorf("a FIFO topic: %v", err)
		}
		if q := b.fake.Queues(); len(q) != 0 {
			t.Errorf("created %v", q)
		}
	})
}

// A FIFO topic whose retries may be overtaken: the group stays with the message
// in every stream, and no copy is taken for an old one.
func TestRelaxedFIFO(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, sqs.Config{RelaxedFIFO: true})
		fifo := adapters.Consumer{Topic: "orders.fifo", Group: "billing", Concurrency: 1}
		s := b.Subscribe(fifo)
		msg := message.NewMessage("a", []byte("body"))
		if err := b.Broker.Publisher().Publish(fifo.Topic, msg); !errors.Is(err, adapters.ErrRefused) {
			t.Errorf("without a group: %v", err)
		}
		msg.Metadata.Set("MessageGroupId", "group-7")
		if err := b.Broker.Publisher().Publish(fifo.Topic, msg); err != nil {
			t.Fatal(err)
		}
		d := b.Next(s)
		if string(d.Key) != "group-7" {
			t.Errorf("key %q", d.Key)
		}
		b.Handoff(adapters.Handoff{Consumer: fifo, Stream: adapters.StreamRetry, Record: d.Record, Due: time.Now().Add(time.Minute)})
		b.Ack(d)
		d = b.Next(s)
		if d.Stream != adapters.StreamRetry || string(d.Key) != "group-7" {
			t.Errorf("from %s with key %q", d.Stream, d.Key)
		}
		dead := adapters.Handoff{Consumer: fifo, Stream: adapters.StreamDeadLetter, Record: d.Record}
		b.Handoff(dead)
		b.Handoff(dead) // a repeat, after an unknown result
		if got := b.fake.Messages("orders_billing_dlq.fifo"); len(got) != 1 || got[0].GroupID != "group-7" {
			t.Errorf("dead letters: %+v", got)
		}
	})
}

// Two topics that would be one queue.
func TestNamesThatMeetAreRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		b.Ensure(adapters.Consumer{Topic: "a.b", Group: "g", Concurrency: 1})
		err := b.Broker.Ensure(t.Context(), adapters.Consumer{Topic: "a_b", Group: "g", Concurrency: 1})
		if err == nil || !strings.Contains(err.Error(), `queue "a_b" would be both "a.b" and "a_b"`) {
			t.Errorf("names that meet: %v", err)
		}
	})
}

func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		b.cfg = sqs.Config{
			Visibility: time.Second, PollWait: time.Minute, MaxDelay: time.Hour, BatchSize: 11, MaxReceiveCount: 3,
			MaxMessageBytes: 2 << 20, CloseWait: -1, MaxLease: 13 * time.Hour, Queues: map[string]string{"a": "no.name"},
		}
		_, err := b.tryOpen()
		if err == nil {
			t.Fatal("it was accepted")
		}
		for _, field := range []string{"Visibility", "PollWait", "MaxDelay", "BatchSize", "MaxReceiveCount", "MaxMessageBytes", "CloseWait", "MaxLease", "Queues"} {
			if !strings.Contains(err.Error(), field) {
				t.Errorf("%s is not in %q", field, err)
			}
		}
	})
}
