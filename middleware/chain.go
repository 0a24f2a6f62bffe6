package middleware

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/envelope"
	"github.com/spillway-mq/spillway/failure"
	"github.com/spillway-mq/spillway/parking"
	"github.com/spillway-mq/spillway/poison"
	"github.com/spillway-mq/spillway/policy"
)

// SuspectAfter is how often a message may be handed out without an outcome
// before it becomes a suspect; and, alone in the suspect stream, how often
// again before it is dead-lettered as consumer_crash.
const SuspectAfter = 3

// ErrReturned is what the chain returns to the Router for a delivery that goes
// back to the broker. It wraps context.Canceled, so that the Router does not
// log a shutdown as a failure.
var ErrReturned = fmt.Errorf("spillway: delivery returned to the broker: %w", context.Canceled)

const (
	// earlyTolerance is the clock difference between hosts that is not worth
	// another hop.
	earlyTolerance = time.Second
	// maxHops ends the hops of a message between hosts whose clocks disagree;
	// seven days in steps of 15 minutes need 672.
	maxHops = 1000

	// handoffTimeout bounds one try of a hand-off.
	handoffTimeout = 30 * time.Second
)

var (
	// handoffBackoff spreads the tries of hand-offs that fail for one reason.
	handoffBackoff = policy.Backoff{Base: 100 * time.Millisecond, Factor: 2, Max: 30 * time.Second, Jitter: policy.JitterProportional}
	// deadLetterBackoff grows with the broker's delivery count.
	deadLetterBackoff = policy.Backoff{Base: time.Second, Factor: 2, Max: time.Minute, Jitter: policy.JitterNone}
)

// ChainConfig is what a [Chain] needs. Broker is required; zero fields mean
// what their comments say.
type ChainConfig struct {
	// Broker takes the hand-offs.
	Broker adapters.Broker
	// Names say which topics are dead letter streams.
	Names adapters.Names
	// Policy decides; zero means the defaults of package policy.
	Policy policy.Policy
	// Policies replace parts of Policy for handlers, by handler name.
	Policies map[string]policy.Policy
	// Classifier makes failures of errors; zero means the built-in rules.
	Classifier failure.Classifier
	// ConsumerVersion is written to dead letters.
	ConsumerVersion string
	// Evidence says what else is written to dead letters, and what is kept out.
	Evidence poison.Evidence
	// LastResort takes what no stream will ever take, such as a message that is
	// too large even without evidence; nil means that such a message stays with
	// the broker, its slot blocked, with an alarm.
	LastResort *poison.LastResort
	// CloseGrace is how long a hand-off may go on after the message's context
	// has ended; zero means 20 s.
	CloseGrace time.Duration
	// Hooks are told what happens, in this order. One that panics is logged, and
	// keeps it from no other.
	Hooks []Hooks
	// Logger gets panics with their stacks, redacted; nil means slog.Default().
	Logger *slog.Logger
}

// Validate names every problem of the policies at once.
func (cfg ChainConfig) Validate() error {
	errs := []error{cfg.Policy.Validate()}
	for _, handler := range slices.Sorted(maps.Keys(cfg.Policies)) {
		if err := cfg.Policy.Merge(cfg.Policies[handler]).Validate(); err != nil {
			errs = append(errs, fmt.Errorf("handler %q: %w", handler, err))
		}
	}
	return errors.Join(errs...)
}

// Chain decides what becomes of messages whose handlers fail. It is safe for
// concurrent use.
type Chain struct {
	cfg      ChainConfig
	policies map[string]policy.Policy
	fallback policy.Policy
	hooks    hookList

	decorated atomic.Bool // some publisher has our decorator
}

