package foreign

import (
	"encoding/binary"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/envelope"
)

// input is a record that is being decoded. The case of header names does not
// matter: some brokers change it.
type input struct {
	adapters.Record
	From
}

// has reports whether a header with one of the names is there. A name may end
// in *.
func (in *input) has(names ...string) bool {
	return slices.ContainsFunc(in.Headers, func(h adapters.Header) bool {
		return slices.ContainsFunc(names, func(n string) bool {
			head, isPrefix := strings.CutSuffix(n, "*")
			if isPrefix {
				return len(h.Key) >= len(head) && strings.EqualFold(h.Key[:len(head)], head)
			}
			return strings.EqualFold(h.Key, n)
		})
	})
}

// first returns the value of a header that everybody appends to.
func (in *input) first(key string) []byte {
	for _, h := range in.Headers {
		if strings.EqualFold(h.Key, key) {
			return h.Value
		}
	}
	return nil
}

// last returns the value of a header of which the latest counts.
func (in *input) last(key string) []byte {
	for _, h := range slices.Backward(in.Headers) {
		if strings.EqualFold(h.Key, key) {
			return h.Value
		}
	}
	return nil
}

// text is the last value of a header as text of any length.
func (in *input) text(key string) string { return string(in.last(key)) }

// count is the last value of a header as a counter.
func (in *input) count(key string) int {
	n, _ := number(in.last(key))
	return int(min(n, envelope.MaxCount))
}

// position reads topic, partition and offset in text after a common prefix.
func (in *input) position(prefix string) envelope.Position {
	p := envelope.Position{Topic: string(in.first(prefix + "topic"))}
	p.Partition, p.Offset = partition(number(in.first(prefix+"partition"))), offset(number(in.first(prefix+"offset")))
	return p
}

func partition(n int64, ok bool) *int32 {
	if !ok || n > 1<<31-1 {
		return nil
	}
	return new(int32(n))
}

func offset(n int64, ok bool) *int64 {
	if !ok {
		return nil
	}
	return &n
}

// number reads digits. Kafka's -1 for "not known" is no number.
func number(text []byte) (n int64, ok bool) {
	n, err := strconv.ParseInt(string(text), 10, 64)
	return max(n, 0), err == nil && n >= 0
}

// binaryNumber reads a big-endian integer of one of the widths, or digits. An
// integer whose bytes all are digits would be far above all real ones, unless
// it has a single byte.
func binaryNumber(value []byte, widths ...int) (n int64, ok bool) {
	if len(value) > 1 || !slices.Contains(widths, 1) {
		if n, ok := number(value); ok {
			return n, true
		}
	}
	if len(value) > 8 || !slices.Contains(widths, len(value)) {
		return 0, false
	}
	var wide [8]byte
	copy(wide[8-len(value):], value)
	n = int64(binary.BigEndian.Uint64(wide[:]))
	if len(value) == 4 {
		n = int64(int32(n)) // -1 is not known
	}
	return max(n, 0), n >= 0
}

// millis is a time in milliseconds of the Unix epoch; zero if it is none that
// RFC 3339 can write.
func millis(n int64, ok bool) time.Time {
	if !ok || n <= 0 || n/1000 >= endOfTime {
		return time.Time{}
	}
	return time.UnixMilli(n).UTC()
}
