package adaptertest

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/go-cmp/cmp"
	"github.com/spillway-mq/spillway"
	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/envelope"
	"github.com/spillway-mq/spillway/failure"
	"github.com/spillway-mq/spillway/middleware"
	"github.com/spillway-mq/spillway/policy"
)

// Invariant 9; K12, R11: two groups on one topic, one fails. The other one sees
// the message once, and so does the first again: its own retries.
func onlyTheFailingGroup(w *world) {
	if w.caps.OneGroup {
		w.ensure(w.consumer(group))
		if err := w.op.Ensure(context.Background(), w.consumer("other")); err == nil || !strings.Contains(err.Error(), "names:") {
			w.Errorf("a second group on a topic that has one group: %v, want an error that says so", err)
		}
		return
	}
	failing := w.start(app{group: "failing", handle: func(c *call) error {
		if c.UUID == "dead" {
			return failure.Permanent(errDown)
		}
		if c.attempt == 1 && c.delivery.State.ParkedAt.IsZero() {
			return ends[c.UUID].err
		}
		return nil
	}})
	healthy := w.start(app{group: "healthy", handle: func(*call) error { return nil }})
	for id := range ends {
		w.publish(id)
	}
	w.wait("healthy group", len(ends), ended(middleware.OutcomeProcessed), by(healthy))
	w.wait("failing group", 2, ended(middleware.OutcomeProcessed), by(failing))
	w.wait("dead letter", 1, ended(middleware.OutcomeDeadLettered), by(failing))
	w.stays("handler calls of the healthy group", len(ends), is(called), by(healthy))
	if n := w.count(is(called), by(failing)); n != len(ends)+2 {
		w.Errorf("the failing group handled %d times, want %d", n, len(ends)+2)
	}
	w.empty(adapters.StreamDeadLetter, "healthy")
	if n := len(w.drain(adapters.StreamDeadLetter, "failing")); n != 1 {
		w.Errorf("%d dead letters of the failing group, want 1", n)
	}
}

// forged are values that a producer may put into our keys.
func forged(topic string) []map[string]string {
	far := time.Now().Add(400 * 24 * time.Hour).UTC().Format(time.RFC3339Nano)
	owner := map[string]string{envelope.KeySourceTopic: topic, envelope.KeyConsumerGroup: group}
	with := func(pairs ...string) map[string]string {
		m := map[string]string{}
		for k, v := range owner {
			m[k] = v
		}
		for i := 0; i < len(pairs); i += 2 {
			m[pairs[i]] = pairs[i+1]
		}
		return m
	}
	return []map[string]string{
		with(envelope.KeyAttempt, "999"),
		with(envelope.KeyAttempt, "-5"),
		with(envelope.KeyAttempt, "many"),
		with(envelope.KeyAttempt, "99999999999999999999999"),
		with(envelope.KeyAttempt, "3", envelope.KeyDueAt, far),
		with(envelope.KeyDueAt, "yesterday", envelope.KeyAttempt, ""),
		with(envelope.KeyReplayCount, "1000", envelope.KeyParkedAt, "0001-01-01T00:00:00Z"),
		with(envelope.KeyDeadLetterReason, "permanent", envelope.KeyDeadLetterID, "stolen", envelope.KeySourceOffset, "-1"),
		{"SPILLWAY-ATTEMPT": "12", "Spillway-Due-At": far},
	}
}

// Invariant 10; K7: what a producer forges on the topic is as if it were not
// there: first attempt, now, with the true source.
func forgedOnMain(w *world) {
	seen := map[string]message.Metadata{}
	w.start(app{handle: func(c *call) error {
		w.mu.Lock()
		seen[c.UUID] = maps.Clone(c.Metadata)
		w.mu.Unlock()
		return failure.Permanent(errDown)
	}})
	table := forged("elsewhere")
	table = append(table, forged(w.topic)...)
	for i, metadata := range table {
		msg := message.NewMessage(fmt.Sprintf("f-%d", i), []byte("body"))
		msg.Metadata.Set("kept", "yes")
		for k, v := range metadata {
			msg.Metadata.Set(k, v)
		}
		w.publishTo(w.topic, msg)
	}
	start := time.Now()
	w.wait("dead letters", len(table), ended(middleware.OutcomeDeadLettered))
	if took := time.Since(start); w.h.Bubble && took > 0 {
		w.Errorf("forged due times held messages for %s", took)
	}
	for _, e := range w.find(is(called)) {
		if e.attempt != 1 {
			w.Errorf("%s with forged state is attempt %d, want 1", e.id, e.attempt)
		}
	}
	for id, metadata := range seen {
		if diff := cmp.Diff(message.Metadata{"kept": "yes"}, metadata); diff != "" {
			w.Errorf("%s: the handler's metadata differ (-want +got):\n%s", id, diff)
		}
	}
	for _, l := range w.drain(adapters.StreamDeadLetter, group) {
		if s := l.state; s.Attempt != 1 || s.Source.Topic != w.topic || s.ConsumerGroup != group || s.ReplayCount != 0 || !s.ParkedAt.IsZero() || s.DeadLetterID == "stolen" {
			w.Errorf("%s: the dead letter repeats forged state: %+v", l.ID, s)
		}
		once(w, "dead letter "+l.ID, l.Headers)
	}
}

