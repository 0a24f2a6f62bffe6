package app

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
)

const (
	maxLine  = 64 << 20 // bytes
	maxLines = 200_000
	// maxComplaints is how many wrong lines are named.
	maxComplaints = 5
)

// line is one message of an input file.
type line struct {
	Type    string          `json:"type"`
	Payload json.RawMessage `json:"payload"` // exactly the bytes of the file
}

// readInput reads JSON lines from a file, or from stdin for "-". It reads all
// before anything is published, and refuses a file with a wrong line.
func readInput(name string, stdin io.Reader) ([]line, error) {
	if name == "-" {
		return parseLines("stdin", stdin)
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("%w: -input wants a file of JSON lines, or - for stdin", err)
	}
	defer f.Close()
	return parseLines(name, f)
}

func parseLines(name string, r io.Reader) ([]line, error) {
	in := bufio.NewReaderSize(r, 64<<10)
	var lines []line
	var wrong []error
	for number := 1; ; number++ {
		text, err := readLine(in)
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("%s, line %d: %w", name, number, err)
		}
		if text = bytes.TrimSpace(text); len(text) > 0 {
			l, err := parseLine(text)
			if err != nil {
				wrong = append(wrong, fmt.Errorf("%s, line %d: %w", name, number, err))
			}
			lines = append(lines, l)
		}
		if len(wrong) == maxComplaints || err != nil {
			break
		}
		if len(lines) > maxLines {
			return nil, fmt.Errorf("%s has more than %d messages: split it", name, maxLines)
		}
	}
	switch {
	case len(wrong) > 0:
		return nil, fmt.Errorf("%w\nevery line must be a JSON object like {\"type\":\"push\",\"payload\":{}}; nothing was published", errors.Join(wrong...))
	case len(lines) == 0:
		return nil, fmt.Errorf("%s has no messages: every line must be a JSON object like {\"type\":\"push\",\"payload\":{}}", name)
	}
	return lines, nil
}

// readLine returns the next line, with io.EOF if it is the last.
func readLine(in *bufio.Reader) ([]byte, error) {
	var text []byte
	for {
		part, err := in.ReadSlice('\n')
		if text = append(text, part...); len(text) > maxLine {
			return nil, fmt.Errorf("the line is longer than %d MiB", maxLine>>20)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return text, err
		}
	}
}

func parseLine(text []byte) (line, error) {
	var l line
	var kind *json.UnmarshalTypeError
	switch err := json.Unmarshal(text, &l); {
	case errors.As(err, &kind) && kind.Field == "type":
		return l, fmt.Errorf(`"type" must be a text, is a JSON %s`, kind.Value)
	case errors.As(err, &kind):
		return l, fmt.Errorf("it must be a JSON object, is a JSON %s", kind.Value)
	case err != nil:
		return l, fmt.Errorf("it is not JSON: %w", err)
	case l.Type == "":
		return l, errors.New(`"type" is missing or empty`)
	case l.Payload == nil:
		return l, errors.New(`"payload" is missing`)
	}
	return l, nil
}

// messages makes a message of each line.
func messages(lines []line) iter.Seq[*message.Message] {
	return func(yield func(*message.Message) bool) {
		for _, l := range lines {
			msg := message.NewMessage(watermill.NewUUID(), message.Payload(l.Payload))
			msg.Metadata.Set("message-type", l.Type)
			if !yield(msg) {
				return
			}
		}
	}
}
