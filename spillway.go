package spillway

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/failure"
	"github.com/spillway-mq/spillway/middleware"
	"github.com/spillway-mq/spillway/poison"
)

// Spillway is an open broker with the chain that handles failures on it. It is
// safe for concurrent use. Close it after the Routers that use it have stopped.
type Spillway struct {
	cfg        Config
	broker     adapters.Broker
	chain      *middleware.Chain
	lastResort *poison.LastResort
	redactor   *poison.Redactor
	names      adapters.NameRegistry
	gate       gate
	outlived   outlived
	placed     atomic.Bool // the chain is in a Router, or was handed out

	mu          sync.Mutex
	subscribers []*subscriber
	closed      bool

	done     chan struct{} // closed at the end of Close
	closeErr error
}

// Open connects to the broker that rawURL names, through the opener that serves
// its scheme. Problems of cfg are reported all at once, before anything is
// connected to. Errors never contain the URL's password.
func Open(ctx context.Context, rawURL string, cfg Config, openers ...adapters.Opener) (*Spillway, error) {
	cfg = cfg.withDefaults()
	redactor, redactionErr := poison.NewRedactor(cfg.Redaction)
	evidence := poison.Evidence{Redactor: redactor, Keys: cfg.Metadata}
	chain := middleware.ChainConfig{
		Names: cfg.Names, Policy: cfg.Policy, Policies: cfg.HandlerPolicies,
		Classifier: failure.Classifier{Rules: cfg.Rules}, ConsumerVersion: cfg.ConsumerVersion,
		Evidence: evidence, CloseGrace: cfg.CloseGrace, Logger: cfg.Logger,
		Hooks: []middleware.Hooks{middleware.SlogHooks(cfg.Logger, evidence), cfg.Hooks},
	}
	if err := errors.Join(cfg.validate(), redactionErr, chain.Validate()); err != nil {
		return nil, fmt.Errorf("spillway: configuration: %w", err)
	}
	opener, u, err := find(rawURL, openers)
	if err != nil {
		return nil, err
	}
	s := &Spillway{cfg: cfg, redactor: redactor, done: make(chan struct{})}
	if cfg.LastResort != "" {
		if s.lastResort, err = poison.OpenLastResort(cfg.LastResort); err != nil {
			return nil, fmt.Errorf("spillway: %w", err)
		}
	}
	if s.broker, err = opener.Open(ctx, adapters.OpenParams{URL: u, Names: cfg.Names, Logger: cfg.Logger, Alone: s.gate.enterAlone}); err != nil {
		return nil, errors.Join(fmt.Errorf("spillway: open %s: %w", redactor.URL(u), redact(redactor, err)), s.closeLastResort())
	}
	if cfg.Retry == adapters.RetryInPlace {
		if err := cfg.checkInPlace(s.broker.Capabilities()); err != nil {
			return nil, errors.Join(fmt.Errorf("spillway: configuration: %w", err), s.Close(ctx))
		}
	}
	chain.Broker, chain.LastResort = s.broker, s.lastResort
	if s.chain, err = middleware.NewChain(chain); err != nil {
		return nil, errors.Join(fmt.Errorf("spillway: %w", err), s.Close(ctx))
	}
	if cfg.ConsumerVersion == unknownVersion {
		warnOfVersion.Do(func() {
			cfg.Logger.Warn("consumer version is unknown, so dead letters cannot be told by release: set Config.ConsumerVersion, or build with version control data")
		})
	}
	return s, nil
}

var warnOfVersion sync.Once

