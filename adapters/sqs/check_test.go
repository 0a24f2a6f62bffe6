package sqs_test

import (
	"testing"
	"testing/synctest"

	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/spillway-mq/spillway/adapters"
)

func check(b *bench) map[string]adapters.Finding {
	b.Helper()
	findings, err := b.broker.(adapters.Checker).Check(b.Context(), []adapters.Consumer{orders})
	if err != nil {
		b.Fatal(err)
	}
	rules := map[string]adapters.Finding{}
	for _, f := range findings {
		b.Logf("%s %s %s: %s (%s)", f.Severity, f.Rule, f.Stream, f.Message, f.Fix)
		if old, ok := rules[f.Rule]; !ok || old.Severity == adapters.SeverityInfo {
			rules[f.Rule] = f
		}
	}
	return rules
}

// Queues as Ensure makes them have nothing that is wrong. S40: the dead letter
// queue needs none of its own.
func TestCheckOfWhatEnsureMade(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		b.ensure(orders)
		for rule, f := range check(b) {
			if f.Severity == adapters.SeverityError || f.Severity == adapters.SeverityWarning {
				t.Errorf("%s: %s %s: %s", f.Severity, rule, f.Stream, f.Message)
			}
		}
	})
}

// S39: a queue that is missing, and a net that leads nowhere.
func TestCheckFindsWhatIsMissing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		if f := check(b)["sqs-queue-missing"]; f.Severity != adapters.SeverityError {
			t.Errorf("queues that do not exist: %+v", f)
		}
		b.ensure(orders)
		url := b.url("orders_billing_dlq")
		if _, err := b.client.DeleteQueue(t.Context(), &awssqs.DeleteQueueInput{QueueUrl: &url}); err != nil {
			t.Fatal(err)
		}
		rules := check(b)
		if f := rules["sqs-queue-missing"]; f.Stream != "orders_billing_dlq" || f.Consumer.Group != "billing" {
			t.Errorf("a dead letter queue that does not exist: %+v", f)
		}
		if _, ok := rules["redrive-dangling"]; !ok {
			t.Errorf("a redrive policy without a target was not found: %v", rules)
		}
	})
}

func TestCheckTellsWhatWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		b.ensure(orders)
		for _, s := range []adapters.Stream{adapters.StreamDeadLetter, adapters.StreamParking, adapters.StreamSuspect} {
			b.handoff(adapters.Handoff{Consumer: orders, Stream: s, Record: adapters.Record{ID: "a", Payload: []byte("a")}})
		}
		rules := check(b)
		for _, rule := range []string{"sqs-dead-letters", "sqs-parked", "sqs-suspects"} {
			if _, ok := rules[rule]; !ok {
				t.Errorf("%s was not found", rule)
			}
		}
		if got, want := rules["sqs-dead-letters"].Message, "about 1 dead letter; the queue keeps each for 336h0m0s"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}
