package foreign

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/envelope"
	"github.com/spillway-mq/spillway/failure"
	"github.com/spillway-mq/spillway/policy"
)

// The system attributes of a message, as the adapter shows them in a drained
// record. No producer can set them, nor a message attribute with such a name.
const (
	keySQSSource   = "sqs:DeadLetterQueueSourceArn"
	keySQSReceived = "sqs:ApproximateReceiveCount"
	typeSystem     = "system"
)

// system is the value of a system attribute.
func (in *input) system(key string) string {
	for _, h := range in.Headers {
		if h.Key == key && h.Type == typeSystem {
			return string(h.Value)
		}
	}
	return ""
}

// redrivenFrom is the name of the queue whose redrive policy moved the message;
// empty if none did.
func (in *input) redrivenFrom() string {
	arn := in.system(keySQSSource)
	return arn[strings.LastIndexByte(arn, ':')+1:]
}

// sqs decodes what a queue's redrive policy moved. It tells the queue, and how
// often the message was received: from there, and then from the dead letter
// queue, of which this is the last time.
func (in *input) sqs() (envelope.DeadLetter, bool) {
	queue := in.redrivenFrom()
	if queue == "" {
		return envelope.DeadLetter{}, false
	}
	received, _ := number([]byte(in.system(keySQSReceived)))
	t := told{
		reason:   policy.ReasonRejectedByBroker,
		code:     "sqs:redrive",
		message:  fmt.Sprintf("received from queue %q more often than its redrive policy allows", queue),
		attempts: int(min(received, envelope.MaxCount)) - 1,
	}
	t.source.Topic = queue
	t.source.Timestamp = in.Position.Timestamp // a move keeps it
	t.group = cmp.Or(groupOf(in.Names, queue, in.Stream), queue)

	// What Spillway wrote is believed of its own streams only.
	s := envelope.Parse(in.Headers, time.Now())
	if !in.isOf(queue, adapters.StreamRetry, s) && !in.isOf(queue, adapters.StreamSuspect, s) {
		return in.deadLetter(t), true
	}
	s.Reason, s.Code, s.Class, s.Nature = string(t.reason), failure.Code(t.code), failure.ClassUnknown, failure.NatureUnknown
	s.Message, s.Truncated = envelope.ErrorText(t.message)
	s.DueAt, s.Hops, s.DeadLetterID, s.DeadLetteredAt = time.Time{}, 0, "", time.Time{}
	envelope.Keys{}.Describe(&s, in.Headers)
	s.DeadLetterID = idOf(in.Record, in.Stream, s)
	return envelope.FromState(s, in.ID, in.Key, in.Headers, in.Payload), true
}
