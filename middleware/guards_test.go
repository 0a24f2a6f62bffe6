package middleware_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
	"testing"
	"unicode/utf8"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/go-cmp/cmp"

	"github.com/spillway-mq/spillway/failure"
	"github.com/spillway-mq/spillway/middleware"
)

// batchRecorder is a publisher that remembers its calls.
type batchRecorder struct {
	calls  [][]*message.Message
	topics []string
	err    error
	closed int
}

func (r *batchRecorder) Publish(topic string, messages ...*message.Message) error {
	r.topics = append(r.topics, topic)
	r.calls = append(r.calls, messages)
	return r.err
}

func (r *batchRecorder) Close() error {
	r.closed++
	return r.err
}

func guarded(t *testing.T, pub message.Publisher, decorators ...message.PublisherDecorator) message.Publisher {
	t.Helper()
	for _, d := range decorators {
		var err error
		if pub, err = d(pub); err != nil {
			t.Fatal(err)
		}
	}
	return pub
}

func guardMessage(payload string, metadata ...string) *message.Message {
	m := message.NewMessage("m-1", []byte(payload))
	for i := 0; i < len(metadata); i += 2 {
		m.Metadata[metadata[i]] = metadata[i+1]
	}
	return m
}

func TestStripControlCharacters(t *testing.T) {
	t.Parallel()
	const (
		jsonType = "application/json"
		textType = "text/plain; charset=utf-8"
	)
	tests := []struct {
		name        string
		contentType string
		action      middleware.StripAction
		in, want    string
		removed     int
	}{
		{"clean text", textType, "", "a\tb\r\nc é 漢 \u2028", "a\tb\r\nc é 漢 \u2028", 0},
		{"empty", textType, "", "", "", 0},
		{"C0", textType, "", "\x00a\x01b\x08\x0b\x0c\x0e\x1b[0m\x1f", "ab[0m", 8},
		{"DEL and C1", textType, "", "a\x7fb\u0080c\u0085d\u009fe\u00a0", "abcde\u00a0", 4},
		{"noncharacters", textType, "", "a\ufffeb\uffffc\ufffd\ufeff", "abc\ufffd\ufeff", 2},
		{"backslashes mean nothing in text", textType, "", `C:\u0000\b`, `C:\u0000\b`, 0},
		{"replace in text", textType, middleware.StripReplace, "a\x00\x01b", "a\ufffd\ufffdb", 2},
		{"invalid UTF-8 is binary", textType, "", "a\x00\xff", "a\x00\xff", 0},
		{"truncated C1 is binary", textType, "", "a\x00\xc2", "a\x00\xc2", 0},
		{"encoded surrogate is binary", textType, "", "a\x00\xed\xa0\x80", "a\x00\xed\xa0\x80", 0},

		{"the fiscal incident", jsonType, "", "{\"info\":\"item\x1b 3\"}", `{"info":"item 3"}`, 1},
		{"escapes", jsonType, "", `{"a":"x\u0000y\u001Bz\u007f\u009F\uFFFE\uffff\b\f"}`, `{"a":"xyz"}`, 8},
		{"escapes of keys", jsonType, "", `{"a\u0000":1}`, `{"a":1}`, 1},
		{"other escapes", jsonType, "", `"\u0009\u000a\u000D\n\t\r\"\/\\u0000\u00e9\ufffd"`, `"\u0009\u000a\u000D\n\t\r\"\/\\u0000\u00e9\ufffd"`, 0},
		{"escaped backslash before an escape", jsonType, "", `"\\\u0000\\"`, `"\\\\"`, 1},
		{"pair of surrogates", jsonType, "", `"\ud83d\uDE00"`, `"\ud83d\uDE00"`, 0},
		{"halves of surrogates", jsonType, "", `"a\ud83db\ude00c\ude00\ud83d"`, `"abc"`, 4},
		{"halves that would meet", jsonType, "", `"\ud83d\u0000\ude00"`, `""`, 3},
		{"two first halves", jsonType, "", `"\ud83d\ud83d\ude00"`, `"\ud83d\ude00"`, 1},
		{"halves that a raw character parted", jsonType, "", "\"\\ud83d\x01\\ude00\"", `"\ud83d\ude00"`, 1},
		{"replace in JSON", jsonType, middleware.StripReplace, "\"\x00\\u0000\\b\\ud800\"", "\"\ufffd" + `\ufffd\ufffd\ufffd"`, 4},
		{"all else byte for byte", jsonType, "", "{ \"b\" : 1.00e+02,\r\n\t\"a\":\"\\u0001\",\"a\":12345678901234567890 }", "{ \"b\" : 1.00e+02,\r\n\t\"a\":\"\",\"a\":12345678901234567890 }", 1},
		{"no JSON: escapes stay", jsonType, "", "{\"a\":\"\\x \\u0000\x01\"}", `{"a":"\x \u0000"}`, 1},
		{"cut escape", jsonType, "", `"\u0000\u00`, `"\u0000\u00`, 0},
		{"cut backslash", jsonType, "", `"\u0000\`, `"\u0000\`, 0},
		{"structured syntax", "application/cloudevents+json; charset=utf-8", "", `"\u0000"`, `""`, 1},
		{"JSON lines", "application/x-ndjson", "", "\"\\u0000\"\n\"\\b\"\n", "\"\"\n\"\"\n", 2},

		{"XML", "application/xml", "", "<a>\x0b</a>", "<a></a>", 1},
		{"upper case media type", "TEXT/XML", "", "<a>\x0b</a>", "<a></a>", 1},
		{"declared binary", "application/octet-stream", "", "a\x00", "a\x00", 0},
		{"declared protobuf", "application/x-protobuf", "", "\n\x03abc", "\n\x03abc", 0},
		{"JSON sequences begin with a control character", "application/json-seq", "", "\x1e{}\n", "\x1e{}\n", 0},
		{"image", "image/png", "", "{\"a\":\"\x00\"}", "{\"a\":\"\x00\"}", 0},

		{"undeclared JSON", "", "", " {\"a\":\"\x00\\u0000\"}\n", " {\"a\":\"\"}\n", 2},
		{"undeclared JSON string", "", "", `"\u0000"`, `""`, 1},
		{"undeclared and no JSON after all", "", "", "{\x00}x}", "{\x00}x}", 0},
		{"undeclared XML", "", "", "<?xml version=\"1.0\"?><a>\x00</a>\n", "<?xml version=\"1.0\"?><a></a>\n", 1},
		{"undeclared protobuf is valid UTF-8 too", "", "", "\n\x03abc\x12\x01d", "\n\x03abc\x12\x01d", 0},
		{"undeclared text", "", "", "a\x00b", "a\x00b", 0},
		{"unknown media type", "application/vnd.acme.order", "", "a\x00b", "a\x00b", 0},
		{"garbled media type", "json", "", "a\x00b", "a\x00b", 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var infos []middleware.StripInfo
			rec := &batchRecorder{}
			pub := guarded(t, rec, middleware.StripControlCharacters(middleware.StripConfig{
				Action:  tt.action,
				OnStrip: func(_ context.Context, info middleware.StripInfo) { infos = append(infos, info) },
			}))
			msg := guardMessage(tt.in)
			if tt.contentType != "" {
				msg.Metadata["Content-Type"] = tt.contentType
			}
			if err := pub.Publish("orders", msg); err != nil {
				t.Fatal(err)
			}
			got := rec.calls[0][0]
			if string(got.Payload) != tt.want {
				t.Errorf("published %q, want %q", got.Payload, tt.want)
			}
			if string(msg.Payload) != tt.in {
				t.Errorf("the caller's payload was changed to %q", msg.Payload)
			}
			var want []middleware.StripInfo
			if tt.removed > 0 {
				want = []middleware.StripInfo{{Topic: "orders", MessageID: "m-1", Removed: tt.removed}}
			} else if got != msg {
				t.Error("a clean message was copied")
			}
			if diff := cmp.Diff(want, infos); diff != "" {
				t.Errorf("OnStrip (-want +got):\n%s", diff)
			}
		})
	}
}

