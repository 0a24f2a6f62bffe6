package envelope

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"
)

// fields is the written form of a [State]: one row for each key, in the order
// of writing.
var fields = []field{
	{key: KeyStateVersion, get: func(*State) string { return Version }, set: func(*State, string) {}},
	text(KeyBroker, func(s *State) *string { return &s.Broker }),
	count(KeyAttempt, func(s *State) *int { return &s.Attempt }),
	instant(KeyFirstAttemptAt, func(s *State) *time.Time { return &s.FirstAttemptAt }),
	instant(KeyDueAt, func(s *State) *time.Time { return &s.DueAt }),
	count(KeyHops, func(s *State) *int { return &s.Hops }),
	text(KeySourceTopic, func(s *State) *string { return &s.Source.Topic }),
	number(KeySourcePartition, 32, func(s *State) **int32 { return &s.Source.Partition }),
	number(KeySourceOffset, 64, func(s *State) **int64 { return &s.Source.Offset }),
	instant(KeySourceTimestamp, func(s *State) *time.Time { return &s.Source.Timestamp }),
	text(KeyConsumerGroup, func(s *State) *string { return &s.ConsumerGroup }),
	text(KeyHandler, func(s *State) *string { return &s.Handler }),
	text(KeyConsumerVersion, func(s *State) *string { return &s.ConsumerVersion }),
	text(KeyErrorClass, func(s *State) *string { return (*string)(&s.Class) }),
	text(KeyErrorNature, func(s *State) *string { return (*string)(&s.Nature) }),
	text(KeyErrorCode, func(s *State) *string { return (*string)(&s.Code) }),
	{
		key:   KeyErrorMessage,
		get:   func(s *State) string { return s.Message },
		set:   func(s *State, v string) { s.Message = v },
		clamp: func(s *State) { s.Message = s.noteCut(ErrorText(s.Message)) },
	},
	text(KeyDeadLetterReason, func(s *State) *string { return &s.Reason }),
	text(KeyReference, func(s *State) *string { return &s.Reference }),
	instant(KeyParkedAt, func(s *State) *time.Time { return &s.ParkedAt }),
	count(KeyParkChecks, func(s *State) *int { return &s.ParkChecks }),
	text(KeyTraceID, func(s *State) *string { return &s.TraceID }),
	text(KeyMessageType, func(s *State) *string { return &s.MessageType }),
	text(KeyAggregate, func(s *State) *string { return &s.Aggregate }),
	text(KeyProducerVersion, func(s *State) *string { return &s.ProducerVersion }),
	text(KeySchemaVersion, func(s *State) *string { return &s.SchemaVersion }),
	instant(KeyDeadLetteredAt, func(s *State) *time.Time { return &s.DeadLetteredAt }),
	text(KeyDeadLetterID, func(s *State) *string { return &s.DeadLetterID }),
	text(KeyReplayID, func(s *State) *string { return &s.ReplayID }),
	text(KeyReplayOf, func(s *State) *string { return &s.ReplayOf }),
	text(KeyReplayReason, func(s *State) *string { return &s.ReplayReason }),
	count(KeyReplayCount, func(s *State) *int { return &s.ReplayCount }),
	{
		key:   KeyDroppedHeaders,
		get:   func(s *State) string { return encodeNames(s.DroppedHeaders) },
		set:   func(s *State, v string) { s.DroppedHeaders = decodeNames(v) },
		clamp: func(s *State) { s.DroppedHeaders = boundNames(s) },
	},
	{
		key: KeyTruncated, // last, so that clamping the others has set it
		get: func(s *State) string {
			if s.Truncated {
				return "true"
			}
			return ""
		},
		set: func(s *State, v string) { s.Truncated = strings.EqualFold(v, "true") },
	},
}

