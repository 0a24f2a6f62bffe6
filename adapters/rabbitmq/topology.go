package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/spillway-mq/spillway/adapters"
)

const (
	queueTypeQuorum = "quorum"
	exchangeFanout  = "fanout"
	exchangeDirect  = "direct"

	// neverDropped is a delivery limit for queues without a dead letter
	// exchange, where reaching it would lose the message. Zero, the default,
	// means 20 on RabbitMQ 4, and a negative one means none on 4 and 0 on 3.10.
	neverDropped = math.MaxInt32
)

// consumerKey is what makes a consumer's streams its own.
type consumerKey struct{ topic, group string }

func keyOf(c adapters.Consumer) consumerKey { return consumerKey{c.Topic, c.Group} }

// topology declares exchanges and queues, or verifies them, and remembers what
// it has seen. It is safe for concurrent use.
type topology struct {
	cfg    Config
	names  adapters.Names
	ladder ladder
	link   *link // not the one that publishes: a blocked publisher could declare nothing

	mu       sync.Mutex
	owners   map[string]consumerKey // of queues, to find names that collide
	declared map[string]bool        // rungs, exchanges of topics, and consumers
	turns    map[string]chan struct{}
}

// declarer runs declarations on one channel.
type declarer struct {
	ch     *amqp.Channel
	verify bool
	plan   *plan // if set, everything is noted there instead
	err    error // the first
}

func (d *declarer) queue(name string, args amqp.Table) {
	if d.err != nil || d.plan.queue(name, args, d.verify) {
		return
	}
	var err error
	if d.verify {
		_, err = d.ch.QueueDeclarePassive(name, true, false, false, false, args)
	} else {
		_, err = d.ch.QueueDeclare(name, true, false, false, false, args)
	}
	d.err = topologyError("queue", name, d.verify, err)
}

func (d *declarer) exchange(name, kind string, args amqp.Table) {
	if d.err != nil || d.plan.exchange(name, kind, args, d.verify) {
		return
	}
	var err error
	if d.verify {
		err = d.ch.ExchangeDeclarePassive(name, kind, true, false, false, false, args)
	} else {
		err = d.ch.ExchangeDeclare(name, kind, true, false, false, false, args)
	}
	d.err = topologyError("exchange", name, d.verify, err)
}

// bind is silent when verifying: AMQP cannot ask for a binding.
func (d *declarer) bind(queue, key, exchange string) {
	if d.err != nil || d.verify || d.plan.bind(queue, key, exchange) {
		return
	}
	d.err = topologyError("queue", queue, false, d.ch.QueueBind(queue, key, exchange, false, nil))
}

// withDeclarer runs f on a channel of its own, because the first refused
// declaration closes the channel.
func (t *topology) withDeclarer(ctx context.Context, f func(*declarer)) error {
	conn, err := t.link.get(ctx)
	if err != nil {
		return err
	}
	ch, err := conn.channel(ctx)
	if err != nil {
		return err
	}
	return bounded(ctx, func() error {
		d := declarer{ch: ch, verify: t.cfg.VerifyOnly}
		f(&d)
		if err := ch.Close(); d.err == nil && !errors.Is(err, amqp.ErrClosed) {
			d.err = err
		}
		return d.err
	})
}

