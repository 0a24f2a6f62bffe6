package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/spillway-mq/spillway/adapters"
)

// The rules of Check. Their names are frozen; docs/rabbitmq.md explains them.
const (
	ruleConsumer        = "rabbitmq-consumer"
	ruleExchangeMissing = "rabbitmq-exchange-missing"
	ruleExchange        = "rabbitmq-exchange-argument"
	ruleMissing         = "rabbitmq-stream-missing"
	ruleUnavailable     = "rabbitmq-stream-unavailable"
	ruleType            = "rabbitmq-stream-type"
	ruleNet             = "rabbitmq-stream-net"
	ruleArgument        = "rabbitmq-stream-argument"
	ruleNetUnknown      = "rabbitmq-net-unknown"
	rulePermission      = "rabbitmq-permission"
	ruleNobodyReads     = "rabbitmq-nobody-reads"
	ruleForeignReader   = "rabbitmq-foreign-reader"
	ruleUndeliverable   = "rabbitmq-undeliverable"
	ruleSuspects        = "rabbitmq-suspects"
	ruleDeadLetters     = "rabbitmq-dead-letters"
	ruleParked          = "rabbitmq-parked"
	ruleWaiting         = "rabbitmq-waiting"
)

// Check looks at the streams of consumers over AMQP: whether they exist, how
// many messages and readers they have, and, by declarations that the broker must
// refuse, what their arguments are. With the option management in the broker's
// URL, which is the address of the management plugin, it also looks at bindings,
// policies, and messages that the broker could not move on.
func (b *broker) Check(ctx context.Context, consumers []adapters.Consumer) ([]adapters.Finding, error) {
	in := &inspection{ctx: ctx, b: b}
	if err := in.run(consumers); err != nil {
		return nil, fmt.Errorf("rabbitmq: %w", err)
	}
	return in.findings, nil
}

// inspection is one run of Check.
type inspection struct {
	ctx      context.Context
	b        *broker
	ch       *amqp.Channel
	findings []adapters.Finding
	denied   []*amqp.Error // comparisons that the user may not make
}

func (in *inspection) run(consumers []adapters.Consumer) error {
	defer func() {
		if in.ch != nil {
			go in.ch.Close()
		}
	}()
	var sound []adapters.Consumer
	for _, c := range consumers {
		if err := in.b.topology.claim(c); err != nil {
			in.add(adapters.SeverityError, ruleConsumer, c, "", strings.ReplaceAll(err.Error(), "\n", "; "), "change the consumer in the configuration")
			continue
		}
		sound = append(sound, c)
		if err := in.consumer(c); err != nil {
			return err
		}
	}
	if err := in.shared(); err != nil {
		return err
	}
	in.permissions()
	return in.managed(sound)
}

func (in *inspection) add(s adapters.Severity, rule string, c adapters.Consumer, stream, message, fix string) {
	in.findings = append(in.findings, adapters.Finding{Rule: rule, Severity: s, Consumer: c, Stream: stream, Message: message, Fix: fix})
}

// consumer looks at the streams of one consumer.
func (in *inspection) consumer(c adapters.Consumer) error {
	t := in.b.topology
	p := t.planOf(c)
	for _, x := range p.exchanges {
		if t.isShared(x.name) {
			continue
		}
		if err := in.exchange(c, x); err != nil {
			return err
		}
	}
	parked := 0
	for _, planned := range p.queues {
		if t.isShared(planned.name) {
			continue
		}
		s := t.streamOf(planned.name, c)
		ifMissing := adapters.SeverityError
		switch {
		case s == adapters.StreamSuspect && !t.cfg.VerifyOnly:
			ifMissing = adapters.SeverityWarning // it is declared when it is needed
		case s == adapters.StreamParking && planned.name != t.names.Of(s, c):
			ifMissing = "" // a bay that was not needed yet
		}
		q, err := in.queue(c, planned, ifMissing)
		if err != nil {
			return err
		}
		switch {
		case q == nil:
		case s == adapters.StreamParking:
			in.unread(c, q)
			parked += q.Messages
		default:
			in.depth(c, s, q)
		}
	}
	if parked > 0 {
		in.add(adapters.SeverityInfo, ruleParked, c, t.names.Of(adapters.StreamParking, c), counted(parked, "parked message"), "")
	}
	return nil
}