// optional lists the keys that are left out when metadata must shrink, first
// to go first. All others are essential: without them a message would be
// decided about wrongly, or could not be found again. The first five can be
// read again from the message's own headers.
var optional = []string{
	KeySchemaVersion,
	KeyProducerVersion,
	KeyAggregate,
	KeyMessageType,
	KeyTraceID,
	KeyBroker,
	KeyParkChecks,
	KeyHandler,
	KeyDroppedHeaders,
	KeyErrorCode,
	KeyErrorNature,
	KeyConsumerVersion,
	KeyDeadLetteredAt,
	KeyReference,
	KeyErrorMessage,
}

const (
	// minErrorBytes of the error text stay until optional keys have gone.
	minErrorBytes = 64
	// maxNamesBytes bounds the written list of dropped headers.
	maxNamesBytes = 2000
	// maxReadBytes bounds what is looked at of a value that is read. It is far
	// above everything that is written.
	maxReadBytes = 16 << 10
)

// field is one key of the written form.
type field struct {
	key   string
	get   func(*State) string  // of a clamped state; "" is not written
	set   func(*State, string) // from any text
	clamp func(*State)         // nil if every value is fine
}

func text(key string, p func(*State) *string) field {
	return field{
		key:   key,
		get:   func(s *State) string { return *p(s) },
		set:   func(s *State, v string) { *p(s) = v },
		clamp: func(s *State) { *p(s) = s.noteCut(clean(*p(s), MaxTextRunes, line)) },
	}
}

func count(key string, p func(*State) *int) field {
	return field{
		key: key,
		get: func(s *State) string {
			if *p(s) == 0 {
				return ""
			}
			return strconv.Itoa(*p(s))
		},
		set: func(s *State, v string) {
			n, err := strconv.ParseInt(v, 10, 64)
			if err != nil {
				n = 0
			}
			*p(s) = int(min(max(n, 0), MaxCount))
		},
		clamp: func(s *State) { *p(s) = min(max(*p(s), 0), MaxCount) },
	}
}

func instant(key string, p func(*State) *time.Time) field {
	return field{
		key:   key,
		get:   func(s *State) string { return formatTime(*p(s)) },
		set:   func(s *State, v string) { *p(s), _ = parseTime(v) },
		clamp: func(s *State) { *p(s) = sane(*p(s)) },
	}
}

// number is part of a position: absent when it is not known.
func number[N int32 | int64](key string, bits int, p func(*State) **N) field {
	return field{
		key: key,
		get: func(s *State) string {
			if *p(s) == nil {
				return ""
			}
			return strconv.FormatInt(int64(**p(s)), 10)
		},
		set: func(s *State, v string) {
			*p(s) = nil
			if n, err := strconv.ParseInt(v, 10, bits); err == nil {
				*p(s) = new(N(n))
			}
		},
		clamp: func(s *State) {
			if *p(s) != nil && **p(s) < 0 {
				*p(s) = nil
			}
		},
	}
}

var fieldOf = func() map[string]*field {
	m := make(map[string]*field, len(fields))
	for i := range fields {
		m[fields[i].key] = &fields[i]
	}
	return m
}()

// Parse reads the state from the headers of a record. It never fails, and what
// it returns is safe to act on whoever wrote it:
//
//   - Where a key repeats, the last value wins. The case of keys is ignored.
//   - An attempt that is absent, not a whole number, or below 1 is 1, and then
//     the message is due now. Counters are at most [MaxCount]; others than the
//     attempt are 0 where they are not a number.
//   - DueAt is at most now + [MaxDueAhead]; FirstAttemptAt and ParkedAt, from
//     which deadlines run, are at most now.
//   - Times that are not RFC 3339 are zero; partition and offset that are
//     negative or not a number are nil.
//   - Texts are cut at [MaxErrorRunes] and [MaxTextRunes], which sets
//     Truncated, and hold neither invalid UTF-8 nor control characters.
//
// Whether the state may be honoured at all is the caller's decision: never on
// a main stream, and on others only if it [State.BelongsTo] the consumer.
func Parse(headers []Header, now time.Time) State {
	if !HasState(headers) {
		return State{Attempt: 1}
	}
	var s State
	for _, h := range headers {
		if !IsOwn(h.Key) {
			continue
		}
		if f := fieldOf[strings.ToLower(h.Key)]; f != nil {
			f.set(&s, string(h.Value[:min(len(h.Value), maxReadBytes)]))
		}
	}
	if s.Attempt < 1 {
		s.DueAt = time.Time{}
	}
	s.clamp()
	if latest := now.Add(MaxDueAhead); s.DueAt.After(latest) {
		s.DueAt = sane(latest)
	}
	for _, t := range []*time.Time{&s.FirstAttemptAt, &s.ParkedAt} {
		if t.After(now) {
			*t = sane(now)
		}
	}
	return s
}

