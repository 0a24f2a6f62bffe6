package foreign_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/poison/foreign"
)

// replaced is r with another text in the header, in place of the first old one.
func replaced(r adapters.Record, key, before, after string) adapters.Record {
	r.Headers = append([]adapters.Header(nil), r.Headers...)
	for i, h := range r.Headers {
		if h.Key == key {
			r.Headers[i].Value = []byte(strings.Replace(string(h.Value), before, after, 1))
		}
	}
	return r
}

// O36: whoever wrote it, a dead letter that is collected again, because a crash
// came before the acknowledgement, has one id; and one that was sent back and
// died again has another.
func TestIDsOfAllFormats(t *testing.T) {
	t.Parallel()
	nextOffset := func(r adapters.Record) adapters.Record {
		r.Position.Offset = new(*r.Position.Offset + 1)
		return r
	}
	header := func(key, before, after string) func(adapters.Record) adapters.Record {
		return func(r adapters.Record) adapters.Record { return replaced(r, key, before, after) }
	}
	laterDeath := header("x-death", "1796040000", "1796040007")
	dies := map[foreign.Format]func(adapters.Record) adapters.Record{ // and lies there a second time
		foreign.FormatSpringKafka:  nextOffset,
		foreign.FormatKafkaConnect: nextOffset,
		foreign.FormatKafkaStreams: nextOffset,
		foreign.FormatShareGroup:   nextOffset,
		foreign.FormatWatermill:    nextOffset,
		foreign.FormatJSON:         nextOffset,
		foreign.FormatUnknown:      nextOffset,
		foreign.FormatMassTransit:  header("MT-Fault-Timestamp", "05.", "06."),
		foreign.FormatNServiceBus:  header("NServiceBus.TimeOfFailure", "2026-11-30 12:00:05", "2026-11-30 12:00:06"),
		foreign.FormatSpringAMQP:   laterDeath,
		foreign.FormatRabbitMQ:     laterDeath,
		foreign.FormatSQS: func(r adapters.Record) adapters.Record {
			r.Position.Timestamp = r.Position.Timestamp.Add(1e6) // a redrive sends it anew
			return r
		},
	}
	again := func(r adapters.Record) adapters.Record {
		r = replaced(r, "sqs:ApproximateReceiveCount", "", "1")
		r.Headers = append(r.Headers, adapters.Header{Key: "x-acquired-count", Value: []byte("3"), Type: "long"},
			adapters.Header{Key: "x-delivery-count", Value: []byte("2"), Type: "long"}, adapters.Header{Key: "rabbitmq:any", Value: []byte("2"), Type: adapters.TypeSystem})
		return r
	}
	seen := map[foreign.Format]bool{}
	fixtures(t, func(file string, r adapters.Record, from foreign.From) {
		first, format := foreign.Decode(r, from)
		if format == foreign.FormatSpillway || filepath.Base(file) == "masstransit-skipped.json" { // which tells no time: below
			return
		}
		second, _ := foreign.Decode(again(r), from)
		if first.ID == "" || first.ID != second.ID {
			t.Errorf("%s: collected again it is %q, was %q", file, second.ID, first.ID)
		}
		died, _ := foreign.Decode(dies[format](r), from)
		if died.ID == first.ID {
			t.Errorf("%s: two deaths are one dead letter", file)
		}
		if died.FailedMessage.ID != first.FailedMessage.ID {
			t.Errorf("%s: another message", file)
		}
		seen[format] = true
	})
	if len(seen) != len(dies) {
		t.Errorf("the fixtures cover %d of %d formats", len(seen), len(dies))
	}
}

func TestIDsWithoutAMessageID(t *testing.T) {
	t.Parallel()
	bare := func(r adapters.Record) adapters.Record {
		r.ID = ""
		return r
	}
	id := func(r adapters.Record) string {
		d, _ := foreign.Decode(r, foreign.From{Broker: "rabbitmq"})
		return d.ID
	}
	one := bare(record(rejected))
	if a, b := id(one), id(one); a != b {
		t.Errorf("collected again it is %q, was %q", b, a)
	}
	if c := foreign.IsAnonymous(one); !c || foreign.IsAnonymous(record(rejected)) || foreign.IsAnonymous(bare(drained())) {
		t.Error("nothing but its content says which record it is")
	}
	other := one
	other.Payload = []byte("other")
	for what, r := range map[string]adapters.Record{
		"another time":  replaced(one, "x-death", "1700000000", "1700000001"),
		"another count": replaced(one, "x-death", `"count":1`, `"count":2`),
		"another queue": replaced(one, "x-death", "orders_billing", "orders_audit"),
		"another body":  other,
	} {
		if id(r) == id(one) {
			t.Errorf("%s: two are one", what)
		}
	}
	// Nothing says when, so that two may be two.
	silent := bare(record("", text("x-exception-message", "boom")))
	if a, b := id(silent), id(silent); a == b {
		t.Error("two records without id and time are one")
	}
	// The whole header may be spelled by a client library.
	spelled := bare(record(""))
	spelled.Headers = append(spelled.Headers, adapters.Header{Key: "X-Death", Value: []byte(rejected), Type: "array"})
	if d, format := foreign.Decode(spelled, foreign.From{}); format != foreign.FormatRabbitMQ || d.Consumer.Group != "billing" {
		t.Errorf("X-Death is read as %s: %+v", format, d.Consumer)
	}
}