func TestStripKindIsConfigurable(t *testing.T) {
	t.Parallel()
	byTopic := func(_ context.Context, p middleware.KindParams) middleware.PayloadKind {
		if p.Topic == "raw" && p.Message.UUID == "m-1" {
			return middleware.PayloadBinary
		}
		return middleware.PayloadUndeclared
	}
	tests := []struct {
		name  string
		cfg   middleware.StripConfig
		topic string
		msg   *message.Message
		want  string
	}{
		{"function before media type", middleware.StripConfig{Kind: byTopic}, "raw", guardMessage("a\x00", "content-type", "text/plain"), "a\x00"},
		{"function leaves it to the media type", middleware.StripConfig{Kind: byTopic}, "orders", guardMessage("a\x00", "content-type", "text/plain"), "a"},
		{"own key", middleware.StripConfig{ContentTypeKey: "mime"}, "orders", guardMessage("a\x00", "mime", "text/plain"), "a"},
		{"undeclared is text", middleware.StripConfig{Undeclared: middleware.PayloadText}, "orders", guardMessage("a\x00\\u0000"), `a\u0000`},
		{"undeclared is JSON", middleware.StripConfig{Undeclared: middleware.PayloadJSON}, "orders", guardMessage("1\x00 \"\\u0000\""), `1 ""`},
		{"undeclared is binary", middleware.StripConfig{Undeclared: middleware.PayloadBinary}, "orders", guardMessage("{\"a\":\"\x00\"}"), "{\"a\":\"\x00\"}"},
		{"media type before undeclared", middleware.StripConfig{Undeclared: middleware.PayloadText}, "orders", guardMessage("a\x00", "content-type", "image/png"), "a\x00"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			rec := &batchRecorder{}
			if err := guarded(t, rec, middleware.StripControlCharacters(tt.cfg)).Publish(tt.topic, tt.msg); err != nil {
				t.Fatal(err)
			}
			if got := string(rec.calls[0][0].Payload); got != tt.want {
				t.Errorf("published %q, want %q", got, tt.want)
			}
		})
	}
}

