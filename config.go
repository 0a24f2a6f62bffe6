package spillway

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/envelope"
	"github.com/spillway-mq/spillway/failure"
	"github.com/spillway-mq/spillway/internal/build"
	"github.com/spillway-mq/spillway/middleware"
	"github.com/spillway-mq/spillway/poison"
	"github.com/spillway-mq/spillway/policy"
)

// Config is what [Open] can be told. The zero Config works, for programs that
// name a group with [Spillway.SubscriberFor].
type Config struct {
	// Group is the consumer group of [Spillway.Subscriber]. Retries, parked
	// messages and dead letters belong to it. Empty means that only
	// SubscriberFor can be used.
	Group string

	// Policy says how often and when failures are retried, how long messages
	// are parked, and when they are given up. Zero fields mean the defaults of
	// package policy.
	Policy policy.Policy
	// HandlerPolicies replace fields of Policy for single handlers, by the name
	// that the Router knows them by. Zero fields inherit.
	HandlerPolicies map[string]policy.Policy
	// Rules classify errors before the built-in rules do; the first that
	// matches wins.
	Rules []failure.Rule

	// Concurrency is how many messages of one subscription are handled at a
	// time. The default, 1, keeps the order of first attempts. At most
	// [MaxConcurrency].
	Concurrency int
	// Retry says where messages wait for their next attempt; the default is a
	// retry stream. adapters.RetryInPlace is refused by brokers without it.
	Retry adapters.RetryMode
	// CloseGrace is how long Close waits for running handlers and for hand-offs
	// before it gives their messages back to the broker. Default 20 s; keep it
	// below the Router's CloseTimeout, which is 30 s by default.
	CloseGrace time.Duration

	// ConsumerVersion is written to dead letters, so that they can be told by
	// release. Empty means the module version of the build, else its version
	// control revision, else "unknown", which is warned of once.
	ConsumerVersion string
	// Names are the templates of stream names.
	Names adapters.Names
	// Metadata says in which metadata keys a message's type, aggregate and
	// versions are found. Zero fields mean the defaults of envelope.Keys.
	Metadata envelope.Keys
	// Redaction removes secrets and personal data from error texts before they
	// are stored, logged or shown. The zero value has the shipped rules on.
	Redaction poison.Redaction
	// LastResort is a directory for messages that no stream of the broker will
	// ever take. It must be writable at start, and is made if only its last element
	// is missing. Empty means that such a message
	// stays with the broker, its slot blocked, with an alarm.
	LastResort string

	// Hooks are told what happens, beside the log.
	Hooks middleware.Hooks
	// Logger gets a line for each failure. Nil means slog.Default(); use
	// slog.New(slog.DiscardHandler) for silence.
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	c.Concurrency = cmp.Or(c.Concurrency, 1)
	c.CloseGrace = cmp.Or(c.CloseGrace, 20*time.Second)
	c.Names = c.Names.WithDefaults()
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	c.ConsumerVersion = cmp.Or(c.ConsumerVersion, build.Version(), unknownVersion)
	return c
}

// MaxConcurrency is the highest Config.Concurrency: each costs a goroutine, and
// what brokers can be told to send ahead has 16 bits.
const MaxConcurrency = 65_535

// validate reports every problem at once.
func (c Config) validate() error {
	var errs []error
	if c.Concurrency < 1 || c.Concurrency > MaxConcurrency {
		errs = append(errs, fmt.Errorf("field Concurrency must be between 1 and %d, is %d", MaxConcurrency, c.Concurrency))
	}
	if c.CloseGrace < 0 {
		errs = append(errs, fmt.Errorf("field CloseGrace must not be negative, is %s", c.CloseGrace))
	}
	switch c.Retry {
	case adapters.RetryTopic, adapters.RetryInPlace:
	default:
		errs = append(errs, fmt.Errorf("field Retry must be empty or %q, is %q", adapters.RetryInPlace, c.Retry))
	}
	for i, r := range c.Rules {
		if r.Match == nil {
			errs = append(errs, fmt.Errorf("field Rules[%d] (%q) has no Match", i, r.Name))
		}
	}
	if _, ok := c.HandlerPolicies[""]; ok {
		errs = append(errs, errors.New(`field HandlerPolicies has a handler without a name`))
	}
	errs = append(errs, c.Names.Validate())
	return errors.Join(errs...)
}

// checkInPlace refuses what a broker cannot do in place.
func (c Config) checkInPlace(caps adapters.Capabilities) error {
	if !caps.InPlaceRetry {
		return fmt.Errorf("field Retry is %q: %s: %w", c.Retry, caps.Broker, adapters.ErrUnsupported)
	}
	if caps.MaxInPlaceDelay == 0 {
		return nil
	}
	var errs []error
	check := func(field string, p policy.Policy) {
		if longest := p.LongestDelay(); longest > caps.MaxInPlaceDelay {
			errs = append(errs, fmt.Errorf("%s may ask for a delay of %s, jitter included, and Retry is %q: in place %s delays by at most %s: %w",
				field, longest, c.Retry, caps.Broker, caps.MaxInPlaceDelay, adapters.ErrUnsupported))
		}
	}
	check("field Policy", c.Policy)
	for _, handler := range slices.Sorted(maps.Keys(c.HandlerPolicies)) {
		check(fmt.Sprintf("field HandlerPolicies[%q]", handler), c.Policy.Merge(c.HandlerPolicies[handler]))
	}
	return errors.Join(errs...)
}

const unknownVersion = "unknown"
