package storm

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spillway-mq/spillway/adapters"
)

// Kind of an [Event].
type Kind string

const (
	// The producer's.
	Publishing  Kind = "publishing"
	Confirmed   Kind = "confirmed"
	Unconfirmed Kind = "unconfirmed" // Note: the error

	// A consumer's, in the order of a delivery.
	Delivered     Kind = "delivered"     // Stream, Count, Attempt, Checks, Due, Digest; Owner of state
	Handling      Kind = "handling"      // the handler was called: Attempt, Checks, Due as it sees them
	Handled       Kind = "handled"       // Note: what it did
	HandingOff    Kind = "handing off"   // Stream, Attempt, Checks, Due as written
	HandedOff     Kind = "handed off"    // and confirmed
	NotHandedOff  Kind = "not confirmed" // Note: the error
	Outcome       Kind = "outcome"       // Note: the chain's outcome, and reason
	Acknowledged  Kind = "acknowledged"
	NotAcked      Kind = "ack failed" // Note: the error
	Returned      Kind = "returned"   // Note: the error, if there was one
	OutputStarted Kind = "output"     // the handler has an output, to be published

	// The driver's.
	Disturbed Kind = "disturbed" // from At to Due: Note; Scope says who, empty means all
)

// Event is one line of a ledger. Fields that a kind does not need are zero.
type Event struct {
	At      int64           `json:"t"` // Unix time, in nanoseconds
	Kind    Kind            `json:"k"`
	ID      string          `json:"id,omitempty"`
	Group   string          `json:"g,omitempty"`
	Number  uint64          `json:"n,omitempty"` // of the delivery, in its process
	Stream  adapters.Stream `json:"s,omitempty"`
	Count   int             `json:"c,omitempty"`
	Attempt int             `json:"a,omitempty"`
	Checks  int             `json:"p,omitempty"`
	Due     int64           `json:"d,omitempty"` // Unix time, in nanoseconds; zero: none
	Digest  string          `json:"h,omitempty"`
	Owner   string          `json:"o,omitempty"` // "topic/group" of the state in the record
	Scope   string          `json:"x,omitempty"`
	Broker  bool            `json:"b,omitempty"` // the broker itself was hit
	Note    string          `json:"e,omitempty"`

	// Process is the name of the ledger.
	Process string `json:"-"`
}

// String is the event as a step of a message's history.
func (e Event) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s", time.Unix(0, e.At).UTC().Format("15:04:05.000"), e.Process)
	if e.Number > 0 {
		fmt.Fprintf(&b, "#%d", e.Number)
	}
	fmt.Fprintf(&b, " %s", e.Kind)
	if e.Stream != "" {
		fmt.Fprintf(&b, " %s", e.Stream)
	}
	if e.Attempt > 0 {
		fmt.Fprintf(&b, ", attempt %d", e.Attempt)
	}
	if e.Checks > 0 {
		fmt.Fprintf(&b, ", check %d", e.Checks)
	}
	if e.Count > 1 {
		fmt.Fprintf(&b, ", delivery count %d", e.Count)
	}
	if e.Due != 0 {
		fmt.Fprintf(&b, ", due %s", time.Unix(0, e.Due).UTC().Format("15:04:05.000"))
	}
	if e.Note != "" {
		fmt.Fprintf(&b, ": %s", e.Note)
	}
	return b.String()
}

const ledgerSuffix = ".ledger"

// Ledger is the record of one process. It is safe for concurrent use.
type Ledger struct {
	mu sync.Mutex
	f  *os.File
}

// OpenLedger begins the ledger of a process. Each life of a process has a name.
func OpenLedger(dir, process string) (*Ledger, error) {
	f, err := os.OpenFile(filepath.Join(dir, process+ledgerSuffix), os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("ledger: %w", err)
	}
	return &Ledger{f: f}, nil
}

// Write appends e, stamped now if it has no time. When it returns, e survives a
// kill -9 of the process. A ledger that cannot be written would make losses
// look like faults of the broker, so that is the end of the process.
func (l *Ledger) Write(e Event) {
	if e.At == 0 {
		e.At = time.Now().UnixNano()
	}
	line, err := json.Marshal(e)
	if err == nil {
		l.mu.Lock()
		_, err = l.f.Write(append(line, '\n'))
		l.mu.Unlock()
	}
	if err != nil {
		panic(fmt.Errorf("ledger: %w", err))
	}
}

// Close syncs and closes the file.
func (l *Ledger) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	err := l.f.Sync()
	if closeErr := l.f.Close(); err == nil {
		err = closeErr
	}
	return err
}

// Reader reads all ledgers of a folder while they are written.
type Reader struct {
	dir    string
	offset map[string]int64
}

// NewReader returns a reader at the beginning of all ledgers.
func NewReader(dir string) *Reader { return &Reader{dir: dir, offset: map[string]int64{}} }

// Next calls fn with each event that is new since the last call, ledger by
// ledger. A line without its end is left for later; one that is torn, though
// others follow, is an error.
func (r *Reader) Next(fn func(Event)) error {
	paths, err := filepath.Glob(filepath.Join(r.dir, "*"+ledgerSuffix))
	if err != nil {
		return fmt.Errorf("ledger: %w", err)
	}
	slices.Sort(paths)
	for _, path := range paths {
		if err := r.next(path, fn); err != nil {
			return fmt.Errorf("ledger: %s: %w", filepath.Base(path), err)
		}
	}
	return nil
}

func (r *Reader) next(path string, fn func(Event)) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.Seek(r.offset[path], io.SeekStart); err != nil {
		return err
	}
	data, err := io.ReadAll(f)
	if err != nil {
		return err
	}
	process := strings.TrimSuffix(filepath.Base(path), ledgerSuffix)
	for {
		line, rest, whole := bytes.Cut(data, []byte("\n"))
		if !whole {
			return nil
		}
		e := Event{Process: process}
		if err := json.Unmarshal(line, &e); err != nil {
			return fmt.Errorf("at byte %d: %w", r.offset[path], err)
		}
		r.offset[path] += int64(len(line)) + 1
		data = rest
		fn(e)
	}
}
