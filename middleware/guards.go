package middleware

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/spillway-mq/spillway/failure"
	"github.com/spillway-mq/spillway/internal/build"
)

// errNilPublisher is what every guard answers to a missing publisher.
var errNilPublisher = errors.New("middleware: cannot guard a nil publisher")

// guardedPublisher offers each batch to check before it is published. What
// check returns is published in one call: the same number of messages, in the
// same order. The caller's slice and messages are never changed.
type guardedPublisher struct {
	message.Publisher
	check func(topic string, messages []*message.Message) ([]*message.Message, error)
}

func (g guardedPublisher) Publish(topic string, messages ...*message.Message) error {
	messages, err := g.check(topic, messages)
	if err != nil {
		return err
	}
	return g.Publisher.Publish(topic, messages...)
}

func guard(check func(string, []*message.Message) ([]*message.Message, error)) message.PublisherDecorator {
	return func(pub message.Publisher) (message.Publisher, error) {
		if pub == nil {
			return nil, errNilPublisher
		}
		return guardedPublisher{Publisher: pub, check: check}, nil
	}
}

// replaceMessage puts m at position i of a batch, in a copy of the caller's
// slice, which it makes for the first replacement.
func replaceMessage(batch, original []*message.Message, i int, m *message.Message) []*message.Message {
	if len(batch) > 0 && &batch[0] == &original[0] {
		batch = slices.Clone(original)
	}
	batch[i] = m
	return batch
}

// ValidateParams is what the function given to [Validate] is asked about.
type ValidateParams struct {
	// Topic that the message is about to be published to.
	Topic string
	// Message to look at, not to change.
	Message *message.Message
}

// Validate refuses messages before they are published. It makes a publisher
// decorator, for router.AddPublisherDecorators or to be called with a
// publisher. valid is called with the message's context for each message of a
// batch, and nothing is published unless all of them pass. It must be safe for
// concurrent use; a panic in it is the caller's. Validate panics if it is nil.
//
// The error of a refused message names the topic and the UUID, and wraps what
// valid returned. It counts as permanent, class "validation", because the same
// message would be refused again. That is not so when the validator itself
// could not work: an error that carries a mark of package failure, that the
// built-in rules know (a schema registry that cannot be reached, say), or that
// comes from the end of a context, keeps its meaning.
//
// Add Validate after [StripControlCharacters] and [Stamp], so that it sees
// what is going to be published.
func Validate(valid func(ctx context.Context, p ValidateParams) error) message.PublisherDecorator {
	if valid == nil {
		panic("middleware: Validate needs a function")
	}
	return guard(func(topic string, messages []*message.Message) ([]*message.Message, error) {
		for _, msg := range messages {
			if err := valid(msg.Context(), ValidateParams{Topic: topic, Message: msg}); err != nil {
				return nil, refusal(fmt.Errorf("validate: message %q for topic %q refused: %w", msg.UUID, topic, err))
			}
		}
		return messages, nil
	})
}

// StampParams is what [StampConfig].SchemaVersion is asked about.
type StampParams struct {
	// Topic that the message is about to be published to.
	Topic string
	// Message to look at, not to change.
	Message *message.Message
}

// StampConfig configures [Stamp].
type StampConfig struct {
	// ProducerVersion is the version of this program. Empty means what
	// spillway.Config.ConsumerVersion is by default; if the build info has
	// neither version nor revision, as under go run, no producer version is set.
	ProducerVersion string
	// SchemaVersion returns the version of the schema that the payload follows;
	// empty means that it has none. Nil means that no schema version is set.
	SchemaVersion func(ctx context.Context, p StampParams) string
	// ProducerVersionKey is the metadata key; default "producer-version". From it
	// and the next one dead letters take the versions: see envelope.Keys.
	ProducerVersionKey string
	// SchemaVersionKey is the metadata key; default "schema-version".
	SchemaVersionKey string
	// Overwrite replaces values that a message already has. By default they
	// stay, which is right for messages that are passed on for another
	// producer, and wrong for handlers that copy the metadata of their input
	// to outputs of their own.
	Overwrite bool
}

// Stamp writes the version of the producer and of the schema into the metadata
// of each message, so that a dead letter tells who wrote it. It makes a
// publisher decorator. Messages that need no stamp are passed on as they are;
// others are copied, with their context.
func Stamp(cfg StampConfig) message.PublisherDecorator {
	cfg.ProducerVersion = cmp.Or(cfg.ProducerVersion, build.Version())
	cfg.ProducerVersionKey = cmp.Or(cfg.ProducerVersionKey, "producer-version")
	cfg.SchemaVersionKey = cmp.Or(cfg.SchemaVersionKey, "schema-version")
	return guard(func(topic string, messages []*message.Message) ([]*message.Message, error) {
		batch := messages
		for i, msg := range messages {
			var schema string
			if cfg.SchemaVersion != nil {
				schema = cfg.SchemaVersion(msg.Context(), StampParams{Topic: topic, Message: msg})
			}
			setProducer := cfg.needed(msg, cfg.ProducerVersionKey, cfg.ProducerVersion)
			setSchema := cfg.needed(msg, cfg.SchemaVersionKey, schema)
			if !setProducer && !setSchema {
				continue
			}
			stamped := msg.CopyWithContext()
			if setProducer {
				stamped.Metadata.Set(cfg.ProducerVersionKey, cfg.ProducerVersion)
			}
			if setSchema {
				stamped.Metadata.Set(cfg.SchemaVersionKey, schema)
			}
			batch = replaceMessage(batch, messages, i, stamped)
		}
		return batch, nil
	})
}

// needed reports whether a message lacks a value that it should have.
func (cfg StampConfig) needed(msg *message.Message, key, value string) bool {
	have := msg.Metadata.Get(key)
	return value != "" && have != value && (have == "" || cfg.Overwrite)
}

// refusal marks the error of a message that was refused before it was
// published, unless somebody who knows better has said what it means.
func refusal(err error) error {
	if (failure.Classifier{}).Classify(err).Nature != failure.NatureUnknown {
		return err
	}
	return failure.Permanent(err, failure.ClassValidation)
}
