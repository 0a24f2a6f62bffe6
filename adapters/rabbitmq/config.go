package rabbitmq

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"time"

	wamqp "github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"

	"github.com/spillway-mq/spillway/adapters"
)

// Config is what [OpenerWith] can be told. The zero Config works and is what
// [Opener] uses.
type Config struct {
	// Prefix starts the names of what consumers share: the delay ladder, the
	// return exchange and the queue of what could not be returned. Consumers
	// with different prefixes cannot hold each other up. Default "spillway".
	Prefix string
	// MinDelay is the shortest delay that the ladder keeps; shorter ones are
	// lengthened to it. At least 125 ms, which is the default.
	MinDelay time.Duration
	// MaxDelay bounds the longest rung of the ladder; longer delays take several
	// hops. Default 15 minutes, at most 24 hours.
	MaxDelay time.Duration

	// Topic says how topics lie on the broker that Topics does not name.
	Topic Topic
	// Topics say it for single topics.
	Topics map[string]Topic

	// VerifyOnly declares nothing: Ensure checks that every stream and every
	// rung exists, and names the first that does not. AMQP cannot read
	// arguments, so they are not compared.
	VerifyOnly bool
	// WholeLadder declares all rungs in Ensure instead of each on first use:
	// for a run with an administrator's account before programs that are
	// VerifyOnly.
	WholeLadder bool
	// QueueType of the main queues that are declared: empty or "quorum". Others
	// are refused, because they lose messages when a node stops while it moves
	// them. Bind to a queue of another type with Topic.Existing.
	QueueType string
	// DeliveryLimit is how often the broker hands out a message of a main,
	// retry or suspect queue before it dead-letters it by itself. It is the net
	// below the chain, which acts much sooner. Default 10,000.
	DeliveryLimit int

	// Lanes is how many publishes may wait for their confirm at once. Each has
	// a channel of its own, so that one that fails disturbs no other. Default 128.
	Lanes int
	// PublishTimeout bounds each publish and hand-off, beside its context.
	// Default 30 seconds.
	PublishTimeout time.Duration
	// DialTimeout bounds connecting. Default 10 seconds.
	DialTimeout time.Duration
	// Management is the address of the management plugin, such as
	// http://host:15672, for Check; nothing else uses it. It is asked as the user
	// of the broker's URL, whose option "management" comes before this. Default
	// empty: it is not asked.
	Management string
	// TLS is used for amqps URLs; nil means the system's roots.
	TLS *tls.Config
	// Dial replaces the way that TCP connections are made.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
}

// Kinds of exchange of a [Topic], beside those of AMQP ("fanout", "direct",
// "topic", "headers").
const (
	// KindFanout is the default: each group has a queue at the topic's exchange,
	// as with watermill-amqp's NewDurablePubSubConfig.
	KindFanout = "fanout"
	// KindQueue means that there is no exchange: what is published to the topic
	// goes into the queue of that name, as with watermill-amqp's
	// NewDurableQueueConfig. Such a topic has one group.
	KindQueue = "queue"
)

// Topic says how a topic of the application lies on the broker. Names may
// contain {topic} and {group}. The zero Topic is a durable fanout exchange named
// like the topic, and a queue named by watermill-amqp's
// GenerateQueueNameTopicNameWithSuffix.
type Topic struct {
	// Exchange to publish to, and to bind the queue to. Default "{topic}".
	// {group} may not occur. Ignored by KindQueue.
	Exchange string
	// Kind of the exchange. Default KindFanout.
	Kind string
	// Queue is the main queue of a group. Default "{topic}_{group}", and
	// "{topic}" for KindQueue.
	Queue string
	// BindKey is the routing key that the queue is bound with. Default empty.
	BindKey string
	// PublishKey is the routing key that Publisher uses. Default BindKey.
	PublishKey string
	// Mandatory makes a publish fail that reaches no queue. Without it nobody
	// has to listen, as usual with publish and subscribe. KindQueue is always
	// mandatory.
	Mandatory bool
	// Existing means that exchange, queue and binding belong to somebody else:
	// they are used as they are, and only checked for existence. The broker
	// then dead-letters by itself only if the owner set that up, and counts
	// deliveries only in quorum queues.
	Existing bool
}

// WithDefaults fills the empty fields, but for those of Topic and Topics.
func (c Config) WithDefaults() Config {
	c.Prefix = cmp.Or(c.Prefix, "spillway")
	c.MinDelay = cmp.Or(c.MinDelay, shortestRung)
	c.MaxDelay = cmp.Or(c.MaxDelay, 15*time.Minute)
	c.QueueType = cmp.Or(c.QueueType, queueTypeQuorum)
	c.DeliveryLimit = cmp.Or(c.DeliveryLimit, 10_000)
	c.Lanes = cmp.Or(c.Lanes, 128)
	c.PublishTimeout = cmp.Or(c.PublishTimeout, 30*time.Second)
	c.DialTimeout = cmp.Or(c.DialTimeout, 10*time.Second)
	if c.Dial == nil {
		c.Dial = new(net.Dialer).DialContext
	}
	return c
}