// NewChain returns a chain, or the error of [ChainConfig.Validate].
func NewChain(cfg ChainConfig) (*Chain, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg.CloseGrace = cmp.Or(cfg.CloseGrace, 20*time.Second)
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	c := &Chain{
		cfg: cfg, fallback: cfg.Policy.WithDefaults(), policies: map[string]policy.Policy{},
		hooks: newHookList(cfg.Hooks, cfg.Logger, cfg.Evidence),
	}
	for handler, over := range cfg.Policies {
		c.policies[handler] = cfg.Policy.Merge(over).WithDefaults()
	}
	c.opened()
	return c, nil
}

// opened tells the hooks what they may ask the broker.
func (c *Chain) opened() {
	info := OpenInfo{Broker: c.cfg.Broker.Capabilities().Broker}
	if w, ok := c.cfg.Broker.(adapters.Windowed); ok {
		info.Windows = w.Windows
	}
	for _, h := range c.cfg.Hooks {
		if h.OnOpen != nil {
			callHook(context.Background(), &c.hooks, "OnOpen", h.OnOpen, &info)
		}
	}
}

// Middleware is the chain as a Watermill middleware. It belongs outermost. On
// its own it sees no error of publishing a handler's outputs: those the Router
// answers with a Nack, unless [Chain.PublisherDecorator] is installed too.
func (c *Chain) Middleware(next message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		ctx := msg.Context()
		d, ok := adapters.DeliveryFrom(ctx)
		if !ok || foreign(msg, d) {
			// A message of some other subscriber: none of our streams is its.
			return next(msg)
		}
		a := newAttempt(c, ctx, msg, d)
		if handled, err := a.beforeHandler(); handled {
			return nil, err
		}
		outputs, err := a.call(next)
		if err != nil {
			return nil, a.fail(err)
		}
		if len(outputs) > 0 && !closed(msg.Nacked()) {
			return a.await(outputs), nil
		}
		return nil, a.succeed()
	}
}

// checkOutputs refuses what makes Watermill's Router panic after the chain.
func checkOutputs(outputs []*message.Message) error {
	if i := slices.Index(outputs, nil); i >= 0 {
		return fmt.Errorf("handler returned outputs that cannot be published: output %d of %d is nil", i+1, len(outputs))
	}
	return nil
}

// foreign reports a delivery that a context has inherited from another message:
// in-process brokers can hand a publisher's context on to their subscribers.
func foreign(msg *message.Message, d *adapters.Delivery) bool {
	topic := message.SubscribeTopicFromCtx(msg.Context())
	return topic != d.Consumer.Topic && topic != "" && !d.Owns(msg)
}

// PublisherDecorator finishes the attempts of handlers that have outputs, after
// these are published; an error of publishing is decided about like one of the
// handler. It also keeps Spillway's own metadata out of outputs. It belongs
// outermost.
func (c *Chain) PublisherDecorator(pub message.Publisher) (message.Publisher, error) {
	c.decorated.Store(true)
	return &outputPublisher{pub}, nil
}

// attempt is one delivery on its way through the chain.
type attempt struct {
	chain    *Chain
	ctx      context.Context // on entry: its end is shutdown
	msg      *message.Message
	delivery *adapters.Delivery
	handler  string
	start    time.Time
	outcome  OutcomeInfo // until it is known, who the message is
}

// newAttempt begins an attempt, and tells hooks.
func newAttempt(c *Chain, ctx context.Context, msg *message.Message, d *adapters.Delivery) *attempt {
	a := &attempt{chain: c, ctx: ctx, msg: msg, delivery: d, handler: message.HandlerNameFromCtx(ctx), start: time.Now()}
	info := &a.outcome.MessageInfo
	info.Consumer, info.Stream, info.Handler, info.MessageID = d.Consumer, d.Stream, a.handler, d.ID
	info.Attempt, info.Replay, info.DeliveryCount = d.State.Attempt, d.State.ReplayCount > 0, d.Count
	if p := d.Record.Position.Partition; p != nil {
		info.Partition = *p
	}
	if o := d.Record.Position.Offset; o != nil {
		info.Offset = *o
	}
	if len(c.hooks.start) > 0 {
		a.tellStart()
	}
	return a
}