// depth looks at how many messages and readers a queue has.
func (in *inspection) depth(c adapters.Consumer, s adapters.Stream, q *amqp.Queue) {
	if q.Messages == 0 {
		return
	}
	switch s {
	case adapters.StreamDeadLetter:
		in.add(adapters.SeverityInfo, ruleDeadLetters, c, q.Name, counted(q.Messages, "dead letter"), "")
		return
	case adapters.StreamSuspect:
		in.add(adapters.SeverityWarning, ruleSuspects, c, q.Name,
			counted(q.Messages, "message")+" that may have ended a process", "look for crashes of the application; what ends it again becomes a dead letter")
	}
	if q.Consumers == 0 {
		in.add(adapters.SeverityWarning, ruleNobodyReads, c, q.Name,
			counted(q.Messages, "message")+" and no reader", "start the application that consumes it")
	}
}

// unread reports readers of a queue that is not to be read.
func (in *inspection) unread(c adapters.Consumer, q *amqp.Queue) {
	if q.Consumers > 0 {
		in.add(adapters.SeverityError, ruleForeignReader, c, q.Name,
			counted(q.Consumers, "reader")+" of a queue that messages leave when their time has come", "stop whatever reads it: Spillway does not, and takes no message out of there but to drain it")
	}
}

// shared looks at what all consumers use: the ladder, and what it leads to.
func (in *inspection) shared() error {
	t := in.b.topology
	none := adapters.Consumer{}
	p := t.planOf(none)
	for _, x := range p.exchanges {
		if !t.isShared(x.name) {
			continue
		}
		if err := in.exchange(none, x); err != nil {
			return err
		}
	}
	for _, planned := range p.queues {
		if !t.isShared(planned.name) {
			continue
		}
		q, err := in.queue(none, planned, adapters.SeverityError)
		if err != nil {
			return err
		}
		if q != nil && q.Messages > 0 {
			in.add(adapters.SeverityError, ruleUndeliverable, none, q.Name,
				counted(q.Messages, "message")+" came back from a delay to a queue that was gone",
				"start the consumer, which declares its queues, and move each message to the queue that its routing key names, for example with a shovel")
		}
	}

	ifMissing := adapters.Severity("")
	if t.cfg.VerifyOnly {
		ifMissing = adapters.SeverityError
	}
	waiting, rungs := 0, 0
	for _, rung := range t.ladder {
		q, err := in.queue(none, t.planOfRung(rung).queues[0], ifMissing)
		if err != nil {
			return err
		}
		if q == nil {
			continue
		}
		in.unread(none, q)
		if q.Messages > 0 {
			waiting, rungs = waiting+q.Messages, rungs+1
		}
	}
	if waiting > 0 {
		in.add(adapters.SeverityInfo, ruleWaiting, none, "",
			fmt.Sprintf("%s for the next attempt, on %s", counted(waiting, "message waits", "messages wait"), counted(rungs, "rung")), "")
	}
	return nil
}

// permissions reports that arguments could not be compared. That a user may
// read and write is not provable without doing it.
func (in *inspection) permissions() {
	if len(in.denied) == 0 {
		return
	}
	in.add(adapters.SeverityWarning, rulePermission, adapters.Consumer{}, "",
		fmt.Sprintf("the arguments of %s were not compared, and a consumer that declares cannot start as this user, who lacks the permission to configure; the first: %s",
			counted(len(in.denied), "queue or exchange", "queues and exchanges"), in.denied[0].Reason),
		"grant it as docs/rabbitmq.md says, or check as the user of the application")
}

// exchange looks at an exchange.
func (in *inspection) exchange(c adapters.Consumer, x plannedExchange) error {
	refused, err := in.ask(func(ch *amqp.Channel) error {
		return ch.ExchangeDeclarePassive(x.name, x.kind, true, false, false, false, nil)
	})
	if err != nil {
		return err
	}
	if refused != nil {
		in.add(adapters.SeverityError, ruleExchangeMissing, c, x.name, "the exchange does not exist", in.declaration())
		return nil
	}
	if x.existing || in.b.cfg.VerifyOnly {
		return nil
	}
	// It exists, so that this declares nothing, unless it was deleted just now.
	refused, err = in.ask(func(ch *amqp.Channel) error {
		return ch.ExchangeDeclare(x.name, x.kind, true, false, false, false, x.args)
	})
	switch {
	case err != nil:
		return err
	case refused == nil:
		return nil
	case refused.Code == amqp.AccessRefused:
		in.denied = append(in.denied, refused)
		return nil
	}
	message := refused.Reason
	if d := differenceIn(refused); d != nil {
		message = d.String()
	}
	in.add(adapters.SeverityError, ruleExchange, c, x.name, message, "delete the exchange and restart its consumers, which declare and bind it anew")
	return nil
}

