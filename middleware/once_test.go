package middleware_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"github.com/google/go-cmp/cmp"

	"github.com/spillway-mq/spillway/middleware"
)

func memoryStore(t *testing.T, cfg middleware.MemoryStoreConfig) *middleware.MemoryStore {
	t.Helper()
	s, err := middleware.NewMemoryStore(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// eachStore runs a test on every store.
func eachStore(t *testing.T, test func(t *testing.T, store middleware.OnceStore)) {
	t.Run("memory", func(t *testing.T) {
		t.Parallel()
		test(t, memoryStore(t, middleware.MemoryStoreConfig{}))
	})
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		_, store := sqliteStore(t)
		test(t, store)
	})
}

// sent is what travels of a message.
type sent struct {
	UUID     string
	Metadata message.Metadata
	Payload  string
	Nil      bool // the payload is nil
}

func sentOf(messages []*message.Message) []sent {
	var out []sent
	for _, m := range messages {
		out = append(out, sent{m.UUID, m.Metadata, string(m.Payload), m.Payload == nil})
	}
	return out
}

func TestOnceReturnsTheSameOutputs(t *testing.T) {
	t.Parallel()
	binary := string([]byte{0xff, 0, 0xc3})
	tests := map[string][]*message.Message{
		"none":            nil,
		"one":             {message.NewMessage("o-1", []byte("receipt"))},
		"nil payload":     {message.NewMessage("o-1", nil)},
		"empty payload":   {message.NewMessage("o-1", []byte{})},
		"no UUID":         {message.NewMessage("", []byte("receipt"))},
		"binary in all":   {{UUID: binary, Metadata: message.Metadata{binary: binary, "": ""}, Payload: []byte(binary)}},
		"several, large":  {message.NewMessage("o-1", bytes.Repeat([]byte("x"), 1<<20)), message.NewMessage("o-2", nil), message.NewMessage("o-2", []byte("y"))},
		"some metadata":   {{UUID: "o-1", Metadata: message.Metadata{"b": "2", "a": "1"}, Payload: []byte("p")}},
		"nothing but one": {message.NewMessage("", nil)},
	}
	eachStore(t, func(t *testing.T, store middleware.OnceStore) {
		for name, outputs := range tests {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				calls := 0
				h := middleware.Once(store, nil)(func(*message.Message) ([]*message.Message, error) {
					calls++
					return outputs, nil
				})
				for n := range 3 {
					got, err := h(message.NewMessage("m "+name, nil))
					if err != nil {
						t.Fatal(err)
					}
					if diff := cmp.Diff(sentOf(outputs), sentOf(got)); diff != "" {
						t.Errorf("outputs of delivery %d (-want +got):\n%s", n+1, diff)
					}
				}
				if calls != 1 {
					t.Errorf("the handler ran %d times", calls)
				}
			})
		}
	})
}

func TestOnceRunsAgainAfterFailure(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, store middleware.OnceStore) {
		failed := errors.New("gateway is down")
		half := []*message.Message{message.NewMessage("half", nil)}
		calls := 0
		h := middleware.Once(store, nil)(func(*message.Message) ([]*message.Message, error) {
			calls++
			switch calls {
			case 1:
				return half, failed
			case 2:
				panic("index out of range")
			}
			return nil, nil
		})
		msg := message.NewMessage("m-1", nil)
		if got, err := h(msg); err != failed || len(got) != 1 || got[0] != half[0] {
			t.Errorf("got %v and %v, want what the handler returned", got, err)
		}
		func() {
			defer func() {
				if r := recover(); r != "index out of range" {
					t.Errorf("recovered %v, want the handler's panic", r)
				}
			}()
			h(msg)
		}()
		for range 2 {
			if _, err := h(msg); err != nil {
				t.Fatal(err)
			}
		}
		if calls != 3 {
			t.Errorf("the handler ran %d times, want two failures and one success", calls)
		}
	})
}

func TestOnceNeverRunsDuplicatesTogether(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, store middleware.OnceStore) {
		var running, calls atomic.Int32
		h := middleware.Once(store, nil)(func(*message.Message) ([]*message.Message, error) {
			if running.Add(1) != 1 {
				t.Error("two at once")
			}
			defer running.Add(-1)
			if calls.Add(1) <= 3 {
				return nil, errors.New("not yet")
			}
			return []*message.Message{message.NewMessage(watermill.NewUUID(), nil)}, nil
		})
		const copies = 16
		ids := make(chan string, copies)
		var wg sync.WaitGroup
		for range copies {
			wg.Go(func() {
				for {
					out, err := h(message.NewMessage("m-1", nil))
					if err == nil {
						ids <- out[0].UUID
						return
					}
					if err.Error() != "not yet" {
						t.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
		close(ids)
		first := <-ids
		n := 1
		for id := range ids {
			n++
			if id != first {
				t.Errorf("outputs %s and %s", first, id)
			}
		}
		if n != copies || calls.Load() != 4 {
			t.Errorf("%d copies succeeded with %d calls, want %d with 4", n, calls.Load(), copies)
		}
	})
}

func TestOnceWaitsNoLongerThanItsContext(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, store middleware.OnceStore) {
		started, release := make(chan struct{}), make(chan struct{})
		calls := 0
		h := middleware.Once(store, nil)(func(*message.Message) ([]*message.Message, error) {
			calls++
			close(started)
			<-release
			return nil, nil
		})
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := h(message.NewMessage("m-1", nil)); err != nil {
				t.Error(err)
			}
		})
		<-started
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := h(message.NewMessageWithContext(ctx, "m-1", nil))
		if !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want the end of the context", err)
		}
		close(release)
		wg.Wait()
		if calls != 1 {
			t.Errorf("the handler ran %d times", calls)
		}
	})
}