func (a *attempt) tellStart() {
	for _, hook := range a.chain.hooks.start {
		callHook(a.ctx, &a.chain.hooks, "OnStart", hook, &StartInfo{MessageInfo: *a.info(), At: a.start, DueAt: a.delivery.State.DueAt})
	}
}

func (a *attempt) tellAttempt(err error) {
	took := time.Since(a.start)
	for _, hook := range a.chain.hooks.attempt {
		callHook(a.ctx, &a.chain.hooks, "OnAttempt", hook, &AttemptInfo{MessageInfo: *a.info(), Duration: took, Err: err})
	}
}

func (a *attempt) info() *MessageInfo { return &a.outcome.MessageInfo }

// broker is the one that the delivery came from: with two Spillways in a
// process, it need not be the chain's.
func (a *attempt) broker() adapters.Broker { return a.chain.brokerOf(a.delivery) }

func (c *Chain) brokerOf(d *adapters.Delivery) adapters.Broker {
	if d.Broker != nil {
		return d.Broker
	}
	return c.cfg.Broker
}

// beforeHandler deals with deliveries that the handler must not see.
func (a *attempt) beforeHandler() (handled bool, err error) {
	d := a.delivery
	switch {
	case closed(a.msg.Nacked()):
		return true, a.returned()
	case a.ctx.Err() != nil:
		// Watermill's Router holds back what arrives while it closes, and calls
		// the handler after all.
		return true, a.giveBack()
	case d.Undecodable != nil:
		return true, a.decide(failure.Failure{Nature: failure.NaturePermanent, Class: failure.ClassUndecodable, Err: d.Undecodable})
	case d.State.DueAt.Sub(a.start) > earlyTolerance && d.State.Hops < maxHops:
		return true, a.hop()
	case d.Count > SuspectAfter && d.Stream == adapters.StreamSuspect:
		return true, a.deadLetter(failure.Failure{
			Nature: failure.NatureUnknown, Class: failure.ClassConsumerCrash,
			Err: fmt.Errorf("delivered %d times, alone, without an outcome: it ends its consumer, or something outside the chain gives it back", d.Count-1),
		}, policy.ReasonConsumerCrash)
	case d.Count > SuspectAfter && !a.fromDeadLetters() && !a.inPlace():
		return true, a.suspect()
	}
	return false, nil
}

func (a *attempt) fromDeadLetters() bool {
	return a.chain.cfg.Names.IsDeadLetter(a.delivery.Consumer.Topic)
}

// call runs the handler and turns what it does, besides returning, into an error.
func (a *attempt) call(next message.HandlerFunc) (outputs []*message.Message, err error) {
	returned := false
	defer func() {
		if !returned {
			err = a.recovered(recover())
			outputs = nil
		}
		if len(a.chain.hooks.attempt) > 0 {
			a.tellAttempt(err)
		}
		if !returned && err == errGoexit {
			a.settle(a.fail(err))
		}
	}()
	outputs, err = next(a.msg)
	if err == nil {
		err = checkOutputs(outputs)
	}
	err = withoutStack(err) // calls methods of err, which may panic like the handler
	returned = true
	return outputs, err
}

// settle settles the message of a goroutine that is ending: the Router will not.
func (a *attempt) settle(err error) {
	if err == nil {
		a.msg.Ack()
	} else {
		a.msg.Nack()
	}
}

var errGoexit = errors.New("handler ended its goroutine with runtime.Goexit")

func (a *attempt) recovered(value any) error {
	if value == nil {
		return errGoexit
	}
	stack := debug.Stack()
	a.chain.cfg.Logger.LogAttrs(a.ctx, slog.LevelError, "handler panicked",
		append(a.info().attrs(), slog.String("panic", a.chain.cfg.Evidence.Text(fmt.Sprint(value))),
			slog.String("stack", a.chain.cfg.Evidence.Text(string(stack))))...)
	return failure.Panic(value, stack)
}

