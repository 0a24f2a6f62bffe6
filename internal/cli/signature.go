package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/spillway-mq/spillway/triage/signature"
)

func signatureVerb() verb {
	return verb{
		name:    "signature",
		args:    "[FILE]",
		summary: "print the signature of each error text",
		detail: `Reads FILE, or the standard input if there is none or it is -. Each line is one
text; with --json each line is one JSON string, which can have several lines.
For each line it prints one line: the signature's id, a tab, and the text
without what varies. Texts with the same id fall into the same group.

A line that is no JSON string gets the id - and no text, so that lines in and
lines out stay side by side; the error goes to stderr, the rest goes on, and
the exit code is 1.`,
		examples: []string{
			"# Do these texts fall together?",
			"spillway signature errors.txt | cut -f 1 | sort | uniq -c",
			"# What was replaced, and by which rule?",
			"echo 'order 5 not found' | spillway signature --explain",
			"# The texts of a file of dead letters",
			"jq -c .failure.message dead.jsonl | spillway signature --json",
		},
		formats: []string{"table", "jsonl"},
		most:    1,
		setup: func(fs *flag.FlagSet) func(context.Context, *call) error {
			isJSON := fs.Bool("json", false, "each line is a JSON string")
			explain := fs.Bool("explain", false, "show each replacement, on lines of their own that begin with a blank")
			return func(ctx context.Context, c *call) error { return printSignatures(ctx, c, *isJSON, *explain) }
		},
	}
}

// maxTextLine bounds how much of a line is kept. Of a text, a signature looks
// at the beginning only; a JSON string must be there as a whole.
const (
	maxTextLine = 64 << 10
	maxJSONLine = 16 << 20
)

type signatureJSON struct {
	ID           string            `json:"id"`
	Text         string            `json:"text"`
	Replacements []replacementJSON `json:"replacements,omitempty"`
}

type replacementJSON struct {
	From string `json:"from"`
	To   string `json:"to"`
	Rule string `json:"rule"`
}

func printSignatures(ctx context.Context, c *call, isJSON, explain bool) error {
	in, closeInput, err := c.input(ctx, firstOf(c.args))
	if err != nil {
		return err
	}
	defer closeInput()
	r := bufio.NewReaderSize(in, 64<<10)
	limit := maxTextLine
	if isJSON {
		limit = maxJSONLine
	}
	var buf []byte
	bad := 0
	for number := 1; ; number++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		line, whole, err := readLine(r, buf[:0], limit)
		buf = line
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("line %d: %w", number, err)
		}
		text := string(line)
		if isJSON {
			text = ""
			switch {
			case !whole:
				err = fmt.Errorf("more than %d MiB", maxJSONLine>>20)
			case len(bytes.TrimSpace(line)) == 0 || bytes.TrimSpace(line)[0] != '"':
				err = errors.New("no JSON string")
			default:
				if json.Unmarshal(line, &text) != nil {
					err = errors.New("no valid JSON string")
				}
			}
		}
		switch {
		case err != nil:
			bad++
			fmt.Fprintf(c.Stderr, "line %d: %v\n", number, err)
			err = c.signature("-", signature.Signature{}, nil)
		case explain:
			s, made := signature.Explain(text)
			err = c.signature(s.ID, s, made)
		default:
			s := signature.Of(text)
			err = c.signature(s.ID, s, nil)
		}
		if err != nil {
			return err
		}
		if r.Buffered() == 0 { // whoever writes line by line waits for an answer
			if err := c.flush(); err != nil {
				return err
			}
		}
	}
	if bad > 0 {
		return fmt.Errorf("%s could not be read", count(bad, "line"))
	}
	return nil
}

func (c *call) signature(id string, s signature.Signature, made []signature.Replacement) error {
	if c.output == "jsonl" {
		j := signatureJSON{ID: id, Text: s.Text}
		for _, m := range made {
			j.Replacements = append(j.Replacements, replacementJSON(m))
		}
		return c.json(j)
	}
	if _, err := fmt.Fprintf(c.out, "%s\t%s\n", id, s.Text); err != nil {
		return err
	}
	for _, m := range made {
		if _, err := fmt.Fprintf(c.out, " %s -> %s (%s)\n", clean(m.From), clean(m.To), m.Rule); err != nil {
			return err
		}
	}
	return nil
}

// readLine reads a line without its end, into buf. Of a line longer than limit,
// only the beginning is kept. The last line needs no end.
func readLine(r *bufio.Reader, buf []byte, limit int) (line []byte, whole bool, err error) {
	whole, any := true, false
	for {
		part, err := r.ReadSlice('\n')
		any = any || len(part) > 0
		if room := limit - len(buf); len(part) > room+2 {
			buf, whole = append(buf, part[:max(room, 0)]...), false
		} else {
			buf = append(buf, part...)
		}
		switch {
		case err == nil, errors.Is(err, io.EOF) && any:
			buf = bytes.TrimSuffix(buf, []byte("\n"))
			return bytes.TrimSuffix(buf, []byte("\r")), whole, nil
		case errors.Is(err, bufio.ErrBufferFull):
		default:
			return buf, whole, err
		}
	}
}

// input opens a file, or the standard input for none and for -.
func (c *call) input(ctx context.Context, name string) (io.Reader, func(), error) {
	if name == "" || name == "-" {
		if c.Stdin == nil {
			return bytes.NewReader(nil), func() {}, nil
		}
		return &ending{ctx: ctx, r: c.Stdin}, func() {}, nil
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, nil, err
	}
	return f, func() { _ = f.Close() }, nil
}

// flush writes out what was printed so far.
func (c *call) flush() error {
	if f, ok := c.out.(interface{ Flush() error }); ok {
		return f.Flush()
	}
	return nil
}

func firstOf(args []string) string {
	if len(args) == 0 {
		return ""
	}
	return args[0]
}

// ending is a reader whose reads end with ctx, also while they wait for a
// terminal or a pipe. The goroutine of such a read is left behind, and the
// process ends.
type ending struct {
	ctx context.Context
	r   io.Reader
	buf []byte // not the caller's, which may be used again before the read ends
}

func (e *ending) Read(p []byte) (int, error) {
	if err := e.ctx.Err(); err != nil {
		return 0, err
	}
	if e.ctx.Done() == nil || len(p) == 0 {
		return e.r.Read(p)
	}
	if len(e.buf) < len(p) {
		e.buf = make([]byte, len(p))
	}
	type result struct {
		n   int
		err error
	}
	buf, done := e.buf[:len(p)], make(chan result, 1)
	go func() {
		n, err := e.r.Read(buf)
		done <- result{n, err}
	}()
	select {
	case r := <-done:
		return copy(p, buf[:r.n]), r.err
	case <-e.ctx.Done():
		return 0, e.ctx.Err()
	}
}
