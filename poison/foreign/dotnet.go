package foreign

import (
	"cmp"
	"strings"
	"time"
)

// massTransit reads the headers of _error and _skipped queues. The exception is
// the innermost one already. Retries that are not told did not happen.
func massTransit(in *input) told {
	t := told{
		handler:     in.text("MT-Fault-ConsumerType"),
		messageType: cmp.Or(in.text("MT-Fault-MessageType"), firstOf(in.text("MT-MessageType"))),
	}
	t.source.Topic = queueOf(in.text("MT-Fault-InputAddress"))
	t.group = t.source.Topic // the queue is who consumes
	t.failedAt = parseTime(time.RFC3339, in.text("MT-Fault-Timestamp"))
	if in.has("MT-Fault-*") {
		t.threw([]throwable{{in.text("MT-Fault-ExceptionType"), in.text("MT-Fault-Message")}})
		t.attempts = 1 + in.count("MT-Fault-RetryCount") + in.count("MT-Redelivery-Count")
		return t
	}
	reason := in.text("MT-Reason")
	t.code = "masstransit:" + reason
	t.message = "moved aside by MassTransit: " + reason
	return t
}

// nServiceBus reads the headers of an error queue. The retries have been taken
// out of them by then.
func nServiceBus(in *input) told {
	const info = "NServiceBus.ExceptionInfo."
	t := told{
		group:       in.text("NServiceBus.ProcessingEndpoint"),
		messageType: firstOf(in.text("NServiceBus.EnclosedMessageTypes")),
		failedAt:    wireTime(in.text("NServiceBus.TimeOfFailure")),
	}
	t.source.Topic = in.text("NServiceBus.FailedQ")
	t.source.Timestamp = wireTime(in.text("NServiceBus.TimeSent"))
	t.group = cmp.Or(t.group, t.source.Topic)
	chain := []throwable{{in.text(info + "ExceptionType"), in.text(info + "Message")}}
	if inner := in.text(info + "InnerExceptionType"); inner != "" {
		chain = append(chain, throwable{inner, chain[0].message})
	}
	t.threw(chain)
	return t
}

// queueOf is the last part of an endpoint's address, such as
// rabbitmq://host/vhost/queue?options and queue:name.
func queueOf(address string) string {
	address, _, _ = strings.Cut(address, "?")
	return address[strings.LastIndexAny(address, "/:")+1:]
}

// firstOf is the first, and most specific, of several message types, without
// the assembly that it is from.
func firstOf(types string) string {
	types, _, _ = strings.Cut(types, ";")
	types, _, _ = strings.Cut(types, ",")
	return strings.TrimSpace(types)
}

// parseTime returns the zero time for a text that is none, or that is one which
// RFC 3339 cannot write in UTC.
func parseTime(layout, s string) time.Time {
	t, err := time.Parse(layout, s)
	if t = t.UTC(); err != nil || t.Year() < 1 || t.Year() > 9999 {
		return time.Time{}
	}
	return t
}

// wireTime reads yyyy-MM-dd HH:mm:ss:ffffff Z, in which a colon stands before
// the microseconds.
func wireTime(s string) time.Time {
	if at := strings.LastIndexByte(s, ':'); at > 0 {
		s = s[:at] + "." + s[at+1:]
	}
	return parseTime("2006-01-02 15:04:05.000000 Z", s)
}
