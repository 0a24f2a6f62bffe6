package sqsfake

import (
	"slices"
	"strconv"
	"strings"
	"time"
)

type receiveMessageInput struct {
	QueueURL                    *string `json:"QueueUrl"`
	AttributeNames              []string
	MessageSystemAttributeNames []string
	MessageAttributeNames       []string
	MaxNumberOfMessages         *int
	VisibilityTimeout           *int
	WaitTimeSeconds             *int
	ReceiveRequestAttemptID     *string `json:"ReceiveRequestAttemptId"`
}

type received struct {
	MessageID              string `json:"MessageId"`
	ReceiptHandle          string
	MD5OfBody              string
	Body                   string
	Attributes             map[string]string    `json:",omitempty"`
	MD5OfMessageAttributes string               `json:",omitempty"`
	MessageAttributes      map[string]attribute `json:",omitempty"`
}

// System attributes that can be asked for.
var systemAttributes = []string{
	"All", "ApproximateFirstReceiveTimestamp", "ApproximateReceiveCount", "AWSTraceHeader", "DeadLetterQueueSourceArn",
	"MessageDeduplicationId", "MessageGroupId", "SenderId", "SentTimestamp", "SequenceNumber",
}

// receiveMessage waits without the lock. The client's context has no say: AWS
// does not know that a client is gone.
func (s *Server) receiveMessage(_ request, in receiveMessageInput) (any, error) {
	if err := in.check(); err != nil {
		return nil, err
	}
	names := slices.Concat(in.AttributeNames, in.MessageSystemAttributeNames)
	var deadline time.Time
	for {
		s.mu.Lock()
		q, err := s.find(in.QueueURL)
		if err == nil && in.ReceiveRequestAttemptID != nil && !q.fifo {
			err = invalid(*in.ReceiveRequestAttemptID, "ReceiveRequestAttemptId",
				"The request include parameter that is not valid for this queue type")
		}
		if err != nil {
			s.mu.Unlock()
			return nil, err
		}
		now := time.Now()
		if deadline.IsZero() {
			wait := q.seconds("ReceiveMessageWaitTimeSeconds")
			if in.WaitTimeSeconds != nil {
				wait = time.Duration(*in.WaitTimeSeconds) * time.Second
			}
			deadline = now.Add(wait)
			if wait == 0 && !q.fifo && q.flying(now) >= s.cfg.MaxInFlight {
				s.mu.Unlock()
				return nil, fail("OverLimit", "Too many messages are in flight.")
			}
		}
		visibility := q.seconds("VisibilityTimeout")
		if in.VisibilityTimeout != nil {
			visibility = time.Duration(*in.VisibilityTimeout) * time.Second
		}
		limit := 1
		if in.MaxNumberOfMessages != nil {
			limit = *in.MaxNumberOfMessages
		}
		out := []received{}
		for _, m := range s.take(q, now, limit, visibility) {
			out = append(out, m.view(names, in.MessageAttributeNames))
		}
		changed, next := q.changed, q.next(now, deadline)
		s.mu.Unlock()

		if len(out) > 0 || !now.Before(deadline) {
			return struct {
				Messages []received `json:",omitempty"`
			}{out}, nil
		}
		timer := time.NewTimer(next.Sub(now))
		select {
		case <-changed:
		case <-timer.C:
		case <-s.closed.Done():
			timer.Stop()
			return nil, errReset
		}
		timer.Stop()
	}
}

func (in receiveMessageInput) check() error {
	for _, err := range []error{
		inRange("MaxNumberOfMessages", in.MaxNumberOfMessages, 1, 10),
		inRange("VisibilityTimeout", in.VisibilityTimeout, 0, maxVisibility),
		inRange("WaitTimeSeconds", in.WaitTimeSeconds, 0, 20),
		validToken("ReceiveRequestAttemptId", in.ReceiveRequestAttemptID),
	} {
		if err != nil {
			return err
		}
	}
	for _, name := range slices.Concat(in.AttributeNames, in.MessageSystemAttributeNames) {
		if !slices.Contains(systemAttributes, name) {
			return unknownAttribute(name)
		}
	}
	return nil
}