// declaration is how to get what is missing.
func (in *inspection) declaration() string {
	if in.b.cfg.VerifyOnly {
		return "declare it: by a run with Config.WholeLadder and without VerifyOnly"
	}
	return "start the application once: it declares it"
}

// queue looks at a queue. It returns nil for one that cannot be seen.
func (in *inspection) queue(c adapters.Consumer, planned plannedQueue, ifMissing adapters.Severity) (*amqp.Queue, error) {
	var q amqp.Queue
	refused, err := in.ask(func(ch *amqp.Channel) (err error) {
		q, err = ch.QueueDeclarePassive(planned.name, true, false, false, false, nil)
		return err
	})
	switch {
	case err != nil:
		return nil, err
	case refused != nil && refused.Code == amqp.NotFound && strings.Contains(refused.Reason, "no queue"):
		if ifMissing != "" {
			in.add(ifMissing, ruleMissing, c, planned.name, "the queue does not exist", in.declaration())
		}
		return nil, nil
	case refused != nil:
		in.add(adapters.SeverityError, ruleUnavailable, c, planned.name, refused.Reason, "look at the broker's log, and at who uses the queue")
		return nil, nil
	case planned.existing:
		in.add(adapters.SeverityInfo, ruleNetUnknown, c, planned.name,
			"the queue belongs to somebody else: whether it dead-letters what the broker gives up is not known", "")
		return &q, nil
	case in.b.cfg.VerifyOnly:
		return &q, nil
	}
	return &q, in.compare(c, planned)
}

// unlike is an argument that no queue has. A declaration with it is refused
// whether the queue exists or not, so that comparing never declares anything.
// The broker compares it after all others.
const unlike = "x-queue-leader-locator"

// maxDifferences bounds the declarations for one queue.
const maxDifferences = 16

// compare finds every argument in which a queue differs from what is planned. The broker
// names one at a time, so that each is conceded before the next question.
func (in *inspection) compare(c adapters.Consumer, planned plannedQueue) error {
	args, durable, autoDelete := maps.Clone(planned.args), true, false
	args[unlike] = "spillway compares"
	found := map[string][]string{} // by rule
	for range maxDifferences {
		refused, err := in.ask(func(ch *amqp.Channel) error {
			_, err := ch.QueueDeclare(planned.name, durable, autoDelete, false, false, args)
			return err
		})
		if err != nil {
			return err
		}
		if refused != nil && refused.Code == amqp.AccessRefused {
			in.denied = append(in.denied, refused)
			break
		}
		d := differenceIn(refused)
		if d == nil || d.argument == unlike {
			break
		}
		rule := ruleOf(d.argument)
		found[rule] = append(found[rule], d.String())
		switch d.argument {
		case "durable":
			durable = !durable
		case "auto_delete":
			autoDelete = !autoDelete
		default:
			if d.have == nil {
				delete(args, d.argument)
			} else {
				args[d.argument] = d.have
			}
		}
	}
	for _, rule := range slices.Sorted(maps.Keys(found)) {
		message := strings.Join(found[rule], "; ")
		if rule == ruleNet {
			message = "what the broker takes out of it is not kept safely: " + message
		}
		in.add(adapters.SeverityError, rule, c, planned.name, message,
			"arguments cannot be changed: move its messages away, delete the queue, and restart the consumer, which declares it anew")
	}
	return nil
}

func ruleOf(argument string) string {
	switch argument {
	case "x-queue-type", "durable", "auto_delete", "exclusive":
		return ruleType
	case "x-dead-letter-exchange", "x-dead-letter-routing-key", "x-dead-letter-strategy", "x-overflow":
		return ruleNet
	}
	return ruleArgument
}

// difference is what the broker says of an argument that is not as declared.
type difference struct {
	argument   string
	want, seen string
	have       any // seen, to declare it; nil if there is none
}

func (d *difference) String() string {
	return fmt.Sprintf("%s is %s, should be %s", d.argument, d.seen, d.want)
}

