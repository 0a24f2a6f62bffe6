package adapters

import (
	"context"
	"errors"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/spillway-mq/spillway/envelope"
)

// Errors that brokers return. Everything else that a broker returns is taken
// for passing: the caller tries again.
var (
	// ErrTooLarge means that the broker will never take a message of this size.
	ErrTooLarge = errors.New("message is larger than the broker accepts")
	// ErrRefused means that the broker will never take this message, however
	// often it is offered, for a reason other than its size.
	ErrRefused = errors.New("broker refuses the message")
	// ErrUnsupported means that the broker lacks a capability that was asked for.
	ErrUnsupported = errors.New("broker does not support this")
	// ErrLeaseLost means that the broker no longer keeps the message for whoever
	// received it, and may have given it to somebody else. It is the cause of the
	// end of that message's context.
	ErrLeaseLost = errors.New("the lease of the message is lost")
	// ErrClosed means that the broker, subscription or publisher was closed.
	ErrClosed = errors.New("closed")
)

// Broker is what Spillway needs of a message broker. One Broker serves all
// consumers of a process. All methods are safe for concurrent use.
//
// Brokers are implemented in the folders below this package and proven by
// adaptertest; users hold a *spillway.Spillway instead. Methods may be added
// in any version.
type Broker interface {
	// Capabilities says what this broker can do. It is constant.
	Capabilities() Capabilities

	// Ensure declares, or verifies, every stream of c, so that whatever is
	// published to its topic from now on is kept for c. It is idempotent. An
	// error says which stream is wrong, in what, and the way out.
	Ensure(ctx context.Context, c Consumer) error

	// Subscribe opens the main, retry and suspect streams of c as one
	// subscription, after Ensure. ctx bounds the call only.
	Subscribe(ctx context.Context, c Consumer) (Subscription, error)

	// Quantize returns the delay that the broker will keep for a wanted one:
	// never shorter, and longer by at most Capabilities.DelayStep.
	Quantize(d time.Duration) time.Duration

	// Handoff writes a message to one of its consumer's streams. It returns
	// nil only after the broker has confirmed the write. Errors that wrap
	// ErrTooLarge or ErrRefused are final; any other outcome, including the
	// end of ctx, may or may not have written the message.
	Handoff(ctx context.Context, h Handoff) error

	// Publisher publishes messages of the application, each confirmed before
	// Publish returns. Its Close does nothing.
	Publisher() message.Publisher

	// Drain reads the records that lie in a stream now and removes each after
	// fn returned nil for it. It returns nil when the stream is empty, and
	// otherwise the first error of fn or of the broker; records not yet
	// removed stay. fn is called by one goroutine at a time.
	Drain(ctx context.Context, stream string, fn func(context.Context, Record) error) error

	// Close releases what the broker holds. Subscriptions are closed before.
	Close(ctx context.Context) error
}

// Opener makes brokers of one kind. Adapters export one as Opener().
type Opener struct {
	// Schemes are the URL schemes that the opener serves, such as "amqp", "amqps".
	Schemes []string
	// Open connects. Errors never contain the URL's password.
	Open func(ctx context.Context, p OpenParams) (Broker, error)
}

// OpenParams are what an [Opener] is given.
type OpenParams struct {
	URL    *url.URL
	Names  Names
	Logger *slog.Logger
	// Alone waits until no message is in a handler of this process and keeps
	// others out until end is called, both for a bounded time; it reports false
	// when stop was closed first. An adapter whose broker counts a message as
	// handed out before anybody has received it calls Alone before it takes one
	// from a suspect stream, sets Delivery.Alone, and calls end when that is
	// settled; otherwise the facade does. It is nil outside of the facade.
	Alone func(stop <-chan struct{}) (end func(), ok bool)
}

// Consumer is a consumer group on one topic: the owner of a retry, a parking,
// a dead letter and a suspect stream.
type Consumer struct {
	Topic string
	Group string
	// Concurrency is how many messages of one subscription may be unsettled at
	// once, not counting one from the suspect stream; at least 1. With 1,
	// messages of a partition arrive in order.
	Concurrency int
	// Retry says where messages wait for their next attempt.
	Retry RetryMode
}

// RetryMode says where a message waits for its next attempt.
type RetryMode string

const (
	// RetryTopic is the default: in a stream of its own, so that it delays nobody.
	RetryTopic RetryMode = ""
	// RetryInPlace keeps the message, and those behind it with the same key, at
	// their place. It needs Capabilities.InPlaceRetry.
	RetryInPlace RetryMode = "inPlace"
)

// Stream is one of the streams of a consumer.
type Stream string

const (
	StreamMain       Stream = "main" // the topic itself
	StreamRetry      Stream = "retry"
	StreamParking    Stream = "parking"
	StreamDeadLetter Stream = "dlq"
	StreamSuspect    Stream = "suspect"
)

