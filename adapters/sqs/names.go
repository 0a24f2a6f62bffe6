package sqs

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/spillway-mq/spillway/adapters"
)

const (
	fifoSuffix = ".fifo"
	maxName    = 80
	hashLength = 8
)

// naming maps topics and streams to queues.
type naming struct {
	names    adapters.Names
	explicit map[string]string // [Config].Queues
	prefix   string            // [Config].Prefix
}

// queueOf returns the name of the queue that holds a topic or stream. Of a full
// queue URL it is the last part.
func (n naming) queueOf(stream string) string {
	if queue, ok := n.explicit[stream]; ok {
		return queue
	}
	name := n.prefix + stream
	if isURL(stream) {
		name = stream[strings.LastIndexByte(stream, '/')+1:]
	}
	base, fifo := strings.CutSuffix(name, fifoSuffix)
	if !fifo && n.names.IsDeadLetter(stream) {
		// Only a FIFO queue can be the dead letter queue of one, and the suffix
		// must come last.
		var rest string
		if base, rest, fifo = strings.Cut(name, fifoSuffix+"."); fifo {
			base += "." + rest
		}
	}
	return legalName(base, fifo)
}

// isURL reports whether a topic is the URL of a queue.
func isURL(topic string) bool {
	return strings.HasPrefix(topic, "https://") || strings.HasPrefix(topic, "http://")
}

// legalName makes a queue name of any text. A dot becomes an underscore. Where
// that is not enough the name ends in a hash of the text: it has other
// characters, or too many.
func legalName(base string, fifo bool) string {
	suffix := ""
	if fifo {
		suffix = fifoSuffix
	}
	strange := base == ""
	name := strings.Map(func(r rune) rune {
		switch {
		case isNameChar(r):
			return r
		case r != '.':
			strange = true
		}
		return '_'
	}, base)
	room := maxName - len(suffix)
	if strange || len(name) > room {
		sum := sha256.Sum256([]byte(base))
		name = name[:min(len(name), room-hashLength-1)] + "-" + hex.EncodeToString(sum[:])[:hashLength]
	}
	return name + suffix
}

func isNameChar(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_'
}

// checkName refuses what SQS would.
func checkName(queue string) error {
	base := strings.TrimSuffix(queue, fifoSuffix)
	if base == "" || len(queue) > maxName || strings.ContainsFunc(base, func(r rune) bool { return !isNameChar(r) }) {
		return fmt.Errorf("queue name %q: SQS allows 1 to %d letters, digits, hyphens and underscores, and %s at the end", queue, maxName, fifoSuffix)
	}
	return nil
}

func isFIFO(queue string) bool { return strings.HasSuffix(queue, fifoSuffix) }
