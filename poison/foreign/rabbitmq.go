package foreign

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/envelope"
	"github.com/spillway-mq/spillway/failure"
	"github.com/spillway-mq/spillway/policy"
)

// Reasons of a [Death], as RabbitMQ writes them.
const (
	DeathRejected      = "rejected"
	DeathExpired       = "expired"
	DeathMaxLength     = "maxlen"
	DeathDeliveryLimit = "delivery_limit"
)

// Death is one entry of x-death: that RabbitMQ moved the message out of a queue.
type Death struct {
	Queue       string
	Exchange    string // that it had been published to; empty for the default exchange
	RoutingKeys []string
	Reason      string
	Count       int       // how often this happened; at least 1
	Time        time.Time // to the second; zero if not told
}

// Deaths returns the entries of x-death, the latest first. Entries without a
// queue or reason are left out.
func Deaths(headers []adapters.Header) []Death {
	deaths := entries(valueOf(headers, "x-death"))
	// The broker keeps the list in this order, but for some that went through
	// several queues.
	slices.SortStableFunc(deaths, func(a, b Death) int { return b.Time.Compare(a.Time) })
	if i := indexOf(deaths, headers, "last"); i > 0 {
		last := deaths[i]
		deaths = slices.Insert(slices.Delete(deaths, i, i+1), 0, last)
	}
	return deaths
}

// indexOf finds the death that the broker calls the first or the last. Both may
// be one entry: a message can go round.
func indexOf(deaths []Death, headers []adapters.Header, which string) int {
	queue, reason := string(valueOf(headers, "x-"+which+"-death-queue")), string(valueOf(headers, "x-"+which+"-death-reason"))
	return slices.IndexFunc(deaths, func(d Death) bool { return d.Queue == queue && d.Reason == reason })
}

// RabbitMQ decodes a record that was drained from RabbitMQ: a dead letter of our
// own, or one that the broker made by itself. It reports false if r is neither.
// Names are the templates of the consumers' streams; the zero Names are the
// defaults.
func RabbitMQ(r adapters.Record, names adapters.Names) (envelope.DeadLetter, bool) {
	s := envelope.Parse(r.Headers, time.Now())
	deaths := Deaths(r.Headers)
	if len(deaths) == 0 {
		return own(s, r)
	}
	last, first := deaths[0], deaths[len(deaths)-1]
	if i := indexOf(deaths, r.Headers, "first"); i >= 0 {
		first = deaths[i]
	}
	if names.IsDeadLetter(last.Queue) {
		if d, ok := own(s, r); ok {
			return d, true // somebody lets dead letters expire to elsewhere
		}
	}
	c := adapters.Consumer{Topic: s.Source.Topic, Group: s.ConsumerGroup}
	if last.Queue != names.Of(adapters.StreamRetry, c) && last.Queue != names.Of(adapters.StreamSuspect, c) {
		s = envelope.State{FirstAttemptAt: first.Time}
		s.Source.Topic = cmp.Or(first.Exchange, first.Queue)
		s.ConsumerGroup = cmp.Or(groupOf(names, s.Source.Topic, r.Position.Topic), first.Queue)
		s.Attempt = attempts(deaths)
	}
	attempt := s.Attempt
	s.Broker, s.Reason, s.DeadLetteredAt = "rabbitmq", string(policy.ReasonRejectedByBroker), last.Time
	s.DueAt, s.Hops, s.DeadLetterID, s.Truncated = time.Time{}, 0, "", false
	s.Nature, s.Class, s.Code = failure.NatureUnknown, failure.ClassUnknown, failure.Code("rabbitmq:"+last.Reason)
	if last.Reason == DeathExpired {
		s.Class = failure.ClassExpired
	}
	s.Message, s.Truncated = envelope.ErrorText(last.text())
	envelope.Keys{}.Describe(&s, r.Headers)
	s.DeadLetterID = idOf(r, r.Position.Topic, s)
	if last.Count > 1 { // the broker keeps the time of the first of them
		s.DeadLetteredAt = time.Time{}
	}
	d := envelope.FromState(s, r.ID, r.Key, r.Headers, r.Payload)
	d.Failure.Attempts = attempt // which may be none
	return d, true
}

