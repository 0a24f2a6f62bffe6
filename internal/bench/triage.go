package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/spillway-mq/spillway/envelope"
	"github.com/spillway-mq/spillway/failure"
	"github.com/spillway-mq/spillway/internal/cputime"
	"github.com/spillway-mq/spillway/triage"
	"github.com/spillway-mq/spillway/triage/signature"
)

// triaging measures triage and signatures beside the naive method.
type triaging struct {
	messages int
	rounds   int
	run      string // in a process of its own: ours or naive
	file     string
}

// naive is the method that most teams write: UUIDs, quotations and digits
// replaced, and the text cut.
func naive(text string) string {
	text = naiveUUID.ReplaceAllString(text, "<uuid>")
	text = naiveQuoted.ReplaceAllString(text, "<str>")
	text = naiveDigits.ReplaceAllString(text, "<n>")
	if len(text) > 120 {
		text = text[:120]
	}
	return text
}

var (
	naiveUUID   = regexp.MustCompile(`[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}`)
	naiveQuoted = regexp.MustCompile(`"[^"]*"|'[^']*'`)
	naiveDigits = regexp.MustCompile(`\d+`)
)

// signatures is the cost of a signature.
func (t triaging) signatures(_ context.Context, out *table) {
	texts := make([]string, 4096)
	size := 0
	for i := range texts {
		texts[i] = deadLetter(i).Failure.Message
		size += len(texts[i])
	}
	// In processor time, and the least of some: what else the machine does only
	// adds.
	perText := func(f func(string)) float64 {
		const n = 50_000
		best := 0.0
		for range 7 {
			spent := busy(func() {
				for i := range n {
					f(texts[i%len(texts)])
				}
			})
			if ns := float64(spent.Nanoseconds()) / n; best == 0 || ns < best {
				best = ns
			}
		}
		return best
	}
	ours := perText(func(s string) { signature.Of(s) })
	theirs := perText(func(s string) { naive(s) })
	out.check(fmt.Sprintf("signature of a text of %d bytes", size/len(texts)), ours < 3000, "< 3 µs of processor", "%.2f µs", ours/1000)
	out.note("  three regular expressions on the same texts", "%.2f µs, %.1f times as long", theirs/1000, theirs/ours)
}

// busy is how much processor time do takes, or time where that is not known.
func busy(do func()) time.Duration {
	began, spent := time.Now(), cputime.Spent()
	do()
	if spent = cputime.Spent() - spent; spent > 0 {
		return spent
	}
	return time.Since(began)
}

// onePass runs both programs on the same file, each in a process of its own. They
// are compared by the processor time that they take, of which ours, being at
// work on all processors, has twice as much on two: what else the machine does
// meanwhile must not decide.
func (t triaging) onePass(ctx context.Context, out *table) {
	const what = "triage of a file of dead letters"
	dir, err := os.MkdirTemp("", "spillway-bench")
	if err != nil {
		out.fail(what, err)
		return
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "dead.jsonl")
	if err := writeDeadLetters(file, t.messages); err != nil {
		out.fail(what, err)
		return
	}
	var peaks [2]int64
	var groups [2]int
	var walls [2]float64
	program := func(i int, name string, processors float64) func() (float64, error) {
		return func() (float64, error) {
			r, err := t.process(ctx, name, file)
			if err != nil {
				return 0, err
			}
			if r.Messages != int64(t.messages) {
				return 0, fmt.Errorf("%s counted %d messages of %d", name, r.Messages, t.messages)
			}
			peaks[i], groups[i] = max(peaks[i], r.Peak), r.Groups
			walls[i] = max(walls[i], float64(r.Messages)/r.Seconds)
			return float64(r.Messages) * processors / r.Busy, nil
		}
	}
	rates, err := inTurns(t.rounds, program(0, "ours", 2), program(1, "naive", 1))
	if err != nil {
		out.fail(what, err)
		return
	}
	ratio := rates.ratio(0, 1)
	out.check(fmt.Sprintf("triage of %d dead letters on two processors, of the naive method", t.messages), ratio >= 4, "≥ 4 times",
		"%.1f times (%.0f of %.0f msg/s)", ratio, rates.median(0), rates.median(1))
	out.note("  as it went, beside all else", "%.1f times (%.0f of %.0f msg/s)", walls[0]/walls[1], walls[0], walls[1])
	if peaks[0] > 0 {
		out.check("  memory", peaks[0] <= 100<<20, "≤ 100 MiB", "%d MiB, naive %d MiB", peaks[0]>>20, peaks[1]>>20)
	}
	out.note("  groups", "%d, naive %d", groups[0], groups[1])
}

