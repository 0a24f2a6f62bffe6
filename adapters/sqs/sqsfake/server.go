package sqsfake

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// Config says where the queues pretend to be. Its zero value works.
type Config struct {
	// Region is in ARNs and URLs. Default us-east-1.
	Region string
	// Account is a number of 12 digits. Default 123456789012.
	Account string
	// MaxInFlight is how many messages of one queue may be in flight. Default
	// 120000, which is what AWS allows.
	MaxInFlight int
}

// Server is a fake SQS endpoint. It may be used concurrently.
type Server struct {
	cfg    Config
	closed context.Context // done when Close was called
	close  context.CancelFunc
	wg     sync.WaitGroup // requests and move tasks

	mu      sync.Mutex
	queues  map[string]*queue
	deleted map[string]time.Time // when the name was given up
	tasks   []*task
	faults  []*scripted
	calls   []Call
	serial  uint64 // of everything that needs a number of its own
}

// New returns a server without queues. Close it.
func New(cfg Config) *Server {
	cfg.Region = cmp.Or(cfg.Region, "us-east-1")
	cfg.Account = cmp.Or(cfg.Account, "123456789012")
	cfg.MaxInFlight = cmp.Or(cfg.MaxInFlight, 120_000)
	s := &Server{cfg: cfg, queues: map[string]*queue{}, deleted: map[string]time.Time{}}
	s.closed, s.close = context.WithCancel(context.Background())
	return s
}

// Close ends what waits, and refuses connections from then on. It returns when
// nothing of the server runs any more.
func (s *Server) Close() {
	s.mu.Lock() // no request is between its look at closed and wg.Add
	s.close()
	s.mu.Unlock()
	s.wg.Wait()
}

// Client returns a client that reaches the server, whatever the URL, without a
// network. An SDK takes it as its HTTP client.
func (s *Server) Client() *http.Client { return &http.Client{Transport: s} }

// Errors of connections, of which a client gets no answer.
var (
	errRefused = errors.New("sqsfake: connection refused")
	errReset   = errors.New("sqsfake: connection reset by peer")
)

// RoundTrip answers a request to any host. It returns with the request's
// context; what the server began it finishes nevertheless.
func (s *Server) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := readBody(r.Body)
	if err != nil {
		return nil, err
	}
	type result struct {
		answer
		err error
	}
	done := make(chan result, 1)
	if !s.begin() {
		return nil, errRefused
	}
	go func() {
		defer s.wg.Done()
		a, err := s.serve(r.Method, base(r.URL.Scheme, cmp.Or(r.Host, r.URL.Host)), r.Header, body)
		done <- result{a, err}
	}()
	select {
	case res := <-done:
		if res.err != nil {
			return nil, res.err
		}
		return &http.Response{
			Status:        fmt.Sprintf("%d %s", res.status, http.StatusText(res.status)),
			StatusCode:    res.status,
			Proto:         "HTTP/1.1",
			ProtoMajor:    1,
			ProtoMinor:    1,
			Header:        res.header,
			Body:          io.NopCloser(bytes.NewReader(res.body)),
			ContentLength: int64(len(res.body)),
			Request:       r,
		}, nil
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
}

// ServeHTTP is RoundTrip for a real server, such as one of net/http/httptest.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := readBody(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusRequestEntityTooLarge)
		return
	}
	if !s.begin() {
		panic(http.ErrAbortHandler)
	}
	defer s.wg.Done()
	scheme := "http"
	if r.TLS != nil {
		scheme = "https"
	}
	a, err := s.serve(r.Method, base(scheme, r.Host), r.Header, body)
	if err != nil {
		panic(http.ErrAbortHandler) // the client gets no answer
	}
	for name, values := range a.header {
		w.Header()[name] = values
	}
	w.WriteHeader(a.status)
	_, _ = w.Write(a.body) // the client may have gone
}

func (s *Server) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed.Err() != nil {
		return false
	}
	s.wg.Add(1)
	return true
}

func base(scheme, host string) string { return cmp.Or(scheme, "https") + "://" + host }

// maxRequest is more than ten escaped messages need.
const maxRequest = 16 << 20

func readBody(body io.ReadCloser) ([]byte, error) {
	if body == nil {
		return nil, nil
	}
	defer body.Close()
	b, err := io.ReadAll(io.LimitReader(body, maxRequest+1))
	if err == nil && len(b) > maxRequest {
		err = fmt.Errorf("sqsfake: a request of more than %d bytes", maxRequest)
	}
	return b, err
}

// answer is a response with a status.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// request is one call of an action.
type request struct {
	base string // of the URLs of queues: scheme and host
	body []byte
}

// handler carries out an action.
type handler func(*Server, request) (any, error)

// on decodes the input of an action.
func on[In any](f func(*Server, request, In) (any, error)) handler {
	return func(s *Server, r request) (any, error) {
		var in In
		if err := decode(r.body, &in); err != nil {
			return nil, err
		}
		return f(s, r, in)
	}
}

