package foreign_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/envelope"
	"github.com/spillway-mq/spillway/failure"
	"github.com/spillway-mq/spillway/poison"
	"github.com/spillway-mq/spillway/poison/foreign"
)

var update = flag.Bool("update", false, "write the golden files")

// fixture is a drained record as testdata has it.
type fixture struct {
	Broker, Stream, ID string
	Key, Payload       *string
	Partition          *int32
	Offset             *int64
	Timestamp          time.Time
	Headers            []struct {
		Key, Value, Type string
		Base64           []byte
		Int32            *int32
		Int64            *int64
	}
}

func (f fixture) record() (adapters.Record, foreign.From) {
	r := adapters.Record{ID: f.ID, Position: envelope.Position{Topic: f.Stream, Partition: f.Partition, Offset: f.Offset, Timestamp: f.Timestamp}}
	if f.Key != nil {
		r.Key = []byte(*f.Key)
	}
	if f.Payload != nil {
		r.Payload = []byte(*f.Payload)
	}
	for _, h := range f.Headers {
		value := []byte(h.Value)
		switch {
		case h.Base64 != nil:
			value = h.Base64
		case h.Int32 != nil:
			value = binary.BigEndian.AppendUint32(nil, uint32(*h.Int32))
		case h.Int64 != nil:
			value = binary.BigEndian.AppendUint64(nil, uint64(*h.Int64))
		}
		r.Headers = append(r.Headers, adapters.Header{Key: h.Key, Value: value, Type: h.Type})
	}
	return r, foreign.From{Broker: f.Broker}
}

// fixtures calls fn for every record of testdata.
func fixtures(tb testing.TB, fn func(file string, r adapters.Record, from foreign.From)) {
	tb.Helper()
	files, err := filepath.Glob("testdata/*.json")
	if err != nil || len(files) == 0 {
		tb.Fatalf("no fixtures: %v", err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			tb.Fatal(err)
		}
		var f fixture
		if err := json.Unmarshal(data, &f); err != nil {
			tb.Fatalf("%s: %v", file, err)
		}
		r, from := f.record()
		fn(file, r, from)
	}
}

func TestDecode(t *testing.T) {
	t.Parallel()
	seen := map[foreign.Format]bool{}
	fixtures(t, func(file string, r adapters.Record, from foreign.From) {
		d, format := foreign.Decode(r, from)
		seen[format] = true
		if !strings.HasPrefix(filepath.Base(file), string(format)) {
			t.Errorf("%s was taken for %s", file, format)
		}
		kept(t, r, d, format)
		compact, err := d.MarshalJSON() // json.Marshal would escape for HTML
		if err != nil {
			t.Fatal(err)
		}
		var got bytes.Buffer
		if err := json.Indent(&got, compact, "", "  "); err != nil {
			t.Fatal(err)
		}
		got.WriteByte('\n')
		golden := strings.TrimSuffix(file, ".json") + ".golden"
		if *update {
			if err := os.WriteFile(golden, got.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), got.String()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", file, diff)
		}
		again, _ := foreign.Decode(r, from)
		if d.ID == "" || d.ID != again.ID {
			t.Errorf("%s: ids %q and %q", file, d.ID, again.ID)
		}
	})
	if len(seen) != 13 {
		t.Errorf("the fixtures cover %d formats: %v", len(seen), seen)
	}
}

// O18: a record without any header that we know is no reason to stop, and
// nothing of it gets lost.
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
		Source:        envelope.SourceInfo{Broker: "kafka", Position: r.Position},
	}
	want.Failure.Message = `no evidence of a failure: lay in stream "errors"`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Who is not known may still have said what went wrong.