// clamp brings every field to a value that can be written and read back.
func (s *State) clamp() {
	for i := range fields {
		if f := &fields[i]; f.clamp != nil {
			f.clamp(s)
		}
	}
	s.Attempt = max(s.Attempt, 1)
}

// noteCut returns text, and sets Truncated if it was cut.
func (s *State) noteCut(text string, cut bool) string {
	s.Truncated = s.Truncated || cut
	return text
}

// Pairs returns the written form of s: version and attempt, and every other
// field that is not zero, each key once, in a fixed order. Values are clamped
// as [Parse] would, are never empty, and hold no control characters, except
// for tab, line feed and carriage return in the error text.
//
// Names and values together are at most budget bytes; a budget of zero or less
// is no limit. To fit, the error text is cut first, down to 64 bytes; then
// optional keys are left out in a fixed order, the error text last; and the
// truncated key says so. The keys that decisions and lineage rest on are
// always written: ok is false if those alone are over the budget.
func (s State) Pairs(budget int) (pairs []Pair, ok bool) {
	s.clamp()
	pairs, size := s.write()
	if budget <= 0 || size <= budget {
		return pairs, true
	}
	s.Truncated = true
	if _, size = s.write(); size > budget {
		s.Message = cutBytes(s.Message, max(len(s.Message)-(size-budget), minErrorBytes))
	}
	pairs, size = s.write()
	for _, key := range optional {
		if size <= budget {
			break
		}
		pairs = slices.DeleteFunc(pairs, func(p Pair) bool {
			if p.Key != key {
				return false
			}
			size -= len(p.Key) + len(p.Value)
			return true
		})
	}
	return pairs, size <= budget
}

// write returns the pairs of a clamped state, and the size of their names and
// values together.
func (s *State) write() (pairs []Pair, size int) {
	pairs = make([]Pair, 0, len(fields))
	for i := range fields {
		f := &fields[i]
		if v := f.get(s); v != "" {
			pairs = append(pairs, Pair{f.key, v})
			size += len(f.key) + len(v)
		}
	}
	return pairs, size
}

// Trimmed returns s without its optional keys: the smallest form that still
// tells what the message is, for a second try after a broker found it too
// large.
func (s State) Trimmed() State {
	for _, key := range optional {
		fieldOf[key].set(&s, "")
	}
	s.Truncated = true
	return s
}

// The names of dropped headers are a JSON list: a name may hold any
// separator.
func encodeNames(names []string) string {
	if len(names) == 0 {
		return ""
	}
	text, _ := marshal(names) // strings always encode
	return string(text)
}

func decodeNames(v string) []string {
	var names []string
	if json.Unmarshal([]byte(v), &names) != nil {
		return nil
	}
	return names
}

// boundNames keeps the names that fit into [maxNamesBytes].
func boundNames(s *State) []string {
	var kept []string
	size := len("[]")
	for _, n := range s.DroppedHeaders {
		n = s.noteCut(clean(n, MaxTextRunes, line))
		more := len(encodeNames([]string{n})) - len("[]") + len(",")
		if size+more > maxNamesBytes {
			s.Truncated = true
			break
		}
		size += more
		kept = append(kept, n)
	}
	return kept
}
