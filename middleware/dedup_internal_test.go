package middleware

import (
	"errors"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	watermillmiddleware "github.com/ThreeDotsLabs/watermill/message/router/middleware"
)

// O31: what comes back on purpose is refused because a tracker remembers it.
// With its stock key the Deduplicator drops the retry of a failed message as a
// success; with ours each attempt, replay and counted redelivery gets through.
func TestDedupKeyLetsNewAttemptsThrough(t *testing.T) {
	t.Parallel()
	failed := errors.New("failed")
	for name, tt := range map[string]struct {
		hasher watermillmiddleware.MessageHasher
		calls  int
	}{
		"ours":  {DedupKey, 3},
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
				return nil, failed
			})
			for _, identity := range []string{"attempt 1", "attempt 2", "attempt 2", "replay 1, attempt 1"} {
				msg := message.NewMessageWithContext(withAttemptIdentity(t.Context(), identity), "m-1", []byte("order"))
				before := calls
				if _, err := h(msg); (err == nil) != (calls == before) {
					t.Errorf("%s: error %v", identity, err)
				}
			}
			if calls != tt.calls {
				t.Errorf("%d calls, want %d", calls, tt.calls)
			}
		})
	}
}
