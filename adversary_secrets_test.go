package spillway_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/spillway-mq/spillway"
	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/adapters/memory"
	"github.com/spillway-mq/spillway/failure"
	"github.com/spillway-mq/spillway/poison"
)

type advLog struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *advLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *advLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func (l *advLog) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelInfo}))
}

// A header that the user wants left out of dead letters must not come back as
// one of ours.
func TestAdversaryDroppedHeaderIsNotDescribed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(memory.Config{})
		a := advOpen(t, b, spillway.Config{Redaction: poison.Redaction{DropHeaders: []string{"aggregate-id", "x-trace-id"}}})
		a.handle("orders", func(*message.Message) error { return failure.Permanent(errors.New("bad")) }).run()
		advPublish(t, b, "orders", "m",
			adapters.Header{Key: "aggregate-id", Value: []byte("secret-patient-4711")},
			adapters.Header{Key: "x-trace-id", Value: []byte("secret-session")})
		time.Sleep(time.Minute)
		synctest.Wait()
		for _, r := range b.Records("orders.g.dlq") {
			for _, h := range r.Headers {
				if strings.Contains(string(h.Value), "secret") {
					t.Errorf("%s: %s", h.Key, h.Value)
				}
			}
		}
		a.close()
	})
}

func TestAdversarySettlementErrorsAreRedacted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(memory.Config{})
		var log advLog
		a := advOpen(t, b, spillway.Config{Logger: log.logger()})
		b.Inject(memory.Fault{On: memory.Ack, Do: memory.FailAfter(errors.New("dial amqp://app:hunter2@rabbit:5672: refused"))},
			memory.Fault{On: memory.Return, Do: memory.Fail(errors.New("dial amqp://app:hunter2@rabbit:5672: refused"))})
		nacked := false
		a.handle("orders", func(m *message.Message) error {
			if m.UUID == "n" && !nacked {
				nacked = true
				m.Nack()
			}
			return nil
		}).run()
		advPublish(t, b, "orders", "m")
		advPublish(t, b, "orders", "n")
		time.Sleep(time.Minute)
		synctest.Wait()
		if strings.Contains(log.String(), "hunter2") {
			t.Error(log.String())
		}
		a.close()
	})
}

func TestAdversaryOpenErrorHidesSecretsInTheQuery(t *testing.T) {
	opener := adapters.Opener{Schemes: []string{"kafka"}, Open: func(context.Context, adapters.OpenParams) (adapters.Broker, error) {
		return nil, errors.New("refused")
	}}
	_, err := spillway.Open(t.Context(), "kafka://host?sasl=plain&password=hunter2", spillway.Config{Group: "g", ConsumerVersion: "v", Logger: slog.New(slog.DiscardHandler)}, opener)
	if err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Error(err)
	}
}
