package adaptertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/envelope"
	"github.com/spillway-mq/spillway/failure"
	"github.com/spillway-mq/spillway/middleware"
)

// spoil does to a message what handlers should not do, and sometimes do.
func spoil(msg *message.Message) {
	for i := range msg.Payload {
		msg.Payload[i] = 'X'
	}
	msg.Payload = append(msg.Payload, "spoilt"...)
	clear(msg.Metadata)
	msg.Metadata["spoilt"] = "yes"
	msg.Metadata[envelope.KeyAttempt] = "77"
}

// publishRecord writes r as a producer without Spillway does, with what the
// harness can express.
func (w *world) publishRecord(r adapters.Record) {
	w.Helper()
	if publish := w.target.Publish; publish != nil {
		if err := publish(w.topic, r); err != nil {
			w.Fatalf("publish: %v", err)
		}
		return
	}
	msg := message.NewMessage(r.ID, r.Payload)
	for _, h := range r.Headers {
		msg.Metadata[h.Key] = string(h.Value)
	}
	w.publishTo(w.topic, msg)
}

// maxBody is the size of a large payload.
func (w *world) maxBody() int {
	if limit := w.caps.MaxMessageBytes; limit > 0 {
		return min(w.h.MaxBody, limit-4<<10)
	}
	return w.h.MaxBody
}

// Invariant 3; K5, O35: nil, empty, not UTF-8, all bytes there are, and as large
// as can be: byte-equal in retry, parking and dead letter.
func originalBytes(w *world) {
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	payloads := map[string][]byte{
		"empty":   {},
		"text":    []byte("{\"name\":\"J\u00f6rg\"}"),
		"invalid": []byte("\xff\xfe\x00 broken \xc3"),
		"all":     all,
		"large":   bytes.Repeat([]byte("0123456789abcdef"), w.maxBody()/16),
	}
	if w.caps.NullPayload && w.target.Publish != nil {
		payloads["nil"] = nil
	}
	w.start(app{
		handle: func(c *call) error {
			defer spoil(c.Message)
			if c.attempt == 1 {
				return failFirst(c)
			}
			return nil
		},
		config: parkLong,
	})
	for name, payload := range payloads {
		for way, end := range ends {
			id := way + "-" + name
			w.publishRecord(adapters.Record{ID: id, Payload: payload})
			w.wait(id, 1, ended(end.outcome), of(id))
		}
	}
	check := func(id string, got []byte) {
		w.Helper()
		_, name, _ := strings.Cut(id, "-")
		want := payloads[name]
		if !bytes.Equal(got, want) {
			w.Errorf("%s: the payload is %s, want %s", id, excerpt(got), excerpt(want))
		}
		if w.caps.NullPayload && (got == nil) != (want == nil) {
			w.Errorf("%s: the payload is nil: %v, want %v", id, got == nil, want == nil)
		}
	}
	for _, s := range []adapters.Stream{adapters.StreamDeadLetter, adapters.StreamParking} {
		letters := w.drain(s, group)
		if len(letters) != len(payloads) {
			w.Errorf("%d messages in %s, want %d", len(letters), s, len(payloads))
		}
		for _, l := range letters {
			check(l.ID, l.Payload)
		}
	}
	w.wait("second attempts", len(payloads), is(called), ofPrefix("retry-"), on(adapters.StreamRetry))
	for _, e := range w.find(is(started), on(adapters.StreamRetry)) {
		if e.attempt != 2 {
			w.Errorf("%s came back as attempt %d, want 2", e.id, e.attempt)
		}
	}
	for _, e := range w.find(is(handedOff), on(adapters.StreamRetry), confirmed) {
		check(e.id, e.handoff.Record.Payload)
	}
	for _, d := range w.deliveries() {
		check(d.ID, d.Payload)
	}
}

// deliveries are the records that handlers were given.
func (w *world) deliveries() []*adapters.Delivery {
	var all []*adapters.Delivery
	for _, e := range w.find(is(called)) {
		all = append(all, e.delivery)
	}
	return all
}

func excerpt(b []byte) string {
	if len(b) > 40 {
		return fmt.Sprintf("%q... (%d bytes)", b[:40], len(b))
	}
	return fmt.Sprintf("%q", b)
}

// Invariant 3; O35, R1: key, and headers in their order of repeats, with their
// types, arrive everywhere as they were first delivered.
func keyAndHeaders(w *world) {
	original := adapters.Record{
		Payload: []byte("body"),
		Headers: []adapters.Header{
			{Key: "content-type", Value: []byte("application/json")},
			{Key: "tenant", Value: []byte("acme & s\u00f8n")},
			{Key: "Mixed-Case", Value: []byte("kept")},
		},
	}
	whole := w.target.Publish != nil
	if whole && w.caps.Keys {
		original.Key = []byte("customer-4711")
	}
	if whole && w.caps.RepeatedHeaders {
		original.Headers = append(original.Headers,
			adapters.Header{Key: "via", Value: []byte("a")}, adapters.Header{Key: "via", Value: []byte("b")}, adapters.Header{Key: "via", Value: []byte("a")})
	}
	w.start(app{
		handle: func(c *call) error { err := failFirst(c); spoil(c.Message); return err },
		config: parkLong,
	})
	for id, end := range ends {
		r := original
		r.ID = id
		w.publishRecord(r)
		w.wait(id, 1, ended(end.outcome), of(id))
	}
	w.wait("second attempt", 1, is(called), of("retry"), on(adapters.StreamRetry))
	check := func(where, id string, r adapters.Record) {
		w.Helper()
		if r.ID != id {
			w.Errorf("%s: the id is %q, want %q", where, r.ID, id)
		}
		if diff := cmp.Diff(string(original.Key), string(r.Key)); w.caps.Keys && diff != "" {
			w.Errorf("%s %s: the key differs (-want +got):\n%s", where, id, diff)
		}
		if diff := cmp.Diff(byName(original.Headers), byName(r.Headers), cmpopts.EquateEmpty()); diff != "" {
			w.Errorf("%s %s: headers differ (-want +got):\n%s", where, id, diff)
		}
	}
	for _, d := range w.deliveries() {
		check("delivery from "+string(d.Stream), d.ID, d.Record)
	}
	for _, l := range w.drain(adapters.StreamDeadLetter, group) {
		check("dead letter", "dead", l.Record)
	}
	for _, l := range w.drain(adapters.StreamParking, group) {
		check("parked", "park", l.Record)
	}
}

