package envelope_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spillway-mq/spillway/envelope"
	"github.com/spillway-mq/spillway/failure"
)

func fullDeadLetter() envelope.DeadLetter {
	headers := []envelope.Header{
		header("content-type", "application/json"),
		header(envelope.KeyAttempt, "4"),
		header("tag", "a"),
		header("tag", "b"),
		{Key: "priority", Value: []byte("7"), Type: "int32"},
		{Key: "signature", Value: []byte{0xff, 0x00}},
		{Key: "empty", Value: []byte{}},
		{Key: "null"},
	}
	return envelope.FromState(fullState(), "5f1c", []byte("order-9001"), headers, []byte(`{"note":"<a & b>"}`))
}

// Exports and the API are read by programs of others.
func TestDeadLetterJSONIsFrozen(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	for _, d := range []envelope.DeadLetter{
		fullDeadLetter(),
		envelope.FromState(envelope.State{}, "", []byte{0xfe}, nil, []byte{0xff, 0x01}),
		{},
	} {
		e := json.NewEncoder(&b)
		e.SetIndent("", "  ")
		if err := e.Encode(d); err != nil {
			t.Fatal(err)
		}
	}
	golden(t, "deadletter.golden", b.String())
}

func TestDeadLetterSurvivesJSON(t *testing.T) {
	t.Parallel()
	binary := make([]byte, 256)
	for i := range binary {
		binary[i] = byte(i)
	}
	for name, payload := range map[string][]byte{
		"null":            nil,
		"empty":           {},
		"text":            []byte("plain\x00\u2028</script> 日本"),
		"JSON":            []byte("{\n  \"a\": 1.0\n}"),
		"a JSON string":   []byte(`"quoted"`),
		"not UTF-8":       []byte("a\xc3"),
		"every byte":      binary,
		"a broken half":   []byte("\xed\xa0\x80"),
		"replacement":     []byte("\ufffd"),
		"base64 as text":  []byte("AAEC"),
		"one MiB of text": bytes.Repeat([]byte("界"), 1<<20/3),
	} {
		d := fullDeadLetter()
		d.FailedMessage.Payload, d.FailedMessage.Key = payload, payload
		text, err := json.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		got, err := envelope.DecodeDeadLetter(text)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if diff := cmp.Diff(d, got, exactBytes); diff != "" {
			t.Errorf("%s (-want +got):\n%.2000s", name, diff)
		}
		// Inside of other documents as well.
		var list []*envelope.DeadLetter
		if err := json.Unmarshal([]byte("["+string(text)+"]"), &list); err != nil || !cmp.Equal(*list[0], d, exactBytes) {
			t.Errorf("%s: in a list: %v", name, err)
		}
	}
}

func TestFailureTimeStandsInForAnUnknownFirstAttempt(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 1, 11, 59, 0, 0, time.UTC)
	d := envelope.FromState(envelope.State{DeadLetteredAt: at}, "", nil, nil, nil)
	if !d.Failure.FirstAttemptAt.Equal(at) || d.Failure.Attempts != 1 {
		t.Errorf("from state: %v, %d attempts", d.Failure.FirstAttemptAt, d.Failure.Attempts)
	}
	for _, text := range []string{
		`{"payload":"x","deadLetteredAt":"2026-03-01T11:59:00Z"}`,
		`{"failedMessage":"x","failure":{"failedAt":"2026-03-01T11:59:00Z"}}`,
		`{"deadLetterId":"a","failedMessage":{},"failure":{"failedAt":"2026-03-01T11:59:00Z"}}`,
	} {
		d, err := envelope.DecodeDeadLetter([]byte(text))
		if err != nil || !d.Failure.FirstAttemptAt.Equal(at) || !d.Failure.FailedAt.Equal(at) {
			t.Errorf("%s: %v, %v", text, d.Failure.FirstAttemptAt, err)
		}
	}
}

