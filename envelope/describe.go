package envelope

import (
	"cmp"
	"slices"
	"strings"
)

// Keys names the headers from which a message is described, most preferred
// first. A nil list means the default; an empty one that is not nil means
// none. Case does not matter. Keys is safe for concurrent use as long as
// nobody changes its lists.
type Keys struct {
	// MessageType defaults to the type of CloudEvents as Kafka, HTTP and AMQP
	// write it, message-type, event-type, and name, which Watermill's cqrs sets.
	MessageType []string
	// Aggregate defaults to the subject of CloudEvents, aggregate, and
	// aggregate-id.
	Aggregate []string
	// ProducerVersion defaults to producer-version.
	ProducerVersion []string
	// SchemaVersion defaults to schema-version, and the dataschema of
	// CloudEvents.
	SchemaVersion []string
}

var defaultKeys = Keys{
	MessageType:     append(cloudEvents("type"), "message-type", "event-type", "name"),
	Aggregate:       append(cloudEvents("subject"), "aggregate", "aggregate-id"),
	ProducerVersion: []string{"producer-version"},
	SchemaVersion:   append([]string{"schema-version"}, append(cloudEvents("dataschema"), "dataschema")...),
}

// cloudEvents returns the names that an attribute has in the bindings for
// Kafka, for HTTP, and for AMQP in its two spellings.
func cloudEvents(attribute string) []string {
	return []string{"ce_" + attribute, "ce-" + attribute, "cloudEvents:" + attribute, "cloudEvents_" + attribute}
}

// WithDefaults fills the nil lists. The lists are shared: do not change them.
func (k Keys) WithDefaults() Keys {
	if k.MessageType == nil {
		k.MessageType = defaultKeys.MessageType
	}
	if k.Aggregate == nil {
		k.Aggregate = defaultKeys.Aggregate
	}
	if k.ProducerVersion == nil {
		k.ProducerVersion = defaultKeys.ProducerVersion
	}
	if k.SchemaVersion == nil {
		k.SchemaVersion = defaultKeys.SchemaVersion
	}
	return k
}

// Describe fills trace id, message type, aggregate, producer version and
// schema version of s from the message's own headers. Fields that are set
// already stay as they are.
func (k Keys) Describe(s *State, headers []Header) {
	k = k.WithDefaults()
	if s.TraceID == "" {
		s.TraceID = TraceID(headers)
	}
	s.MessageType = cmp.Or(s.MessageType, first(headers, k.MessageType))
	s.Aggregate = cmp.Or(s.Aggregate, first(headers, k.Aggregate))
	s.ProducerVersion = cmp.Or(s.ProducerVersion, first(headers, k.ProducerVersion))
	s.SchemaVersion = cmp.Or(s.SchemaVersion, first(headers, k.SchemaVersion))
}

// TraceID returns the trace id of a message: that of traceparent if it is a
// valid one by W3C Trace Context, else the text of x-trace-id, else "".
func TraceID(headers []Header) string {
	if id := traceparentID(value(headers, "traceparent")); id != "" {
		return id
	}
	return name(value(headers, "x-trace-id"))
}

// traceparentID returns the trace id of "version-traceid-parentid-flags", and
// "" if that is not what v is. Versions above 00 may have more fields.
func traceparentID(v string) string {
	parts := strings.SplitN(v, "-", 5)
	if len(parts) < 4 || len(parts) == 5 && parts[0] == "00" {
		return ""
	}
	version, trace, parent, flags := parts[0], parts[1], parts[2], parts[3]
	switch {
	case !isHex(version, 2), version == "ff",
		!isHex(trace, 32), strings.Trim(trace, "0") == "",
		!isHex(parent, 16), strings.Trim(parent, "0") == "",
		!isHex(flags, 2):
		return ""
	}
	return trace
}

// isHex reports whether s is n digits of lower case hexadecimal.
func isHex(s string, n int) bool {
	return len(s) == n && strings.Trim(s, "0123456789abcdef") == ""
}

// first returns the text of the first key that has one.
func first(headers []Header, keys []string) string {
	for _, key := range keys {
		if v := value(headers, key); v != "" {
			return name(v)
		}
	}
	return ""
}

// value returns the last value of key, or "".
func value(headers []Header, key string) string {
	for _, h := range slices.Backward(headers) {
		if strings.EqualFold(h.Key, key) {
			return string(h.Value[:min(len(h.Value), maxReadBytes)])
		}
	}
	return ""
}
