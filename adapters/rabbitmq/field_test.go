package rabbitmq_test

import (
	"math"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/google/go-cmp/cmp"

	"github.com/spillway-mq/spillway/adapters/rabbitmq"
)

func TestFieldsKeepTypeAndValue(t *testing.T) {
	t.Parallel()
	for name, v := range everyType() {
		kind, text := rabbitmq.FormatField(v)
		got, err := rabbitmq.ParseField(kind, text)
		if err != nil {
			t.Errorf("%s: %q of type %q: %v", name, text, kind, err)
			continue
		}
		if diff := sameTable(amqp.Table{"v": v}, amqp.Table{"v": got}); diff != "" {
			t.Errorf("%s: %q of type %q (-want +got):\n%s", name, text, kind, diff)
		}
	}
}

func TestFieldTextIsReadable(t *testing.T) {
	t.Parallel()
	for want, v := range map[string]any{
		`[{"count":1,"queue":"orders","reason":"rejected","time":{"$timestamp":"1700000000"}}]`: []any{amqp.Table{
			"count": int64(1), "queue": "orders", "reason": "rejected", "time": time.Unix(1_700_000_000, 0),
		}},
		`-12`:                              int8(-12),
		`-1234e-2`:                         amqp.Decimal{Scale: 2, Value: -1234},
		`{"a<b":{"$float64":"+Inf"}}`:      amqp.Table{"a<b": math.Inf(1)},
		`{"$table":["$int8","no number"]}`: amqp.Table{"$int8": "no number"},
	} {
		if _, got := rabbitmq.FormatField(v); string(got) != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

func TestFieldsRefuseNonsense(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ kind, text string }{
		{"bool", "maybe"}, {"int8", "300"}, {"uint8", "-1"}, {"int16", "x"}, {"uint16", "70000"}, {"int32", "1.5"},
		{"uint32", ""}, {"int64", "1e3"}, {"float32", "x"}, {"float64", ""}, {"decimal", "1"}, {"decimal", "xe-2"},
		{"timestamp", "today"}, {"table", "[]"}, {"array", "{}"}, {"table", "{"}, {"array", "[1.5]"},
		{"array", `[{"$int8":7}]`}, {"array", `[{"$bytes":"!"}]`}, {"array", `[{"$table":[1,2]}]`}, {"array", `[{"$table":["k",1.5]}]`},
		{"no such type", ""}, {"array", `[{"$no such type":""}]`},
	} {
		if v, err := rabbitmq.ParseField(c.kind, []byte(c.text)); err == nil {
			t.Errorf("%q of type %q became %#v", c.text, c.kind, v)
		}
	}
}

// Whatever is read can be written and read again.
func FuzzParseField(f *testing.F) {
	for _, v := range everyType() {
		kind, text := rabbitmq.FormatField(v)
		f.Add(kind, text)
	}
	f.Add("table", []byte(`{"a":{"$table":["$x",{"$text":"/w=="}]},"b":{"$int8":"1","c":2}}`))
	f.Add("array", []byte(`[[[]],{},{"":null}]`))
	f.Fuzz(func(t *testing.T, kind string, text []byte) {
		v, err := rabbitmq.ParseField(kind, text)
		if err != nil {
			return
		}
		if rabbitmq.FieldSize(v) < 1 {
			t.Errorf("%#v has no size", v)
		}
		kind2, text2 := rabbitmq.FormatField(v)
		again, err := rabbitmq.ParseField(kind2, text2)
		if err != nil {
			t.Fatalf("%q of type %q became %q of type %q: %v", text, kind, text2, kind2, err)
		}
		equal := cmp.Equal(v, again, cmp.Comparer(func(a, b time.Time) bool { return a.Equal(b) }),
			cmp.Comparer(func(a, b float64) bool { return a == b || math.IsNaN(a) && math.IsNaN(b) }),
			cmp.Comparer(func(a, b float32) bool { return a == b || math.IsNaN(float64(a)) && math.IsNaN(float64(b)) }))
		if !equal {
			t.Errorf("%q of type %q: %#v became %#v", text, kind, v, again)
		}
	})
}
