package envelope_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/envelope"
)

func position(partition int32, offset int64) envelope.Position {
	return envelope.Position{
		Topic:     "orders",
		Partition: &partition,
		Offset:    &offset,
		Timestamp: time.Date(2026, 3, 1, 10, 59, 59, 999_000_000, time.UTC),
	}
}

// Ids join what two hosts, or two versions, say of the same message.
func TestDeadLetterIDsAreFrozen(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	for _, tc := range []struct {
		name    string
		state   envelope.State
		id      string
		payload string
	}{
		{"position", envelope.State{ConsumerGroup: "billing", Broker: "kafka", Source: position(3, 812334)}, "u-1", "{}"},
		{"position, replayed", envelope.State{ConsumerGroup: "billing", Broker: "kafka", Source: position(3, 812334), ReplayCount: 1}, "u-1", "{}"},
		{"message id", envelope.State{ConsumerGroup: "billing", Broker: "rabbitmq", Source: envelope.Position{Topic: "orders"}}, "u-1", "{}"},
		{"message id, no payload", envelope.State{ConsumerGroup: "billing", Broker: "rabbitmq", Source: envelope.Position{Topic: "orders"}}, "u-1", ""},
	} {
		fmt.Fprintf(&b, "%s: %s\n", tc.name, envelope.DeadLetterID(tc.state, tc.id, []byte(tc.payload)))
	}
	golden(t, "ids.golden", b.String())
}

// Two messages counted as one is a loss.
func TestDeadLetterIDsDoNotCollapse(t *testing.T) {
	t.Parallel()
	type message struct {
		state   envelope.State
		id      string
		payload string
	}
	state := func(group, topic string) envelope.State {
		return envelope.State{ConsumerGroup: group, Source: envelope.Position{Topic: topic}}
	}
	at := func(change func(*envelope.State)) envelope.State {
		s := envelope.State{ConsumerGroup: "g", Broker: "kafka", Source: position(1, 1)}
		change(&s)
		return s
	}
	messages := []message{
		{state("g", "t"), "1", "a"},
		{state("g", "t"), "1", "b"}, // equal UUID, other payload
		{state("g", "t"), "2", "a"},
		{state("g2", "t"), "1", "a"},
		{state("g", "t2"), "1", "a"},
		{state("gt", ""), "1", "a"}, // the same bytes in a row
		{state("", "gt"), "1", "a"},
		{state("g", "t1"), "", "a"},
		{state("g", "t"), "", "a"},
		{state("g", "t"), "", "a"}, // nothing to go by: one more message
		{at(func(*envelope.State) {}), "1", "a"},
		{at(func(s *envelope.State) { s.Source = position(11, 1) }), "1", "a"},
		{at(func(s *envelope.State) { s.Source = position(1, 11) }), "1", "a"},
		{at(func(s *envelope.State) { s.Source = position(0, 0) }), "1", "a"},
		{at(func(s *envelope.State) { s.Broker = "memory" }), "1", "a"},
		{at(func(s *envelope.State) { s.ConsumerGroup = "g2" }), "1", "a"},
		{at(func(s *envelope.State) { s.Source.Topic = "payments" }), "1", "a"},
		{at(func(s *envelope.State) { s.Source.Timestamp = time.Time{} }), "1", "a"}, // a topic made anew
		{at(func(s *envelope.State) { s.ReplayCount = 1 }), "1", "a"},
		{at(func(s *envelope.State) { s.Source.Offset = nil }), "1", "a"},
		{at(func(s *envelope.State) { s.Source.Partition = nil; s.ReplayCount = 1 }), "1", "a"},
	}
	seen := map[string]int{}
	for i, m := range messages {
		id := envelope.DeadLetterID(m.state, m.id, []byte(m.payload))
		if len(id) != 52 || strings.Trim(id, "abcdefghijklmnopqrstuvwxyz234567") != "" {
			t.Errorf("message %d has the id %q", i, id)
		}
		if j, ok := seen[id]; ok {
			t.Errorf("messages %d and %d share an id", j, i)
		}
		seen[id] = i
	}
}

// S25: a dead letter that is written twice has one id, also when the second
// writer knows its position from headers.
func TestSameDeadLetterHasOneID(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]envelope.State{
		"position":   {ConsumerGroup: "g", Broker: "kafka", Source: position(1, 7)},
		"message id": {ConsumerGroup: "g", Broker: "sqs", Source: envelope.Position{Topic: "orders"}},
	} {
		direct := envelope.DeadLetterID(s, "1", []byte("a"))
		s.Attempt = 5
		pairs, _ := s.Pairs(0)
		hopped := envelope.Parse(headersOf(pairs), now)
		if got := envelope.DeadLetterID(hopped, "1", []byte("a")); got != direct {
			t.Errorf("%s: %s after a hop, %s before", name, got, direct)
		}
		// What a producer wrote makes no difference.
		hopped.DeadLetterID = "forged"
		if got := envelope.DeadLetterID(hopped, "1", []byte("a")); got != direct {
			t.Errorf("%s: a forged id gives %s", name, got)
		}
	}
}

func TestRandomIDIsDrawnOnceAndCarried(t *testing.T) {
	t.Parallel()
	s := envelope.State{ConsumerGroup: "g", Broker: "rabbitmq"}
	s.DeadLetterID = envelope.DeadLetterID(s, "", nil)
	pairs, _ := s.Pairs(0)
	carried := envelope.Parse(headersOf(pairs), now)
	if got := envelope.DeadLetterID(carried, "", nil); got != s.DeadLetterID {
		t.Errorf("drew again: %s, then %s", s.DeadLetterID, got)
	}
	// A replay is a new dead letter, linked to the old one.
	carried.ReplayOf, carried.ReplayCount = carried.DeadLetterID, 1
	if got := envelope.DeadLetterID(carried, "", nil); got == s.DeadLetterID {
		t.Error("a replay that fails again has the id of the dead letter it was made of")
	}
}