func closed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

func (a *attempt) succeed() error {
	if closed(a.msg.Nacked()) {
		return a.nacked()
	}
	a.outcome.Outcome = OutcomeProcessed
	a.tellOutcome()
	return nil
}

// nacked ends an attempt whose message went back before its handler ended.
func (a *attempt) nacked() error {
	a.chain.cfg.Logger.LogAttrs(a.ctx, slog.LevelWarn,
		"message went back before its handler ended: by its own Nack, where it should return an error, or at the end of CloseGrace", a.info().attrs()...)
	return a.returned()
}

func (a *attempt) returned() error {
	a.outcome.Outcome = OutcomeReturned
	a.tellOutcome()
	return ErrReturned
}

func (a *attempt) finish(o OutcomeInfo) {
	o.MessageInfo = a.outcome.MessageInfo
	a.outcome = o
	a.tellOutcome()
}

func (a *attempt) tellOutcome() {
	for _, hook := range a.chain.hooks.outcome {
		callHook(a.ctx, &a.chain.hooks, "OnOutcome", hook, &a.outcome)
	}
}

// fail classifies err and carries out the decision. It returns nil when the
// source may be acknowledged.
func (a *attempt) fail(err error) error {
	switch {
	case closed(a.msg.Nacked()):
		return a.nacked() // a copy would be one too many
	case closed(a.msg.Acked()):
		// The handler settled the message itself, which ended its context although
		// nothing shuts down; what is handed off now is the only copy.
		a.ctx = context.WithoutCancel(a.ctx)
	}
	return a.decide(a.chain.cfg.Classifier.Classify(err))
}

func (a *attempt) decide(f failure.Failure) error {
	st := a.delivery.State
	p, ok := a.chain.policies[a.handler]
	if !ok {
		p = a.chain.fallback
	}
	now := time.Now()
	decision := policy.Decide(p, f, policy.History{
		Attempts:        st.Attempt,
		FirstAttemptAt:  orTime(st.FirstAttemptAt, a.start),
		ParkedAt:        st.ParkedAt,
		ReplayCount:     st.ReplayCount,
		Shutdown:        a.ctx.Err() != nil,
		DeadLetterTopic: a.fromDeadLetters(),
	}, now, policy.Draw(a.identity(), st.Attempt))

	switch decision := decision.(type) {
	case policy.Retry:
		if a.inPlace() {
			return a.postpone(f, now.Add(a.broker().Quantize(decision.Due.Sub(now))))
		}
		next := a.state(f)
		next.Attempt++
		next.Hops = 0
		next.DueAt = now.Add(a.broker().Quantize(decision.Due.Sub(now)))
		return a.handoff(adapters.StreamRetry, next, OutcomeInfo{Outcome: OutcomeRetried, Failure: f, DueAt: next.DueAt})
	case policy.Park:
		next := parking.Enter(a.state(f), now, now.Add(a.broker().Quantize(decision.Due.Sub(now))))
		return a.handoff(adapters.StreamParking, next, OutcomeInfo{Outcome: OutcomeParked, Failure: f, DueAt: next.DueAt})
	case policy.DeadLetter:
		return a.deadLetter(f, decision.Reason)
	default:
		return a.giveBack()
	}
}

// inPlace reports whether a message that is to be tried again stays where it is,
// without its state. The broker's count of its deliveries then is that of its
// attempts, and no sign of a crash. One that the handler has settled by itself is
// gone from there.
func (a *attempt) inPlace() bool {
	d := a.delivery
	return d.Consumer.Retry == adapters.RetryInPlace && d.Stream == adapters.StreamMain && !closed(a.msg.Acked()) &&
		a.broker().Capabilities().CountedInPlace
}

