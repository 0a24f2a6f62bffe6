package sqsfake

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// Always as Fault.Times never stops.
const Always = math.MaxInt

// Fault is a line of a script: what goes wrong, with which action, when.
type Fault struct {
	// Action is one of the API, such as "SendMessage". Empty means any.
	Action string
	// Queue is the name of the queue. Empty means any.
	Queue string
	// Skip lets so many calls pass that match.
	Skip int
	// Times is how many of the calls after that are hit, one after the other.
	// Zero means once; see [Always].
	Times int
	// Do is what happens.
	Do Effect
}

// String describes f on a line, for the failure messages of tests.
func (f Fault) String() string {
	return fmt.Sprintf("%q on queue %q, skip %d, %d times: %s", f.Action, f.Queue, f.Skip, max(f.Times, 1), f.Do.kind)
}

// Effect is what a fault does. Make it with one of the functions that return
// one: [Fail], [FailAfter], [Refuse], [Drop], [Hold], [Delay].
type Effect struct {
	kind    kind
	code    string
	until   <-chan struct{}
	delay   time.Duration
	entries []int // of a batch
}

type kind string

const (
	failing      kind = "fail"
	failingAfter kind = "fail after"
	refusing     kind = "refuse"
	dropping     kind = "drop"
	holding      kind = "hold"
	delaying     kind = "delay"

	failingEntries kind = "fail entries"
	losingEntries  kind = "lose entries"
)

// Fail answers with an error and has no other effect. The code is one that SDKs
// report: "RequestThrottled", "AccessDenied", "QueueDoesNotExist", and
// "InternalError" or "ServiceUnavailable" for an answer of 500 or 503, which
// SDKs repeat by themselves.
func Fail(code string) Effect { return Effect{kind: failing, code: code} }

// FailAfter answers with an error though the call was carried out.
func FailAfter(code string) Effect { return Effect{kind: failingAfter, code: code} }

// Refuse breaks the connection before anything is done.
func Refuse() Effect { return Effect{kind: refusing} }

// Drop carries the call out and breaks the connection instead of answering.
func Drop() Effect { return Effect{kind: dropping} }

// Hold keeps the call until release is closed, or the server, and then carries
// it out, also for a client that is gone.
func Hold(release <-chan struct{}) Effect { return Effect{kind: holding, until: release} }

// Delay keeps the call for d, otherwise like [Hold].
func Delay(d time.Duration) Effect { return Effect{kind: delaying, delay: d} }

// FailEntries answers a batch with an error for the entries at these positions,
// counted from 0, which have no other effect; the others are carried out. Positions
// that the batch does not have are ignored. Like AWS, codes of a status of 500 and
// above are not the sender's fault.
func FailEntries(code string, at ...int) Effect {
	return Effect{kind: failingEntries, code: code, entries: at}
}

// LoseEntries does not carry out the entries of a batch at these positions, and
// says nothing of them in the answer.
func LoseEntries(at ...int) Effect { return Effect{kind: losingEntries, entries: at} }

// wait returns false if the server was closed before the end.
func (e Effect) wait(closed <-chan struct{}) bool {
	var timer <-chan time.Time
	switch e.kind {
	case delaying:
		t := time.NewTimer(e.delay)
		defer t.Stop()
		timer = t.C
	case holding:
	default:
		return true
	}
	select {
	case <-timer:
		return true
	case <-e.until:
		return true
	case <-closed:
		return false
	}
}

func (e Effect) ofEntries() bool { return e.kind == failingEntries || e.kind == losingEntries }

// partly carries out what an effect leaves of a batch.
func (e Effect) partly(body []byte, do func(rest []byte) (any, error)) (any, error) {
	var in map[string]json.RawMessage
	var all, rest []json.RawMessage
	if err := errors.Join(decode(body, &in), json.Unmarshal(in["Entries"], &all)); err != nil {
		return do(body) // which says what is wrong with it
	}
	var out struct {
		Successful []json.RawMessage `json:",omitempty"`
		Failed     []failedEntry     `json:",omitempty"`
	}
	for i, entry := range all {
		if !slices.Contains(e.entries, i) {
			rest = append(rest, entry)
			continue
		}
		var name struct{ ID string } // as the action would check it
		if err := json.Unmarshal(entry, &name); err == nil && e.kind == failingEntries {
			k := fail(e.code, "").kind()
			out.Failed = append(out.Failed, failedEntry{ID: name.ID, Code: k.query, Message: "injected fault", SenderFault: k.fault() == "Sender"})
		}
	}
	if len(rest) == 0 && len(all) > 0 {
		return out, nil
	}
	in["Entries"], _ = json.Marshal(rest) // of what was JSON
	body, _ = json.Marshal(in)
	result, err := do(body)
	if err != nil {
		return nil, err
	}
	failed := out.Failed
	out.Failed = nil
	text, err := json.Marshal(result)
	if err == nil {
		err = json.Unmarshal(text, &out)
	}
	out.Failed = append(failed, out.Failed...)
	return out, err
}

// scripted is a fault that was injected.
type scripted struct {
	Fault
	hit bool
}

// Inject appends faults to the script. Each call is shown to the faults in
// their order. One that matches either lets it pass, which costs one of its
// Skip, or takes it, which costs one of its Times; what one took the others do
// not see. An SDK repeats some calls by itself, and each try is a call. Inject
// panics if a fault cannot happen: that is a mistake in the test.
func (s *Server) Inject(faults ...Fault) {
	for _, f := range faults {
		if err := f.validate(); err != nil {
			panic(fmt.Errorf("sqsfake: inject: %v: %w", f, err))
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range faults {
		f.Times = max(f.Times, 1)
		s.faults = append(s.faults, &scripted{Fault: f})
	}
}

func (f Fault) validate() error {
	_, known := handlers[f.Action]
	switch {
	case f.Action != "" && !known:
		return errors.New("there is no such action")
	case f.Do.kind == "":
		return errors.New("field Do is not set")
	case f.Do.ofEntries() && !strings.HasSuffix(f.Action, "Batch"):
		return errors.New("field Do is for batches, and the action is none")
	case f.Skip < 0 || f.Times < 0:
		return errors.New("fields Skip and Times cannot be negative")
	}
	return nil
}

// FaultsLeft returns the faults that have not fully happened yet, with what is
// left of their Skip and Times. A fault that happens [Always] is left until it
// has happened once.
func (s *Server) FaultsLeft() []Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	var left []Fault
	for _, f := range s.faults {
		if f.Times != Always || !f.hit {
			left = append(left, f.Fault)
		}
	}
	return left
}

// ClearFaults forgets the script. What waits already goes on waiting.
func (s *Server) ClearFaults() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = nil
}

// match returns what the script has for a call. Called with the lock held.
func (s *Server) match(action, queue string) Effect {
	for i, f := range s.faults {
		switch {
		case f.Action != "" && f.Action != action, f.Queue != "" && f.Queue != queue:
			continue
		case f.Skip > 0:
			f.Skip--
			continue
		}
		f.hit = true
		if f.Times != Always {
			f.Times--
		}
		if f.Times == 0 {
			s.faults = slices.Delete(s.faults, i, i+1)
		}
		return f.Do
	}
	return Effect{}
}