// find picks the opener for a URL. Its errors quote no part of a URL that could
// not be parsed, because that part may be the password.
func find(rawURL string, openers []adapters.Opener) (adapters.Opener, *url.URL, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		var parseErr *url.Error
		if errors.As(err, &parseErr) {
			err = parseErr.Err
		}
		return adapters.Opener{}, nil, fmt.Errorf("spillway: the broker URL cannot be parsed (a password in it may need percent-encoding): %w", withoutQuotes(err))
	}
	if u.Opaque != "" {
		return adapters.Opener{}, nil, errors.New("spillway: the broker URL lacks the // after its scheme")
	}
	switch {
	case rawURL == "":
		return adapters.Opener{}, nil, errors.New("spillway: the broker URL is empty: it looks like memory://")
	case len(openers) == 0:
		return adapters.Opener{}, nil, errors.New("spillway: no opener was given: pass that of the broker, such as memory.Opener()")
	}
	var known []string
	for _, o := range openers {
		if slices.Contains(o.Schemes, u.Scheme) {
			return o, u, nil
		}
		known = append(known, o.Schemes...)
	}
	return adapters.Opener{}, nil, fmt.Errorf("spillway: no opener for the scheme %q of the broker URL; the openers given serve: %s", u.Scheme, strings.Join(known, ", "))
}

// withoutQuotes drops what net/url quotes from its input.
func withoutQuotes(err error) error {
	text, _, _ := strings.Cut(err.Error(), `"`)
	return errors.New(strings.TrimRight(text, " :"))
}

// Subscriber subscribes for Config.Group. Each call returns a subscriber of its
// own; closing it, as the Router does, closes only its own subscriptions.
func (s *Spillway) Subscriber() message.Subscriber { return s.SubscriberFor(s.cfg.Group) }

// SubscriberFor subscribes for a group, such as one for each handler of a
// cqrs.EventProcessor.
func (s *Spillway) SubscriberFor(group string) message.Subscriber {
	sub := &subscriber{sw: s, group: group}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.subscribers = append(s.subscribers, sub)
	return sub
}

// Publisher publishes to the broker. It keeps Spillway's own metadata out of
// messages. Its Close does nothing: only Spillway.Close closes connections.
func (s *Spillway) Publisher() message.Publisher { return publisher{s.broker.Publisher(), s.redactor} }

type publisher struct {
	inner    message.Publisher
	redactor *poison.Redactor
}

func (p publisher) Publish(topic string, msgs ...*message.Message) error {
	return redact(p.redactor, p.inner.Publish(topic, middleware.WithoutState(msgs)...))
}

func (publisher) Close() error { return nil }

// Close closes what is still open, after waiting up to Config.CloseGrace for
// running handlers and hand-offs, and then the broker. Call it after
// router.Run has returned. It is idempotent, and every call waits.
func (s *Spillway) Close(ctx context.Context) error {
	s.mu.Lock()
	first := !s.closed
	s.closed = true
	subs := s.subscribers
	s.mu.Unlock()
	if first {
		s.closeErr = s.close(ctx, subs)
		close(s.done)
	}
	<-s.done
	return s.closeErr
}

func (s *Spillway) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

func (s *Spillway) close(ctx context.Context, subs []*subscriber) error {
	errs := make([]error, len(subs))
	var wg sync.WaitGroup
	for i, sub := range subs {
		wg.Go(func() { errs[i] = sub.Close() })
	}
	wg.Wait()
	if err := s.broker.Close(ctx); err != nil && !errors.Is(err, adapters.ErrClosed) {
		errs = append(errs, fmt.Errorf("spillway: close broker: %w", redact(s.redactor, err)))
	}
	return errors.Join(append(errs, s.closeLastResort())...)
}

func (s *Spillway) closeLastResort() error {
	if s.lastResort == nil {
		return nil
	}
	return s.lastResort.Close()
}

// DeliveryFrom returns what is known of the delivery behind a message, from the
// message's context: the native record, the stream, and in State the attempt.
// It is false for messages of other subscribers.
func DeliveryFrom(ctx context.Context) (*adapters.Delivery, bool) {
	return adapters.DeliveryFrom(ctx)
}

// DedupKey is the key function that Watermill's Deduplicator needs beside
// Spillway; with its stock key it drops every retry as a duplicate. See
// [middleware.DedupKey].
func DedupKey(msg *message.Message) (string, error) { return middleware.DedupKey(msg) }