// postpone leaves the message to the broker until due.
func (a *attempt) postpone(f failure.Failure, due time.Time) error {
	a.delivery.Postpone(due)
	a.finish(OutcomeInfo{Outcome: OutcomeRetried, Failure: f, DueAt: due})
	return ErrReturned
}

// giveBack returns the delivery, uncounted.
func (a *attempt) giveBack() error {
	if a.ctx.Err() == nil {
		// A dead letter that its consumer can't process either: it stays where
		// it is, and comes back the later, the more often it came.
		a.wait(deadLetterBackoff.Delay(max(a.delivery.Count-1, 0), 0))
	}
	return a.returned()
}

func (a *attempt) deadLetter(f failure.Failure, reason policy.Reason) error {
	if a.fromDeadLetters() {
		return a.giveBack()
	}
	st := a.chain.cfg.Evidence.Bury(a.state(f), a.delivery.Record, reason, time.Now())
	return a.handoff(adapters.StreamDeadLetter, st, OutcomeInfo{
		Outcome: OutcomeDeadLettered, Failure: f, Reason: reason, DeadLetterID: st.DeadLetterID,
	})
}

// hop hands an early delivery off again for the rest of its delay.
func (a *attempt) hop() error {
	next := a.base()
	next.Hops++
	return a.handoff(adapters.StreamRetry, next, OutcomeInfo{Outcome: OutcomeDelayed, DueAt: next.DueAt})
}

func (a *attempt) suspect() error {
	next := a.base()
	next.DueAt = time.Time{}
	return a.handoff(adapters.StreamSuspect, next, OutcomeInfo{Outcome: OutcomeSuspected})
}

// base is the state to write with any hand-off: what came with the delivery,
// and what is only known at the first.
func (a *attempt) base() envelope.State {
	d := a.delivery
	st := d.State
	st.Broker = a.broker().Capabilities().Broker
	st.ConsumerGroup = d.Consumer.Group
	st.Handler = a.handler
	st.ConsumerVersion = a.chain.cfg.ConsumerVersion
	if st.Source.Topic == "" {
		if d.Stream == adapters.StreamMain {
			st.Source = d.Record.Position
		}
		st.Source.Topic = d.Consumer.Topic
	}
	if st.DeadLetterID == "" && d.ID == "" && st.Source.Offset == nil {
		// Nothing tells this message from another one: its id is drawn now and
		// travels with it.
		st.DeadLetterID = envelope.DeadLetterID(st, "", nil)
	}
	return st
}

// state is the base with what the failed attempt adds.
func (a *attempt) state(f failure.Failure) envelope.State {
	st := a.base()
	st.FirstAttemptAt = orTime(st.FirstAttemptAt, a.start)
	st.Class, st.Nature, st.Code = f.Class, f.Nature, f.Code
	st.Message, st.Truncated = a.chain.cfg.Evidence.Error(f)
	st.Reference = f.Reference
	return st
}

func (a *attempt) identity() string {
	if a.delivery.ID != "" {
		return a.delivery.ID
	}
	src := a.delivery.State.Source
	if src.Topic == "" {
		src = a.delivery.Record.Position
	}
	if src.Offset == nil {
		return string(a.delivery.Payload)
	}
	var partition int32
	if src.Partition != nil {
		partition = *src.Partition
	}
	return fmt.Sprintf("%s/%d/%d", a.delivery.Consumer.Topic, partition, *src.Offset)
}

func orTime(t, otherwise time.Time) time.Time {
	if t.IsZero() {
		return otherwise
	}
	return t
}

// pending is an attempt whose handler succeeded and whose outputs are not yet
// published.
type pending struct {
	attempt
	outputs []*message.Message // contexts are inherited, pointers are not
	done    atomic.Bool
	cancel  func() bool
}

type pendingKey struct{}

