package sqsfake

import (
	"fmt"
	"net/http"
)

// apiError is an error that a client gets.
type apiError struct{ code, message string }

// Error is for the tests of this package and for logs.
func (e *apiError) Error() string { return e.code + ": " + e.message }

func fail(code, message string) *apiError { return &apiError{code: code, message: message} }

func failf(code, format string, args ...any) *apiError {
	return &apiError{code: code, message: fmt.Sprintf(format, args...)}
}

// invalid is the error of a parameter, in the words that AWS uses.
func invalid(value any, parameter, reason string) *apiError {
	return failf("InvalidParameterValue", "Value %v for parameter %s is invalid. Reason: %s", value, parameter, reason)
}

// errorKind is what a code means on the wire. Services that once spoke the
// query protocol send the code that they had there beside the shape.
type errorKind struct {
	shape  string // of the JSON protocol
	query  string // of the query protocol: what SDKs report as the code
	status int
	plain  bool // not in the service's model: SDKs have no type for it
}

func (k errorKind) namespace() string {
	if k.plain {
		return "com.amazon.coral.service"
	}
	return "com.amazonaws.sqs"
}

func (k errorKind) fault() string {
	if k.status >= http.StatusInternalServerError {
		return "Receiver"
	}
	return "Sender"
}

const simple = "AWS.SimpleQueueService."

// kinds has every code whose shape, query code or status is not what [apiError.kind]
// makes of it.
var kinds = map[string]errorKind{
	"BatchEntryIdsNotDistinct":     {query: simple + "BatchEntryIdsNotDistinct"},
	"BatchRequestTooLong":          {query: simple + "BatchRequestTooLong"},
	"EmptyBatchRequest":            {query: simple + "EmptyBatchRequest"},
	"InvalidAddress":               {status: http.StatusNotFound},
	"InvalidAttributeName":         {},
	"InvalidAttributeValue":        {},
	"InvalidBatchEntryId":          {query: simple + "InvalidBatchEntryId"},
	"InvalidMessageContents":       {},
	"InvalidSecurity":              {status: http.StatusForbidden},
	"MessageNotInflight":           {query: simple + "MessageNotInflight"},
	"OverLimit":                    {status: http.StatusForbidden},
	"PurgeQueueInProgress":         {query: simple + "PurgeQueueInProgress", status: http.StatusForbidden},
	"QueueDeletedRecently":         {query: simple + "QueueDeletedRecently"},
	"QueueDoesNotExist":            {query: simple + "NonExistentQueue"},
	"QueueNameExists":              {query: "QueueAlreadyExists"},
	"ReceiptHandleIsInvalid":       {status: http.StatusNotFound},
	"RequestThrottled":             {status: http.StatusForbidden},
	"ResourceNotFoundException":    {status: http.StatusNotFound},
	"TooManyEntriesInBatchRequest": {query: simple + "TooManyEntriesInBatchRequest"},
	"UnsupportedOperation":         {query: simple + "UnsupportedOperation"},

	"AccessDenied":              {shape: "AccessDeniedException", status: http.StatusForbidden, plain: true},
	"InternalError":             {shape: "InternalFailure", status: http.StatusInternalServerError, plain: true},
	"InternalFailure":           {status: http.StatusInternalServerError, plain: true},
	"InvalidParameterValue":     {shape: "InvalidParameterValueException", plain: true},
	"MissingParameter":          {shape: "MissingRequiredParameterException", plain: true},
	"SerializationException":    {plain: true},
	"ServiceUnavailable":        {shape: "ServiceUnavailableException", status: http.StatusServiceUnavailable, plain: true},
	"ThrottlingException":       {plain: true},
	"UnknownOperationException": {status: http.StatusNotFound, plain: true},
}

func (e *apiError) kind() errorKind {
	k, ok := kinds[e.code]
	k.plain = k.plain || !ok
	if k.shape == "" {
		k.shape = e.code
	}
	if k.query == "" {
		k.query = e.code
	}
	if k.status == 0 {
		k.status = http.StatusBadRequest
	}
	return k
}
