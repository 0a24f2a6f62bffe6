package sqs

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/envelope"
)

// once keeps the SDK from repeating a request of which nobody would hear: if the
// first was carried out and only its answer is lost, there are two copies.
func once(o *sqs.Options) { o.RetryMaxAttempts = 1 }

// send writes one message. It returns nil after SQS has confirmed it.
func (b *broker) send(ctx context.Context, q *queue, o outgoing, delay time.Duration, opts ...func(*sqs.Options)) error {
	e := o.encode()
	if size := e.size(); size > q.limit {
		if err := b.tooLarge(ctx, q, size); err != nil {
			return err
		}
	}
	if delay == 0 && q.delay > time.Second {
		// The SDK cannot send a delay of zero, and the queue's own would hold.
		delay = time.Second
	}
	in := &sqs.SendMessageInput{
		QueueUrl: &q.url, MessageBody: &e.body, MessageAttributes: e.attributes, DelaySeconds: seconds(delay),
	}
	if q.fifo() {
		in.DelaySeconds = 0 // which those refuse
		in.MessageDeduplicationId = &o.dedup
	}
	if o.group != "" {
		in.MessageGroupId = &o.group
	}
	if o.trace != "" {
		in.MessageSystemAttributes = map[string]types.MessageSystemAttributeValue{
			string(types.MessageSystemAttributeNameForSendsAWSTraceHeader): {DataType: aws.String(typeString), StringValue: &o.trace},
		}
	}
	ctx, cancel := context.WithTimeout(ctx, b.cfg.RequestTimeout)
	defer cancel()
	_, err := b.client.SendMessage(ctx, in, opts...)
	if isGone(err) {
		b.queues.forget()
		return err
	}
	if isRefused(err) {
		return b.refusal(ctx, q, e.size(), err)
	}
	return err
}

// tooLarge is the error of a message above the limit that is remembered of q, and
// nil if that has been raised meanwhile.
func (b *broker) tooLarge(ctx context.Context, q *queue, size int) error {
	if size <= maxMessageBytes {
		var err error
		if q, err = b.queues.look(ctx, q.name, q.url); err != nil || size <= q.limit {
			return err
		}
	}
	return fmt.Errorf("%w: %d bytes with all attributes, and queue %q takes %d", adapters.ErrTooLarge, size, q.name, min(q.limit, maxMessageBytes))
}

// minMessageBytes is the least that the limit of a queue can be.
const minMessageBytes = 1024

// refusal is what it means to the seam that SQS refused a message. All that it
// refuses for its content is checked before, and so is its size as far as the
// limit was known: it may have been lowered, and whoever may not read it finds
// out here. What is too large is tried once more with less evidence.
func (b *broker) refusal(ctx context.Context, q *queue, size int, refused error) error {
	if size > minMessageBytes {
		now, err := b.queues.look(ctx, q.name, q.url)
		switch {
		case err != nil: // so that nothing is known
			return refused
		case isTooLong(refused), size > now.limit, now.attributes == nil:
			return fmt.Errorf("%w: %d bytes with all attributes, and queue %q refuses it: %w", adapters.ErrTooLarge, size, q.name, refused)
		}
	}
	return fmt.Errorf("%w: %w", adapters.ErrRefused, refused)
}

// handoffID is the deduplication id of a hand-off: two copies of one, after an
// unknown result or by two processes, are one message, and each hop, attempt and
// replay is another one.
func handoffID(h adapters.Handoff) string {
	hash := sha256.New()
	fmt.Fprintf(hash, "%q %q %q %x", h.Record.ID, h.Stream, h.Consumer.Group, sha256.Sum256(h.Record.Payload))
	for _, p := range h.State {
		switch p.Key {
		case envelope.KeyAttempt, envelope.KeyHops, envelope.KeyParkChecks, envelope.KeyReplayCount, envelope.KeyReplayID, envelope.KeyDeadLetterID, envelope.KeyFirstAttemptAt:
			fmt.Fprintf(hash, " %s=%q", p.Key, p.Value)
		}
	}
	return idOf(hash.Sum(nil))
}

func idOf(sum []byte) string {
	return base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(sum)
}

// Metadata that say how to publish to a FIFO queue, as with watermill-aws's SNS
// publisher. The group also works with standard queues, which are then fair.
const (
	groupMetadata = "MessageGroupId"
	dedupMetadata = "MessageDeduplicationId"
)

// publisher publishes for the application, in watermill-aws's wire format.
type publisher struct{ b *broker }

// Publish writes the messages in order and stops at the first error. It returns
// nil after SQS has confirmed all of them.
func (p publisher) Publish(topic string, msgs ...*message.Message) error {
	for i, msg := range msgs {
		if err := p.publish(topic, msg); err != nil {
			return fmt.Errorf("sqs: publish message %d of %d to %q: %w", i+1, len(msgs), topic, err)
		}
	}
	return nil
}

func (p publisher) publish(topic string, msg *message.Message) error {
	if err := p.b.usable(); err != nil {
		return err
	}
	// Outputs of a handler are published although its shutdown has begun.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(msg.Context()), 3*p.b.cfg.RequestTimeout)
	defer cancel()
	q, err := p.b.queues.topic(ctx, topic)
	if err != nil {
		return err
	}
	o := outgoing{id: msg.UUID, payload: msg.Payload}
	for _, key := range slices.Sorted(maps.Keys(msg.Metadata)) {
		if key == dedupMetadata && q.fifo() {
			// It is said to the queue, and not to consumers: handlers copy metadata,
			// and of outputs with one id FIFO queues drop all but the first.
			continue
		}
		o.headers = append(o.headers, adapters.Header{Key: key, Value: []byte(msg.Metadata[key])})
	}
	o.group = msg.Metadata[groupMetadata]
	if q.fifo() {
		if o.group == "" {
			return fmt.Errorf("%w: queue %q is FIFO, so that each message needs the metadata %s", adapters.ErrRefused, q.name, groupMetadata)
		}
		sum := sha256.Sum256(fmt.Appendf(nil, "%q %q", msg.UUID, msg.Payload))
		o.dedup = cmp.Or(msg.Metadata[dedupMetadata], idOf(sum[:]))
	}
	if size := o.encode().size(); size > p.b.cfg.MaxMessageBytes {
		return fmt.Errorf("%w: %d bytes with all attributes, and the limit is %d, so that there is room for what a failure adds", adapters.ErrTooLarge, size, p.b.cfg.MaxMessageBytes)
	}
	return p.b.send(ctx, q, o, 0)
}

// Close does nothing.
func (publisher) Close() error { return nil }
