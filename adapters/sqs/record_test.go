package sqs_test

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/adapters/sqs"
	"github.com/spillway-mq/spillway/envelope"
)

// S2, S9, S28, S29: whatever is in a record arrives as it was, in what SQS
// accepts and in at most seven attributes.
func TestRecordsSurviveTheWire(t *testing.T) {
	t.Parallel()
	many := []adapters.Header{}
	for _, key := range strings.Split("abcdefghijkl", "") {
		many = append(many, adapters.Header{Key: key, Value: []byte(key)})
	}
	for name, r := range map[string]adapters.Record{
		"nothing":      {},
		"text":         {ID: "id", Payload: []byte("text\tof\r\nlines"), Headers: []adapters.Header{{Key: "k", Value: []byte("v")}}},
		"invalid":      {ID: "id", Payload: []byte("\xff\xfe")},
		"control":      {ID: "id", Payload: []byte("\x00")},
		"noncharacter": {ID: "id\uFFFE", Payload: []byte("\uFFFF"), Headers: []adapters.Header{{Key: "k\uFFFF", Value: []byte("\uFFFE\uFFFF")}}},
		"empty value":  {ID: "id", Payload: []byte("x"), Headers: []adapters.Header{{Key: "k", Value: []byte{}}}},
		"empty key":    {ID: "id", Payload: []byte("x"), Headers: []adapters.Header{{Key: "", Value: []byte("v")}}},
		"odd keys": {ID: "id", Payload: []byte("x"), Headers: []adapters.Header{
			{Key: "AWS.k", Value: []byte("v")}, {Key: "a..b", Value: []byte("v")}, {Key: ".a", Value: []byte("v")},
			{Key: "a b", Value: []byte("v")}, {Key: "b64:", Value: []byte("v")}, {Key: "\xff", Value: []byte("\xff")},
			{Key: strings.Repeat("k", 300), Value: []byte("v")},
		}},
		"many": {ID: "id", Payload: []byte("x"), Headers: many},
		"types": {ID: "id", Payload: []byte("x"), Headers: []adapters.Header{
			{Key: "n", Value: []byte("1.5"), Type: "Number"}, {Key: "i", Value: []byte("7"), Type: "Number.int"},
			{Key: "b", Value: []byte{0, 255}, Type: "Binary.png"}, {Key: "s", Value: []byte("x"), Type: "String.uuid"},
			{Key: "nan", Value: []byte("no number"), Type: "Number"}, {Key: "none", Value: []byte{}, Type: "Binary"},
		}},
		"ours by name": {ID: "id", Payload: []byte("x"), Headers: []adapters.Header{{Key: "_watermill_message_uuid", Value: []byte{1}, Type: "Binary"}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			checkWire(t, r)
		})
	}
}

func checkWire(t *testing.T, r adapters.Record) {
	t.Helper()
	state := []envelope.Pair{{Key: envelope.KeyAttempt, Value: "3"}}
	for _, state := range [][]envelope.Pair{nil, state} {
		body, attributes := sqs.Encode(r, state)
		if len(attributes) > 7 {
			t.Errorf("%d attributes: %v", len(attributes), attributes)
		}
		if body == "" || !isXML(body) {
			t.Errorf("SQS refuses the body %q", body)
		}
		for name, a := range attributes {
			if v := aws.ToString(a.StringValue); a.BinaryValue == nil && (v == "" || !isXML(v)) {
				t.Errorf("SQS refuses the attribute %s: %q", name, v)
			}
		}
		got, err := sqs.Decode(types.Message{Body: &body, MessageAttributes: attributes})
		if err != nil {
			t.Fatalf("decode: %v", err)
		}
		parsed := envelope.Parse(got.Headers, got.Position.Timestamp)
		if want := max(1, 3*len(state)); parsed.Attempt != want {
			t.Errorf("the state says attempt %d, want %d", parsed.Attempt, want)
		}
		got.Headers = envelope.StripHeaders(got.Headers)
		if !bytes.Equal(got.Payload, r.Payload) || got.ID != r.ID {
			t.Errorf("got %q %q, want %q %q", got.ID, got.Payload, r.ID, r.Payload)
		}
		byKey := cmpopts.SortSlices(func(a, b adapters.Header) bool { return a.Key < b.Key })
		if diff := cmp.Diff(r.Headers, got.Headers, byKey, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("headers (-want +got):\n%s", diff)
		}
	}
}