// locked is on for actions that wait for nothing.
func locked[In any](f func(*Server, request, In) (any, error)) handler {
	return on(func(s *Server, r request, in In) (any, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		return f(s, r, in)
	})
}

var handlers = map[string]handler{
	"CancelMessageMoveTask":        locked((*Server).cancelMessageMoveTask),
	"ChangeMessageVisibility":      locked((*Server).changeMessageVisibility),
	"ChangeMessageVisibilityBatch": locked((*Server).changeMessageVisibilityBatch),
	"CreateQueue":                  locked((*Server).createQueue),
	"DeleteMessage":                locked((*Server).deleteMessage),
	"DeleteMessageBatch":           locked((*Server).deleteMessageBatch),
	"DeleteQueue":                  locked((*Server).deleteQueue),
	"GetQueueAttributes":           locked((*Server).getQueueAttributes),
	"GetQueueUrl":                  locked((*Server).getQueueURL),
	"ListDeadLetterSourceQueues":   locked((*Server).listDeadLetterSourceQueues),
	"ListMessageMoveTasks":         locked((*Server).listMessageMoveTasks),
	"ListQueueTags":                locked((*Server).listQueueTags),
	"ListQueues":                   locked((*Server).listQueues),
	"PurgeQueue":                   locked((*Server).purgeQueue),
	"ReceiveMessage":               on((*Server).receiveMessage),
	"SendMessage":                  locked((*Server).sendMessage),
	"SendMessageBatch":             locked((*Server).sendMessageBatch),
	"SetQueueAttributes":           locked((*Server).setQueueAttributes),
	"StartMessageMoveTask":         locked((*Server).startMessageMoveTask),
	"TagQueue":                     locked((*Server).tagQueue),
	"UntagQueue":                   locked((*Server).untagQueue),
}

const target = "AmazonSQS."

// serve carries out a request. An error means that the client gets no answer.
func (s *Server) serve(method, base string, header http.Header, body []byte) (answer, error) {
	action, ok := strings.CutPrefix(header.Get("X-Amz-Target"), target)
	if !ok || method != http.MethodPost {
		return s.answer(nil, fail("UnknownOperationException",
			"a POST with the header X-Amz-Target: AmazonSQS.Action is wanted")), nil
	}
	s.mu.Lock()
	index := len(s.calls)
	s.calls = append(s.calls, Call{Action: action, Queue: queueOf(body), Input: slices.Clone(body), Began: time.Now()})
	effect := s.match(action, s.calls[index].Queue)
	s.mu.Unlock()

	out, err := s.carryOut(action, request{base: base, body: body}, effect)

	s.mu.Lock()
	call := &s.calls[index]
	call.Ended = time.Now()
	if e, ok := errors.AsType[*apiError](err); ok {
		call.Code = e.code
	} else if err != nil {
		call.Code = err.Error()
	}
	s.mu.Unlock()

	if errors.Is(err, errRefused) || errors.Is(err, errReset) {
		return answer{}, err
	}
	return s.answer(out, err), nil
}

func (s *Server) carryOut(action string, r request, e Effect) (any, error) {
	if !e.wait(s.closed.Done()) {
		return nil, errReset
	}
	switch e.kind {
	case failing:
		return nil, fail(e.code, "injected fault")
	case refusing:
		return nil, errRefused
	}
	h, ok := handlers[action]
	switch {
	case action == "AddPermission" || action == "RemovePermission":
		return nil, fail("UnsupportedOperation", action+" is not supported by this fake.")
	case !ok:
		return nil, fail("UnknownOperationException", "there is no action "+action)
	}
	if e.ofEntries() {
		return e.partly(r.body, func(rest []byte) (any, error) { return h(s, request{base: r.base, body: rest}) })
	}
	out, err := h(s, r)
	if err == nil {
		switch e.kind {
		case dropping:
			return nil, errReset
		case failingAfter:
			return nil, fail(e.code, "injected fault")
		}
	}
	return out, err
}

// answer makes a response of an action's output, or of its error.
func (s *Server) answer(out any, err error) answer {
	a := answer{status: http.StatusOK, header: http.Header{}}
	a.header.Set("Content-Type", "application/x-amz-json-1.0")
	a.header.Set("X-Amzn-Requestid", s.id())
	if err != nil {
		e, ok := errors.AsType[*apiError](err)
		if !ok {
			e = fail("InternalError", err.Error())
		}
		k := e.kind()
		a.status = k.status
		a.header.Set("X-Amzn-Query-Error", k.query+";"+k.fault())
		out = map[string]string{"__type": k.namespace() + "#" + k.shape, "message": e.message}
	}
	if out == nil {
		out = struct{}{}
	}
	a.body, err = json.Marshal(out)
	if err != nil {
		panic(err) // our own types
	}
	return a
}
