package adapters_test

import (
	"strings"
	"testing"

	"github.com/spillway-mq/spillway/adapters"
)

func TestDeadLetterStreamsAreRecognisedByTheirTemplate(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		template, topic string
		want            bool
	}{
		{"", "orders.billing.dlq", true},
		{"", "orders", false},
		{"", "orders.billing.retry", false},
		{"", ".dlq", false},
		{"dead-{topic}-{group}", "dead-orders-billing", true},
		{"dead-{topic}-{group}", "orders-billing", false},
		{"dead-{group}-{topic}.fifo", "dead-billing-orders.fifo", true},
		{"dead-{group}-{topic}.fifo", "dead-.fifo", false},
		{"{topic}.{group}", "orders.billing", false}, // nothing to recognise it by
	} {
		if got := (adapters.Names{DeadLetter: tc.template}).IsDeadLetter(tc.topic); got != tc.want {
			t.Errorf("%q by template %q: %v, want %v", tc.topic, tc.template, got, tc.want)
		}
	}
}

func TestTemplatesThatCannotTellStreamsApartAreRefused(t *testing.T) {
	t.Parallel()
	err := adapters.Names{Retry: "{topic}.again", Parking: "{topic}.{group}.dlq", Suspect: "{group}.{group}.{topic}"}.Validate()
	if err == nil {
		t.Fatal("they were not refused")
	}
	for _, part := range []string{
		`retry template "{topic}.again" must contain {group} exactly once`,
		`suspect template "{group}.{group}.{topic}" must contain {group} exactly once`,
		`parking and dlq templates are both "{topic}.{group}.dlq"`,
	} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q is missing in %q", part, err)
		}
	}
	if err := (adapters.Names{}).Validate(); err != nil {
		t.Errorf("the defaults: %v", err)
	}
}
