package sqs

import (
	"errors"
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/aws/smithy-go"
)

// QueueError means that a queue is not what this configuration needs.
type QueueError struct {
	Queue     string
	Attribute string // that differs; empty when the queue is missing
	Want      string // by this configuration
	Have      string // at SQS
	Hint      string // the way out
}

func (e *QueueError) Error() string {
	if e.Attribute == "" {
		return fmt.Sprintf("queue %q does not exist: %s", e.Queue, e.Hint)
	}
	return fmt.Sprintf("queue %q differs: %s is %s, and %s here: %s", e.Queue, e.Attribute, e.Have, e.Want, e.Hint)
}

// code is what SQS calls an error. Servers differ in the prefix, and those that
// speak to old clients in the whole name.
func code(err error) string {
	var api smithy.APIError
	if !errors.As(err, &api) {
		return ""
	}
	return api.ErrorCode()
}

// isGone reports that there is no such queue.
func isGone(err error) bool {
	if _, ok := errors.AsType[*types.QueueDoesNotExist](err); ok {
		return true
	}
	switch code(err) {
	case "AWS.SimpleQueueService.NonExistentQueue", "QueueDoesNotExist", "NonExistentQueue":
		return true
	}
	return false
}

// isDenied reports that the credentials do not allow it.
func isDenied(err error) bool {
	switch code(err) {
	case "AccessDenied", "AccessDeniedException", "InvalidSecurity":
		return true
	}
	return false
}

// isLost reports that a receipt handle is of no use any more: somebody else has
// the message, or nobody.
func isLost(err error) bool { return isLostCode(code(err)) || isGone(err) }

func isLostCode(code string) bool {
	switch code {
	case "ReceiptHandleIsInvalid", "MessageNotInflight", "AWS.SimpleQueueService.MessageNotInflight",
		"InvalidParameterValue", "InvalidParameterValueException", "InvalidAddress":
		return true
	}
	return false
}

// isRefused reports that SQS does not take a message as it is, however often it
// is sent.
func isRefused(err error) bool {
	if _, ok := errors.AsType[*types.InvalidMessageContents](err); ok {
		return true
	}
	switch code(err) {
	case "InvalidParameterValue", "InvalidParameterValueException", "MissingParameter", "InvalidMessageContents", "UnsupportedOperation":
		return true
	}
	return false
}

// isTooLong reports that a refusal is about the size of the message. It has no
// code of its own, and this may miss it.
func isTooLong(err error) bool {
	var api smithy.APIError
	return errors.As(err, &api) && strings.Contains(api.ErrorMessage(), "must be shorter than")
}