func TestOnceWithoutKey(t *testing.T) {
	t.Parallel()
	h := middleware.Once(memoryStore(t, middleware.MemoryStoreConfig{}), nil)(func(*message.Message) ([]*message.Message, error) {
		t.Error("the handler was called")
		return nil, nil
	})
	_, err := h(message.NewMessage("", []byte("order")))
	if err == nil || !strings.Contains(err.Error(), "UUID") {
		t.Errorf("error %v does not say what is missing", err)
	}
	wantClassified(t, err, "permanent", "validation")

	broken := errors.New("no order number")
	h = middleware.Once(memoryStore(t, middleware.MemoryStoreConfig{}), func(*message.Message) (string, error) { return "", broken })(nil)
	if _, err := h(message.NewMessage("m-1", nil)); !errors.Is(err, broken) {
		t.Errorf("got %v, want the error of the key function", err)
	}
}

func TestOnceKeepsUnusualKeysApart(t *testing.T) {
	t.Parallel()
	eachStore(t, func(t *testing.T, store middleware.OnceStore) {
		calls := 0
		h := middleware.Once(store, func(msg *message.Message) (string, error) { return string(msg.Payload), nil })(func(*message.Message) ([]*message.Message, error) {
			calls++
			return nil, nil
		})
		keys := []string{"a", "a ", "a\x00", "\x00", "\xff", "\xfe", "ü", "a/b", "a%2Fb", "'; DROP TABLE spillway_once; --", strings.Repeat("x", 1<<20), strings.Repeat("x", 1<<20+1)}
		for range 2 {
			for _, k := range keys {
				if _, err := h(message.NewMessage("same", []byte(k))); err != nil {
					t.Errorf("key %.40q: %v", k, err)
				}
			}
		}
		if calls != len(keys) {
			t.Errorf("%d calls for %d keys", calls, len(keys))
		}
	})
}

func TestOnceRestoresTheContext(t *testing.T) {
	t.Parallel()
	msg := message.NewMessageWithContext(t.Context(), "m-1", nil)
	h := middleware.Once(memoryStore(t, middleware.MemoryStoreConfig{}), nil)(func(msg *message.Message) ([]*message.Message, error) {
		ctx, cancel := context.WithCancel(msg.Context()) // as Watermill's Timeout does
		cancel()
		msg.SetContext(ctx)
		return nil, nil
	})
	if _, err := h(msg); err != nil {
		t.Fatal(err)
	}
	if msg.Context() != t.Context() {
		t.Error("the message has another context than before")
	}
}

// failsOnce is a publisher whose first publish fails.
type failsOnce struct {
	message.Publisher
	failed atomic.Bool
	ids    chan string
}

func (f *failsOnce) Publish(topic string, messages ...*message.Message) error {
	for _, m := range messages {
		f.ids <- m.UUID
	}
	if f.failed.CompareAndSwap(false, true) {
		return errors.New("broker is down")
	}
	return f.Publisher.Publish(topic, messages...)
}