func TestStripRefuses(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, contentType, payload, want string }{
		{"raw", "text/plain", "é\x1b", "character U+001B at byte 2 "},
		{"escape", "application/json", `"ab\u0000"`, "character U+0000 at byte 3 "},
		{"escape before raw", "application/json", "\"\\b\x01\"", "character U+0008 at byte 1 "},
		{"raw before escape", "application/json", "\"\x01\\b\"", "character U+0001 at byte 1 "},
		{"half of a surrogate", "application/json", `"\ud800"`, "character U+D800 at byte 1 "},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			rec := &batchRecorder{}
			pub := guarded(t, rec, middleware.StripControlCharacters(middleware.StripConfig{Action: middleware.StripRefuse}))
			err := pub.Publish("orders", guardMessage("fine", "content-type", "text/plain"), guardMessage(tt.payload, "content-type", tt.contentType))
			if err == nil {
				t.Fatal("published")
			}
			for _, want := range []string{tt.want, `"orders"`, `"m-1"`} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q lacks %q", err, want)
				}
			}
			if len(rec.calls) != 0 {
				t.Error("part of a refused batch was published")
			}
			wantClassified(t, err, "permanent", "serialization")
		})
	}
	t.Run("clean", func(t *testing.T) {
		t.Parallel()
		rec := &batchRecorder{}
		pub := guarded(t, rec, middleware.StripControlCharacters(middleware.StripConfig{Action: middleware.StripRefuse}))
		if err := pub.Publish("orders", guardMessage(`{"a":"\n"}`)); err != nil || len(rec.calls) != 1 {
			t.Errorf("err %v, %d calls", err, len(rec.calls))
		}
	})
}

func TestStripRefusesNonsense(t *testing.T) {
	t.Parallel()
	_, err := middleware.StripControlCharacters(middleware.StripConfig{Action: "burn", Undeclared: "perhaps"})(&batchRecorder{})
	if err == nil || !strings.Contains(err.Error(), "Action") || !strings.Contains(err.Error(), "Undeclared") {
		t.Errorf("got %v, want both fields named", err)
	}
}