// byName orders headers by name, for brokers whose headers have no order,
// and leaves those of one name as they are. What the broker says is left out.
func byName(headers []adapters.Header) []adapters.Header {
	headers = slices.Clone(envelope.StripHeaders(headers))
	headers = slices.DeleteFunc(headers, func(h adapters.Header) bool { return h.Type == adapters.TypeSystem })
	slices.SortStableFunc(headers, func(a, b adapters.Header) int { return strings.Compare(a.Key, b.Key) })
	return headers
}

// Invariant 4: the position in the dead letter is that of the first delivery,
// whatever hops, parking and replays did; where there is none it is absent.
func firstPositionWins(w *world) {
	var first envelope.Position
	p := w.start(app{
		handle: func(c *call) error {
			switch {
			case c.delivery.Stream == adapters.StreamMain:
				first = c.delivery.Position
				return failure.Transient(errDown)
			case c.attempt == 2 && c.delivery.State.ParkedAt.IsZero():
				return failure.Waiting(errDown, "approval")
			case c.attempt == 2:
				return failure.Transient(errDown)
			}
			return failure.Permanent(errDown)
		},
	})
	w.publish("before-1", "before-2") // so that the offset is not the first
	w.wait("others", 2, is(called), ofPrefix("before-"), on(adapters.StreamMain))
	w.wait("others are gone", 2, ended(middleware.OutcomeDeadLettered))
	w.publish("wanderer")
	w.wait("dead letter", 1, ended(middleware.OutcomeDeadLettered), of("wanderer"))
	p.close()
	streams := map[adapters.Stream]bool{}
	for _, e := range w.find(is(handedOff), of("wanderer")) {
		streams[e.stream] = true
	}
	if len(streams) != 3 {
		w.Errorf("the message went through %v, want retry, parking and dead letter", streams)
	}
	for _, l := range w.drain(adapters.StreamDeadLetter, group) {
		if l.ID != "wanderer" {
			continue
		}
		want := first
		want.Topic = w.topic
		if !w.caps.Positions && (first.Offset != nil || first.Partition != nil) {
			w.Errorf("the broker declares no positions, and the delivery has %+v", first)
		}
		if w.caps.Positions && (first.Offset == nil || first.Partition == nil || first.Timestamp.IsZero()) {
			w.Errorf("the broker declares positions, and the delivery has %+v", first)
		}
		if diff := cmp.Diff(want, l.state.Source, cmpopts.EquateApproxTime(0)); diff != "" {
			w.Errorf("the source of the dead letter differs from the first delivery (-want +got):\n%s", diff)
		}
		return
	}
	w.Error("the dead letter is missing")
}

// Invariant 11: the limits. A message at the limit of its topic can be
// dead-lettered, because our streams have head-room; one beyond every limit is
// refused with ErrTooLarge and nothing else.
func sizeLimits(w *world) {
	limit := w.caps.MaxMessageBytes
	if limit == 0 {
		return // no limit to tell apart
	}
	w.start(app{handle: failFirst})
	body := bytes.Repeat([]byte("m"), limit)
	for overhead := 0; ; overhead += 16 {
		// What the wire format adds counts too, and only the broker knows it.
		err := w.op.Publisher().Publish(w.topic, message.NewMessage("dead", body[:limit-overhead]))
		if err == nil {
			w.Logf("the largest payload is the limit less %d bytes", overhead)
			break
		}
		if overhead > 1024 {
			w.Fatalf("nothing within 1 KiB below the limit of %d bytes is accepted: %v", limit, err)
		}
	}
	w.wait("dead letter of a message at the limit", 1, ended(middleware.OutcomeDeadLettered), of("dead"))
	w.only(adapters.StreamDeadLetter, "dead")

	h := adapters.Handoff{Consumer: w.consumer(group), Stream: adapters.StreamDeadLetter, Record: adapters.Record{ID: "giant", Payload: make([]byte, 2*limit+1<<20)}}
	if err := w.op.Handoff(context.Background(), h); !errors.Is(err, adapters.ErrTooLarge) {
		w.Errorf("a hand-off of more than any limit: %v, want ErrTooLarge", err)
	}
	if err := w.op.Publisher().Publish(w.topic, message.NewMessage("giant", h.Record.Payload)); err == nil {
		w.Errorf("a publish of more than any limit succeeded")
	}
	w.empty(adapters.StreamDeadLetter, group)
}
