package sqs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/ratelimit"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/spillway-mq/spillway/adapters"
)

// Opener serves sqs URLs with the zero [Config].
func Opener() adapters.Opener { return OpenerWith(Config{}) }

// OpenerWith serves sqs URLs with a configuration, over which the URL wins.
func OpenerWith(cfg Config) adapters.Opener {
	return adapters.Opener{
		Schemes: []string{"sqs"},
		Open: func(ctx context.Context, p adapters.OpenParams) (adapters.Broker, error) {
			b, err := open(ctx, cfg, p)
			if err != nil {
				return nil, fmt.Errorf("sqs: open: %w", err)
			}
			return b, nil
		},
	}
}

// broker implements adapters.Broker.
type broker struct {
	cfg    Config
	names  adapters.Names
	logger *slog.Logger
	client *sqs.Client
	queues *queues
	alone  func(stop <-chan struct{}) (end func(), ok bool) // see adapters.OpenParams
	polls  sync.WaitGroup                                   // requests in flight that nobody waits for any more

	mu       sync.Mutex
	closed   bool
	suspects map[consumerKey]*suspects
}

// consumerKey is what makes a consumer's streams its own.
type consumerKey struct{ topic, group string }

// suspects is what the subscriptions of one consumer share.
type suspects struct {
	token chan struct{} // held by the one that reads them
	wake  chan struct{} // one was just written
}

func open(ctx context.Context, cfg Config, p adapters.OpenParams) (*broker, error) {
	at, err := parseURL(p.URL, &cfg)
	if err != nil {
		return nil, err
	}
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	client, err := newClient(ctx, cfg, at)
	if err != nil {
		return nil, err
	}
	b := &broker{
		cfg: cfg, names: p.Names.WithDefaults(), logger: p.Logger, client: client, alone: p.Alone,
		suspects: map[consumerKey]*suspects{},
	}
	if b.alone == nil {
		b.alone = func(<-chan struct{}) (func(), bool) { return func() {}, true }
	}
	if b.logger == nil {
		b.logger = slog.Default()
	}
	b.queues = &queues{
		cfg: cfg, naming: naming{b.names, cfg.Queues, cfg.Prefix}, client: client, logger: b.logger,
		known: map[string]*queue{}, owners: map[string]string{}, groups: map[string]string{},
	}
	return b, nil
}

// newClient makes a client that does not retry for long: callers do that, and
// know better how long. Hand-offs it does not retry at all.
func newClient(ctx context.Context, cfg Config, at place) (*sqs.Client, error) {
	var base aws.Config
	switch {
	case cfg.AWS != nil:
		base = cfg.AWS.Copy()
	case at.endpoint != "" && at.user == nil:
		// A server of one's own: only what the environment says, and no search
		// for credentials on the machine.
		env, err := config.NewEnvConfig()
		if err != nil {
			return nil, err
		}
		base.Region, base.Credentials = env.Region, credentials.StaticCredentialsProvider{Value: env.Credentials}
		if !env.Credentials.HasKeys() {
			base.Credentials = credentials.NewStaticCredentialsProvider("spillway", "spillway", "")
		}
	case at.user != nil:
		secret, _ := at.user.Password()
		base.Credentials = credentials.NewStaticCredentialsProvider(at.user.Username(), secret, "")
	default:
		var err error
		if base, err = config.LoadDefaultConfig(ctx); err != nil {
			return nil, err
		}
	}
	base.Region = cmp.Or(at.region, cfg.Region, base.Region)
	switch {
	case at.endpoint != "":
		base.BaseEndpoint = aws.String(at.endpoint)
		base.Region = cmp.Or(base.Region, "us-east-1")
	case cfg.Endpoint != "":
		base.BaseEndpoint = aws.String(cfg.Endpoint)
	}
	if base.Region == "" {
		return nil, errors.New("no region: add ?region= to the URL, set Region, or AWS_REGION")
	}
	return sqs.NewFromConfig(base, func(o *sqs.Options) {
		if cfg.HTTPClient != nil {
			o.HTTPClient = cfg.HTTPClient
		}
		o.Retryer = retry.NewStandard(func(o *retry.StandardOptions) {
			o.MaxAttempts, o.MaxBackoff, o.RateLimiter = 3, time.Second, ratelimit.None
		})
	}), nil
}

