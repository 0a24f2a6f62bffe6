package spillway_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	wmiddleware "github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/spillway-mq/spillway"
	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/adapters/memory"
	"github.com/spillway-mq/spillway/failure"
)

// All metadata together fit the broker's limit, and optional keys go first: a
// message with headers of its own must not lose the whole error text because
// the budget was reckoned without them.
func TestAdversaryUserHeadersAreInTheBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(memory.Config{MaxMetadataBytes: 2000})
		a := advOpen(t, b, spillway.Config{})
		a.handle("orders", func(*message.Message) error {
			return failure.Permanent(errors.New("invalid: "+strings.Repeat("x", 400)), failure.Code("BAD_SCHEMA"))
		}).run()
		advPublish(t, b, "orders", "m", adapters.Header{Key: "baggage", Value: []byte(strings.Repeat("u", 1100))})
		time.Sleep(time.Minute)
		synctest.Wait()
		for _, r := range b.Records("orders.g.dlq") {
			size := 0
			for _, h := range r.Headers {
				size += len(h.Key) + len(h.Value)
			}
			if advHeader(r, "spillway-error-message") == "" || advHeader(r, "spillway-error-code") == "" {
				t.Errorf("no error text or code, though %d of 2000 bytes are free: %q", 2000-size, r.Headers)
			}
		}
		if b.Depth("orders.g.dlq") != 1 {
			t.Error("no dead letter")
		}
		a.close()
	})
}

// Where a position is not known it is absent, not invented: a record that
// somebody wrote to the retry stream by hand has none on the topic.
func TestAdversaryPositionOnRetryIsNotThatOfTheSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(memory.Config{})
		a := advOpen(t, b, spillway.Config{})
		a.handle("orders", func(*message.Message) error { return failure.Permanent(errors.New("bad")) }).run()
		advPublish(t, b, "orders.g.retry", "by hand")
		time.Sleep(time.Minute)
		synctest.Wait()
		for _, r := range b.Records("orders.g.dlq") {
			if o := advHeader(r, "spillway-source-offset"); o != "" {
				t.Errorf("source is %s/%s/%s, but nothing was ever published to orders", advHeader(r, "spillway-source-topic"), advHeader(r, "spillway-source-partition"), o)
			}
		}
		a.close()
	})
}

// The panic of a nil value (GODEBUG=panicnil=1) behind Watermill's Recoverer is
// a failure, not a success.
func TestAdversaryRecoveredNilIsNotSuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(memory.Config{})
		a := advOpen(t, b, spillway.Config{})
		a.handle("orders", func(*message.Message) error { return wmiddleware.RecoveredPanicError{Stacktrace: "stack"} }).run()
		advPublish(t, b, "orders", "m")
		time.Sleep(time.Hour)
		synctest.Wait()
		if b.Depth("orders.g.dlq") != 1 {
			t.Errorf("lost; outcomes: %v", a.told())
		}
		a.close()
	})
}

// The stack behind Watermill's Recoverer never reaches the message, also not
// when somebody has joined the error with another one.
func TestAdversaryJoinedRecoveredPanicKeepsItsStack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(memory.Config{})
		a := advOpen(t, b, spillway.Config{})
		a.router.AddMiddleware(func(h message.HandlerFunc) message.HandlerFunc {
			return func(msg *message.Message) ([]*message.Message, error) {
				out, err := h(msg)
				return out, errors.Join(err, errors.New("and the transaction was rolled back"))
			}
		}, wmiddleware.Recoverer)
		a.handle("orders", func(*message.Message) error { panic("boom") }).run()
		advPublish(t, b, "orders", "m")
		time.Sleep(time.Hour)
		synctest.Wait()
		for _, r := range b.Records("orders.g.dlq") {
			if text := advHeader(r, "spillway-error-message"); strings.Contains(text, "goroutine ") || strings.Contains(text, ".go:") {
				t.Errorf("error text has the stack: %q", text[:200])
			}
		}
		a.close()
	})
}

// A stream of a consumer's own must not be a topic that another consumer reads
// as main: its retries would be seen there.
func TestAdversaryOwnStreamIsNotAnotherConsumersTopic(t *testing.T) {
	b := memory.New(memory.Config{})
	a := advOpen(t, b, spillway.Config{Names: adapters.Names{Retry: "{topic}-{group}"}})
	for _, topic := range []string{"orders", "orders-g"} { // and the other way round
		if _, err := a.sw.Subscriber().Subscribe(t.Context(), topic); err != nil {
			return
		}
	}
	t.Error("the retry stream of orders is the topic of another consumer, and nobody objects")
}
