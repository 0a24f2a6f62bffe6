package sqs

import (
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/envelope"
)

// What no broker is needed for.

func Encode(r adapters.Record, state []envelope.Pair) (body string, attributes map[string]types.MessageAttributeValue) {
	e := outgoingOf(adapters.Handoff{Record: r, State: state}).encode()
	return e.body, e.attributes
}

func Decode(m types.Message) (adapters.Record, error) { return recordOf(&native{m}, "stream") }

func QueueOf(names adapters.Names, stream string) string {
	return naming{names: names.WithDefaults()}.queueOf(stream)
}

func Hop(left, longest time.Duration) time.Duration { return hop(left, longest) }

func Unpack(text string) ([]adapters.Header, error) { return unpack(text) }