// await hands the attempt to the publisher decorator, in the contexts of copies
// of the outputs: handlers may return one output for several messages.
func (a *attempt) await(outputs []*message.Message) []*message.Message {
	p := &pending{attempt: *a, outputs: make([]*message.Message, len(outputs))}
	for i, out := range outputs {
		cp := message.NewMessageWithContext(context.WithValue(out.Context(), pendingKey{}, p), out.UUID, out.Payload)
		cp.Metadata = out.Metadata
		p.outputs[i] = cp
	}
	if closed(p.msg.Acked()) && p.chain.decorated.Load() {
		// The handler settled the message itself, so that its settlement says
		// nothing about the outputs: the decorator will.
		p.cancel = func() bool { return true }
		return slices.Clone(p.outputs)
	}
	// Without the decorator, or with one outside it that publishes nothing, the
	// Router settles the message without asking us. Its context ends then.
	p.cancel = context.AfterFunc(a.ctx, func() {
		select {
		case <-p.msg.Acked():
			if p.claim() {
				p.finish(OutcomeInfo{Outcome: OutcomeProcessed})
			}
		case <-p.msg.Nacked():
			if p.claim() {
				p.finish(OutcomeInfo{Outcome: OutcomeReturned})
			}
		}
	})
	return slices.Clone(p.outputs) // which middlewares outside may change
}

// claim makes sure that an attempt is finished once.
func (p *pending) claim() bool { return p.done.CompareAndSwap(false, true) }

type outputPublisher struct{ inner message.Publisher }

func (o *outputPublisher) Publish(topic string, msgs ...*message.Message) error {
	var p *pending
	for _, msg := range msgs {
		q, _ := msg.Context().Value(pendingKey{}).(*pending)
		if q != nil && slices.Contains(q.outputs, msg) {
			p = q
			break
		}
	}
	err := o.publish(topic, p, WithoutState(msgs))
	if p == nil || !p.claim() {
		return err
	}
	p.cancel()
	if err != nil {
		return p.fail(fmt.Errorf("publish %d outputs to %s: %w", len(msgs), topic, p.unpublished(err)))
	}
	return p.succeed()
}

// unpublished says what an error of publishing means that no rule knows: that
// the broker is away, which must not use up the few attempts of an unknown
// error; or, of what the broker will never take, that it is permanent.
func (p *pending) unpublished(err error) error {
	f := p.chain.cfg.Classifier.Classify(err)
	switch {
	case f.Nature != failure.NatureUnknown, f.Class != failure.ClassUnknown, errors.Is(err, message.ErrOutputInNoPublisherHandler):
		return err
	case isFinal(err):
		return failure.Permanent(err)
	default:
		return failure.Transient(err, failure.ClassDependencyUnavailable)
	}
}

func (o *outputPublisher) publish(topic string, p *pending, msgs []*message.Message) (err error) {
	if o.inner == nil {
		return message.ErrOutputInNoPublisherHandler
	}
	if p == nil {
		return o.inner.Publish(topic, msgs...)
	}
	returned := false
	defer func() {
		if returned {
			return
		}
		err = p.recovered(recover())
		if err == errGoexit && p.claim() {
			p.cancel()
			p.settle(p.fail(err))
		}
	}()
	err = o.inner.Publish(topic, msgs...)
	returned = true
	return err
}

func (o *outputPublisher) Close() error {
	if o.inner == nil {
		return nil
	}
	return o.inner.Close()
}

// WithoutState returns msgs without Spillway's own metadata, which handlers
// that copy metadata would leak into their outputs. Messages that have some are
// copied, the others are passed through.
func WithoutState(msgs []*message.Message) []*message.Message {
	batch := msgs
	for i, msg := range msgs {
		clean := envelope.Strip(msg.Metadata)
		if len(clean) == len(msg.Metadata) {
			continue
		}
		cp := message.NewMessageWithContext(msg.Context(), msg.UUID, msg.Payload)
		cp.Metadata = clean
		batch = replaceMessage(batch, msgs, i, cp)
	}
	return batch
}