// rabbitMQ decodes what the broker moved, and only that.
func (in *input) rabbitMQ() (envelope.DeadLetter, bool) {
	if len(Deaths(in.Headers)) == 0 {
		return envelope.DeadLetter{}, false
	}
	return RabbitMQ(in.Record, in.Names)
}

// own returns a dead letter that Spillway wrote.
func own(s envelope.State, r adapters.Record) (envelope.DeadLetter, bool) {
	if s.Reason == "" {
		return envelope.DeadLetter{}, false
	}
	return envelope.FromState(s, r.ID, r.Key, r.Headers, r.Payload), true
}

// text says what happened in words that are the same for all messages that it
// happened to.
func (d Death) text() string {
	switch d.Reason {
	case DeathRejected:
		return fmt.Sprintf("rejected by a consumer of queue %q", d.Queue)
	case DeathExpired:
		return fmt.Sprintf("expired in queue %q", d.Queue)
	case DeathMaxLength:
		return fmt.Sprintf("dropped from queue %q, which was full", d.Queue)
	case DeathDeliveryLimit:
		return fmt.Sprintf("came back to queue %q more often than its delivery limit", d.Queue)
	}
	return fmt.Sprintf("dead-lettered from queue %q: %s", d.Queue, d.Reason)
}

func attempts(deaths []Death) (n int) {
	for _, d := range deaths {
		if d.Reason == DeathRejected || d.Reason == DeathDeliveryLimit {
			n = min(n+d.Count, envelope.MaxCount)
		}
	}
	return n
}

// groupOf returns the group whose dead letter stream for topic is named stream,
// or nothing if stream is no such name.
func groupOf(names adapters.Names, topic, stream string) string {
	const mark = "\x00"
	head, tail, _ := strings.Cut(names.Of(adapters.StreamDeadLetter, adapters.Consumer{Topic: topic, Group: mark}), mark)
	if len(stream) <= len(head)+len(tail) || !strings.HasPrefix(stream, head) || !strings.HasSuffix(stream, tail) {
		return ""
	}
	return stream[len(head) : len(stream)-len(tail)]
}

func valueOf(headers []adapters.Header, key string) []byte {
	for _, h := range headers {
		if strings.EqualFold(h.Key, key) {
			return h.Value
		}
	}
	return nil
}

// entries reads x-death as the adapter writes AMQP arrays: in JSON, with what
// JSON has no form for as {"$type": "text"}.
func entries(text []byte) []Death {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	var list []any
	if dec.Decode(&list) != nil {
		return nil
	}
	var deaths []Death
	for _, e := range list {
		entry, _ := e.(map[string]any)
		d := Death{
			Queue: name(entry["queue"]), Exchange: name(entry["exchange"]), Reason: name(entry["reason"]),
			Count: 1,
		}
		if d.Queue == "" || d.Reason == "" {
			continue
		}
		if n, err := strconv.ParseInt(plain(entry["count"]), 10, 64); err == nil {
			d.Count = int(min(max(n, 1), envelope.MaxCount))
		}
		if n, err := strconv.ParseInt(plain(entry["time"]), 10, 64); err == nil && n > 0 && n < endOfTime {
			d.Time = time.Unix(n, 0).UTC()
		}
		keys, _ := entry["routing-keys"].([]any)
		for _, key := range keys {
			d.RoutingKeys = append(d.RoutingKeys, name(key))
		}
		deaths = append(deaths, d)
	}
	return deaths
}

// endOfTime is the year 10000, in which RFC 3339 ends.
const endOfTime = 253402300800

// name bounds a text that stands for a name, as what is kept of an error.
func name(v any) string {
	text, _ := envelope.ErrorText(plain(v))
	return text
}

// plain is the text of a value, without its type.
func plain(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case json.Number:
		return v.String()
	case map[string]any:
		for kind, value := range v {
			text, ok := value.(string)
			if !ok || len(v) != 1 || !strings.HasPrefix(kind, "$") {
				return ""
			}
			if kind != "$text" && kind != "$bytes" {
				return text
			}
			raw, _ := base64.StdEncoding.DecodeString(text)
			return strings.ToValidUTF8(string(raw), "\uFFFD")
		}
	}
	return ""
}