// What is true of every guard: one call, same number and order, the caller's
// slice and messages unchanged, context kept, errors and Close passed on.
func TestGuardsKeepPublishSemantics(t *testing.T) {
	t.Parallel()
	type key struct{}
	guards := map[string]message.PublisherDecorator{
		"strip":    middleware.StripControlCharacters(middleware.StripConfig{}),
		"validate": middleware.Validate(func(context.Context, middleware.ValidateParams) error { return nil }),
		"stamp": middleware.Stamp(middleware.StampConfig{ProducerVersion: "v2", SchemaVersion: func(_ context.Context, p middleware.StampParams) string {
			return string(p.Message.Payload)
		}}),
	}
	for name, g := range guards {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			down := errors.New("broker is down")
			rec := &batchRecorder{err: down}
			pub := guarded(t, rec, g)
			var batch []*message.Message
			for _, payload := range []string{`"1"`, "\"\x00\"", `"3"`} {
				m := guardMessage(payload, "content-type", "application/json")
				m.SetContext(context.WithValue(t.Context(), key{}, payload))
				batch = append(batch, m)
			}
			before := append([]*message.Message(nil), batch...)

			if err := pub.Publish("orders", batch...); err != down {
				t.Errorf("got %v, want the publisher's own error", err)
			}
			if len(rec.calls) != 1 || rec.topics[0] != "orders" || len(rec.calls[0]) != 3 {
				t.Fatalf("published %v to %v, want three messages in one call", rec.calls, rec.topics)
			}
			for i, m := range batch {
				if m != before[i] {
					t.Errorf("message %d of the caller's slice was replaced", i)
				}
				if len(m.Metadata) != 1 {
					t.Errorf("metadata of the caller's message %d was changed: %v", i, m.Metadata)
				}
				if got := rec.calls[0][i].Context().Value(key{}); got != string(m.Payload) {
					t.Errorf("message %d has the context of %v", i, got)
				}
			}
			if err := pub.Publish("orders"); err != down || len(rec.calls) != 2 || len(rec.calls[1]) != 0 {
				t.Errorf("an empty batch gave %v and %d calls", err, len(rec.calls))
			}
			if err := pub.Close(); err != down || rec.closed != 1 {
				t.Errorf("Close gave %v and closed %d times", err, rec.closed)
			}
			if _, err := g(nil); err == nil {
				t.Error("a nil publisher was decorated")
			}
		})
	}
}

func TestStamp(t *testing.T) {
	t.Parallel()
	schema := func(_ context.Context, p middleware.StampParams) string {
		if p.Topic == "orders" {
			return "3"
		}
		return ""
	}
	tests := []struct {
		name  string
		cfg   middleware.StampConfig
		topic string
		in    message.Metadata
		want  message.Metadata
		same  bool
	}{
		{"both", middleware.StampConfig{ProducerVersion: "v2", SchemaVersion: schema}, "orders", nil, message.Metadata{"producer-version": "v2", "schema-version": "3"}, false},
		{"no schema", middleware.StampConfig{ProducerVersion: "v2", SchemaVersion: schema}, "other", nil, message.Metadata{"producer-version": "v2"}, false},
		{"kept", middleware.StampConfig{ProducerVersion: "v2", SchemaVersion: schema}, "orders", message.Metadata{"producer-version": "v1", "schema-version": "1"}, message.Metadata{"producer-version": "v1", "schema-version": "1"}, true},
		{"one kept", middleware.StampConfig{ProducerVersion: "v2", SchemaVersion: schema}, "orders", message.Metadata{"producer-version": "v1"}, message.Metadata{"producer-version": "v1", "schema-version": "3"}, false},
		{"overwritten", middleware.StampConfig{ProducerVersion: "v2", SchemaVersion: schema, Overwrite: true}, "orders", message.Metadata{"producer-version": "v1", "schema-version": "1"}, message.Metadata{"producer-version": "v2", "schema-version": "3"}, false},
		{"overwritten by the same", middleware.StampConfig{ProducerVersion: "v2", Overwrite: true}, "orders", message.Metadata{"producer-version": "v2"}, message.Metadata{"producer-version": "v2"}, true},
		{"never overwritten by nothing", middleware.StampConfig{ProducerVersion: "v2", SchemaVersion: schema, Overwrite: true}, "other", message.Metadata{"producer-version": "v2", "schema-version": "1"}, message.Metadata{"producer-version": "v2", "schema-version": "1"}, true},
		{"own keys", middleware.StampConfig{ProducerVersion: "v2", SchemaVersion: schema, ProducerVersionKey: "p", SchemaVersionKey: "s"}, "orders", nil, message.Metadata{"p": "v2", "s": "3"}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			rec := &batchRecorder{}
			msg := message.NewMessage("m-1", nil)
			msg.Metadata = tt.in
			if err := guarded(t, rec, middleware.Stamp(tt.cfg)).Publish(tt.topic, msg); err != nil {
				t.Fatal(err)
			}
			got := rec.calls[0][0]
			if diff := cmp.Diff(tt.want, got.Metadata); diff != "" {
				t.Errorf("metadata (-want +got):\n%s", diff)
			}
			if (got == msg) != tt.same {
				t.Errorf("same message: %v, want %v", got == msg, tt.same)
			}
		})
	}
}