func isXML(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool {
		return r < ' ' && r != '\t' && r != '\n' && r != '\r' || r == 0xFFFE || r == 0xFFFF
	})
}

func FuzzWire(f *testing.F) {
	f.Add("id", []byte("payload"), "key", []byte("value"), "other", "String", []byte("v"))
	f.Add("", []byte("\xff"), "", []byte("\x00"), "b64:", "Number", []byte("1e5"))
	f.Add("\uFFFE", []byte{}, "spillwey-x", []byte("\uFFFF"), "AWS.x", "Binary.x", []byte{})
	f.Fuzz(func(t *testing.T, id string, payload []byte, key string, value []byte, typed, kind string, v []byte) {
		r := adapters.Record{ID: id, Payload: payload, Headers: []adapters.Header{{Key: key, Value: value}}}
		if typed != key && kind != "" && kind != "String" && utf8.ValidString(kind) && kind != adapters.TypeSystem {
			r.Headers = append(r.Headers, adapters.Header{Key: typed, Value: v, Type: kind})
		}
		for _, h := range r.Headers {
			if envelope.IsOwn(h.Key) || h.Key == "_watermill_message_uuid" {
				return // ours
			}
		}
		checkWire(t, r)
	})
}

// FuzzDecode: what anybody sends is a record, or raw with an error.
func FuzzDecode(f *testing.F) {
	f.Add("body", "spillway-metadata", "String", `{"v":1,"metadata":{"k":"v","t":{"type":"Number","value":"1"}}}`, "spillway-encoding", "base64")
	f.Add("!", "spillway-encoding", "String", "base64", "a", "b")
	f.Add("", "_watermill_message_uuid", "Binary", "x", "spillway-encoding", "gzip")
	f.Add("x", "spillway-metadata", "String", `{"metadata":{"b64:?":7}}`, "", "")
	f.Fuzz(func(t *testing.T, body, name, kind, value, other, text string) {
		attributes := map[string]types.MessageAttributeValue{
			other: {DataType: aws.String("String"), StringValue: &text},
			name:  {DataType: &kind, StringValue: &value, BinaryValue: []byte(value)},
			"nil": {},
		}
		r, err := sqs.Decode(types.Message{Body: &body, MessageAttributes: attributes})
		if err != nil && string(r.Payload) != body {
			t.Errorf("a body that cannot be read became %q", r.Payload)
		}
		for i := 1; i < len(r.Headers); i++ {
			if r.Headers[i-1].Key >= r.Headers[i].Key {
				t.Errorf("headers are not sorted, or repeat: %q, %q", r.Headers[i-1].Key, r.Headers[i].Key)
			}
		}
	})
}

// A message of a producer that knows neither Watermill nor Spillway: the id is
// SQS's, and travels.
func TestForeignMessages(t *testing.T) {
	t.Parallel()
	id, body := "a-b-c", "body"
	r, err := sqs.Decode(types.Message{Body: &body, MessageId: &id, Attributes: map[string]string{
		"SentTimestamp": "1700000000123", "MessageGroupId": "tenant", "ApproximateReceiveCount": "x",
	}, MessageAttributes: map[string]types.MessageAttributeValue{
		"_watermill_message_uuid": {DataType: aws.String("Binary"), BinaryValue: []byte("panics elsewhere")},
		"broken":                  {DataType: aws.String("String")},
	}})
	if err != nil || r.ID != id || string(r.Key) != "tenant" || r.Position.Timestamp.UnixMilli() != 1700000000123 || len(r.Headers) != 2 {
		t.Errorf("%+v, %v", r, err)
	}
}
