package sqsfake

import (
	"encoding/base64"
	"fmt"
	"strings"
	"time"
)

const handlePrefix = "sqsfake"

// newHandle makes the receipt handle of a receive.
func (s *Server) newHandle(q *queue, m *stored) string {
	s.serial++
	return base64.StdEncoding.EncodeToString(fmt.Appendf(nil, "%s %s %s %d", handlePrefix, q.name, m.id, s.serial))
}

// parseHandle returns the id of the message that a handle of q is of.
func parseHandle(q *queue, handle *string) (string, error) {
	if value(handle) == "" {
		return "", missing("ReceiptHandle")
	}
	text, err := base64.StdEncoding.DecodeString(*handle)
	parts := strings.Fields(string(text))
	if err != nil || len(parts) != 4 || parts[0] != handlePrefix || parts[1] != q.name {
		return "", failf("ReceiptHandleIsInvalid", "The input receipt handle %q is not a valid receipt handle.", *handle)
	}
	return parts[2], nil
}

// byID returns a message of q, or nil.
func (q *queue) byID(id string) *stored {
	for _, m := range q.messages {
		if m.id == id {
			return m
		}
	}
	return nil
}

// expiredHandle is what FIFO queues answer to a handle whose time is over.
func expiredHandle(handle string) error {
	return invalid(handle, "ReceiptHandle", "The receipt handle has expired.")
}

type receipt struct {
	ReceiptHandle *string
}

type deleteMessageInput struct {
	queueInput
	receipt
}

func (s *Server) deleteMessage(_ request, in deleteMessageInput) (any, error) {
	q, err := s.find(in.QueueURL)
	if err != nil {
		return nil, err
	}
	return nil, q.delete(in.ReceiptHandle)
}

// delete is idempotent, and without effect if the handle is not the newest.
func (q *queue) delete(handle *string) error {
	id, err := parseHandle(q, handle)
	if err != nil {
		return err
	}
	now := time.Now()
	q.expire(now)
	m := q.byID(id)
	switch {
	case m == nil:
		return nil
	case q.fifo && (m.handle != *handle || !m.inFlight(now)):
		return expiredHandle(*handle)
	case m.handle != *handle:
		return nil
	}
	q.remove(m)
	q.wake() // the next of a group
	return nil
}

type receiptEntry struct {
	ID *string `json:"Id"`
	receipt
	VisibilityTimeout *int
}

func (e receiptEntry) id() *string { return e.ID }

type receiptBatchInput struct {
	queueInput
	Entries []receiptEntry
}

func (s *Server) deleteMessageBatch(_ request, in receiptBatchInput) (any, error) {
	q, err := s.find(in.QueueURL)
	if err != nil {
		return nil, err
	}
	return batch(in.Entries, receiptEntry.id, func(e receiptEntry) (doneEntry, error) {
		return doneEntry{value(e.ID)}, q.delete(e.ReceiptHandle)
	})
}

type changeMessageVisibilityInput struct {
	queueInput
	receipt
	VisibilityTimeout *int
}

func (s *Server) changeMessageVisibility(_ request, in changeMessageVisibilityInput) (any, error) {
	q, err := s.find(in.QueueURL)
	if err != nil {
		return nil, err
	}
	return nil, q.changeVisibility(in.ReceiptHandle, in.VisibilityTimeout)
}

func (s *Server) changeMessageVisibilityBatch(_ request, in receiptBatchInput) (any, error) {
	q, err := s.find(in.QueueURL)
	if err != nil {
		return nil, err
	}
	return batch(in.Entries, receiptEntry.id, func(e receiptEntry) (doneEntry, error) {
		return doneEntry{value(e.ID)}, q.changeVisibility(e.ReceiptHandle, e.VisibilityTimeout)
	})
}

func (q *queue) changeVisibility(handle *string, seconds *int) error {
	id, err := parseHandle(q, handle)
	if err != nil {
		return err
	}
	if seconds == nil {
		return missing("VisibilityTimeout")
	}
	if *seconds < 0 || *seconds > maxVisibility {
		return invalid(*seconds, "VisibilityTimeout", "VisibilityTimeout must be between 0 and 43200.")
	}
	now := time.Now()
	q.expire(now)
	m := q.byID(id)
	switch {
	case m == nil || m.handle != *handle:
		return invalid(*handle, "ReceiptHandle", "Message does not exist or is not available for visibility timeout change.")
	case !m.inFlight(now) && q.fifo:
		return expiredHandle(*handle)
	case !m.inFlight(now):
		return fail("MessageNotInflight", "The specified message isn't in flight.")
	}
	visible := now.Add(time.Duration(*seconds) * time.Second)
	if visible.Sub(m.received) > maxVisibility*time.Second {
		return invalid(*seconds, "VisibilityTimeout",
			"Total VisibilityTimeout for the message is beyond the limit [43200 seconds]")
	}
	m.visible = visible
	q.wake()
	return nil
}
