package foreign_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/envelope"
	"github.com/spillway-mq/spillway/failure"
	"github.com/spillway-mq/spillway/poison/foreign"
)

// O18: a record without any header that we know is no reason to stop.
func TestDecodeOfNothingKnown(t *testing.T) {
	t.Parallel()
	r := adapters.Record{
		ID: "id-1", Key: []byte("k"), Payload: []byte{0xff}, Headers: []adapters.Header{text("a", "1"), text("a", "2")},
		Position: envelope.Position{Topic: "errors", Partition: new(int32(1)), Offset: new(int64(7)), Timestamp: at},
	}
	got, format := foreign.Decode(r, foreign.From{Broker: "kafka"})
	if got.ID == "" || format != foreign.FormatUnknown {
		t.Errorf("id %q, format %q", got.ID, format)
	}
	got.ID = ""
	want := envelope.DeadLetter{
		FailedMessage: envelope.FailedMessage{ID: r.ID, Key: r.Key, Payload: r.Payload, Headers: r.Headers},
		Failure:       envelope.FailureInfo{Class: failure.ClassUnknown, Nature: failure.NatureUnknown, FirstAttemptAt: at, FailedAt: at},
		Source:        envelope.SourceInfo{Broker: "kafka"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestDecodeOfRabbitMQ(t *testing.T) {
	t.Parallel()
	if _, format := foreign.Decode(record(rejected), foreign.From{}); format != foreign.FormatRabbitMQ {
		t.Errorf("format %q", format)
	}
	own := envelope.State{Reason: "permanent", DeadLetterID: "dlid"}
	if d, format := foreign.Decode(record("", stateOf(own)...), foreign.From{}); format != foreign.FormatSpillway || d.ID != "dlid" {
		t.Errorf("format %q, id %q", format, d.ID)
	}
}
