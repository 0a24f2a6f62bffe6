package kafka

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/IBM/sarama"
	wkafka "github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
)

// Config is what [OpenerWith] can be told. The zero Config works and is what
// [Opener] uses.
type Config struct {
	// Sarama is the configuration of the client: TLS, SASL, client id,
	// time-outs, compression, partitioner. It is copied. Nil means sarama's
	// defaults with the client id "spillway". Spillway sets what its promises
	// rest on: acks of all replicas, idempotence, no commits of sarama's own, the
	// oldest offset for what has no position, no topics that appear by being
	// asked for, at least version 2.4 of the protocol, and heartbeats at least
	// twice a second, by which a member learns of a rebalance.
	//
	// The fields below that say the same come before it.
	Sarama *sarama.Config
	// ClientID is how brokers call this client in logs, metrics and quotas. Empty
	// means that of Sarama, or "spillway".
	ClientID string
	// SessionTimeout is for how long a member may be silent before others get its
	// partitions. Brokers bound it. Zero means that of Sarama, or 10 s.
	SessionTimeout time.Duration
	// TLS and SASL are for those who have files and passwords and no code.
	TLS  TLS
	SASL SASL
	// Tracer wraps publishing and consuming, as in watermill-kafka. Hand-offs are
	// not wrapped: they keep the trace of their message. Nil means none.
	Tracer wkafka.SaramaTracer
	// Marshaler is the wire format; nil means watermill-kafka's DefaultMarshaler.
	// What it cannot unmarshal is dead-lettered as undecodable.
	Marshaler wkafka.MarshalerUnmarshaler

	// Order says which messages of a partition may be handled side by side. Empty
	// means OrderKey.
	Order Order
	// Start says where a group begins to read a topic that it has never read.
	// Empty means StartOldest.
	Start Start

	// GroupPerTopic names the consumer group of a topic <topic>.<group>, instead of
	// <group>. With one group for several topics, each process that comes or goes
	// interrupts the reading of all of them. A group that is renamed begins anew:
	// decide before the first start.
	GroupPerTopic bool

	// Window is how many messages of each partition may be read ahead, in
	// handlers or waiting; for retries it bounds what is released on time.
	// Default 10,000, at most 16,384.
	Window int
	// WindowBytes bounds the same by the size of keys, values and headers.
	// Default 16 MiB.
	WindowBytes int
	// CommitInterval is how often positions are committed. What was finished
	// since the last commit is delivered again after a crash. Default 1 s.
	CommitInterval time.Duration
	// RevokeGrace is how long a rebalance waits for handlers that run. Default
	// 1 s, at most 2 s.
	RevokeGrace time.Duration

	// Partitions of topics that are created. Zero means those of the source for
	// Spillway's own topics, and the cluster's default for others.
	Partitions int
	// Replication of topics that are created. Zero means the cluster's default.
	Replication int
	// DeadLetterRetention is how long dead letters are kept. Default 14 days.
	DeadLetterRetention time.Duration
	// RetryRetention is how long messages are kept that wait for a retry, in the
	// parking lot, or as suspects: above the longest delay, the outage that one
	// wants to survive. Default 14 days.
	RetryRetention time.Duration
	// VerifyOnly creates no topics, and fails where one is missing.
	VerifyOnly bool

	// PublishTimeout bounds each publish and hand-off, beside its context.
	// Default 30 seconds.
	PublishTimeout time.Duration
}

// Order says which messages of a partition may be handled side by side.
type Order string

const (
	// OrderKey handles messages with one key one at a time, in order, and others
	// side by side. Messages without a key have no order.
	OrderKey Order = "key"
	// OrderNone has no order.
	OrderNone Order = "none"
	// OrderPartition handles the messages of a partition one at a time, in order.
	OrderPartition Order = "partition"
)

// Start says where a group begins to read a topic that it has never read.
type Start string

const (
	// StartOldest is the beginning of what the topic still has.
	StartOldest Start = "oldest"
	// StartNewest is the end that the topic has at the group's first Ensure. If the
	// group then reads other topics already, it is the end at the first Ensure of
	// the process that comes to read the partition first.
	StartNewest Start = "newest"
)

const (
	maxWindow      = 16_384 // retrytopic.MaxSpan
	maxRevokeGrace = 2 * time.Second
	heartbeat      = 500 * time.Millisecond
	fetchWait      = 250 * time.Millisecond
)

func (c Config) withDefaults() Config {
	c.Order = cmp.Or(c.Order, OrderKey)
	c.Start = cmp.Or(c.Start, StartOldest)
	c.Window = cmp.Or(c.Window, 10_000)
	c.WindowBytes = cmp.Or(c.WindowBytes, 16<<20)
	c.CommitInterval = cmp.Or(c.CommitInterval, time.Second)
	c.RevokeGrace = cmp.Or(c.RevokeGrace, time.Second)
	c.DeadLetterRetention = cmp.Or(c.DeadLetterRetention, 14*24*time.Hour)
	c.RetryRetention = cmp.Or(c.RetryRetention, 14*24*time.Hour)
	c.PublishTimeout = cmp.Or(c.PublishTimeout, 30*time.Second)
	if c.Marshaler == nil {
		c.Marshaler = wkafka.DefaultMarshaler{}
	}
	return c
}

