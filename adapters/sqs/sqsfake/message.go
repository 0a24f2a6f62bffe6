package sqsfake

import (
	"crypto/md5"
	"encoding/binary"
	"encoding/hex"
	"io"
	"maps"
	"math/big"
	"slices"
	"strings"
	"time"
)

const (
	maxSize          = 1 << 20 // bytes of a message, and of a batch
	maxAttributes    = 10
	maxAttributeName = 256
	maxDelay         = 900       // seconds
	maxVisibility    = 12 * 3600 // seconds
	dedupWindow      = 5 * time.Minute
)

// stored is a message in a queue.
type stored struct {
	id         string
	body       string
	attributes map[string]attribute
	trace      *attribute // AWSTraceHeader
	group      string
	dedup      string
	sequence   string    // empty on standard queues
	sent       time.Time // SentTimestamp
	enqueued   time.Time // from which retention counts
	visible    time.Time // from when it can be received
	first      time.Time // the first receive
	received   time.Time // the newest receive, from which 12 hours count
	count      int       // of receives
	handle     string    // the newest, empty before the first receive
	source     string    // DeadLetterQueueSourceArn
}

// inFlight says that somebody has m. A delayed message has no handle yet.
func (m *stored) inFlight(now time.Time) bool { return m.handle != "" && m.visible.After(now) }

// expire deletes what is older than the queue's retention.
func (q *queue) expire(now time.Time) {
	retention := q.seconds("MessageRetentionPeriod")
	q.messages = slices.DeleteFunc(q.messages, func(m *stored) bool { return now.Sub(m.enqueued) >= retention })
}

// wake lets waiting receivers look again.
func (q *queue) wake() {
	close(q.changed)
	q.changed = make(chan struct{})
}

// attribute is a MessageAttributeValue or a MessageSystemAttributeValue.
type attribute struct {
	DataType         *string  `json:",omitempty"`
	StringValue      *string  `json:",omitempty"`
	BinaryValue      []byte   `json:",omitempty"`
	StringListValues []string `json:",omitempty"`
	BinaryListValues [][]byte `json:",omitempty"`
}

// logical returns the part of the data type that says how the value is sent.
func (a attribute) logical() string {
	logical, _, _ := strings.Cut(value(a.DataType), ".")
	return logical
}

func (a attribute) size() int {
	return len(value(a.DataType)) + len(value(a.StringValue)) + len(a.BinaryValue)
}

// validBody says what is wrong with a body.
func validBody(body *string) error {
	if value(body) == "" {
		return missing("MessageBody")
	}
	return validText(*body)
}

// validText refuses what XML 1.0 cannot hold.
func validText(s string) error {
	for _, r := range s {
		switch {
		case r == 0x9, r == 0xA, r == 0xD,
			r >= 0x20 && r <= 0xD7FF, r >= 0xE000 && r <= 0xFFFD, r >= 0x10000:
		default:
			return fail("InvalidMessageContents", "Invalid characters found. Valid unicode characters are "+
				"#x9 | #xA | #xD | #x20 to #xD7FF | #xE000 to #xFFFD | #x10000 to #x10FFFF")
		}
	}
	return nil
}

// validAttributes says what is wrong with the attributes of a message.
func validAttributes(attributes map[string]attribute) error {
	if len(attributes) > maxAttributes {
		return failf("InvalidParameterValue", "Number of message attributes [%d] exceeds the allowed maximum [%d].",
			len(attributes), maxAttributes)
	}
	for _, name := range slices.Sorted(maps.Keys(attributes)) {
		if !legalAttributeName(name) {
			return failf("InvalidParameterValue", "Invalid attribute name: %s", name)
		}
		if err := attributes[name].valid(name); err != nil {
			return err
		}
	}
	return nil
}

func legalAttributeName(name string) bool {
	lower := strings.ToLower(name)
	if name == "" || len(name) > maxAttributeName ||
		strings.HasPrefix(lower, "aws.") || strings.HasPrefix(lower, "amazon.") ||
		strings.HasPrefix(name, ".") || strings.HasSuffix(name, ".") || strings.Contains(name, "..") {
		return false
	}
	for i := range len(name) {
		if c := name[i]; !alphanumeric(c) && c != '-' && c != '_' && c != '.' {
			return false
		}
	}
	return true
}