func TestValidateRefusesTheWholeBatch(t *testing.T) {
	t.Parallel()
	cause := errors.New("amount is missing")
	var seen []string
	rec := &batchRecorder{}
	pub := guarded(t, rec, middleware.Validate(func(_ context.Context, p middleware.ValidateParams) error {
		seen = append(seen, p.Topic+" "+string(p.Message.Payload))
		if string(p.Message.Payload) == "bad" {
			return cause
		}
		return nil
	}))
	err := pub.Publish("orders", guardMessage("good"), guardMessage("bad"))
	if !errors.Is(err, cause) || !strings.Contains(err.Error(), `"orders"`) || !strings.Contains(err.Error(), `"m-1"`) {
		t.Errorf("error %v does not tell topic, UUID and cause", err)
	}
	if len(rec.calls) != 0 {
		t.Error("part of a refused batch was published")
	}
	if diff := cmp.Diff([]string{"orders good", "orders bad"}, seen); diff != "" {
		t.Errorf("validated (-want +got):\n%s", diff)
	}
	wantClassified(t, err, "permanent", "validation")
}

// A validator that could not work, as when the schema registry is away, says
// nothing about the message.
func TestValidateKeepsWhatTheErrorMeans(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		err    error
		nature failure.Nature
		class  failure.Class
	}{
		{"a plain error is a refusal", errors.New("amount is missing"), failure.NaturePermanent, failure.ClassValidation},
		{"marked", failure.Transient(errors.New("registry is away"), failure.Class("registry")), failure.NatureTransient, "registry"},
		{"marked deeper", fmt.Errorf("schema: %w", failure.Permanent(errors.New("unknown schema"), failure.ClassIncompatibleSchema)), failure.NaturePermanent, failure.ClassIncompatibleSchema},
		{"known to the built-in rules", fmt.Errorf("get schema: %w", &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}), failure.NatureTransient, failure.ClassDependencyUnavailable},
		{"timeout", context.DeadlineExceeded, failure.NatureTransient, failure.ClassDependencyTimeout},
		{"shutdown", context.Canceled, failure.NatureTransient, failure.ClassDependencyTimeout},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			pub := guarded(t, discard{}, middleware.Validate(func(context.Context, middleware.ValidateParams) error { return tt.err }))
			err := pub.Publish("orders", guardMessage("x"))
			if !errors.Is(err, tt.err) {
				t.Errorf("got %v, want it to wrap %v", err, tt.err)
			}
			wantClassified(t, err, tt.nature, tt.class)
		})
	}
}

