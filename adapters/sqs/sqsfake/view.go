package sqsfake

import (
	"encoding/json"
	"maps"
	"slices"
	"time"
)

// Call is a request as it arrived, tries that an SDK repeated included.
type Call struct {
	Action string
	// Queue is the queue's name, empty for actions that name none.
	Queue string
	// Input is the body of the request, which shows what an SDK leaves out.
	Input json.RawMessage
	Began time.Time
	// Ended is zero while the call is served.
	Ended time.Time
	// Code is that of the error, empty after a success.
	Code string
}

// Calls returns the calls of an action in the order in which they began, of
// every action if it is empty.
func (s *Server) Calls(action string) []Call {
	s.mu.Lock()
	defer s.mu.Unlock()
	var calls []Call
	for _, c := range s.calls {
		if action == "" || c.Action == action {
			calls = append(calls, c)
		}
	}
	return calls
}

// Count returns how many calls of each action there were.
func (s *Server) Count() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := map[string]int{}
	for _, c := range s.calls {
		n[c.Action]++
	}
	return n
}

// Message is what a queue has stored.
type Message struct {
	ID         string
	Body       string
	Attributes map[string]Attribute
	GroupID    string
	// ReceiveCount is ApproximateReceiveCount.
	ReceiveCount int
	// Sent is when the message was sent or moved by a task, Visible when it can
	// be received, or could be first.
	Sent, Visible time.Time
	// InFlight says that somebody has received it and its visibility lasts.
	InFlight bool
	// SourceARN is that of the queue from which it was moved to a dead letter
	// queue.
	SourceARN string
}

// Attribute is a message attribute. Binary types have Binary, others String.
type Attribute struct {
	DataType string
	String   string
	Binary   []byte
}

// Messages returns what is in a queue, in its order, and nothing if there is no
// such queue. It counts as no call.
func (s *Server) Messages(queue string) []Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.queues[queue]
	if q == nil {
		return nil
	}
	now := time.Now()
	q.expire(now)
	var messages []Message
	for _, m := range q.messages {
		v := Message{
			ID: m.id, Body: m.body, GroupID: m.group, ReceiveCount: m.count,
			Sent: m.sent, Visible: m.visible, InFlight: m.inFlight(now), SourceARN: m.source,
			Attributes: map[string]Attribute{},
		}
		for name, a := range m.attributes {
			v.Attributes[name] = Attribute{DataType: *a.DataType, String: value(a.StringValue), Binary: slices.Clone(a.BinaryValue)}
		}
		messages = append(messages, v)
	}
	return messages
}

// Queues returns the names of the queues, sorted.
func (s *Server) Queues() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.queues))
}

func value[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}