// passResult is what a process of a pass prints.
type passResult struct {
	Messages int64
	Groups   int
	Seconds  float64
	Busy     float64 // seconds of processor time; as Seconds if the system does not tell
	Peak     int64   // of resident memory, in bytes; zero if the system does not tell
}

func (t triaging) process(ctx context.Context, name, file string) (passResult, error) {
	self, err := os.Executable()
	if err != nil {
		return passResult{}, err
	}
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(ctx, self, "-triage-run", name, "-triage-file", file)
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return passResult{}, fmt.Errorf("%s: %w: %s", name, err, errs.String())
	}
	var r passResult
	return r, json.Unmarshal(out.Bytes(), &r)
}

// child is the process of one pass.
func (t triaging) child(ctx context.Context) error {
	f, err := os.Open(t.file)
	if err != nil {
		return err
	}
	defer f.Close()
	start, spent := time.Now(), cputime.Spent()
	var r passResult
	switch t.run {
	case "ours":
		pass, err := triage.Read(ctx, f, triage.Limits{})
		if err != nil {
			return err
		}
		report := triage.NewReport(pass.Groups, triage.Options{})
		r.Messages, r.Groups = report.Messages, len(report.Groups)
	case "naive":
		r.Messages, r.Groups, err = naivePass(f)
	default:
		err = errors.New("there is no such program: " + t.run)
	}
	if err != nil {
		return err
	}
	r.Seconds, r.Peak = time.Since(start).Seconds(), peakMemory()
	if r.Busy = (cputime.Spent() - spent).Seconds(); r.Busy <= 0 {
		r.Busy = r.Seconds
	}
	return json.NewEncoder(os.Stdout).Encode(r)
}

// naivePass is the plain program: decode each line, normalise, count.
func naivePass(in io.Reader) (messages int64, groups int, err error) {
	type deadLetter struct {
		Failure struct {
			Class          string    `json:"class"`
			Message        string    `json:"message"`
			FirstAttemptAt time.Time `json:"firstAttemptAt"`
		} `json:"failure"`
		Consumer struct {
			Version string `json:"version"`
		} `json:"consumer"`
	}
	type group struct {
		count       int64
		first, last time.Time
	}
	found := map[string]*group{}
	lines := bufio.NewScanner(in)
	lines.Buffer(make([]byte, 64<<10), 16<<20)
	for lines.Scan() {
		var d deadLetter
		if err := json.Unmarshal(lines.Bytes(), &d); err != nil {
			return 0, 0, err
		}
		key := d.Failure.Class + "|" + d.Consumer.Version + "|" + naive(d.Failure.Message)
		g := found[key]
		if g == nil {
			g = &group{first: d.Failure.FirstAttemptAt, last: d.Failure.FirstAttemptAt}
			found[key] = g
		}
		g.count++
		if d.Failure.FirstAttemptAt.Before(g.first) {
			g.first = d.Failure.FirstAttemptAt
		}
		if d.Failure.FirstAttemptAt.After(g.last) {
			g.last = d.Failure.FirstAttemptAt
		}
		messages++
	}
	return messages, len(found), lines.Err()
}