func TestFlatFormsAreRead(t *testing.T) {
	t.Parallel()
	first := time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC)
	failed := time.Date(2026, 3, 1, 11, 0, 0, 500_000_000, time.UTC)
	unknown := func(payload string) envelope.DeadLetter {
		var d envelope.DeadLetter
		if payload != "" {
			d.FailedMessage.Payload = []byte(payload)
		}
		d.Failure.Class, d.Failure.Nature = failure.ClassUnknown, failure.NatureUnknown
		return d
	}
	for name, tc := range map[string]struct {
		text string
		want envelope.DeadLetter
	}{
		"flat": {
			`{"payload":"{\"id\":1}","errorClass":"validation","errorMessage":"bad","consumerVersion":"1.2","traceId":"t","attempts":3,
			  "firstAttemptAt":"2026-03-01T10:00:00Z","deadLetteredAt":"2026-03-01T12:00:00.5+01:00"}`,
			envelope.DeadLetter{
				FailedMessage: envelope.FailedMessage{Payload: []byte(`{"id":1}`)},
				Failure: envelope.FailureInfo{
					Class: failure.ClassValidation, Nature: failure.NatureUnknown, Message: "bad", Attempts: 3,
					FirstAttemptAt: first, FailedAt: failed,
				},
				Consumer: envelope.ConsumerInfo{Version: "1.2"},
				TraceID:  "t",
			},
		},
		"nested": {
			`{"failedMessage":{"id": 1,  "payload":"x"},"failure":{"code":"503","message":"down","attempts":4,"failedAt":"2026-03-01T11:00:00.5Z"},"source":"orders"}`,
			envelope.DeadLetter{
				FailedMessage: envelope.FailedMessage{Payload: []byte(`{"id": 1,  "payload":"x"}`)},
				Failure: envelope.FailureInfo{
					Class: failure.ClassUnknown, Nature: failure.NatureUnknown, Code: "503", Message: "down", Attempts: 4,
					FirstAttemptAt: failed, FailedAt: failed,
				},
				Source: envelope.SourceInfo{Position: envelope.Position{Topic: "orders"}},
			},
		},
		"nested, source as object": {
			`{"failedMessage":"x","failure":{},"source":{"broker":"kafka","topic":"orders","partition":"3","offset":9007199254740993,"timestamp":"2026-03-01T10:00:00Z"}}`,
			func() envelope.DeadLetter {
				d := unknown("x")
				d.Source = envelope.SourceInfo{Broker: "kafka", Position: envelope.Position{
					Topic: "orders", Partition: new(int32(3)), Offset: new(int64(9007199254740993)), Timestamp: first,
				}}
				return d
			}(),
		},
		"numbers as text, text as numbers": {
			`{"payload":"x","errorClass":7,"consumerVersion":12,"traceId":1.50,"attempts":"3","errorMessage":true}`,
			func() envelope.DeadLetter {
				d := unknown("x")
				d.Failure.Class, d.Failure.Attempts, d.Failure.Message = "7", 3, "true"
				d.Consumer.Version, d.TraceID = "12", "1.50"
				return d
			}(),
		},
		"attempts with decimals":  {`{"payload":"x","attempts":3.0}`, func() envelope.DeadLetter { d := unknown("x"); d.Failure.Attempts = 3; return d }()},
		"nulls":                   {`{"payload":null,"errorClass":null,"attempts":null,"firstAttemptAt":null,"deadLetteredAt":""}`, unknown("")},
		"payload as object":       {`{"payload": {"a" : [1, 2.50]} , "errorClass":null}`, unknown(`{"a" : [1, 2.50]}`)},
		"payload as list":         {`{"payload":[1,2]}`, unknown(`[1,2]`)},
		"payload as number":       {`{"payload":1e400}`, unknown(`1e400`)},
		"payload as false":        {`{"payload":false}`, unknown(`false`)},
		"payload in base64":       {`{"payloadBase64":"/wA="}`, unknown("\xff\x00")},
		"failed message as text":  {`{"failedMessage":"<xml/>"}`, unknown("<xml/>")},
		"failed message as list":  {`{"failedMessage":[{}]}`, unknown(`[{}]`)},
		"only an error":           {`{"errorMessage":"gone"}`, func() envelope.DeadLetter { d := unknown(""); d.Failure.Message = "gone"; return d }()},
		"flat with an id":         {`{"deadLetterId":"x1","payload":"x"}`, func() envelope.DeadLetter { d := unknown("x"); d.ID = "x1"; return d }()},
		"unknown fields, any one": {`{"payload":"x","extra":{"a":[]},"attempt":"many"}`, unknown("x")},
	} {
		got, err := envelope.DecodeDeadLetter([]byte(tc.text))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	// An empty payload is not a null payload.
	if d, err := envelope.DecodeDeadLetter([]byte(`{"payload":""}`)); err != nil || d.FailedMessage.Payload == nil {
		t.Errorf("empty payload: %v, %v", d.FailedMessage.Payload, err)
	}
}