func (a attribute) valid(name string) error {
	if a.StringListValues != nil || a.BinaryListValues != nil {
		return failf("InvalidParameterValue", "Message (user) attribute '%s' has list values, which are not supported.", name)
	}
	kind := value(a.DataType)
	if kind == "" {
		return failf("InvalidParameterValue", "The message attribute '%s' must contain a non-empty message attribute type.", name)
	}
	empty := failf("InvalidParameterValue",
		"The message attribute '%s' must contain a non-empty message attribute value for message attribute type '%s'.", name, kind)
	label, custom := strings.CutPrefix(kind, a.logical()+".")
	if len(kind) > maxAttributeName || custom && label == "" {
		return failf("InvalidParameterValue", "The type of message (user) attribute '%s' is invalid.", name)
	}
	switch a.logical() {
	case "String", "Number":
		if value(a.StringValue) == "" || a.BinaryValue != nil {
			return empty
		}
		if err := validText(*a.StringValue); err != nil {
			return err
		}
		if a.logical() == "Number" && !isNumber(*a.StringValue) {
			return failf("InvalidParameterValue", "Can't cast the value of message (user) attribute '%s' to a number.", name)
		}
	case "Binary":
		if len(a.BinaryValue) == 0 || a.StringValue != nil {
			return empty
		}
	default:
		return failf("InvalidParameterValue", "The message attribute '%s' has an invalid message attribute type, "+
			"the set of supported type prefixes is Binary, Number, and String.", name)
	}
	return nil
}

var (
	largestNumber  = new(big.Float).SetPrec(64).SetMantExp(big.NewFloat(1), 419) // above 10^126
	smallestNumber = new(big.Float).SetPrec(64).SetMantExp(big.NewFloat(1), -426)
)

// isNumber takes what has a magnitude from 10^-128 to 10^126, or is zero.
func isNumber(s string) bool {
	if len(s) > 200 || strings.Trim(s, "0123456789.eE+-") != "" {
		return false
	}
	f, _, err := big.ParseFloat(s, 10, 64, big.ToNearestEven)
	if err != nil {
		return false
	}
	f.Abs(f)
	return f.Sign() == 0 || f.Cmp(smallestNumber) >= 0 && f.Cmp(largestNumber) <= 0
}

// size is what counts against MaximumMessageSize.
func size(body string, attributes map[string]attribute) int {
	n := len(body)
	for name, a := range attributes {
		n += len(name) + a.size()
	}
	return n
}

// validToken checks group and deduplication ids.
func validToken(parameter string, token *string) error {
	if token == nil {
		return nil
	}
	bad := *token == "" || len(*token) > 128
	for i := range len(*token) {
		bad = bad || (*token)[i] <= ' ' || (*token)[i] > '~'
	}
	if bad {
		return invalid(*token, parameter, parameter+" can only include alphanumeric and punctuation characters. 1 to 128 in length.")
	}
	return nil
}

func md5Of(s string) string {
	sum := md5.Sum([]byte(s))
	return hex.EncodeToString(sum[:])
}

// md5OfAttributes is the digest that the API documents: of name, type and value
// of each, sorted by name, with their lengths. It is empty without attributes.
func md5OfAttributes(attributes map[string]attribute) string {
	if len(attributes) == 0 {
		return ""
	}
	h := md5.New()
	part := func(s string) {
		var n [4]byte
		binary.BigEndian.PutUint32(n[:], uint32(len(s)))
		h.Write(n[:])
		_, _ = io.WriteString(h, s) // a hash does not fail
	}
	for _, name := range slices.Sorted(maps.Keys(attributes)) {
		a := attributes[name]
		part(name)
		part(value(a.DataType))
		if a.logical() == "Binary" {
			h.Write([]byte{2})
			part(string(a.BinaryValue))
		} else {
			h.Write([]byte{1})
			part(value(a.StringValue))
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}