// Effects are done, publishing the outputs fails, the message comes again: the
// same outputs are published, the effects are not repeated. And two handlers
// share a topic and a store: each has its turn.
func TestOnceInRouter(t *testing.T) {
	t.Parallel()
	logger := watermill.NopLogger{}
	pubsub := gochannel.NewGoChannel(gochannel.Config{Persistent: true}, logger)
	router, err := message.NewRouter(message.RouterConfig{}, logger)
	if err != nil {
		t.Fatal(err)
	}
	router.AddMiddleware(middleware.Once(memoryStore(t, middleware.MemoryStoreConfig{}), nil))
	pub := &failsOnce{Publisher: pubsub, ids: make(chan string, 10)}
	var bills, mails atomic.Int32
	router.AddHandler("bill", "orders", pubsub, "bills", pub, func(*message.Message) ([]*message.Message, error) {
		bills.Add(1)
		return []*message.Message{message.NewMessage(watermill.NewUUID(), []byte("bill"))}, nil
	})
	mailed := make(chan struct{})
	router.AddConsumerHandler("mail", "orders", pubsub, func(*message.Message) error {
		mails.Add(1)
		close(mailed)
		return nil
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := router.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	<-router.Running()
	if err := pubsub.Publish("orders", message.NewMessage("m-1", []byte("order"))); err != nil {
		t.Fatal(err)
	}
	first, second := <-pub.ids, <-pub.ids
	<-mailed
	cancel()
	wg.Wait()
	if first != second {
		t.Errorf("published output %s, then %s", first, second)
	}
	if bills.Load() != 1 || mails.Load() != 1 {
		t.Errorf("%d bills and %d mails, want one each", bills.Load(), mails.Load())
	}
}

func TestMemoryStoreForgets(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var forgotten []middleware.ForgetInfo
		store := memoryStore(t, middleware.MemoryStoreConfig{TTL: time.Hour, MaxKeys: 2, OnForget: func(i middleware.ForgetInfo) { forgotten = append(forgotten, i) }})
		ran := func(key string) bool {
			t.Helper()
			_, repeated, err := store.Do(t.Context(), key, func(context.Context) ([]byte, error) { return nil, nil })
			if err != nil {
				t.Fatal(err)
			}
			return !repeated
		}
		ran("a")
		time.Sleep(time.Hour - 1)
		if ran("a") {
			t.Error("forgotten before its time")
		}
		time.Sleep(time.Nanosecond)
		if !ran("a") {
			t.Error("remembered beyond its time")
		}
		if len(forgotten) != 0 {
			t.Errorf("told of %v, which was its time", forgotten)
		}
		time.Sleep(time.Minute)
		ran("b")
		ran("c")
		if diff := cmp.Diff([]middleware.ForgetInfo{{Key: "a", Age: time.Minute}}, forgotten); diff != "" {
			t.Errorf("forgotten for lack of room (-want +got):\n%s", diff)
		}
		if ran("b") || ran("c") || !ran("a") {
			t.Error("the oldest key is not the one that was forgotten")
		}
	})
}

func TestMemoryStoreRefusesNonsense(t *testing.T) {
	t.Parallel()
	_, err := middleware.NewMemoryStore(middleware.MemoryStoreConfig{TTL: -1, MaxKeys: -1})
	if err == nil || !strings.Contains(err.Error(), "TTL") || !strings.Contains(err.Error(), "MaxKeys") {
		t.Errorf("got %v, want both fields named", err)
	}
}

// A store whose row somebody has damaged.
type fixedStore []byte

func (s fixedStore) Do(context.Context, string, func(context.Context) ([]byte, error)) ([]byte, bool, error) {
	return s, true, nil
}

func TestOnceWithDamagedOutputs(t *testing.T) {
	t.Parallel()
	for _, kept := range []string{"\x02", "\x01", "\x01\x01", "\x01\x00x", "\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "\x01\x01\xff\xff\x03ab"} {
		h := middleware.Once(fixedStore(kept), nil)(nil)
		got, err := h(message.NewMessage("m-1", nil))
		if err == nil || got != nil {
			t.Errorf("%q gave %d messages and error %v", kept, len(got), err)
			continue
		}
		wantClassified(t, err, "permanent", "undecodable")
	}
}

// captureStore keeps the last result.
type captureStore struct{ kept []byte }

func (s *captureStore) Do(ctx context.Context, _ string, fn func(context.Context) ([]byte, error)) ([]byte, bool, error) {
	var err error
	s.kept, err = fn(ctx)
	return s.kept, false, err
}

func FuzzOnceOutputs(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte("\x01\x00"))
	f.Add([]byte("\x01\x01\x03o-1\x01\x01k\x01v\x03ab"))
	f.Add([]byte("\x01\x02\x00\x00\x00\x00\x00\x01"))
	f.Add([]byte("\x01\xff\xff\xff\xff\x0f\x00"))
	f.Fuzz(func(t *testing.T, kept []byte) {
		got, err := middleware.Once(fixedStore(kept), nil)(nil)(message.NewMessage("m-1", nil))
		if err != nil {
			return
		}
		// What can be read is written and read alike.
		store := &captureStore{}
		if _, err := middleware.Once(store, nil)(func(*message.Message) ([]*message.Message, error) { return got, nil })(message.NewMessage("m-1", nil)); err != nil {
			t.Fatal(err)
		}
		again, err := middleware.Once(fixedStore(store.kept), nil)(nil)(message.NewMessage("m-1", nil))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(sentOf(got), sentOf(again)); diff != "" {
			t.Errorf("(-first +second):\n%s", diff)
		}
	})
}

func TestMemoryStoreWaiterTakesOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memoryStore(t, middleware.MemoryStoreConfig{})
		var ends [2]string
		var wg sync.WaitGroup
		for n := range ends {
			wg.Go(func() {
				time.Sleep(time.Duration(n)) // the first begins first
				_, repeated, err := store.Do(t.Context(), "k", func(context.Context) ([]byte, error) {
					time.Sleep(time.Second)
					if n == 0 {
						return nil, errors.New("failed")
					}
					return nil, nil
				})
				ends[n] = fmt.Sprint(repeated, err)
			})
		}
		start := time.Now()
		wg.Wait()
		if diff := cmp.Diff([2]string{"false failed", "false <nil>"}, ends); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if d := time.Since(start); d != 2*time.Second {
			t.Errorf("took %v, want one second after the other", d)
		}
	})
}
