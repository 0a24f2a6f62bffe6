package middleware

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/spillway-mq/spillway/failure"
)

// OnceStore remembers which keys are done, with the result of each.
// [NewMemoryStore] and [NewSQLStore] make stores. All methods must be safe for
// concurrent use.
type OnceStore interface {
	// Do calls fn unless fn has succeeded for this key before, and remembers
	// its result if it succeeds now. repeated says that fn was not called and
	// that result is of the earlier call.
	//
	// fn is called at most once per Do, on the caller's goroutine, and never
	// by two callers with the same key at the same time: the second waits for
	// the first, not longer than ctx, or gets an error that says that trying
	// again will help. If fn returns an error or panics, its key is not
	// remembered, and Do returns that error as it is, or lets the panic pass.
	// An error of the store after fn has succeeded leaves open whether the key
	// is remembered; the next Do finds out.
	//
	// The context that fn gets may carry more than ctx, such as a transaction.
	// Keys are printable, valid UTF-8, of at most 401 bytes. Results may be
	// nil, and are changed by nobody.
	Do(ctx context.Context, key string, fn func(context.Context) ([]byte, error)) (result []byte, repeated bool, err error)
}

// Once runs the effects of a handler once per message, across retries,
// replays and redeliveries: as soon as the handler has succeeded for a key, it
// is not called for that key again. Retries of failed attempts do call it.
//
// The outputs of the handler are kept with the key: their UUID, metadata and
// payload, not their context. A message that comes again, because publishing
// the outputs or acknowledging the message failed, returns the same outputs
// without calling the handler. What reads the outputs may thus see one twice,
// but never two different ones.
//
// How strong "once" is depends on the store. With [NewSQLStore] it is exact for
// effects made in the transaction that [TxFrom] returns, as they are committed
// together with the key. With [NewMemoryStore], and for effects elsewhere, a
// crash between the effect and the key repeats the effect, and a restart
// forgets the keys.
//
// key returns what identifies a message. Nil means its UUID, which must then
// be set by the producer and be the same for all copies of a message. A message
// without a key is refused with a permanent error, class "validation", code
// "ONCE_KEY_MISSING", which says so: no retry would give it a key, but once key
// finds one elsewhere, its dead letter can be replayed. Errors of key are
// returned wrapped. Keys are kept apart by handler name, so handlers may share
// a store; a handler that is renamed is a new handler.
//
// Once belongs inside the chain: after it among the router's middlewares, or
// on the handler. Errors and panics of the handler pass unchanged. Errors of
// the store are wrapped. Once panics if store is nil.
func Once(store OnceStore, key func(*message.Message) (string, error)) message.HandlerMiddleware {
	if store == nil {
		panic("middleware: Once needs a store")
	}
	if key == nil {
		key = func(msg *message.Message) (string, error) { return msg.UUID, nil }
	}
	return func(h message.HandlerFunc) message.HandlerFunc {
		return func(msg *message.Message) ([]*message.Message, error) {
			ctx := msg.Context()
			k, err := key(msg)
			if err != nil {
				return nil, fmt.Errorf("once: key of message %q: %w", msg.UUID, err)
			}
			if k == "" {
				return nil, failure.Permanent(errNoKey, failure.ClassValidation, failure.Code("ONCE_KEY_MISSING"))
			}

			var (
				outputs    []*message.Message
				handlerErr error
			)
			result, repeated, err := store.Do(ctx, onceKey(message.HandlerNameFromCtx(ctx), k), func(inner context.Context) ([]byte, error) {
				// Put back also what a middleware further in leaves behind.
				defer msg.SetContext(ctx)
				msg.SetContext(inner)
				if outputs, handlerErr = h(msg); handlerErr != nil {
					return nil, handlerErr
				}
				if closed(msg.Nacked()) {
					// The message comes again, and must find its handler willing.
					handlerErr = ErrReturned
					return nil, handlerErr
				}
				return encodeOutputs(outputs), nil
			})
			switch {
			case handlerErr != nil:
				return outputs, handlerErr
			case err != nil:
				return nil, fmt.Errorf("once: %w", err)
			case repeated:
				outputs, err = decodeOutputs(result)
				if err != nil {
					return nil, failure.Permanent(fmt.Errorf("once: outputs kept for message %q: %w", msg.UUID, err), failure.ClassUndecodable)
				}
			}
			return outputs, nil
		}
	}
}

var errNoKey = errors.New("once: the message has no key, so nothing tells it from others: let the producer set a UUID, or give Once a function that finds another identity")

// onceKey joins the name of a handler and a key so that no two pairs are the
// same, and any store can keep it: the name has no slash of its own.
func onceKey(handler, key string) string {
	return tame(url.PathEscape(handler)) + "/" + tame(key)
}

// tame returns s, or its hash if s is long or is not printable text, which
// databases refuse.
func tame(s string) string {
	const maxBytes = 200
	if len(s) <= maxBytes && utf8.ValidString(s) && strings.IndexFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) < 0 {
		return s
	}
	sum := sha256.Sum256([]byte(s))
	return "sha256:" + hex.EncodeToString(sum[:])
}
