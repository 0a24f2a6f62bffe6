package sqsfake

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"
)

// message is what SendMessage and the entries of SendMessageBatch have in common.
type message struct {
	MessageBody             *string
	DelaySeconds            *int
	MessageAttributes       map[string]attribute
	MessageSystemAttributes map[string]attribute
	MessageDeduplicationID  *string `json:"MessageDeduplicationId"`
	MessageGroupID          *string `json:"MessageGroupId"`
}

type sendMessageInput struct {
	QueueURL *string `json:"QueueUrl"`
	message
}

type sendResult struct {
	ID                           string `json:"Id,omitempty"`
	MD5OfMessageBody             string
	MD5OfMessageAttributes       string `json:",omitempty"`
	MD5OfMessageSystemAttributes string `json:",omitempty"`
	MessageID                    string `json:"MessageId"`
	SequenceNumber               string `json:",omitempty"`
}

// dedupKey is what a FIFO queue remembers of a message. The group is empty
// unless deduplication is by group.
type dedupKey struct{ group, id string }

type sentOnce struct {
	at           time.Time
	id, sequence string
}

func (s *Server) sendMessage(_ request, in sendMessageInput) (any, error) {
	q, err := s.find(in.QueueURL)
	if err != nil {
		return nil, err
	}
	return s.send(q, in.message)
}

type sendEntry struct {
	ID *string `json:"Id"`
	message
}

type sendMessageBatchInput struct {
	QueueURL *string `json:"QueueUrl"`
	Entries  []sendEntry
}

func (s *Server) sendMessageBatch(_ request, in sendMessageBatchInput) (any, error) {
	q, err := s.find(in.QueueURL)
	if err != nil {
		return nil, err
	}
	total := 0
	for _, e := range in.Entries {
		total += size(value(e.MessageBody), e.MessageAttributes)
	}
	if total > maxSize {
		return nil, failf("BatchRequestTooLong",
			"Batch requests cannot be longer than %d bytes. You have sent %d bytes.", maxSize, total)
	}
	return batch(in.Entries, func(e sendEntry) *string { return e.ID }, func(e sendEntry) (sendResult, error) {
		result, err := s.send(q, e.message)
		result.ID = value(e.ID)
		return result, err
	})
}

// send checks and stores a message.
func (s *Server) send(q *queue, in message) (sendResult, error) {
	if err := q.check(in); err != nil {
		return sendResult{}, err
	}
	now := time.Now()
	result := sendResult{
		MD5OfMessageBody:             md5Of(*in.MessageBody),
		MD5OfMessageAttributes:       md5OfAttributes(in.MessageAttributes),
		MD5OfMessageSystemAttributes: md5OfAttributes(in.MessageSystemAttributes),
	}
	m := &stored{
		body: *in.MessageBody, attributes: in.MessageAttributes,
		group: value(in.MessageGroupID), dedup: value(in.MessageDeduplicationID),
		sent: now, enqueued: now, visible: now.Add(q.seconds("DelaySeconds")),
	}
	if in.DelaySeconds != nil {
		m.visible = now.Add(time.Duration(*in.DelaySeconds) * time.Second)
	}
	if trace, ok := in.MessageSystemAttributes["AWSTraceHeader"]; ok {
		m.trace = &trace
	}
	var key dedupKey
	if q.fifo {
		if m.dedup == "" {
			sum := sha256.Sum256([]byte(m.body)) // attributes do not count
			m.dedup = hex.EncodeToString(sum[:])
		}
		key = q.dedupKey(m)
		if old, ok := q.sent[key]; ok && now.Sub(old.at) < dedupWindow {
			result.MessageID, result.SequenceNumber = old.id, old.sequence
			return result, nil
		}
		m.sequence = s.sequence()
	}
	m.id = s.nextID()
	if q.fifo {
		q.sent[key] = sentOnce{at: now, id: m.id, sequence: m.sequence}
	}
	q.messages = append(q.messages, m)
	q.wake()
	result.MessageID, result.SequenceNumber = m.id, m.sequence
	return result, nil
}

func (q *queue) dedupKey(m *stored) dedupKey {
	if q.attributes["DeduplicationScope"] == "messageGroup" {
		return dedupKey{m.group, m.dedup}
	}
	return dedupKey{"", m.dedup}
}

// sequence returns numbers of 20 digits that grow.
func (s *Server) sequence() string {
	s.serial++
	return fmt.Sprintf("%020d", 18_440_000_000_000_000_000+s.serial)
}

// check says what is wrong with a message for q.
func (q *queue) check(in message) error {
	if err := validBody(in.MessageBody); err != nil {
		return err
	}
	if err := validAttributes(in.MessageAttributes); err != nil {
		return err
	}
	for name, a := range in.MessageSystemAttributes {
		if name != "AWSTraceHeader" || value(a.DataType) != "String" {
			return failf("InvalidParameterValue", "Message system attribute %s is invalid.", name)
		}
		if err := a.valid(name); err != nil {
			return err
		}
	}
	if limit := q.number("MaximumMessageSize"); size(*in.MessageBody, in.MessageAttributes) > limit {
		return failf("InvalidParameterValue",
			"One or more parameters are invalid. Reason: Message must be shorter than %d bytes.", limit)
	}
	if err := validToken("MessageGroupId", in.MessageGroupID); err != nil {
		return err
	}
	if err := validToken("MessageDeduplicationId", in.MessageDeduplicationID); err != nil {
		return err
	}
	delay := value(in.DelaySeconds)
	if delay < 0 || delay > maxDelay {
		return invalid(delay, "DelaySeconds", "DelaySeconds must be >= 0 and <= 900.")
	}
	const otherType = "The request include parameter that is not valid for this queue type"
	switch {
	case !q.fifo && in.MessageDeduplicationID != nil:
		return invalid(*in.MessageDeduplicationID, "MessageDeduplicationId", otherType)
	case q.fifo && in.MessageGroupID == nil:
		return missing("MessageGroupId")
	case q.fifo && delay != 0:
		return invalid(delay, "DelaySeconds", otherType)
	case q.fifo && in.MessageDeduplicationID == nil && q.attributes["ContentBasedDeduplication"] != "true":
		return fail("InvalidParameterValue", "The queue should either have ContentBasedDeduplication enabled "+
			"or MessageDeduplicationId provided explicitly")
	}
	return nil
}