// once runs f unless it has succeeded for this name before. Those who come
// while it runs wait: the second declaration of a quorum queue may be answered
// before the queue can take messages.
func (t *topology) once(ctx context.Context, name string, f func(*declarer)) error {
	t.mu.Lock()
	turn, ok := t.turns[name]
	if !ok {
		turn = make(chan struct{}, 1)
		t.turns[name] = turn
	}
	done := t.declared[name]
	t.mu.Unlock()
	if done {
		return nil
	}
	select {
	case turn <- struct{}{}:
		defer func() { <-turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	t.mu.Lock()
	done = t.declared[name]
	t.mu.Unlock()
	if done {
		return nil
	}
	if err := t.withDeclarer(ctx, f); err != nil {
		return err
	}
	t.mu.Lock()
	t.declared[name] = true
	t.mu.Unlock()
	return nil
}

// forget makes the next publish declare everything anew: something was gone.
func (t *topology) forget() {
	t.mu.Lock()
	clear(t.declared)
	t.mu.Unlock()
}

// ensure declares all streams of c, regardless of what was declared before:
// somebody may have deleted a queue since.
func (t *topology) ensure(ctx context.Context, c adapters.Consumer) error {
	if err := t.claim(c); err != nil {
		return err
	}
	p := t.cfg.place(t.names, c.Topic, c.Group)
	return t.withDeclarer(ctx, func(d *declarer) {
		t.declareOwn(d, c)
		t.declareMain(d, c, p)
		if t.cfg.WholeLadder || t.cfg.VerifyOnly {
			for _, rung := range t.ladder {
				t.declareRung(d, rung)
			}
		}
	})
}

// ensureOwn declares the streams that hand-offs to c are written to.
func (t *topology) ensureOwn(ctx context.Context, c adapters.Consumer) error {
	if err := t.claim(c); err != nil {
		return err
	}
	return t.once(ctx, fmt.Sprintf("consumer %q %q", c.Topic, c.Group), func(d *declarer) { t.declareOwn(d, c) })
}

// ensureRung declares a rung of the ladder.
func (t *topology) ensureRung(ctx context.Context, rung time.Duration) error {
	return t.once(ctx, "rung "+rung.String(), func(d *declarer) { t.declareRung(d, rung) })
}

// ensureExchange declares the exchange of a topic that is published to.
func (t *topology) ensureExchange(ctx context.Context, p place) error {
	if p.exchange == "" || p.existing {
		return nil
	}
	return t.once(ctx, "exchange "+p.exchange, func(d *declarer) { d.exchange(p.exchange, p.kind, nil) })
}

// declareOwn declares what c's streams need, in an order in which nothing ever
// refers to what does not exist yet.
func (t *topology) declareOwn(d *declarer, c adapters.Consumer) {
	back, lost := t.returnExchange(), t.undeliverable()
	d.exchange(lost, exchangeFanout, nil)
	d.queue(lost, lasting())
	d.bind(lost, "", lost)
	// Without the alternate exchange, one destination that is missing makes its
	// rungs keep and offer again whatever lies before the others' messages.
	d.exchange(back, exchangeDirect, amqp.Table{"alternate-exchange": lost})

	dead := t.names.Of(adapters.StreamDeadLetter, c)
	d.queue(dead, lasting())

	retry := t.names.Of(adapters.StreamRetry, c)
	d.queue(retry, t.netted(dead))
	d.bind(retry, retry, back)

	t.declareParking(d, c, t.names.Of(adapters.StreamParking, c))

	suspect := t.names.Of(adapters.StreamSuspect, c)
	d.queue(suspect, t.netted(dead))
	d.bind(suspect, suspect, back)
}

// lasting are the arguments of a queue that nothing leaves by itself. Where
// somebody's policy limits its length, it refuses instead of dropping.
func lasting() amqp.Table {
	return amqp.Table{"x-queue-type": queueTypeQuorum, "x-delivery-limit": neverDropped, "x-overflow": "reject-publish"}
}

// declareParking declares a queue whose messages move to c's retry queue when
// they expire.
func (t *topology) declareParking(d *declarer, c adapters.Consumer, name string) {
	d.queue(name, amqp.Table{
		"x-queue-type":              queueTypeQuorum,
		"x-delivery-limit":          neverDropped,
		"x-dead-letter-exchange":    "",
		"x-dead-letter-routing-key": t.names.Of(adapters.StreamRetry, c),
		"x-dead-letter-strategy":    "at-least-once",
		"x-overflow":                "reject-publish",
	})
}

// ensureParking declares the parking queue for what waits that long, and
// returns its name.
func (t *topology) ensureParking(ctx context.Context, c adapters.Consumer, left time.Duration) (string, error) {
	name := t.names.Of(adapters.StreamParking, c)
	if left <= 0 || t.cfg.VerifyOnly {
		return name, nil
	}
	name = bayName(name, bayOf(left))
	return name, t.once(ctx, "parking "+name, func(d *declarer) { t.declareParking(d, c, name) })
}

// declareMain declares the queue that c reads, and its exchange; what belongs to
// somebody else is only looked for.
func (t *topology) declareMain(d *declarer, c adapters.Consumer, p place) {
	verify := d.verify
	d.verify = verify || p.existing
	if p.exchange != "" {
		d.exchange(p.exchange, p.kind, nil)
	}
	d.queue(p.queue, t.netted(t.names.Of(adapters.StreamDeadLetter, c)))
	if p.exchange != "" {
		d.bind(p.queue, p.bindKey, p.exchange)
	}
	d.verify = verify
}

// netted are the arguments of a queue that handlers are fed from: what the
// broker gives up on falls into the dead letter queue.
func (t *topology) netted(dead string) amqp.Table {
	return amqp.Table{
		"x-queue-type":              queueTypeQuorum,
		"x-delivery-limit":          t.cfg.DeliveryLimit,
		"x-dead-letter-exchange":    "",
		"x-dead-letter-routing-key": dead,
		"x-dead-letter-strategy":    "at-least-once",
		"x-overflow":                "reject-publish", // without it, at-least-once is silently at most once
	}
}

// declareRung declares one rung. Its own exchange leads to it, so that the
// routing key can be what the return exchange needs: the queue to return to.
func (t *topology) declareRung(d *declarer, rung time.Duration) {
	name := rungName(t.cfg.Prefix, rung)
	d.exchange(name, exchangeFanout, nil)
	d.queue(name, amqp.Table{
		"x-queue-type":           queueTypeQuorum,
		"x-delivery-limit":       neverDropped,
		"x-message-ttl":          rung.Milliseconds(),
		"x-dead-letter-exchange": t.returnExchange(),
		"x-dead-letter-strategy": "at-least-once",
		"x-overflow":             "reject-publish",
	})
	d.bind(name, "", name)
}

func (t *topology) returnExchange() string { return t.cfg.Prefix + ".return" }
func (t *topology) undeliverable() string  { return t.cfg.Prefix + ".undeliverable" }

// claim checks the names of c's streams, and that no other consumer of this
// process has one of them.
func (t *topology) claim(c adapters.Consumer) error {
	p := t.cfg.place(t.names, c.Topic, c.Group)
	key := keyOf(c)
	var errs []error
	if c.Retry == adapters.RetryInPlace {
		errs = append(errs, fmt.Errorf("rabbitmq: Retry %q: %w", c.Retry, adapters.ErrUnsupported))
	}
	if c.Topic == "" || c.Group == "" {
		errs = append(errs, fmt.Errorf("rabbitmq: topic %q and group %q must both have a name", c.Topic, c.Group))
	}
	if p.exchange != "" && !p.existing {
		errs = append(errs, checkName("exchange", p.exchange))
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	queues := []string{
		t.names.Of(adapters.StreamRetry, c), t.names.Of(adapters.StreamParking, c),
		t.names.Of(adapters.StreamDeadLetter, c), t.names.Of(adapters.StreamSuspect, c),
	}
	if bay := bayName(queues[1], longestBay); checkName("queue", queues[1]) == nil {
		errs = append(errs, checkName("queue", bay))
	}
	if !p.existing { // which may be another consumer's dead letter queue
		queues = append(queues, p.queue)
	}
	for _, name := range queues {
		if err := checkName("queue", name); err != nil {
			errs = append(errs, err)
			continue
		}
		owner, taken := t.owners[name]
		switch {
		case strings.HasPrefix(name, t.cfg.Prefix+".delay.") || name == t.undeliverable():
			errs = append(errs, fmt.Errorf("rabbitmq: queue %q of group %q on topic %q belongs to the delay ladder: change the names or Config.Prefix", name, c.Group, c.Topic))
		case taken && owner != key:
			errs = append(errs, fmt.Errorf("rabbitmq: queue %q would belong to group %q on topic %q and to group %q on topic %q: change a group, Config.Topics or the names",
				name, owner.group, owner.topic, c.Group, c.Topic))
		case !taken:
			t.owners[name] = key
		}
	}
	return errors.Join(errs...)
}

// maxShortString is AMQP's limit for names, routing keys and most properties.
const maxShortString = 255

func checkName(kind, name string) error {
	switch {
	case name == "":
		return fmt.Errorf("rabbitmq: the %s has no name", kind)
	case len(name) > maxShortString:
		return fmt.Errorf("rabbitmq: the %s name %.40q… has %d bytes, and AMQP allows %d", kind, name, len(name), maxShortString)
	case strings.HasPrefix(name, "amq."):
		return fmt.Errorf("rabbitmq: the %s name %q starts with amq., which the broker reserves", kind, name)
	case !utf8.ValidString(name):
		return fmt.Errorf("rabbitmq: the %s name %q is not UTF-8", kind, name)
	}
	return nil
}