func TestDecodeOfNothingKnownFindsTheErrorsText(t *testing.T) {
	t.Parallel()
	const none = `no evidence of a failure: lay in stream "errors"`
	for name, test := range map[string]struct {
		headers []adapters.Header
		payload string
		want    string
	}{
		"header":              {[]adapters.Header{text("X-Error-Message", "no customer 7")}, `{"error":"body"}`, "no customer 7"},
		"the last header":     {[]adapters.Header{text("error", "first"), text("error", "second")}, "", "second"},
		"the most telling":    {[]adapters.Header{text("error", "E7"), text("errorDescription", "no customer")}, "", "no customer"},
		"Azure":               {[]adapters.Header{text("DeadLetterReason", "MaxDeliveryCountExceeded")}, "", "MaxDeliveryCountExceeded"},
		"empty header":        {[]adapters.Header{text("error", " ")}, "", none},
		"a broker's own":      {[]adapters.Header{{Key: "error", Value: []byte("x"), Type: "system"}}, "", none},
		"field":               {nil, `{"order":7,"error":" boom "}`, "boom"},
		"object":              {nil, `{"error":{"code":7,"message":"boom"}}`, "boom"},
		"two alike":           {nil, `{"error":"b","ERROR":"a"}`, "a"},
		"no text":             {nil, `{"error":true,"err":["x"],"exception":{"a":1}}`, none},
		"of the business":     {nil, `{"reason":"changed her mind","status":"returned"}`, none},
		"no JSON":             {nil, `{"error":`, none},
		"secrets stay hidden": {nil, `{"error":"login failed: password=hunter2"}`, "login failed: password=<q>"},
	} {
		r := drained(test.headers...)
		r.Payload = []byte(test.payload)
		d, format := foreign.Decode(r, foreign.From{})
		if d.Failure.Message != test.want || d.Failure.Class != failure.ClassUnknown || format != foreign.FormatUnknown {
			t.Errorf("%s: %q of class %q in format %q, want %q", name, d.Failure.Message, d.Failure.Class, format, test.want)
		}
	}
}

// kept reports what Decode lost or made too large.
func kept(t *testing.T, r adapters.Record, d envelope.DeadLetter, format foreign.Format) {
	t.Helper()
	m := d.FailedMessage
	if format == foreign.FormatJSON {
		if last := m.Headers[len(m.Headers)-1]; last.Key != foreign.KeyBody || !json.Valid(last.Value) {
			t.Errorf("the rest of the body is %q", last.Value)
		}
	} else if !bytes.Equal(m.Payload, r.Payload) || (m.Payload == nil) != (r.Payload == nil) {
		t.Errorf("payload %q, want %q", m.Payload, r.Payload)
	} else if !bytes.Equal(m.Key, r.Key) || m.ID != r.ID {
		t.Errorf("key %q and id %q, want %q and %q", m.Key, m.ID, r.Key, r.ID)
	} else if want := envelope.StripHeaders(r.Headers); !slices.EqualFunc(want, m.Headers, sameHeader) {
		t.Errorf("headers %q, want %q", m.Headers, want)
	}
	for of, text := range map[string]string{
		"id": d.ID, "class": string(d.Failure.Class), "nature": string(d.Failure.Nature), "code": string(d.Failure.Code),
		"message": d.Failure.Message, "reason": d.Failure.Reason, "broker": d.Source.Broker, "topic": d.Source.Topic,
		"group": d.Consumer.Group, "handler": d.Consumer.Handler, "type": m.Type, "trace": d.TraceID,
	} {
		if len(text) > 4*envelope.MaxErrorRunes {
			t.Errorf("%s has %d bytes", of, len(text))
		}
	}
	if d.ID == "" || d.Failure.Class == "" && format != foreign.FormatSpillway {
		t.Errorf("id %q, class %q", d.ID, d.Failure.Class)
	}
	if n := d.Failure.Attempts; n < 0 || n > envelope.MaxCount {
		t.Errorf("%d attempts", n)
	}
	out, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := envelope.DecodeDeadLetter(out); err != nil {
		t.Errorf("%s\n%v", out, err)
	}
}