// peakMemory is the most that was resident, as Linux tells it.
func peakMemory() int64 {
	text, _ := os.ReadFile("/proc/self/status")
	_, rest, found := strings.Cut(string(text), "VmHWM:")
	if !found {
		return 0
	}
	kib, _ := strconv.ParseInt(strings.TrimSpace(rest[:strings.IndexByte(rest, 'k')]), 10, 64)
	return kib << 10
}

func writeDeadLetters(file string, n int) (err error) {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	w := bufio.NewWriterSize(f, 1<<20)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	for i := range n {
		if err := enc.Encode(deadLetter(i)); err != nil {
			return errors.Join(err, f.Close())
		}
	}
	return errors.Join(w.Flush(), f.Close())
}

// deadLetter is the i-th of a year of dead letters: an outage, defects that
// last over weekly versions, stragglers.
func deadLetter(i int) envelope.DeadLetter {
	rng := rand.New(rand.NewPCG(uint64(i), 1))
	year := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	at := year.Add(time.Duration(rng.Int64N(330 * 24 * int64(time.Hour))))
	outage := year.Add(150*24*time.Hour + time.Duration(rng.Int64N(2*int64(time.Hour))))
	var class failure.Class
	var text string
	switch k := rng.IntN(10); {
	case k < 4:
		class, at = failure.ClassDependencyUnavailable, outage
		text = fmt.Sprintf("billing: charge order %d: dial tcp 10.42.%d.%d:5432: connect: connection refused after %d attempts in 2m30.%ds", rng.IntN(1e6), rng.IntN(256), rng.IntN(256), 3+rng.IntN(9), rng.IntN(1000))
	case k < 6:
		class = failure.ClassValidation
		text = fmt.Sprintf("billing: order %d of customer %q is not valid: json: unknown field %q at offset %d", rng.IntN(1e6), names[rng.IntN(len(names))], "discount", rng.IntN(4096))
	case k < 8:
		class = failure.ClassReferenceNotFound
		text = fmt.Sprintf("billing: customer %08x-%04x-4%03x-8%03x-%012x has no default address in region %s (SQLSTATE 23503)", rng.Uint32(), rng.IntN(1<<16), rng.IntN(1<<12), rng.IntN(1<<12), rng.Int64N(1<<48), "eu-west-1")
	default:
		class = failure.ClassDependencyTimeout
		text = fmt.Sprintf("billing: Post %q: context deadline exceeded (Client.Timeout exceeded while awaiting headers): status %d", fmt.Sprintf("https://api.pay.example.com/v1/charges/%d", rng.IntN(1e6)), 500+rng.IntN(4))
	}
	week := int(at.Sub(year).Hours() / 24 / 7)
	return envelope.DeadLetter{
		ID: fmt.Sprintf("%016x%016x", rng.Uint64(), rng.Uint64()),
		FailedMessage: envelope.FailedMessage{
			ID: fmt.Sprintf("%016x", rng.Uint64()), Type: "OrderPlaced", Aggregate: fmt.Sprintf("order-%d", i),
			Key:     []byte(strconv.Itoa(i)),
			Payload: fmt.Appendf(nil, `{"orderId":%d,"customer":%q,"total":%d.%02d,"currency":"EUR"}`, i, names[i%len(names)], rng.IntN(1000), rng.IntN(100)),
		},
		Failure: envelope.FailureInfo{
			Class: class, Nature: failure.NatureUnknown, Message: text, Reason: "attempts_exhausted", Attempts: 12,
			FirstAttemptAt: at, FailedAt: at.Add(20 * time.Minute),
		},
		Source:   envelope.SourceInfo{Broker: "kafka", Position: envelope.Position{Topic: "orders", Partition: new(int32(i % 12)), Offset: new(int64(i))}},
		Consumer: envelope.ConsumerInfo{Group: "billing", Handler: "charge", Version: fmt.Sprintf("1.%d.0", week)},
		TraceID:  fmt.Sprintf("%016x%016x", rng.Uint64(), rng.Uint64()),
	}
}

var names = [...]string{"Anna Kowalska", "Bob", "李小龙", "Chloé Martin", "Dmitri", "Eve"}