func FuzzStripControlCharacters(f *testing.F) {
	for _, s := range []string{
		`{"a":"x\u0000y","b":[1.0e5,"\ud83d\ude00","\ud800"]}`, "{\"a\":\"\x1b\",\"n\":1E400}", `"\\u0000\\\b\f"`, `"\u00`, `\`, "\"\\\x01u0000\"",
		`"\u00\u000041"`, "\"\xc2\x80\xef\xbf\xbe\"", "[\"\x7f\"]\n\"\\uFFFF\"", "\xff\x00", `"\ud83d\u0000\ude00"`, "null",
	} {
		f.Add([]byte(s), false)
		f.Add([]byte(s), true)
	}
	f.Fuzz(func(t *testing.T, in []byte, replace bool) {
		cfg := middleware.StripConfig{Undeclared: middleware.PayloadJSON}
		if replace {
			cfg.Action = middleware.StripReplace
		}
		removed := 0
		cfg.OnStrip = func(_ context.Context, info middleware.StripInfo) { removed += info.Removed }
		rec := &batchRecorder{}
		pub := guarded(t, rec, middleware.StripControlCharacters(cfg))
		publish := func(p []byte) []byte {
			removed = 0
			msg := message.NewMessage("", p)
			if err := pub.Publish("t", msg); err != nil {
				t.Fatal(err)
			}
			got := rec.calls[len(rec.calls)-1][0]
			if (got == msg) != (removed == 0) {
				t.Errorf("copied: %v, removed %d", got != msg, removed)
			}
			return got.Payload
		}
		before := string(in)
		out := publish(in)
		first := removed
		if string(in) != before {
			t.Error("the caller's payload was changed")
		}
		if again := publish(out); string(again) != string(out) || removed != 0 {
			t.Errorf("not idempotent: %q, then %q", out, again)
		}
		if !utf8.Valid(in) && string(out) != before {
			t.Errorf("binary %q became %q", in, out)
		}
		if !replace && !subsequence(out, in) {
			t.Errorf("%q is not %q with something removed", out, in)
		}
		if !json.Valid(in) || !utf8.Valid(in) {
			return
		}
		if !json.Valid(out) {
			t.Fatalf("valid %q became invalid %q", in, out)
		}
		// Nothing else has changed: tokens are the same, but for unwanted
		// characters within strings, none of which is left.
		a, b := jsonTokens(t, in), jsonTokens(t, out)
		if len(a) != len(b) {
			t.Fatalf("%d tokens became %d", len(a), len(b))
		}
		count := 0
		for i := range a {
			x, n := plainText(a[i])
			y, left := plainText(b[i])
			count += n
			if x != y && !replace {
				t.Errorf("token %q became %q", a[i], b[i])
			}
			if left != 0 {
				t.Errorf("token %q still has %d unwanted characters", b[i], left)
			}
		}
		// The decoder turns half a surrogate into U+FFFD, so that it can only
		// count too few.
		if count > first {
			t.Errorf("%d unwanted characters, but %d removed", count, first)
		}
	})
}

// subsequence reports whether a is b with some bytes left out.
func subsequence(a, b []byte) bool {
	for _, c := range b {
		if len(a) > 0 && a[0] == c {
			a = a[1:]
		}
	}
	return len(a) == 0
}

// jsonTokens are numbers as they are written, and decoded strings.
func jsonTokens(t *testing.T, p []byte) []string {
	t.Helper()
	dec := json.NewDecoder(strings.NewReader(string(p)))
	dec.UseNumber()
	var out []string
	for {
		tok, err := dec.Token()
		if err != nil {
			return out
		}
		switch v := tok.(type) {
		case string:
			out = append(out, "s"+v)
		case json.Number:
			out = append(out, "n"+v.String())
		case json.Delim:
			out = append(out, v.String())
		default:
			out = append(out, "other")
		}
	}
}

// plainText drops what must not be in a string, and U+FFFD, which half a surrogate
// is decoded to; it counts the former.
func plainText(s string) (string, int) {
	n := 0
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\t', r == '\n', r == '\r':
			return r
		case r < 0x20, 0x7f <= r && r <= 0x9f, r == 0xfffe, r == 0xffff:
			n++
			return -1
		case r == 0xfffd:
			return -1
		}
		return r
	}, s), n
}

func BenchmarkStripControlCharactersClean(b *testing.B) {
	line := `{"id":"7b1d9a52","name":"Padaria São João","note":"first line\nsecond \"line\"","amount":12.50,"tags":["a","b"]},`
	payload := "[" + strings.Repeat(line, 10) + "1]"
	for name, contentType := range map[string]string{"json": "application/json", "text": "text/plain", "undeclared": "", "binary": "application/octet-stream"} {
		b.Run(name, func(b *testing.B) {
			pub, err := middleware.StripControlCharacters(middleware.StripConfig{})(discard{})
			if err != nil {
				b.Fatal(err)
			}
			batch := []*message.Message{guardMessage(payload, "content-type", contentType)}
			b.SetBytes(int64(len(payload)))
			b.ReportAllocs()
			for b.Loop() {
				if err := pub.Publish("orders", batch...); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// discard is a publisher that does nothing.
type discard struct{}

func (discard) Publish(string, ...*message.Message) error { return nil }
func (discard) Close() error                              { return nil }

func TestStripCleanPathDoesNotAllocate(t *testing.T) {
	pub := guarded(t, discard{}, middleware.StripControlCharacters(middleware.StripConfig{}))
	batch := []*message.Message{
		guardMessage(`{"a":"first\nsecond é"}`, "content-type", "application/json"),
		guardMessage("plain text", "Content-Type", "text/plain"),
		guardMessage(`{"a":"\u00e9"}`),
	}
	if n := testing.AllocsPerRun(100, func() {
		if err := pub.Publish("orders", batch...); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
