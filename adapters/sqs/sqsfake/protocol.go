package sqsfake

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// decode reads the input of an action. A body of a type that the model does not
// have is a SerializationException, as with AWS; unknown members are ignored.
func decode(body []byte, in any) error {
	if !utf8.Valid(body) {
		return fail("SerializationException", "the request is not valid UTF-8")
	}
	d := json.NewDecoder(bytes.NewReader(body))
	if err := d.Decode(in); err != nil && !errors.Is(err, io.EOF) {
		return fail("SerializationException", err.Error())
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return fail("SerializationException", "more than one JSON value")
	}
	return nil
}

// queueOf returns the name of the queue that a request names, if it does.
func queueOf(body []byte) string {
	var in struct{ QueueUrl, QueueName, SourceArn string } //nolint:revive // the names of the API
	_ = json.Unmarshal(body, &in)                          // the action reports what is wrong
	switch {
	case in.QueueUrl != "":
		return in.QueueUrl[strings.LastIndexByte(in.QueueUrl, '/')+1:]
	case in.SourceArn != "":
		return in.SourceArn[strings.LastIndexByte(in.SourceArn, ':')+1:]
	}
	return in.QueueName
}

// id returns something that looks like a UUID and is new.
func (s *Server) id() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.nextID()
}

// nextID is id with the lock held.
func (s *Server) nextID() string {
	s.serial++
	return fmt.Sprintf("5a5f0000-0000-4000-8000-%012x", s.serial)
}

// find returns the queue of a URL. Called with the lock held.
func (s *Server) find(url *string) (*queue, error) {
	if value(url) == "" {
		return nil, missing("QueueUrl")
	}
	rest, ok := strings.CutPrefix(*url, "https://")
	if !ok {
		rest, ok = strings.CutPrefix(*url, "http://")
	}
	parts := strings.Split(rest, "/")
	if !ok || len(parts) != 3 {
		return nil, failf("InvalidAddress", "The address %s is not valid for this endpoint.", *url)
	}
	q := s.queues[parts[2]]
	if q == nil || parts[1] != s.cfg.Account {
		return nil, noQueue()
	}
	return q, nil
}

// findARN returns the queue of an ARN, or nil.
func (s *Server) findARN(arn string) *queue {
	name, ok := strings.CutPrefix(arn, s.arn(""))
	if !ok {
		return nil
	}
	return s.queues[name]
}

func (s *Server) arn(name string) string {
	return "arn:aws:sqs:" + s.cfg.Region + ":" + s.cfg.Account + ":" + name
}

func (s *Server) url(r request, name string) string { return r.base + "/" + s.cfg.Account + "/" + name }

func noQueue() *apiError { return fail("QueueDoesNotExist", "The specified queue does not exist.") }

func missing(parameter string) *apiError {
	return fail("MissingParameter", "The request must contain the parameter "+parameter+".")
}

// inRange checks an optional number.
func inRange(parameter string, n *int, low, high int) error {
	if n != nil && (*n < low || *n > high) {
		return invalid(*n, parameter, fmt.Sprintf("Must be between %d and %d, if provided.", low, high))
	}
	return nil
}

// The results of batches.
type failedEntry struct {
	ID          string `json:"Id"`
	Code        string
	Message     string
	SenderFault bool
}

type doneEntry struct {
	ID string `json:"Id"`
}

type batchResult[T any] struct {
	Successful []T           `json:",omitempty"`
	Failed     []failedEntry `json:",omitempty"`
}

// maxBatch is how many entries a batch may have.
const maxBatch = 10

// batch checks the ids of a batch's entries and calls do for each.
func batch[E, T any](entries []E, id func(E) *string, do func(E) (T, error)) (batchResult[T], error) {
	var out batchResult[T]
	if len(entries) == 0 {
		return out, fail("EmptyBatchRequest", "There should be at least one entry in the request.")
	}
	if len(entries) > maxBatch {
		return out, failf("TooManyEntriesInBatchRequest",
			"Maximum number of entries per request are %d. You have sent %d.", maxBatch, len(entries))
	}
	seen := map[string]bool{}
	for _, e := range entries {
		switch name := value(id(e)); {
		case !legalName(name, ""):
			return out, fail("InvalidBatchEntryId",
				"A batch entry id can only contain alphanumeric characters, hyphens and underscores. It can be at most 80 letters long.")
		case seen[name]:
			return out, failf("BatchEntryIdsNotDistinct", "Id %s repeated.", name)
		default:
			seen[name] = true
		}
	}
	for _, e := range entries {
		result, err := do(e)
		if err == nil {
			out.Successful = append(out.Successful, result)
			continue
		}
		failed, ok := errors.AsType[*apiError](err)
		if !ok {
			return out, err
		}
		out.Failed = append(out.Failed, failedEntry{
			ID: *id(e), Code: failed.kind().query, Message: failed.message, SenderFault: failed.kind().fault() == "Sender",
		})
	}
	return out, nil
}

// legalName says whether s has 1 to 80 of the characters that names may have,
// suffix included.
func legalName(s, suffix string) bool {
	stem, ok := strings.CutSuffix(s, suffix)
	if !ok || stem == "" || len(s) > 80 {
		return false
	}
	for i := range len(stem) {
		if c := stem[i]; !alphanumeric(c) && c != '-' && c != '_' {
			return false
		}
	}
	return true
}

func alphanumeric(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}