// Validate reports every problem at once, each beginning with the name of its
// field. [OpenerWith] does the same when it opens. Files are read then only.
func (c Config) Validate() error {
	c = c.withDefaults()
	errs := slices.Concat(c.TLS.validate(), c.SASL.validate())
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(c.Order == OrderKey || c.Order == OrderNone || c.Order == OrderPartition,
		"Order is %q: must be %q, %q or %q", c.Order, OrderKey, OrderNone, OrderPartition)
	check(c.Start == StartOldest || c.Start == StartNewest, "Start is %q: must be %q or %q", c.Start, StartOldest, StartNewest)
	check(c.Window >= 1 && c.Window <= maxWindow, "Window is %d: must be from 1 to %d", c.Window, maxWindow)
	check(c.WindowBytes >= 1, "WindowBytes is %d: must be positive", c.WindowBytes)
	check(c.CommitInterval >= 10*time.Millisecond && c.CommitInterval <= time.Minute,
		"CommitInterval is %s: must be from 10 ms to 1 minute", c.CommitInterval)
	check(c.RevokeGrace > 0 && c.RevokeGrace <= maxRevokeGrace, "RevokeGrace is %s: must be positive, and at most %s", c.RevokeGrace, maxRevokeGrace)
	check(c.Partitions >= 0 && c.Partitions <= math.MaxInt32, "Partitions is %d: must be from 0 to %d", c.Partitions, math.MaxInt32)
	check(c.Replication >= 0 && c.Replication <= math.MaxInt16, "Replication is %d: must be from 0 to %d", c.Replication, math.MaxInt16)
	check(c.DeadLetterRetention >= time.Hour, "DeadLetterRetention is %s: must be at least an hour", c.DeadLetterRetention)
	check(c.RetryRetention >= 2*time.Hour, "RetryRetention is %s: must be at least twice the longest tier, 2 hours", c.RetryRetention)
	check(c.SessionTimeout == 0 || c.SessionTimeout >= time.Second && c.SessionTimeout <= 30*time.Minute,
		"SessionTimeout is %s: must be from 1 second to 30 minutes", c.SessionTimeout)
	check(c.PublishTimeout > 0, "PublishTimeout is %s: must be positive", c.PublishTimeout)
	return errors.Join(errs...)
}

// producing is a configuration of the client for what must not get lost.
func producing(sc *sarama.Config) sarama.Config {
	own := *sc
	own.Producer.RequiredAcks = sarama.WaitForAll
	own.Producer.Idempotent = true
	own.Net.MaxOpenRequests = 1 // which sarama's idempotence needs
	own.Producer.Return.Successes = true
	own.Producer.Return.Errors = true
	own.Producer.Retry.Max = max(own.Producer.Retry.Max, 10)
	return own
}

// endpoint reads a URL: the brokers, and what the client needs to reach them.
func (c Config) endpoint(u *url.URL) (addrs []string, sc *sarama.Config, err error) {
	sc = sarama.NewConfig()
	sc.ClientID = "spillway"
	sc.Version = sarama.V2_8_0_0
	sc.Consumer.Group.Session.Timeout = 10 * time.Second
	if c.Sarama != nil {
		own := *c.Sarama
		sc = &own
	}
	if !sc.Version.IsAtLeast(sarama.V2_4_0_0) {
		sc.Version = sarama.V2_4_0_0
	}
	sc.ClientID = cmp.Or(c.ClientID, sc.ClientID)
	sc.Consumer.Group.Session.Timeout = cmp.Or(c.SessionTimeout, sc.Consumer.Group.Session.Timeout)
	sc.Metadata.AllowAutoTopicCreation = false
	sc.Consumer.Return.Errors = true
	sc.Consumer.Offsets.AutoCommit.Enable = false
	sc.Consumer.Offsets.Initial = sarama.OffsetOldest
	sc.Consumer.Group.ResetInvalidOffsets = true
	sc.Consumer.Group.Heartbeat.Interval = min(sc.Consumer.Group.Heartbeat.Interval, heartbeat, sc.Consumer.Group.Session.Timeout/3)
	// On one connection, what coordinates waits behind what is fetched.
	sc.Consumer.MaxWaitTime = min(sc.Consumer.MaxWaitTime, fetchWait)
	// The leader of a topic that is just being created is not long in coming.
	sc.Consumer.Retry.Backoff = min(sc.Consumer.Retry.Backoff, fetchWait)
	if sc.Producer.Idempotent { // producers have a configuration of their own
		sc.Producer.Idempotent = false
		sc.Net.MaxOpenRequests = max(sc.Net.MaxOpenRequests, 5)
	}

	if err := errors.Join(c.TLS.apply(sc, u.Scheme == "kafkas"), c.SASL.apply(sc, u.User)); err != nil {
		return nil, nil, err
	}
	for addr := range strings.SplitSeq(u.Host, ",") {
		if addr == "" {
			continue
		}
		if _, port, err := net.SplitHostPort(addr); err != nil {
			addr = net.JoinHostPort(strings.Trim(addr, "[]"), "9092")
		} else if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
			return nil, nil, fmt.Errorf("%q has no port from 1 to 65535", addr)
		}
		addrs = append(addrs, addr)
	}
	if len(addrs) == 0 {
		return nil, nil, errors.New("the URL names no broker: want kafka://host:port,host:port")
	}
	for key := range u.Query() {
		return nil, nil, fmt.Errorf("the URL has the option %q, and there is none: set Config.Sarama", key)
	}
	if strings.Trim(u.Path, "/") != "" {
		return nil, nil, errors.New("the URL has a path, which means nothing here: topics are named where one subscribes")
	}
	return addrs, sc, sc.Validate()
}