// maxLanes stays below the 2047 channels that a connection has by default.
const maxLanes = 2000

// Validate reports every problem at once, each beginning with the name of its
// field. [Opener] and [OpenerWith] do the same when they open.
func (c Config) Validate() error {
	c = c.WithDefaults()
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.MinDelay < shortestRung {
		bad("MinDelay must be at least %s, is %s", shortestRung, c.MinDelay)
	}
	if c.MaxDelay < c.MinDelay || c.MaxDelay > 24*time.Hour {
		bad("MaxDelay must be between MinDelay, %s, and 24h, is %s", c.MinDelay, c.MaxDelay)
	} else if len(newLadder(c.MinDelay, c.MaxDelay)) == 0 {
		bad("no rung of the ladder lies between MinDelay, %s, and MaxDelay, %s", c.MinDelay, c.MaxDelay)
	}
	if c.QueueType != queueTypeQuorum {
		bad("QueueType must be empty or %q, is %q: other types lose messages when a node stops while it moves them; bind to a queue that exists with Topic.Existing", queueTypeQuorum, c.QueueType)
	}
	if c.DeliveryLimit < 10 {
		bad("DeliveryLimit must be at least 10, is %d: the chain must get to act first, and a negative limit drops messages on RabbitMQ 3.10", c.DeliveryLimit)
	}
	if c.Lanes < 1 || c.Lanes > maxLanes {
		bad("Lanes must be between 1 and %d, is %d", maxLanes, c.Lanes)
	}
	if c.PublishTimeout < 0 || c.DialTimeout < 0 {
		bad("PublishTimeout and DialTimeout must not be negative")
	}
	if c.WholeLadder && c.VerifyOnly {
		bad("WholeLadder declares and VerifyOnly does not: choose one")
	}
	if err := checkName("queue", c.Prefix+".undeliverable"); err != nil {
		bad("Prefix makes names that cannot be: %s", strings.TrimPrefix(err.Error(), "rabbitmq: "))
	}
	if c.Management != "" {
		if _, err := managementURL(c.Management); err != nil {
			bad("Management %w", err)
		}
	}
	errs = append(errs, c.Topic.validate("Topic"))
	for _, name := range slices.Sorted(maps.Keys(c.Topics)) {
		errs = append(errs, c.Topics[name].validate(fmt.Sprintf("Topics[%q]", name)))
	}
	return errors.Join(errs...)
}

func (t Topic) validate(field string) error {
	var errs []error
	if strings.Contains(t.Exchange, "{group}") {
		errs = append(errs, fmt.Errorf("%s.Exchange must not contain {group}: publishers know no group", field))
	}
	if t.Kind == KindQueue && t.Exchange != "" {
		errs = append(errs, fmt.Errorf("%s.Exchange must be empty with Kind %q", field, KindQueue))
	}
	if t.Kind == KindQueue && strings.Contains(t.Queue, "{group}") {
		errs = append(errs, fmt.Errorf("%s.Queue must not contain {group} with Kind %q: publishers know no group", field, KindQueue))
	}
	return errors.Join(errs...)
}

// place is a Topic with its templates filled.
type place struct {
	exchange   string // empty: the default exchange
	kind       string
	queue      string
	bindKey    string
	publishKey string
	mandatory  bool
	existing   bool
}

// place says where a topic lies. Dead letter queues are queues, not exchanges,
// and whoever reads one did not declare it.
func (c Config) place(names adapters.Names, topic, group string) place {
	t, named := c.Topics[topic]
	switch {
	case named:
	case names.IsDeadLetter(topic):
		t = Topic{Kind: KindQueue, Existing: true}
	default:
		t = c.Topic
	}
	fill := strings.NewReplacer("{topic}", topic, "{group}", group).Replace
	p := place{
		exchange: fill(cmp.Or(t.Exchange, wamqp.GenerateExchangeNameTopicName(topic))),
		kind:     cmp.Or(t.Kind, KindFanout),
		queue:    fill(cmp.Or(t.Queue, wamqp.GenerateQueueNameTopicNameWithSuffix(group)(topic))),
		bindKey:  t.BindKey, publishKey: cmp.Or(t.PublishKey, t.BindKey),
		mandatory: t.Mandatory, existing: t.Existing,
	}
	if p.kind == KindQueue {
		p.queue = fill(cmp.Or(t.Queue, wamqp.GenerateQueueNameTopicName(topic)))
		p.exchange, p.publishKey, p.mandatory = "", p.queue, true
	}
	return p
}