var typedValue = regexp.MustCompile(`^the value '(.*)' of type '(.*)'$`)

func differenceIn(refused *amqp.Error) *difference {
	if refused == nil {
		return nil
	}
	m := inequivalent.FindStringSubmatch(refused.Reason)
	if m == nil {
		return nil
	}
	d := &difference{argument: m[1], want: quoted(m[4]), seen: quoted(m[5])}
	if v := typedValue.FindStringSubmatch(m[5]); v != nil {
		d.have = v[1]
		if n, err := strconv.ParseInt(v[1], 10, 64); err == nil && v[2] != "longstr" {
			d.have = n
		} else if v[2] == "bool" {
			d.have = v[1] == "true"
		}
	}
	return d
}

// quoted is a value as the broker wrote it, for people.
func quoted(text string) string {
	if text == "none" {
		return "not set"
	}
	return strconv.Quote(value(text))
}

// ask runs a request. What the broker refuses is an answer; an error means that
// there was none.
func (in *inspection) ask(request func(*amqp.Channel) error) (refused *amqp.Error, err error) {
	if in.ch == nil || in.ch.IsClosed() {
		conn, err := in.b.consume.get(in.ctx)
		if err != nil {
			return nil, err
		}
		if in.ch, err = conn.channel(in.ctx); err != nil {
			return nil, err
		}
	}
	ch := in.ch
	err = bounded(in.ctx, func() error { return request(ch) })
	var ae *amqp.Error
	if errors.As(err, &ae) {
		switch ae.Code {
		case amqp.NotFound, amqp.PreconditionFailed, amqp.AccessRefused, amqp.ResourceLocked:
			return ae, nil
		}
	}
	return nil, err
}

// counted writes a number with its noun, whose plural may be given.
func counted(n int, noun string, plural ...string) string {
	if n == 1 {
		return "1 " + noun
	}
	if len(plural) > 0 {
		return fmt.Sprintf("%d %s", n, plural[0])
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// plan is what would be declared, in order.
type plan struct {
	queues    []plannedQueue
	exchanges []plannedExchange
	bindings  []binding
}

type plannedQueue struct {
	name     string
	args     amqp.Table
	existing bool // it is somebody else's: only looked for
}

type plannedExchange struct {
	name, kind string
	args       amqp.Table
	existing   bool
}

type binding struct{ queue, key, exchange string }

// The methods of a nil plan note nothing, and say so.

func (p *plan) queue(name string, args amqp.Table, existing bool) bool {
	if p != nil {
		p.queues = append(p.queues, plannedQueue{name, args, existing})
	}
	return p != nil
}

func (p *plan) exchange(name, kind string, args amqp.Table, existing bool) bool {
	if p != nil {
		p.exchanges = append(p.exchanges, plannedExchange{name, kind, args, existing})
	}
	return p != nil
}

func (p *plan) bind(queue, key, exchange string) bool {
	if p != nil {
		p.bindings = append(p.bindings, binding{queue, key, exchange})
	}
	return p != nil
}

// planOf is what is declared for c, on first use too, and includes what is
// shared.
func (t *topology) planOf(c adapters.Consumer) *plan {
	d := declarer{plan: &plan{}}
	t.declareOwn(&d, c)
	for _, bay := range bayNames(t.names.Of(adapters.StreamParking, c))[1:] {
		t.declareParking(&d, c, bay)
	}
	t.declareMain(&d, c, t.cfg.place(t.names, c.Topic, c.Group))
	return d.plan
}

func (t *topology) planOfRung(rung time.Duration) *plan {
	d := declarer{plan: &plan{}}
	t.declareRung(&d, rung)
	return d.plan
}

// isShared says whether a queue or exchange belongs to no consumer.
func (t *topology) isShared(name string) bool {
	return name == t.undeliverable() || name == t.returnExchange()
}

// streamOf says which stream of c a queue is.
func (t *topology) streamOf(queue string, c adapters.Consumer) adapters.Stream {
	for _, s := range []adapters.Stream{adapters.StreamRetry, adapters.StreamDeadLetter, adapters.StreamSuspect} {
		if t.names.Of(s, c) == queue {
			return s
		}
	}
	if slices.Contains(bayNames(t.names.Of(adapters.StreamParking, c)), queue) {
		return adapters.StreamParking
	}
	return adapters.StreamMain
}
