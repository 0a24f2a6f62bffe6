package sqs_test

import (
	"net/url"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/adapters/sqs"
)

// Each option of the URL is heeded, and wins over the configuration; what is wrong
// is said, all at once, without credentials.
func TestOptionsOfTheURL(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		open := func(raw string) (adapters.Broker, error) {
			u, err := url.Parse(raw)
			if err != nil {
				t.Fatal(err)
			}
			return sqs.OpenerWith(sqs.Config{HTTPClient: b.fake.Client(), MaxReceiveCount: 20}).Open(t.Context(), adapters.OpenParams{URL: u})
		}
		broker, err := open("sqs://key:secret@host:9324/?tls=true&maxReceiveCount=7&visibility=45s&relaxedFifo=true&queue=orders.billing.retry:again&queue=orders.billing.dlq:dead")
		if err != nil {
			t.Fatal(err)
		}
		b.broker = broker
		b.ensure(orders)
		if a := b.attributes("again"); a["VisibilityTimeout"] != "45" || !strings.HasSuffix(a["RedrivePolicy"], `:dead","maxReceiveCount":7}`) {
			t.Errorf("the retry queue has visibility %s and redrive policy %s", a["VisibilityTimeout"], a["RedrivePolicy"])
		}
		if err := broker.Ensure(t.Context(), adapters.Consumer{Topic: "jobs.fifo", Group: "g", Concurrency: 1}); err != nil {
			t.Errorf("relaxedFifo: %v", err)
		}

		for raw, want := range map[string]string{
			"sqs://k:hunter2@host/?visibilty=3s":          "option visibilty: is unknown; there are batchSize",
			"sqs://k:hunter2@host/?visibility=soon":       "option visibility",
			"sqs://k:hunter2@host/?queue=orders":          `option queue: "orders" is not STREAM:QUEUE`,
			"sqs://k:hunter2@host/orders":                 "a queue is named by the topic",
			"sqs://k:hunter2@host/?pollWait=1h&region=x":  "PollWait",
			"sqs://k:hunter2@host/?batchSize=x&tls=maybe": "option tls",
		} {
			if _, err := open(raw); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("%s: %v, want %q", raw, err, want)
			}
		}
	})
}
