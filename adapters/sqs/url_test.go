package sqs_test

import (
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"

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
		b.Broker = broker
		b.Ensure(orders)
		if a := b.attributes("again"); a["VisibilityTimeout"] != "45" || !strings.HasSuffix(a["RedrivePolicy"], `:dead","maxReceiveCount":7}`) {
			t.Errorf("the retry queue has visibility %s and redrive policy %s", a["VisibilityTimeout"], a["RedrivePolicy"])
		}
		if err := broker.Ensure(t.Context(), adapters.Consumer{Topic: "jobs.fifo", Group: "g", Concurrency: 1}); err != nil {
			t.Errorf("relaxedFifo: %v", err)
		}

		for raw, want := range map[string]string{
			"sqs://k:hunter2@host/?visibilty=3s":          "option visibilty: is unknown; there are account, batchSize",
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

// Prefix begins all names that are made, and counts to their length; Account asks
// for the queues of another account, where nothing is created.
func TestPrefixAndAccount(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, sqs.Config{Prefix: "prod-", Queues: map[string]string{"orders.billing.dlq": "dead"}})
		long := strings.Repeat("x", 78)
		b.Ensure(orders)
		b.Ensure(adapters.Consumer{Topic: long, Group: "g", Concurrency: 1})
		if err := b.Broker.Publisher().Publish("jobs.fifo", message.NewMessage("a", nil)); err == nil {
			t.Error("published to a FIFO queue without a group")
		}
		queues := b.fake.Queues()
		for _, want := range []string{"dead", "prod-orders", "prod-orders_billing_retry", "prod-jobs.fifo"} {
			if !slices.Contains(queues, want) {
				t.Errorf("there is no %s in %v", want, queues)
			}
		}
		for _, name := range queues {
			if name != "dead" && !strings.HasPrefix(name, "prod-") || len(name) > 80 {
				t.Errorf("a queue is called %s", name)
			}
		}

		b.cfg.Account = "123456789012" // which the fake's queues have
		b.Broker = b.open()
		b.Ensure(orders)
		b.cfg.Account = "999999999999"
		b.Broker = b.open()
		made := len(b.fake.Calls("CreateQueue"))
		err := b.Broker.Ensure(t.Context(), orders)
		if missing, ok := errors.AsType[*sqs.QueueError](err); !ok || missing.Queue != "dead" {
			t.Errorf("in an account without queues: %v", err)
		}
		if n := len(b.fake.Calls("CreateQueue")); n != made {
			t.Error("a queue was created")
		}
	})
}

// Credentials and the region come from where AWS's own programs have them, also
// with an endpoint of the configuration.
func TestEndpointAndRegionOfTheConfiguration(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		fake := newFake(t)
		var hosts, regions []string
		cfg := sqs.Config{
			Region: "sa-east-1", Endpoint: "https://vpce-1.sqs.sa-east-1.vpce.amazonaws.com",
			AWS: &aws.Config{Region: "eu-west-1", Credentials: credentials.NewStaticCredentialsProvider("id", "secret", "")},
			HTTPClient: doer(func(r *http.Request) (*http.Response, error) {
				hosts = append(hosts, r.URL.Host)
				_, scope, _ := strings.Cut(r.Header.Get("Authorization"), "Credential=id/")
				regions = append(regions, strings.Split(scope, "/")[1])
				return fake.Client().Do(r)
			}),
		}
		for raw, want := range map[string]string{
			"sqs://":                            "vpce-1.sqs.sa-east-1.vpce.amazonaws.com sa-east-1",
			"sqs://?region=us-east-1":           "vpce-1.sqs.sa-east-1.vpce.amazonaws.com us-east-1",
			"sqs://other:9324?region=us-east-2": "other:9324 us-east-2",
		} {
			hosts, regions = nil, nil
			u, err := url.Parse(raw)
			if err != nil {
				t.Fatal(err)
			}
			b, err := sqs.OpenerWith(cfg).Open(t.Context(), adapters.OpenParams{URL: u})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := b.(adapters.Counter).Count(t.Context(), "none"); err == nil {
				t.Error("there is no such queue")
			}
			if got := hosts[0] + " " + regions[0]; got != want {
				t.Errorf("%s: asked %s, want %s", raw, got, want)
			}
			if err := b.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
}

type doer func(*http.Request) (*http.Response, error)

func (d doer) Do(r *http.Request) (*http.Response, error) { return d(r) }