// Capabilities is what a broker can do. adaptertest proves each that is
// declared, and that what is not declared is refused at start.
type Capabilities struct {
	// Broker is the kind, as written to spillway-broker: "kafka".
	Broker string
	// Positions: records have a partition, an offset and a timestamp.
	Positions bool
	// DeliveryCount: Delivery.Count is set.
	DeliveryCount bool
	// Keys: records have a key, which decides about the partition.
	Keys bool
	// NullPayload: a nil payload stays different from an empty one.
	NullPayload bool
	// RepeatedHeaders: a header name may occur more than once.
	RepeatedHeaders bool
	// OneGroup: a topic has one consumer group, because what one has read is gone
	// for others. A second one of the process is refused.
	OneGroup bool
	// InPlaceRetry: RetryInPlace works. A hand-off to retry of a message that is
	// out from the main stream, with its Native, keeps the state and leaves the
	// message at its place once it is acknowledged; it comes again as one of the
	// retry stream.
	InPlaceRetry bool
	// CountedInPlace: in place, no state can be kept. The message is returned at
	// Delivery.Postponed instead of being handed off, and Delivery.Count of the
	// main stream is the number of the attempt that begins; what is returned at a
	// shutdown counts too.
	CountedInPlace bool
	// MaxInPlaceDelay bounds the delay of a retry in place, with room for the
	// time of its handler; zero means no limit. A policy that may ask for more
	// is refused at start.
	MaxInPlaceDelay time.Duration
	// DelayStep is the most that Quantize lengthens d.
	DelayStep func(d time.Duration) time.Duration
	// MaxMetadataBytes bounds all header names and values of a record
	// together; zero means no limit.
	MaxMetadataBytes int
	// MaxMessageBytes bounds payload and headers of a record on a topic of the
	// application; zero means no limit. Streams that the broker makes for
	// Spillway have head-room above it.
	MaxMessageBytes int
}

// Subscription delivers the messages of one consumer.
type Subscription interface {
	// Deliveries is closed after Stop, and when the subscription is broken for
	// good. At most Consumer.Concurrency deliveries are unsettled at a time, and
	// one more from the suspect stream.
	Deliveries() <-chan *Delivery

	// Stop ends the deliveries: after it returns, none is sent any more, and
	// those that were on their way are back with the broker, uncounted where
	// the broker allows it. Nobody need be receiving while it runs. Deliveries
	// already received can still be settled.
	Stop(ctx context.Context) error

	// Close stops, and gives back to the broker whatever is unsettled.
	Close(ctx context.Context) error
}

// Settler settles the deliveries of a subscription. Each delivery is settled
// once; a second call is ignored. A delivery whose lease was lost settles with
// an error, and the broker delivers it again.
type Settler interface {
	// Ack tells the broker that the message is done with.
	Ack(ctx context.Context, d *Delivery) error
	// Return gives the message back, to be delivered again at once; or, where
	// Capabilities.CountedInPlace is true, at Delivery.Postponed, counted, and
	// those behind it with the same key after it.
	Return(ctx context.Context, d *Delivery) error
}

// Delivery is one record as a broker handed it out. Adapters fill it before
// sending it and never touch it after; handlers treat it as read-only.
type Delivery struct {
	Record
	Consumer Consumer
	// Stream that it came from: main, retry or suspect. What waited in the
	// parking lot comes from retry.
	Stream Stream
	// Count is how often the broker has handed this record out, from 1; zero
	// where Capabilities.DeliveryCount is false.
	Count int
	// Alone says that the adapter has called OpenParams.Alone for it.
	Alone bool
	// Lost is closed when the broker may give the record to somebody else although
	// it is not settled; nil where that does not happen, or cannot be noticed.
	// The message's context ends then, and nothing is handed off.
	Lost <-chan struct{}
	// Undecodable is set when the adapter could not read the record's framing.
	// Payload then holds the raw bytes.
	Undecodable error
	// State is what Spillway wrote with the record, as far as it can be
	// trusted: State.Attempt is the attempt that this delivery begins, from 1.
	// Adapters leave it zero; the subscriber of the facade sets it.
	State envelope.State
	// Broker that the delivery came from, and that its hand-offs go to. Adapters
	// leave it nil; the subscriber of the facade sets it.
	Broker Broker
	// Settler settles this delivery.
	Settler Settler

	owner     *message.Message
	postponed time.Time // see Postpone
}

// Record is a message as a broker holds it.
type Record struct {
	// ID is Watermill's message UUID; may be empty.
	ID string
	// Key is nil where there is none.
	Key []byte
	// Payload is nil where the broker says so and can.
	Payload []byte
	// Headers in the broker's order, with repeats, including spillway-*.
	Headers []Header
	// Position of the record in the stream that it was read from, as far as the
	// broker has one.
	Position envelope.Position
	// Native is the broker's own record, from which hand-offs are built where
	// the portable fields would lose something; nil for records that come from
	// elsewhere, such as an inventory.
	Native any
}

// Header is one header of a record. Type is empty for text and bytes, and
// otherwise the adapter's own name of the type whose text form Value holds.
type Header = envelope.Header

// TypeSystem is the type of headers that are no part of a record, but what its
// broker says about it, such as how often it was received. Drain may add some,
// and no hand-off writes them.
const TypeSystem = "system"

// Handoff is an order to write a record to a stream of its consumer.
type Handoff struct {
	Consumer Consumer
	// Stream: retry, parking, dead letter or suspect.
	Stream Stream
	// Record as it was delivered. Its payload, key and user headers are written
	// unchanged; its spillway-* headers and the broker's own are not.
	Record Record
	// State is written as headers, in this order.
	State []envelope.Pair
	// DropHeaders names user headers to leave out, regardless of case. See
	// [Handoff.Keeps].
	DropHeaders []string
	// Due is the earliest delivery. From retry and suspect the record comes
	// back to its consumer at Due; from parking it moves to retry at Due. The
	// zero time means now. A broker that cannot wait so long delivers earlier;
	// the chain hands the rest of the delay off again.
	Due time.Time
}

// Keeps reports whether a header of the record is written, as far as Spillway
// has a say in it: it is the user's, and not one to leave out.
func (h Handoff) Keeps(header string) bool {
	return !envelope.IsOwn(header) &&
		!slices.ContainsFunc(h.DropHeaders, func(name string) bool { return strings.EqualFold(name, header) })
}