func TestHeadersAreReadFromAnObjectToo(t *testing.T) {
	t.Parallel()
	d, err := envelope.DecodeDeadLetter([]byte(`{"deadLetterId":"a","failedMessage":{"headers":
		{"z":"1","a":["2","3"],"z":"4","n":5,"t":true,"none":null,"o":{"x": 1}}}}`))
	want := []envelope.Header{
		header("z", "1"), header("a", "2"), header("a", "3"), header("z", "4"),
		header("n", "5"), header("t", "true"), {Key: "none"}, header("o", `{"x": 1}`),
	}
	if diff := cmp.Diff(want, d.FailedMessage.Headers); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

// O18: who feeds a file of dead letters is told what is wrong with a line, all
// of it at once, and never reads the payload in a log.
func TestErrorsNameTheFields(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		text string
		want []string
	}{
		"not JSON":     {`{"payload":`, []string{"unexpected end"}},
		"empty":        {``, []string{"unexpected end"}},
		"trailing":     {`{"payload":"x"} x`, []string{"invalid character"}},
		"a list":       {`[{"payload":"x"}]`, []string{"a list, want an object"}},
		"a text":       {`"secret"`, []string{"a text, want an object"}},
		"null":         {`null`, []string{"neither failedMessage nor payload", "{failedMessage, failure{"}},
		"other object": {`{"orderId":1}`, []string{"neither failedMessage nor payload", "deadLetterId", "errorClass"}},
		"wrong fields": {
			`{"payload":"secret","attempts":"secret","firstAttemptAt":"secret","deadLetteredAt":1772362800,"errorClass":{"secret":1},"traceId":["secret"]}`,
			[]string{"attempts: a text, want a whole number from 0", "firstAttemptAt: a text, want a time in RFC 3339", "deadLetteredAt: a number, want a time", "errorClass: an object, want text", "traceId: a list, want text"},
		},
		"wrong counts": {
			`{"failedMessage":"x","failure":{"attempts":-1},"source":{"partition":2147483648,"offset":1.5}}`,
			[]string{"failure.attempts: a number, want a whole number from 0 to 1000000", "source.partition: a number, want a whole number from 0 to 2147483647", "source.offset: a number"},
		},
		"wrong shapes": {
			`{"failedMessage":"x","failure":"secret","source":[]}`,
			[]string{"failure: a text, want an object", "source: a list, want an object"},
		},
		"own form": {
			`{"deadLetterId":"a","failedMessage":{"payloadBase64":"***secret","keyBase64":5,"headers":[{"key":"a","valueBase64":"*"}],"droppedHeaders":{}},
			  "failure":{"truncated":"secret"},"consumer":1,"replay":{"count":"x"}}`,
			[]string{"failedMessage.payloadBase64: a text, want text in base64", "failedMessage.keyBase64: a number", "failedMessage.headers[0].valueBase64",
				"failedMessage.droppedHeaders: an object, want a list", "failure.truncated: a text, want true or false", "consumer: a number, want an object", "replay.count"},
		},
		"own form, failed message as text": {`{"deadLetterId":"a","failedMessage":"secret"}`, []string{"failedMessage: a text, want an object"}},
		"headers without key":              {`{"deadLetterId":"a","failedMessage":{"headers":[{"value":"secret"}]}}`, []string{"failedMessage.headers: a list, want each of its entries"}},
		"headers as text":                  {`{"deadLetterId":"a","failedMessage":{"headers":"secret"}}`, []string{"failedMessage.headers: a text"}},
		"names as objects":                 {`{"deadLetterId":"a","failedMessage":{"droppedHeaders":[{}]}}`, []string{"failedMessage.droppedHeaders: a list, want a list of texts"}},
	} {
		d, err := envelope.DecodeDeadLetter([]byte(tc.text))
		if err == nil {
			t.Errorf("%s: accepted", name)
			continue
		}
		for _, part := range tc.want {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: error %q lacks %q", name, err, part)
			}
		}
		if strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: error %q shows a value", name, err)
		}
		if diff := cmp.Diff(envelope.DeadLetter{}, d); diff != "" {
			t.Errorf("%s: an error, and a dead letter: %s", name, diff)
		}
		kept := envelope.DeadLetter{ID: "kept"}
		if json.Unmarshal([]byte(tc.text), &kept) == nil && tc.text != "null" || kept.ID != "kept" {
			t.Errorf("%s: json.Unmarshal: id %q", name, kept.ID)
		}
	}
}
