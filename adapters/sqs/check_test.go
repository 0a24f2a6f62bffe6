package sqs_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/adapters/sqs"
)

func check(b *bench) map[string]adapters.Finding {
	b.Helper()
	findings, err := b.Broker.(adapters.Checker).Check(b.Context(), []adapters.Consumer{orders})
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
		b.Ensure(orders)
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
		b.Ensure(orders)
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
		b.Ensure(orders)
		for _, s := range []adapters.Stream{adapters.StreamDeadLetter, adapters.StreamParking, adapters.StreamSuspect} {
			b.Handoff(adapters.Handoff{Consumer: orders, Stream: s, Record: adapters.Record{ID: "a", Payload: []byte("a")}})
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

// A server that tells no retention, as ElasticMQ, is not taken for one that keeps
// messages for SQS's default: that the dead letter queue keeps them longer is then
// not known. AWS tells it.
func TestCheckOfAServerThatTellsNoRetention(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		b.cfg.HTTPClient = withoutRetention{b.fake.Client()}
		b.Broker = b.open()
		b.Ensure(orders)
		b.Handoff(adapters.Handoff{Consumer: orders, Stream: adapters.StreamDeadLetter, Record: adapters.Record{ID: "a", Payload: []byte("a")}})
		rules := check(b)
		for rule, f := range rules {
			if f.Severity == adapters.SeverityError || f.Severity == adapters.SeverityWarning {
				t.Errorf("%s: %s %s: %s", f.Severity, rule, f.Stream, f.Message)
			}
		}
		if f := rules["retention-unknown"]; f.Severity != adapters.SeverityInfo || f.Consumer.Group != "billing" {
			t.Errorf("nothing says that the retention is not known: %+v", f)
		}
		if got, want := rules["sqs-dead-letters"].Message, "about 1 dead letter"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

// withoutRetention takes the retention out of a fake's answers.
type withoutRetention struct{ inner *http.Client }

func (c withoutRetention) Do(r *http.Request) (*http.Response, error) {
	resp, err := c.inner.Do(r)
	if err != nil || !strings.HasSuffix(r.Header.Get("X-Amz-Target"), "GetQueueAttributes") {
		return resp, err
	}
	var out struct{ Attributes map[string]string }
	if err := json.NewDecoder(resp.Body).Decode(&out); err != nil {
		return nil, err
	}
	delete(out.Attributes, "MessageRetentionPeriod")
	body, err := json.Marshal(out)
	resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	return resp, err
}

// What the check says of the adapter's own settings and names: a name that was
// cut, and a visibility below a long poll. Polls ask for a wait, whatever a queue
// has.
func TestCheckOfNamesAndPolls(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, sqs.Config{Visibility: 10 * time.Second})
		long := adapters.Consumer{Topic: strings.Repeat("orders.", 10) + "eu", Group: "billing", Concurrency: 1}
		b.Ensure(long)
		findings, err := b.Broker.(adapters.Checker).Check(t.Context(), []adapters.Consumer{long})
		if err != nil {
			t.Fatal(err)
		}
		n := map[string]int{}
		for _, f := range findings {
			n[f.Rule]++
			if f.Severity == adapters.SeverityError {
				t.Errorf("%+v", f)
			}
		}
		if n["name-truncated"] != 4 || n["visibility-poll"] != 3 || n["short-poll"] != 0 {
			t.Errorf("%v; want 4 names that were cut, and 3 queues that are hidden for less than a poll", n)
		}
	})
}