func (b *broker) Capabilities() adapters.Capabilities {
	return adapters.Capabilities{
		Broker:          "sqs",
		DeliveryCount:   true,
		OneGroup:        true,
		InPlaceRetry:    true,
		CountedInPlace:  true,
		MaxInPlaceDelay: maxInPlace,
		DelayStep:       func(time.Duration) time.Duration { return time.Second },
		MaxMessageBytes: b.cfg.MaxMessageBytes,
	}
}

func (b *broker) Quantize(d time.Duration) time.Duration { return wholeSeconds(d) }

func (b *broker) Publisher() message.Publisher { return publisher{b} }

func (b *broker) Ensure(ctx context.Context, c adapters.Consumer) error {
	if err := b.usable(); err != nil {
		return err
	}
	if err := b.queues.ensure(ctx, c); err != nil {
		return fmt.Errorf("sqs: streams of group %q on topic %q: %w", c.Group, c.Topic, err)
	}
	return nil
}

func (b *broker) usable() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return fmt.Errorf("sqs: the broker is %w", adapters.ErrClosed)
	}
	return nil
}

func (b *broker) Handoff(ctx context.Context, h adapters.Handoff) error {
	if err := b.usable(); err != nil {
		return err
	}
	if err := b.handoff(ctx, h); err != nil {
		return fmt.Errorf("sqs: hand-off to %s: %w", b.names.Of(h.Stream, h.Consumer), err)
	}
	return nil
}

func (b *broker) handoff(ctx context.Context, h adapters.Handoff) error {
	delay := time.Duration(0)
	switch h.Stream {
	case adapters.StreamRetry, adapters.StreamParking, adapters.StreamSuspect:
		if !h.Due.IsZero() {
			delay = hop(time.Until(h.Due), b.cfg.MaxDelay)
		}
	case adapters.StreamDeadLetter:
	default:
		return fmt.Errorf("%w: no hand-off goes to stream %q", adapters.ErrRefused, h.Stream)
	}
	q, err := b.queues.own(ctx, h.Consumer, h.Stream)
	if err != nil {
		return err
	}
	o := outgoingOf(h)
	if q.fifo() {
		o.group = cmp.Or(o.group, legalToken(o.id), "spillway")
		o.dedup = handoffID(h)
	}
	if err := b.send(ctx, q, o, delay, once); err != nil {
		return err
	}
	if h.Stream == adapters.StreamSuspect {
		select {
		case b.suspectsOf(h.Consumer).wake <- struct{}{}:
		default:
		}
	}
	return nil
}

// lastHop is the least that is left for the last hop. A second or less would not
// be worth one to the chain, so that the message would be early.
const lastHop = 3 * time.Second

// hop is how long a message that is due after left is delayed now. What is left
// then is the chain's to hand off again, and that of the parking lot ours. Long
// hops come first: the last one keeps the jitter.
func hop(left, longest time.Duration) time.Duration {
	if left <= longest {
		return wholeSeconds(left)
	}
	return min(wholeSeconds(max(left-lastHop, longest/2)), longest)
}

// suspectsOf returns what the subscriptions of c share.
func (b *broker) suspectsOf(c adapters.Consumer) *suspects {
	key := consumerKey{c.Topic, c.Group}
	b.mu.Lock()
	defer b.mu.Unlock()
	s, ok := b.suspects[key]
	if !ok {
		s = &suspects{token: make(chan struct{}, 1), wake: make(chan struct{}, 1)}
		b.suspects[key] = s
	}
	return s
}

// Close waits for long polls in flight as far as Config.CloseWait says.
func (b *broker) Close(ctx context.Context) error {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	if b.cfg.CloseWait == 0 {
		return nil
	}
	done := make(chan struct{})
	go func() { b.polls.Wait(); close(done) }()
	t := time.NewTimer(b.cfg.CloseWait)
	defer t.Stop()
	select {
	case <-done:
	case <-t.C:
	case <-ctx.Done():
	}
	return nil
}