func sameHeader(a, b adapters.Header) bool {
	return a.Key == b.Key && a.Type == b.Type && bytes.Equal(a.Value, b.Value)
}

func drained(headers ...adapters.Header) adapters.Record {
	return adapters.Record{
		ID: "id-1", Payload: []byte("body"), Headers: headers,
		Position: envelope.Position{Topic: "errors", Partition: new(int32(0)), Offset: new(int64(1)), Timestamp: at},
	}
}

// Two consumers that gave up the same message share a dead letter topic, and
// nobody tells who they are: that is two dead letters.
func TestDecodeTakesNoTwoRecordsForOne(t *testing.T) {
	t.Parallel()
	headers := []adapters.Header{
		text("__streams.errors.topic", "orders"), text("__streams.errors.partition", "1"), text("__streams.errors.offset", "5"),
	}
	one, two := drained(headers...), drained(headers...)
	two.Position.Offset = new(int64(2))
	a, _ := foreign.Decode(one, foreign.From{Broker: "kafka"})
	b, _ := foreign.Decode(two, foreign.From{Broker: "kafka"})
	again, _ := foreign.Decode(one, foreign.From{Broker: "kafka"})
	if a.ID == b.ID || a.ID != again.ID || *a.Source.Offset != 5 {
		t.Errorf("ids %q, %q and %q", a.ID, b.ID, again.ID)
	}

	// A body can be copied, and says what its writer wants.
	one, two = drained(), drained()
	one.Payload = []byte(`{"deadLetterId":"x","failedMessage":{"id":"m"},"failure":{"class":"validation"}}`)
	two.Payload, two.Position.Offset = one.Payload, new(int64(2))
	a, _ = foreign.Decode(one, foreign.From{})
	b, format := foreign.Decode(two, foreign.From{})
	if a.ID == b.ID || a.ID == "x" || format != foreign.FormatJSON {
		t.Errorf("%s: ids %q and %q", format, a.ID, b.ID)
	}
}

// O32 and invariant 10: state that a producer wrote into its message counts for
// nothing when the broker moved the message out of the main stream.
func TestDecodeIgnoresForgedState(t *testing.T) {
	t.Parallel()
	forged := stateOf(envelope.State{
		Attempt: 900, ConsumerGroup: "billing", Source: envelope.Position{Topic: "orders"}, Class: "forged",
		Reason: "permanent", DeadLetteredAt: at, DeadLetterID: "somebody-elses",
	})
	arn := func(queue string) adapters.Header {
		return adapters.Header{Key: "sqs:DeadLetterQueueSourceArn", Value: []byte("arn:aws:sqs:eu-west-1:000000000000:" + queue), Type: "system"}
	}
	for name, test := range map[string]struct {
		r    adapters.Record
		want foreign.Format
	}{
		"x-death":        {record(rejected, forged...), foreign.FormatRabbitMQ},
		"redrive":        {drained(append(forged, arn("orders"))...), foreign.FormatSQS},
		"PoisonQueue":    {drained(append(forged, text("reason_poisoned", "boom"))...), foreign.FormatWatermill},
		"a redriven dlq": {drained(append(forged, arn("orders-dlq"))...), foreign.FormatSQS},
	} {
		d, format := foreign.Decode(test.r, foreign.From{})
		if format != test.want || d.ID == "somebody-elses" || d.Failure.Class != failure.ClassUnknown || d.Failure.Attempts > 1 {
			t.Errorf("%s: %s, %+v", name, format, d)
		}
	}
	// Where only Spillway writes, it is believed.
	for name, r := range map[string]adapters.Record{
		"its own stream":          {Headers: append(forged, text("reason_poisoned", "copied by a handler")), Position: envelope.Position{Topic: "orders.billing.dlq"}},
		"redriven from its own":   drained(append(forged, arn("orders-billing-dlq"))...),
		"and .fifo":               drained(append(forged, arn("orders-billing-dlq.fifo"))...),
		"nobody else wrote":       drained(forged...),
		"a broker that is silent": {Headers: forged},
	} {
		if d, format := foreign.Decode(r, foreign.From{}); format != foreign.FormatSpillway || d.ID != "somebody-elses" {
			t.Errorf("%s: %s, id %q", name, format, d.ID)
		}
	}
	// What looks like a system attribute and is none moves nothing.
	user := arn("orders")
	user.Type = ""
	if _, format := foreign.Decode(drained(user), foreign.From{}); format != foreign.FormatUnknown {
		t.Errorf("a header of a user was taken for a redrive: %s", format)
	}
}

