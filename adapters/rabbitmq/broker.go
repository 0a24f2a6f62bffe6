package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/spillway-mq/spillway/adapters"
)

// Opener serves amqp and amqps URLs with the zero [Config].
func Opener() adapters.Opener { return OpenerWith(Config{}) }

// OpenerWith serves amqp and amqps URLs with a configuration.
func OpenerWith(cfg Config) adapters.Opener {
	return adapters.Opener{
		Schemes: []string{"amqp", "amqps"},
		Open: func(ctx context.Context, p adapters.OpenParams) (adapters.Broker, error) {
			return open(ctx, cfg.WithDefaults(), p)
		},
	}
}

// broker implements adapters.Broker.
type broker struct {
	cfg      Config
	url      *url.URL
	names    adapters.Names
	logger   *slog.Logger
	consume  *link
	produce  *link
	lanes    *lanes
	topology *topology
	ladder   ladder
	silences silences
	caps     adapters.Capabilities

	alone func(stop <-chan struct{}) (end func(), ok bool) // see adapters.OpenParams

	mu     sync.Mutex
	tokens map[consumerKey]chan struct{} // see tokenOf
}

func open(ctx context.Context, cfg Config, p adapters.OpenParams) (*broker, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("rabbitmq: configuration: %w", err)
	}
	b := &broker{
		cfg: cfg, url: p.URL, names: p.Names.WithDefaults(), logger: p.Logger,
		ladder: newLadder(cfg.MinDelay, cfg.MaxDelay),
		// Two connections: an alarm of the broker blocks those that publish, and
		// acknowledgements must go on.
		consume: newLink(dialer(p.URL, cfg, "spillway consume")),
		produce: newLink(dialer(p.URL, cfg, "spillway publish")),
		tokens:  map[consumerKey]chan struct{}{},
		alone:   p.Alone,
	}
	if b.alone == nil {
		b.alone = func(<-chan struct{}) (func(), bool) { return func() {}, true }
	}
	if b.logger == nil {
		b.logger = slog.Default()
	}
	b.lanes = newLanes(b.produce, cfg.Lanes)
	b.topology = &topology{
		cfg: cfg, names: b.names, ladder: b.ladder, link: b.consume,
		owners: map[string]consumerKey{}, declared: map[string]bool{}, turns: map[string]chan struct{}{},
	}
	conn, err := b.consume.get(ctx)
	if err != nil {
		return nil, err
	}
	b.caps = adapters.Capabilities{
		Broker:           "rabbitmq",
		DeliveryCount:    true,
		DelayStep:        b.ladder.step,
		MaxMetadataBytes: maxMetadata(conn.Config.FrameSize),
	}
	return b, nil
}

// maxMetadata leaves a frame room for properties, and for what AMQP adds to
// each header.
func maxMetadata(frame int) int {
	if frame <= 0 {
		return 0
	}
	return max(frame-4096, frame/2)
}

func (b *broker) Capabilities() adapters.Capabilities { return b.caps }

func (b *broker) Quantize(d time.Duration) time.Duration { return b.ladder.quantize(d) }

func (b *broker) Publisher() message.Publisher { return publisher{b} }

func (b *broker) Ensure(ctx context.Context, c adapters.Consumer) error {
	if err := b.topology.ensure(ctx, c); err != nil {
		return fmt.Errorf("rabbitmq: streams of group %q on topic %q: %w", c.Group, c.Topic, err)
	}
	return nil
}

func (b *broker) Handoff(ctx context.Context, h adapters.Handoff) error {
	ctx, cancel := context.WithTimeoutCause(ctx, b.cfg.PublishTimeout, errPatience)
	defer cancel()
	if err := b.handoff(ctx, h); err != nil {
		return fmt.Errorf("rabbitmq: hand-off to %s: %w", b.names.Of(h.Stream, h.Consumer), err)
	}
	return nil
}

func (b *broker) handoff(ctx context.Context, h adapters.Handoff) error {
	msg, err := publishing(h)
	if err != nil {
		return err
	}
	if err := b.topology.ensureOwn(ctx, h.Consumer); err != nil {
		return err
	}
	out := outgoing{key: b.names.Of(h.Stream, h.Consumer), mandatory: true, msg: msg}
	rung, left := time.Duration(0), time.Duration(0)
	if !h.Due.IsZero() {
		left = time.Until(h.Due)
	}
	switch h.Stream {
	case adapters.StreamRetry, adapters.StreamSuspect:
		if left > 0 {
			rung = b.silences.around(b.ladder, left)
			if err := b.topology.ensureRung(ctx, rung); err != nil {
				return err
			}
			out.exchange = rungName(b.cfg.Prefix, rung)
		}
	case adapters.StreamParking:
		if out.key, err = b.topology.ensureParking(ctx, h.Consumer, left); err != nil {
			return err
		}
		out.msg.Expiration = expiration(left)
	case adapters.StreamDeadLetter:
	default:
		return fmt.Errorf("%w: no hand-off goes to stream %q", adapters.ErrRefused, h.Stream)
	}
	err = b.lanes.publish(ctx, out)
	if isGone(err) {
		b.topology.forget()
	}
	if rung > 0 {
		silent := errors.Is(err, errUnconfirmed) && context.Cause(ctx) == errPatience
		if err != nil && !silent {
			return err // tells nothing of the rung
		}
		if pause := b.silences.heard(rung, silent); pause > 0 {
			b.logger.Error("a delay queue does not confirm; longer delays stand in for it: it may have no leader, see docs/rabbitmq.md",
				"queue", out.exchange, "for", pause)
		}
	}
	return err
}

// tokenOf returns what one subscription of this process at a time may hold to
// read the suspects of c: they are alone in their process.
func (b *broker) tokenOf(c adapters.Consumer) chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	token, ok := b.tokens[keyOf(c)]
	if !ok {
		token = make(chan struct{}, 1)
		b.tokens[keyOf(c)] = token
	}
	return token
}

// Close closes both connections. What was not settled goes back to its queues.
func (b *broker) Close(ctx context.Context) error {
	return errors.Join(b.produce.close(ctx), b.consume.close(ctx))
}
