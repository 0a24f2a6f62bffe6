package memory

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/spillway-mq/spillway/adapters"
)

// view is a process's connection to the broker. It implements adapters.Broker.
type view struct {
	b       *Broker
	names   adapters.Names
	private bool          // the broker dies with it
	gone    chan struct{} // closed with over

	// Guarded by Broker.mu.
	subs []*subscription
	over bool
}

func (v *view) Capabilities() adapters.Capabilities {
	return adapters.Capabilities{
		Broker:           "memory",
		Positions:        true,
		DeliveryCount:    true,
		Keys:             true,
		NullPayload:      true,
		RepeatedHeaders:  true,
		DelayStep:        func(time.Duration) time.Duration { return 0 },
		MaxMetadataBytes: v.b.cfg.MaxMetadataBytes,
		MaxMessageBytes:  v.b.cfg.MaxMessageBytes,
	}
}

func (v *view) Quantize(d time.Duration) time.Duration { return d }

func (v *view) Ensure(ctx context.Context, c adapters.Consumer) error {
	if err := checkConsumer(c); err != nil {
		return fmt.Errorf("memory: ensure: %w", err)
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("memory: ensure: %w", err)
	}
	if _, err := v.b.begin(ctx, v, Ensure, c.Topic, c.Group, ""); err != nil {
		return err
	}
	if err := v.b.names.Claim(v.names, c); err != nil {
		return fmt.Errorf("memory: ensure: %w", err)
	}
	v.b.mu.Lock()
	defer v.b.unlock()
	if err := v.b.usable(v); err != nil {
		return err
	}
	v.b.stream(c.Topic, false).ensureGroup(c.Group, false)
	v.own(adapters.StreamRetry, c).ensureGroup(c.Group, false)
	v.own(adapters.StreamSuspect, c).ensureGroup(c.Group, true)
	v.own(adapters.StreamParking, c)
	v.own(adapters.StreamDeadLetter, c)
	return nil
}

func (v *view) own(s adapters.Stream, c adapters.Consumer) *stream {
	return v.b.stream(v.names.Of(s, c), true)
}

func checkConsumer(c adapters.Consumer) error {
	var errs []error
	if c.Topic == "" {
		errs = append(errs, errors.New("the consumer has no topic"))
	}
	if c.Group == "" {
		errs = append(errs, errors.New("the consumer has no group"))
	}
	if c.Retry != adapters.RetryTopic {
		errs = append(errs, fmt.Errorf("retry mode %q: %w", c.Retry, adapters.ErrUnsupported))
	}
	return errors.Join(errs...)
}

func (v *view) Subscribe(ctx context.Context, c adapters.Consumer) (adapters.Subscription, error) {
	err := checkConsumer(c)
	if c.Concurrency < 1 {
		err = errors.Join(err, fmt.Errorf("concurrency is %d, want at least 1", c.Concurrency))
	}
	if err := errors.Join(err, ctx.Err()); err != nil {
		return nil, fmt.Errorf("memory: subscribe: %w", err)
	}
	if _, err := v.b.begin(ctx, v, Subscribe, c.Topic, c.Group, ""); err != nil {
		return nil, err
	}
	v.b.mu.Lock()
	defer v.b.unlock()
	if err := v.b.usable(v); err != nil {
		return nil, err
	}
	group := func(s adapters.Stream) *group {
		if stream := v.b.streams[v.names.Of(s, c)]; stream != nil {
			return stream.group(c.Group)
		}
		return nil
	}
	main, retry, suspect := group(adapters.StreamMain), group(adapters.StreamRetry), group(adapters.StreamSuspect)
	if main == nil || retry == nil || suspect == nil {
		return nil, fmt.Errorf("memory: subscribe: there is no group %q on topic %q: call Ensure first", c.Group, c.Topic)
	}
	s := &subscription{
		b: v.b, v: v, consumer: c,
		out:     make(chan *adapters.Delivery, c.Concurrency+1), // and one from suspect
		over:    make(chan struct{}),
		suspect: suspect,
		sources: [2]source{{retry, adapters.StreamRetry}, {main, adapters.StreamMain}},
	}
	for _, g := range s.groups() {
		g.subs = append(g.subs, s)
	}
	v.subs = append(v.subs, s)
	v.b.queue(s)
	return s, nil
}

func (v *view) Handoff(ctx context.Context, h adapters.Handoff) error {
	switch h.Stream {
	case adapters.StreamRetry, adapters.StreamParking, adapters.StreamDeadLetter, adapters.StreamSuspect:
	default:
		return fmt.Errorf("memory: hand-off: %q is none of a consumer's own streams", h.Stream)
	}
	if err := checkConsumer(h.Consumer); err != nil {
		return fmt.Errorf("memory: hand-off: %w", err)
	}
	name := v.names.Of(h.Stream, h.Consumer)
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("memory: %s %s: %w", Handoff, name, err)
	}
	do, err := v.b.begin(ctx, v, Handoff, name, h.Consumer.Group, h.Record.ID)
	if err != nil {
		return err
	}
	r := handoffRecord(h)
	v.b.mu.Lock()
	defer v.b.unlock()
	var due time.Time
	var moveTo *stream
	switch h.Stream {
	case adapters.StreamParking:
		due, moveTo = h.Due, v.own(adapters.StreamRetry, h.Consumer)
	case adapters.StreamRetry, adapters.StreamSuspect:
		due = h.Due
	}
	return v.b.commit(v, Handoff, do, v.own(h.Stream, h.Consumer), r, due, moveTo)
}

func (v *view) Publisher() message.Publisher { return publisher{b: v.b, v: v} }

func (v *view) Close(ctx context.Context) error {
	if v.private {
		return v.b.Close(ctx)
	}
	return v.shut(ctx)
}

func (v *view) shut(ctx context.Context) error {
	v.b.mu.Lock()
	v.leave()
	subs := slices.Clone(v.subs)
	v.b.unlock()
	var errs []error
	for _, s := range subs {
		errs = append(errs, s.Close(ctx))
	}
	v.b.mu.Lock()
	defer v.b.unlock()
	v.b.views = slices.DeleteFunc(v.b.views, func(other *view) bool { return other == v })
	return errors.Join(errs...)
}

// crash ends the process. Called with the lock held.
func (v *view) crash() {
	v.leave()
	for _, s := range v.subs {
		s.silent = true
		s.die()
	}
}

// leave ends the use of the view. Called with the lock held.
func (v *view) leave() {
	if v.over {
		return
	}
	v.over = true
	close(v.gone)
}

// publisher publishes for a process, or for nobody in particular.
type publisher struct {
	b *Broker
	v *view
}

// Publish ignores whether the messages' contexts have ended: what a handler
// produced before a shutdown counts. Only a fault that waits looks at them.
func (p publisher) Publish(topic string, messages ...*message.Message) error {
	for _, m := range messages {
		r := adapters.Record{ID: m.UUID, Payload: m.Payload}
		for _, key := range sortedKeys(m.Metadata) {
			r.Headers = append(r.Headers, adapters.Header{Key: key, Value: []byte(m.Metadata[key])})
		}
		if key, ok := m.Metadata[KeyMetadata]; ok {
			r.Key = []byte(key)
		}
		if err := p.b.publish(m.Context(), p.v, topic, r); err != nil {
			return err
		}
	}
	return nil
}

func (p publisher) Close() error { return nil }