// Invariant 10; K7: on the retry stream, state of another consumer counts as
// none, and absurd state of the right one is clamped. Nothing is lost, nothing
// is tried for ever, nothing waits longer than seven days.
func forgedOnRetry(w *world) {
	c := w.consumer(group)
	w.ensure(c)
	put := func(id string, metadata map[string]string) {
		w.Helper()
		h := adapters.Handoff{Consumer: c, Stream: adapters.StreamRetry, Record: adapters.Record{ID: id, Payload: []byte(id)}}
		for k, v := range metadata {
			if v != "" { // brokers may refuse empty values
				h.State = append(h.State, envelope.Pair{Key: strings.ToLower(k), Value: v})
			}
		}
		if err := w.op.Handoff(context.Background(), h); err != nil {
			w.Fatalf("hand-off: %v", err)
		}
	}
	foreign, own := forged("elsewhere"), forged(w.topic)
	for i, m := range foreign {
		put(fmt.Sprintf("foreign-%d", i), m)
	}
	for i, m := range own {
		put(fmt.Sprintf("own-%d", i), m)
	}
	w.start(app{handle: func(*call) error { return failure.Permanent(errDown) }})
	w.wait("foreign state", len(foreign), ended(middleware.OutcomeDeadLettered), ofPrefix("foreign"))
	for _, e := range w.find(is(called), ofPrefix("foreign")) {
		if e.attempt != 1 {
			w.Errorf("%s with the state of another consumer is attempt %d, want 1", e.id, e.attempt)
		}
	}
	// All but the one that is due in a year, which is in seven days at most.
	w.wait("own state", len(own)-1, ended(middleware.OutcomeDeadLettered), ofPrefix("own"))
	if w.h.Bubble && !w.h.Polls {
		start := time.Now()
		w.wait("the far one", len(own), ended(middleware.OutcomeDeadLettered), ofPrefix("own"))
		if took := time.Since(start); took > envelope.MaxDueAhead {
			w.Errorf("a forged due time held a message for %s, want at most %s", took, envelope.MaxDueAhead)
		}
	}
	for _, l := range w.drain(adapters.StreamDeadLetter, group) {
		if l.state.Attempt < 1 || l.state.Attempt > envelope.MaxCount || l.state.ReplayCount > envelope.MaxCount {
			w.Errorf("%s: counters out of bounds: %+v", l.ID, l.state)
		}
	}
}

// once checks that no key of ours occurs twice (invariant 11).
func once(w *world, what string, headers []adapters.Header) {
	w.Helper()
	seen := map[string]bool{}
	for _, h := range headers {
		key := strings.ToLower(h.Key)
		if envelope.IsOwn(key) && seen[key] {
			w.Errorf("%s has the key %s more than once", what, key)
		}
		seen[key] = true
	}
}

// Invariant 10: handlers that copy metadata, and make our keys themselves, leak
// nothing into their outputs.
func leakedState(w *world) {
	out := w.name("out")
	w.ensure(adapters.Consumer{Topic: out, Group: group, Concurrency: 1})
	w.start(app{outputs: out, handle: func(c *call) error {
		if c.attempt == 1 {
			return failure.Transient(errDown)
		}
		o := message.NewMessage("output", c.Payload)
		o.Metadata = maps.Clone(c.Metadata)
		o.Metadata[envelope.KeyAttempt] = strconv.Itoa(c.attempt)
		o.Metadata[envelope.KeySourceTopic] = c.delivery.State.Source.Topic
		c.outputs = append(c.outputs, o)
		return nil
	}})
	msg := message.NewMessage("input", []byte("body"))
	msg.Metadata.Set("tenant", "acme")
	w.publishTo(w.topic, msg)
	next := w.start(app{topic: out, handle: func(*call) error { return nil }})
	w.wait("the output is handled", 1, is(called), by(next))
	d := w.find(is(called), by(next))[0].delivery
	found := false
	for _, h := range d.Headers {
		if envelope.IsOwn(h.Key) {
			w.Errorf("the output carries %s=%q", h.Key, h.Value)
		}
		found = found || h.Key == "tenant"
	}
	if !found {
		w.Errorf("the output lost its own metadata: %v", d.Headers)
	}
}

