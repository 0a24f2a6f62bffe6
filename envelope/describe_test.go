package envelope_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spillway-mq/spillway/envelope"
)

func TestTraceID(t *testing.T) {
	t.Parallel()
	const trace, parent = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
	valid := "00-" + trace + "-" + parent + "-01"
	for name, tc := range map[string]struct {
		traceparent string
		want        string
	}{
		"valid":                       {valid, trace},
		"not sampled":                 {"00-" + trace + "-" + parent + "-00", trace},
		"later version":               {"01-" + trace + "-" + parent + "-01", trace},
		"later version, more fields":  {"cc-" + trace + "-" + parent + "-01-what-ever", trace},
		"version 00, more fields":     {valid + "-x", "fallback"},
		"version 00, trailing dash":   {valid + "-", "fallback"},
		"version ff":                  {"ff-" + trace + "-" + parent + "-01", "fallback"},
		"version of one digit":        {"0-" + trace + "-" + parent + "-01", "fallback"},
		"upper case":                  {strings.ToUpper(valid), "fallback"},
		"trace id of zeros":           {"00-" + strings.Repeat("0", 32) + "-" + parent + "-01", "fallback"},
		"parent id of zeros":          {"00-" + trace + "-" + strings.Repeat("0", 16) + "-01", "fallback"},
		"trace id too short":          {"00-" + trace[1:] + "-" + parent + "-01", "fallback"},
		"parent id too long":          {"00-" + trace + "-" + parent + "0-01", "fallback"},
		"not hexadecimal":             {"00-" + trace[:31] + "g-" + parent + "-01", "fallback"},
		"flags missing":               {"00-" + trace + "-" + parent, "fallback"},
		"flags not hexadecimal":       {"00-" + trace + "-" + parent + "-zz", "fallback"},
		"space around":                {" " + valid, "fallback"},
		"later version, glued fields": {"01-" + trace + "-" + parent + "-01x", "fallback"},
		"text":                        {"hello", "fallback"},
		"empty":                       {"", "fallback"},
	} {
		headers := []envelope.Header{header("TraceParent", tc.traceparent), header("X-Trace-Id", "fallback")}
		if got := envelope.TraceID(headers); got != tc.want {
			t.Errorf("%s: got %q, want %q", name, got, tc.want)
		}
	}
	if got := envelope.TraceID([]envelope.Header{header("traceparent", "bad"), header("traceparent", valid)}); got != trace {
		t.Errorf("the last value does not win: %q", got)
	}
	if got := envelope.TraceID(nil); got != "" {
		t.Errorf("no headers give %q", got)
	}
	if got := envelope.TraceID([]envelope.Header{header("x-trace-id", "a\nb\xff")}); got != "a\ufffdb\ufffd" {
		t.Errorf("x-trace-id gives %q", got)
	}
}

func TestDescribeKnowsTheNamesInUse(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		headers []envelope.Header
		want    envelope.State
	}{
		"Watermill cqrs": {
			[]envelope.Header{header("name", "OrderPlaced")},
			envelope.State{MessageType: "OrderPlaced"},
		},
		"CloudEvents on Kafka": {
			[]envelope.Header{header("ce_type", "order.placed"), header("ce_subject", "order/1"), header("ce_dataschema", "urn:order:3")},
			envelope.State{MessageType: "order.placed", Aggregate: "order/1", SchemaVersion: "urn:order:3"},
		},
		"CloudEvents on HTTP": {
			[]envelope.Header{header("Ce-Type", "order.placed"), header("Ce-Subject", "order/1"), header("Ce-Dataschema", "urn:order:3")},
			envelope.State{MessageType: "order.placed", Aggregate: "order/1", SchemaVersion: "urn:order:3"},
		},
		"CloudEvents on AMQP": {
			[]envelope.Header{header("cloudEvents:type", "order.placed"), header("cloudEvents:subject", "order/1"), header("cloudEvents:dataschema", "urn:order:3")},
			envelope.State{MessageType: "order.placed", Aggregate: "order/1", SchemaVersion: "urn:order:3"},
		},
		"CloudEvents on AMQP, underscore": {
			[]envelope.Header{header("cloudEvents_type", "order.placed"), header("cloudEvents_subject", "order/1"), header("cloudEvents_dataschema", "urn:order:3")},
			envelope.State{MessageType: "order.placed", Aggregate: "order/1", SchemaVersion: "urn:order:3"},
		},
		"stamped by a producer": {
			[]envelope.Header{header("producer-version", "shop-7"), header("schema-version", "3"), header("message-type", "x"), header("aggregate-id", "9")},
			envelope.State{ProducerVersion: "shop-7", SchemaVersion: "3", MessageType: "x", Aggregate: "9"},
		},
		"preference, not order": {
			[]envelope.Header{header("name", "Go type"), header("ce_type", ""), header("ce-type", "old"), header("ce-type", "new")},
			envelope.State{MessageType: "new"},
		},
		"binary value": {
			[]envelope.Header{header("name", "a\x00\xff")},
			envelope.State{MessageType: "a\ufffd\ufffd"},
		},
	} {
		var got envelope.State
		envelope.Keys{}.Describe(&got, tc.headers)
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestDescribeWithOwnKeys(t *testing.T) {
	t.Parallel()
	headers := []envelope.Header{header("name", "OrderPlaced"), header("Kind", "order"), header("tenant", "t1"), header("x-trace-id", "t")}
	got := envelope.State{Aggregate: "known"}
	envelope.Keys{MessageType: []string{"kind"}, Aggregate: []string{"tenant"}}.Describe(&got, headers)
	if diff := cmp.Diff(envelope.State{MessageType: "order", Aggregate: "known", TraceID: "t"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	got = envelope.State{}
	envelope.Keys{MessageType: []string{}}.Describe(&got, headers)
	if got.MessageType != "" {
		t.Errorf("an empty list still finds %q", got.MessageType)
	}
}