func (q *queue) flying(now time.Time) int {
	n := 0
	for _, m := range q.messages {
		if m.inFlight(now) {
			n++
		}
	}
	return n
}

// next returns when a message becomes visible, at most the deadline.
func (q *queue) next(now, deadline time.Time) time.Time {
	for _, m := range q.messages {
		if m.visible.After(now) && m.visible.Before(deadline) {
			deadline = m.visible
		}
	}
	return deadline
}

// backOfTheQueue is the receive after which a message of a standard queue goes
// behind all others.
const backOfTheQueue = 3

// take receives up to limit messages, and moves those to the dead letter queue
// that were received as often as the policy allows.
func (s *Server) take(q *queue, now time.Time, limit int, visibility time.Duration) []*stored {
	q.expire(now)
	policy, hasPolicy := q.redrive()
	dead := s.findARN(policy.target)
	locked := map[string]bool{} // groups
	flying := 0
	for _, m := range q.messages {
		if m.inFlight(now) {
			flying++
			locked[m.group] = true
		}
	}
	var taken, moved, back []*stored
	for _, m := range q.messages {
		if len(taken) == limit || flying+len(taken) == s.cfg.MaxInFlight {
			break
		}
		if q.fifo && locked[m.group] {
			continue
		}
		if m.visible.After(now) {
			locked[m.group] = true // what comes later in the group waits too
			continue
		}
		if hasPolicy && dead != nil && m.count >= policy.max {
			moved = append(moved, m)
			continue
		}
		m.count++
		m.received = now
		if m.first.IsZero() {
			m.first = now
		}
		m.visible = now.Add(visibility)
		m.handle = s.newHandle(q, m)
		taken = append(taken, m)
		if !q.fifo && m.count >= backOfTheQueue {
			back = append(back, m)
		}
	}
	for _, m := range moved {
		q.remove(m)
	}
	for _, m := range moved { // perhaps to q itself
		m.handle, m.visible, m.source = "", now, q.arn
		if dead.fifo {
			m.enqueued, m.dedup = now, m.id
		}
		dead.messages = append(dead.messages, m)
		dead.wake()
	}
	for _, m := range back {
		q.remove(m)
		q.messages = append(q.messages, m)
	}
	return taken
}

func (q *queue) remove(m *stored) {
	if i := slices.Index(q.messages, m); i >= 0 {
		q.messages = slices.Delete(q.messages, i, i+1)
	}
}

// view is what a receiver gets of m.
func (m *stored) view(names, attributes []string) received {
	v := received{MessageID: m.id, ReceiptHandle: m.handle, MD5OfBody: md5Of(m.body), Body: m.body}
	system := map[string]string{
		"SenderId":                         "AIDAFAKEFAKEFAKEFAKE",
		"SentTimestamp":                    millis(m.sent),
		"ApproximateReceiveCount":          strconv.Itoa(m.count),
		"ApproximateFirstReceiveTimestamp": millis(m.first),
		"DeadLetterQueueSourceArn":         m.source,
		"MessageGroupId":                   m.group,
		"MessageDeduplicationId":           m.dedup,
		"SequenceNumber":                   m.sequence,
	}
	if m.trace != nil {
		system["AWSTraceHeader"] = value(m.trace.StringValue)
	}
	for name, text := range system {
		if text != "" && (slices.Contains(names, "All") || slices.Contains(names, name)) {
			if v.Attributes == nil {
				v.Attributes = map[string]string{}
			}
			v.Attributes[name] = text
		}
	}
	for name, a := range m.attributes {
		if slices.ContainsFunc(attributes, func(pattern string) bool { return matches(pattern, name) }) {
			if v.MessageAttributes == nil {
				v.MessageAttributes = map[string]attribute{}
			}
			v.MessageAttributes[name] = a
		}
	}
	v.MD5OfMessageAttributes = md5OfAttributes(v.MessageAttributes)
	return v
}

// matches says whether a receiver that asks for pattern gets an attribute.
func matches(pattern, name string) bool {
	prefix, any := strings.CutSuffix(pattern, ".*")
	return pattern == "All" || pattern == name || any && strings.HasPrefix(name, prefix)
}

func millis(t time.Time) string { return strconv.FormatInt(t.UnixMilli(), 10) }
