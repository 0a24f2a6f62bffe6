package sqs_test

import (
	"strings"
	"testing"

	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/adapters/sqs"
)

func TestQueueNames(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("long", 25)
	for stream, want := range map[string]string{
		"orders":                      "orders",
		"orders.billing.retry":        "orders_billing_retry",
		"orders.fifo":                 "orders.fifo",
		"orders.fifo.billing.dlq":     "orders_billing_dlq.fifo", // the target of a FIFO queue must be one
		"orders.fifo.billing.retry":   "orders_fifo_billing_retry",
		"orders.fifo.billing.parking": "orders_fifo_billing_parking",
		"Jörg":                        "J_rg-8e63741c",
		"a b":                         "a_b-c8687a08",
		"":                            "-e3b0c442",
		long:                          long[:71] + "-8357a5b5",
		long + ".fifo":                long[:66] + "-8357a5b5.fifo",
		"https://sqs.eu-west-1.amazonaws.com/123456789012/orders":             "orders",
		"https://sqs.eu-west-1.amazonaws.com/123456789012/orders.billing.dlq": "orders_billing_dlq",
	} {
		got := sqs.QueueOf(adapters.Names{}, stream)
		if got != want {
			t.Errorf("%q is queue %q, want %q", stream, got, want)
		}
		if len(got) > 80 {
			t.Errorf("%q has %d characters", got, len(got))
		}
	}
}

// Any topic has a queue that SQS allows, and names that differ in more than dots
// and underscores have different ones.
func FuzzQueueNames(f *testing.F) {
	f.Add("orders", "orders.fifo")
	f.Add("a b", "a_b")
	f.Add(strings.Repeat("x", 81), strings.Repeat("x", 82))
	f.Fuzz(func(t *testing.T, a, b string) {
		for _, s := range []string{a, b} {
			name := sqs.QueueOf(adapters.Names{}, s)
			base := strings.TrimSuffix(name, ".fifo")
			if len(name) > 80 || base == "" || strings.Trim(base, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") != "" {
				t.Errorf("%q is queue %q, which SQS refuses", s, name)
			}
		}
	})
}
