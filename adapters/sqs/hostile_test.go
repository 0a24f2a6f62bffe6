package sqs_test

import (
	"testing"
	"testing/synctest"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/adapters/sqs/sqsfake"
)

// Whoever may publish can write packed metadata. None of it may make a message
// that SQS refuses, because its hand-off would block a slot for ever.
func TestHostileMetadataCanBeHandedOff(t *testing.T) {
	t.Parallel()
	for name, metadata := range map[string]string{
		"group of the broker's":   `"sqs:MessageGroupId": {"type": "system", "value": "no group\u0001"}`,
		"number out of range":     `"n": {"type": "Number", "value": "1e200"}`,
		"number that is too fine": `"n": {"type": "Number", "value": "1e-200"}`,
		"name of a type":          `"n": {"type": "String.a b\u0001", "value": "x"}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := setup(t)
				s := b.Subscribe(orders)
				b.publish("orders", "body", map[string]types.MessageAttributeValue{
					"spillway-metadata": {DataType: aws.String("String"), StringValue: aws.String(`{"v":1,"metadata":{` + metadata + `}}`)},
				})
				d := b.Next(s)
				for _, stream := range []adapters.Stream{adapters.StreamRetry, adapters.StreamDeadLetter} {
					r := d.Record
					b.Handoff(adapters.Handoff{Consumer: orders, Stream: stream, Record: r})
					r.Native = nil // as from an inventory
					b.Handoff(adapters.Handoff{Consumer: orders, Stream: stream, Record: r})
				}
				b.Ack(d)
			})
		})
	}
}

// A process that may not ask how many suspects wait still handles them: they
// would be gone with the retention of their queue.
func TestSuspectsAreHandledWithoutTheirNumber(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		s := b.Subscribe(orders)
		b.fake.Inject(sqsfake.Fault{Action: "GetQueueAttributes", Times: sqsfake.Always, Do: sqsfake.Fail("AccessDenied")})
		b.Handoff(adapters.Handoff{Consumer: orders, Stream: adapters.StreamSuspect, Record: adapters.Record{ID: "s", Payload: []byte("x")}})
		d := b.Next(s)
		if d.Stream != adapters.StreamSuspect {
			t.Errorf("delivered from %s", d.Stream)
		}
		b.Ack(d)
	})
}