// O19: whatever a header holds, what is kept of it has a limit.
func TestDecodeBoundsWhatItReads(t *testing.T) {
	t.Parallel()
	huge := strings.Repeat("é", 1<<14)
	fixtures(t, func(file string, r adapters.Record, from foreign.From) {
		for i, h := range r.Headers {
			if h.Type == "" {
				r.Headers[i].Value = []byte(huge)
			}
		}
		d, format := foreign.Decode(r, from)
		kept(t, r, d, format)
	})
	d, _ := foreign.Decode(drained(text("reason_poisoned", huge)), foreign.From{})
	if !d.Failure.Truncated {
		t.Error("the cut text is not marked")
	}
}

// Spring writes integers big-endian; programs that imitate it write text.
func TestDecodeReadsBigEndianIntegers(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		partition, offset, attempts string
		wantPartition, wantOffset   int64 // -1 for none
		wantAttempts                int
	}{
		"binary":                {"\x00\x00\x00\x07", "\x00\x00\x01\x00\x00\x00\x00\x02", "\x00\x00\x00\x04", 7, 1<<40 + 2, 3},
		"text":                  {"7", "12345678", "4", 7, 12345678, 51},
		"text of four":          {"1234", "99", "0012", 1234, 99, 11},
		"first versions":        {"\x00\x00\x00\x00", "\x00\x00\x00\x00\x00\x00\x00\x00", "\x03", 0, 0, 2},
		"not known":             {"\xff\xff\xff\xff", "\xff\xff\xff\xff\xff\xff\xff\xff", "\xff\xff\xff\xff", -1, -1, 0},
		"not known, in text":    {"-1", "-1", "-1", -1, -1, 0},
		"of another width":      {"\x00\x07", "\x00\x07", "\x00\x07", -1, -1, 0},
		"too large a partition": {"4294967296", "9223372036854775808", "99999999999", -1, -1, envelope.MaxCount - 1},
		"nothing":               {"", "", "", -1, -1, 0},
	} {
		d, _ := foreign.Decode(drained(
			text("kafka_dlt-original-topic", "orders"), text("kafka_dlt-original-partition", test.partition),
			text("kafka_dlt-original-offset", test.offset), text("retry_topic-attempts", test.attempts),
		), foreign.From{})
		partition, offset := int64(-1), int64(-1)
		if d.Source.Partition != nil {
			partition = int64(*d.Source.Partition)
		}
		if d.Source.Offset != nil {
			offset = *d.Source.Offset
		}
		if partition != test.wantPartition || offset != test.wantOffset || d.Failure.Attempts != test.wantAttempts {
			t.Errorf("%s: partition %d, offset %d, %d attempts", name, partition, offset, d.Failure.Attempts)
		}
	}
}

