package foreign

import (
	"strings"
	"time"
	"unicode"

	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/envelope"
)

// ours decodes what Spillway wrote, unless the broker has moved the record out
// of a stream to which others write as well: then a producer can have written it.
func (in *input) ours() (envelope.DeadLetter, bool) {
	s := envelope.Parse(in.Headers, time.Now())
	if deaths := Deaths(in.Headers); len(deaths) > 0 && !in.Names.IsDeadLetter(deaths[0].Queue) {
		return envelope.DeadLetter{}, false
	}
	if queue := in.redrivenFrom(); queue != "" && !in.isOf(queue, adapters.StreamDeadLetter, s) {
		return envelope.DeadLetter{}, false
	}
	return own(s, in.Record)
}

// oursInPlace decodes what Spillway wrote to a dead letter stream of its own.
func (in *input) oursInPlace() (envelope.DeadLetter, bool) {
	if !in.isOf(in.Stream, adapters.StreamDeadLetter, envelope.Parse(in.Headers, time.Now())) {
		return envelope.DeadLetter{}, false
	}
	return in.ours()
}

// isOf reports whether a stream is one of the consumer's that a state names, as
// the broker may spell it.
func (in *input) isOf(stream string, which adapters.Stream, s envelope.State) bool {
	c := adapters.Consumer{Topic: s.Source.Topic, Group: s.ConsumerGroup}
	return c.Topic != "" && c.Group != "" && spelled(stream) == spelled(in.Names.Of(which, c))
}

// spelled is a name without what SQS changes: it has no dots, and wants .fifo at
// the end of some names.
func spelled(stream string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsDigit(r) {
			return r
		}
		return '-'
	}, strings.TrimSuffix(stream, ".fifo"))
}
