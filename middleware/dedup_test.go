package middleware_test

import (
	"errors"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	watermillmiddleware "github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/envelope"
	"github.com/spillway-mq/spillway/middleware"
)

// O31: what comes back on purpose is refused because a tracker remembers it.
// With its stock key the Deduplicator drops the retry of a failed message as a
// success; with ours each attempt, check, replay and counted redelivery gets
// through, and a second copy by the producer does not.
func TestDedupKeyLetsNewAttemptsThrough(t *testing.T) {
	t.Parallel()
	due := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	deliveries := []adapters.Delivery{
		{Stream: adapters.StreamMain, Count: 1, State: envelope.State{Attempt: 1}},
		{Stream: adapters.StreamMain, Count: 1, State: envelope.State{Attempt: 1}}, // the producer sent it twice
		{Stream: adapters.StreamMain, Count: 2, State: envelope.State{Attempt: 1}}, // the consumer died
		{Stream: adapters.StreamSuspect, Count: 1, State: envelope.State{Attempt: 1}},
		{Stream: adapters.StreamRetry, Count: 1, State: envelope.State{Attempt: 2}},
		{Stream: adapters.StreamRetry, Count: 1, State: envelope.State{Attempt: 2, DueAt: due, ParkedAt: due}}, // a check
		{Stream: adapters.StreamRetry, Count: 1, State: envelope.State{Attempt: 2, ReplayID: "replay-1"}},
	}
	for name, tt := range map[string]struct {
		hasher watermillmiddleware.MessageHasher
		calls  int
	}{
		"ours":  {middleware.DedupKey, len(deliveries) - 1},
		"stock": {nil, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			repo, err := watermillmiddleware.NewMapExpiringKeyRepository(time.Hour)
			if err != nil {
				t.Fatal(err)
			}
			calls := 0
			h := (&watermillmiddleware.Deduplicator{KeyFactory: tt.hasher, Repository: repo, Timeout: time.Minute}).Middleware(func(*message.Message) ([]*message.Message, error) {
				calls++
				return nil, errors.New("failed")
			})
			for i := range deliveries {
				msg := message.NewMessageWithContext(adapters.WithDelivery(t.Context(), &deliveries[i]), "m-1", []byte("order"))
				before := calls
				if _, err := h(msg); (err == nil) != (calls == before) {
					t.Errorf("delivery %d: error %v", i, err)
				}
			}
			if calls != tt.calls {
				t.Errorf("%d calls, want %d", calls, tt.calls)
			}
		})
	}
}
