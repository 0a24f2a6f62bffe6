package middleware_test

import (
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	watermillmiddleware "github.com/ThreeDotsLabs/watermill/message/router/middleware"

	"github.com/spillway-mq/spillway/middleware"
)

var _ watermillmiddleware.MessageHasher = middleware.DedupKey

func dedupKey(t *testing.T, uuid, payload string) string {
	t.Helper()
	k, err := middleware.DedupKey(message.NewMessage(uuid, []byte(payload)))
	if err != nil || k == "" {
		t.Fatalf("key %q, error %v", k, err)
	}
	return k
}

func TestDedupKey(t *testing.T) {
	t.Parallel()
	if dedupKey(t, "m-1", "a") != dedupKey(t, "m-1", "a") {
		t.Error("two copies of a message have two keys")
	}
	if dedupKey(t, "m-1", "a") == dedupKey(t, "m-2", "a") {
		t.Error("messages that are merely equal share a key")
	}
	if dedupKey(t, "m-1", "a") == dedupKey(t, "m-1", "b") {
		t.Error("the payload makes no difference")
	}
	if dedupKey(t, "m-1", "a") == dedupKey(t, "m-1a", "") {
		t.Error("UUID and payload run together")
	}
	if dedupKey(t, "", "a") == dedupKey(t, "", "a") {
		t.Error("messages without UUID share a key")
	}
}

func TestDedupKeyWithDeduplicator(t *testing.T) {
	t.Parallel()
	repo, err := watermillmiddleware.NewMapExpiringKeyRepository(time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	dedup := &watermillmiddleware.Deduplicator{KeyFactory: middleware.DedupKey, Repository: repo, Timeout: time.Minute}
	calls := 0
	h := dedup.Middleware(func(*message.Message) ([]*message.Message, error) {
		calls++
		return nil, nil
	})
	for _, id := range []string{"m-1", "m-1", "m-2", "", ""} {
		if _, err := h(message.NewMessage(id, []byte("same"))); err != nil {
			t.Fatal(err)
		}
	}
	if calls != 4 {
		t.Errorf("%d calls, want one for each message and for each without UUID", calls)
	}
}