// O48: others write error texts as they come.
func TestDecodeRedactsForeignTexts(t *testing.T) {
	t.Parallel()
	const secret = "hunter2"
	inJSON := drained()
	inJSON.Payload = []byte(`{"payload":"x","errorMessage":"dial amqp://app:hunter2@host: refused"}`)
	for _, r := range []adapters.Record{
		inJSON,
		drained(text("reason_poisoned", "wrong password \"hunter2\"")),
		drained(text("x-exception-stacktrace", "a.B: connect with password=hunter2\n\tat a.B.c(B.java:1)")),
		drained(text("MT-Fault-Message", "Server=db;Password=hunter2;")),
	} {
		d, format := foreign.Decode(r, foreign.From{})
		if f := d.Failure; f.Message == "" || strings.Contains(f.Message, secret) {
			t.Errorf("%s: %q", format, f.Message)
		}
	}
	// The operator's own rules apply as well.
	redactor, err := poison.NewRedactor(poison.Redaction{Patterns: []poison.Pattern{{Name: "account", Regexp: `ACC-\d+`}}})
	if err != nil {
		t.Fatal(err)
	}
	d, _ := foreign.Decode(drained(text("reason_poisoned", "no such account ACC-4711")), foreign.From{Redactor: redactor})
	if d.Failure.Message != "no such account <q>" {
		t.Errorf("%q", d.Failure.Message)
	}
}

// What looks like a dead letter in JSON and is none stays the body that it is.
func TestDecodeLeavesBodiesAlone(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{
		"no error":          `{"payload":{"id":1},"type":"error"}`,
		"no message":        `{"errorClass":"validation","errorMessage":"no"}`,
		"no failure":        `{"failedMessage":"x","source":"orders"}`,
		"an empty failure":  `{"failedMessage":"x","failure":{}}`,
		"failure is a text": `{"failedMessage":"x","failure":"no"}`,
		"null":              `{"payload":"x","errorMessage":null}`,
		"wrong types":       `{"payload":"x","errorMessage":"no","attempts":"many"}`,
		"cut":               `{"payload":"x","errorMessage":"no"`,
		"a list":            `[{"payload":"x","errorMessage":"no"}]`,
		"a text":            `"errorMessage failedMessage"`,
		"nothing":           ``,
	} {
		r := drained()
		r.Payload = []byte(body)
		d, format := foreign.Decode(r, foreign.From{})
		if format != foreign.FormatUnknown || string(d.FailedMessage.Payload) != body {
			t.Errorf("%s: %s, payload %q", name, format, d.FailedMessage.Payload)
		}
	}
}

// Of a chain of exceptions, the text is of the first that says something, and
// the class of the first that is known.
func TestDecodeReadsCauses(t *testing.T) {
	t.Parallel()
	const wrapper = "org.springframework.amqp.rabbit.support.ListenerExecutionFailedException: Listener threw exception\n\tat a.B.c(B.java:1)\n"
	for name, test := range map[string]struct {
		trace, code, message string
		class                failure.Class
	}{
		"the cause":          {wrapper + "Caused by: com.example.Boom: it broke\r\n\t... 3 more", "com.example.Boom", "it broke", failure.ClassUnknown},
		"a known one within": {wrapper + "Caused by: com.example.Boom: it broke\nCaused by: java.net.ConnectException: refused", "com.example.Boom", "it broke", failure.ClassDependencyUnavailable},
		"without a text":     {wrapper + "Caused by: java.lang.NullPointerException\n", "java.lang.NullPointerException", "java.lang.NullPointerException", failure.ClassUnknown},
		"only a wrapper":     {wrapper, "org.springframework.amqp.rabbit.support.ListenerExecutionFailedException", "Listener threw exception", failure.ClassUnknown},
		"no trace":           {"something went wrong: at (all)", "", "", failure.ClassUnknown},
		"cut in a cause":     {wrapper + "Caused by: java.net.Sock", "java.net.Sock", "java.net.Sock", failure.ClassUnknown},
		"no end of causes":   {strings.Repeat("Caused by: a.B: c\n", 1<<16), "a.B", "c", failure.ClassUnknown},
	} {
		d, _ := foreign.Decode(drained(text("x-exception-stacktrace", test.trace)), foreign.From{})
		f := d.Failure
		if string(f.Code) != test.code || f.Message != test.message || f.Class != test.class {
			t.Errorf("%s: code %q, message %q, class %s", name, f.Code, f.Message, f.Class)
		}
	}
}