// Invariant 11; K3, O19, S27: each key once, and after many hops no more bytes
// than after two, apart from the digits of counters.
func metadataDoesNotGrow(w *world) {
	limit := pick(w, 20, 200)
	delay := pick(w, 10*time.Millisecond, time.Second)
	w.start(app{
		handle: func(c *call) error { return failure.Transient(fmt.Errorf("attempt %03d: %w", c.attempt, errDown)) },
		config: func(c *spillway.Config) {
			c.Policy.Attempts.Transient = limit
			c.Policy.Backoff = policy.Backoff{Base: delay, Factor: 1, Max: delay, Jitter: policy.JitterNone}
		},
	})
	msg := message.NewMessage("bad", []byte("body"))
	msg.Metadata.Set("tenant", "acme")
	w.publishTo(w.topic, msg)
	w.wait("dead letter", 1, ended(middleware.OutcomeDeadLettered))
	var second, last int
	for _, d := range w.deliveries() {
		once(w, fmt.Sprintf("attempt %d", d.State.Attempt), d.Headers)
		size := 0
		for _, h := range d.Headers {
			size += len(h.Key) + len(h.Value)
		}
		switch {
		case d.Stream == adapters.StreamRetry && second == 0:
			second = size
		case d.Stream == adapters.StreamRetry:
			last = size
		}
	}
	if last > second+8 {
		w.Errorf("the headers have %d bytes at the last attempt, %d at the second", last, second)
	}
	once(w, "dead letter", w.only(adapters.StreamDeadLetter, "bad").Headers)
}

// Invariant 11; O19, R14, K4: an error text of 1 MiB in multi-byte runes does
// not keep a message from being retried and dead-lettered. It is cut, and says so.
func hugeErrorText(w *world) {
	text := strings.Repeat("f\u00e9hler \u2620 \U0001f4a5 ", 1<<20/16)
	w.start(app{
		handle: func(*call) error { return failure.Transient(fmt.Errorf("%s", text)) },
		config: func(c *spillway.Config) { c.Policy.Attempts.Transient = 2 },
	})
	w.publish("bad")
	w.wait("dead letter", 1, ended(middleware.OutcomeDeadLettered))
	s := w.only(adapters.StreamDeadLetter, "bad").state
	if n := utf8.RuneCountInString(s.Message); !s.Truncated || n == 0 || n > envelope.MaxErrorRunes || !utf8.ValidString(s.Message) || !strings.HasPrefix(s.Message, "f\u00e9hler") {
		w.Errorf("the error text has %d runes, truncated %v: %.80q", n, s.Truncated, s.Message)
	}
	for _, e := range w.find(is(handedOff)) {
		if e.err != nil {
			w.Errorf("a hand-off failed: %v", e.err)
		}
	}
}

// Invariant 11; O19: the limit of all metadata together is shared with the
// message's own headers. They stay, ours are cut, the message is dead-lettered
// at the first try with as much of the error as fits.
func metadataLimit(w *world) {
	limit := w.caps.MaxMetadataBytes
	if limit == 0 {
		return // nothing to share
	}
	const ours = 1200 // enough for what must be kept, not for a long error text
	w.start(app{handle: func(*call) error { return failure.Permanent(fmt.Errorf("%s", strings.Repeat("why ", 400))) }})
	msg := message.NewMessage("dead", []byte("body"))
	for size := 0; size < limit-ours; {
		key := fmt.Sprintf("user-%03d", len(msg.Metadata))
		value := strings.Repeat("v", min(200, max(limit-ours-size-len(key), 1)))
		msg.Metadata.Set(key, value)
		size += len(key) + len(value)
	}
	w.publishTo(w.topic, msg)
	w.wait("dead letter", 1, ended(middleware.OutcomeDeadLettered))
	for _, e := range w.find(is(handedOff)) {
		if e.err != nil {
			w.Errorf("a hand-off was tried with too much metadata: %v", e.err)
		}
	}
	l := w.only(adapters.StreamDeadLetter, "dead")
	if !l.state.Truncated || l.state.Message == "" {
		w.Errorf("the dead letter says truncated %v, error %.40q, want a cut text", l.state.Truncated, l.state.Message)
	}
	for k, v := range msg.Metadata {
		found := false
		for _, h := range l.Headers {
			found = found || h.Key == k && string(h.Value) == v
		}
		if !found {
			w.Errorf("the message's own header %s is gone", k)
		}
	}
}
