package redrive

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"time"

	"github.com/spillway-mq/spillway/adapters"
)

// Options are what the check is told beyond the exports. The zero value knows
// nothing about the application, and then only rules that need to know nothing
// apply.
type Options struct {
	// Template accepts what tools that write templates produce: policies that
	// are JSON objects, and attributes that are numbers or booleans.
	Template bool
	// Exclude names queues about which nothing is said, as patterns of
	// [path.Match]. They still stand in the graph, as targets.
	Exclude []string
	// Partial means that there are more queues than exports: a target that is
	// not among them is then a warning.
	Partial bool
	// Live means that the attributes were read from a server just now: one that
	// is absent is then not known. Of an export it has its default.
	Live bool
	// Application is what is known about the consumers.
	Application Application
}

// Mode says how a message waits for its next attempt.
type Mode string

// The modes. Empty means that it is not known.
const (
	// ModeCopy sends a copy with a delay, and deletes the original.
	ModeCopy Mode = "copy"
	// ModeInPlace leaves the message in its queue, invisible.
	ModeInPlace Mode = "in-place"
)

// NoHeartbeat as [Application].Heartbeat says that nothing extends the
// visibility of a message while its handler runs.
const NoHeartbeat time.Duration = -1

// NoPoll as [Application].Poll says that receives ask for no wait, so that the
// queue's own holds.
const NoPoll time.Duration = -1

// Application is what consumers do with the queues. A zero field is not known,
// and the rules that need it are silent.
type Application struct {
	// Roles by the name of the queue. Queues that are not in it get their role
	// from the graph: dlq if a policy names them, and otherwise main.
	Roles map[string]adapters.Stream
	// Topics are the names of the queues of topics.
	Topics map[string]string
	// Mode of retries.
	Mode Mode
	// Attempts is the greatest number of attempts.
	Attempts int
	// Schedule is the time from the first attempt until a message is given up.
	Schedule time.Duration
	// MaxBackoff is the longest wait between two attempts.
	MaxBackoff time.Duration
	// Drain is the longest that a message lies in a queue because consumers are
	// slow or stopped.
	Drain time.Duration
	// Batch is the number of messages that one receive asks for.
	Batch int
	// HandlerTimeout is the longest that a handler may run.
	HandlerTimeout time.Duration
	// Heartbeat is the interval at which visibility is extended, or NoHeartbeat.
	Heartbeat time.Duration
	// Poll is the wait that each receive asks for, or NoPoll.
	Poll time.Duration
	// LambdaTimeout is the time limit of the function that reads the queue.
	LambdaTimeout time.Duration
	// ParkingInterval is the time between two looks at a parked message.
	ParkingInterval time.Duration
	// Oldest is the age of the oldest message by the name of the queue, as the
	// metric ApproximateAgeOfOldestMessage has it.
	Oldest map[string]time.Duration
	// NoDeduplicationIDs means that messages are sent to FIFO queues without
	// deduplication ids of their own.
	NoDeduplicationIDs bool
}

// Validate reports patterns that are none, and values out of range.
func (o Options) Validate() error {
	var errs []error
	for _, pattern := range o.Exclude {
		if _, err := path.Match(pattern, ""); err != nil || pattern == "" {
			errs = append(errs, fmt.Errorf("exclude: %q is no pattern", pattern))
		}
	}
	a := o.Application
	roles := []adapters.Stream{adapters.StreamMain, adapters.StreamRetry, adapters.StreamParking, adapters.StreamDeadLetter, adapters.StreamSuspect}
	for name, role := range a.Roles {
		if !slices.Contains(roles, role) {
			errs = append(errs, fmt.Errorf("roles: %q of %s is none of %v", role, name, roles))
		}
	}
	if a.Mode != "" && a.Mode != ModeCopy && a.Mode != ModeInPlace {
		errs = append(errs, fmt.Errorf("mode: %q is neither %s nor %s", a.Mode, ModeCopy, ModeInPlace))
	}
	for name, n := range map[string]int{"attempts": a.Attempts, "batch": a.Batch} {
		if n < 0 {
			errs = append(errs, fmt.Errorf("%s: %d is negative", name, n))
		}
	}
	for name, d := range map[string]time.Duration{
		"schedule": a.Schedule, "maxBackoff": a.MaxBackoff, "drain": a.Drain, "handlerTimeout": a.HandlerTimeout,
		"lambdaTimeout": a.LambdaTimeout, "parkingInterval": a.ParkingInterval,
	} {
		if d < 0 {
			errs = append(errs, fmt.Errorf("%s: %v is negative", name, d))
		}
	}
	if a.Heartbeat < 0 && a.Heartbeat != NoHeartbeat {
		errs = append(errs, fmt.Errorf("heartbeat: %v is negative", a.Heartbeat))
	}
	if a.Poll < 0 && a.Poll != NoPoll || a.Poll > maxPoll {
		errs = append(errs, fmt.Errorf("poll: %v is not between 0 and %v", a.Poll, maxPoll))
	}
	for name, d := range a.Oldest {
		if d < 0 {
			errs = append(errs, fmt.Errorf("oldest: %v of %s is negative", d, name))
		}
	}
	slices.SortFunc(errs, func(a, b error) int { return bytes.Compare([]byte(a.Error()), []byte(b.Error())) })
	return errors.Join(errs...)
}

// ParseApplication reads an [Application] from JSON, in which durations are
// texts such as "90s", and heartbeat and poll may be "off".
func ParseApplication(data []byte) (Application, error) {
	if _, f := parseJSON(data); f != nil {
		if f.line > 0 {
			return Application{}, fmt.Errorf("line %d %s", f.line, f.message)
		}
		return Application{}, f
	}
	var d struct {
		Roles              map[string]adapters.Stream `json:"roles"`
		Topics             map[string]string          `json:"topics"`
		Mode               Mode                       `json:"mode"`
		Attempts           int                        `json:"attempts"`
		Schedule           duration                   `json:"schedule"`
		MaxBackoff         duration                   `json:"maxBackoff"`
		Drain              duration                   `json:"drain"`
		Batch              int                        `json:"batch"`
		HandlerTimeout     duration                   `json:"handlerTimeout"`
		Heartbeat          duration                   `json:"heartbeat"`
		Poll               duration                   `json:"poll"`
		LambdaTimeout      duration                   `json:"lambdaTimeout"`
		ParkingInterval    duration                   `json:"parkingInterval"`
		Oldest             map[string]duration        `json:"oldest"`
		NoDeduplicationIDs bool                       `json:"noDeduplicationIds"`
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&d); err != nil && err != io.EOF {
		return Application{}, err
	}
	a := Application{
		Roles: d.Roles, Topics: d.Topics, Mode: d.Mode, Attempts: d.Attempts,
		Schedule: time.Duration(d.Schedule), MaxBackoff: time.Duration(d.MaxBackoff), Drain: time.Duration(d.Drain),
		Batch: d.Batch, HandlerTimeout: time.Duration(d.HandlerTimeout), Heartbeat: time.Duration(d.Heartbeat),
		LambdaTimeout: time.Duration(d.LambdaTimeout), ParkingInterval: time.Duration(d.ParkingInterval),
		NoDeduplicationIDs: d.NoDeduplicationIDs, Poll: time.Duration(d.Poll),
	}
	if d.Oldest != nil {
		a.Oldest = make(map[string]time.Duration, len(d.Oldest))
		for name, age := range d.Oldest {
			a.Oldest[name] = time.Duration(age)
		}
	}
	return a, Options{Application: a}.Validate()
}

type duration time.Duration

func (d *duration) UnmarshalText(b []byte) error {
	if string(b) == "off" {
		*d = duration(NoHeartbeat)
		return nil
	}
	v, err := time.ParseDuration(string(b))
	if err == nil && v < 0 {
		err = fmt.Errorf("%s is negative", b)
	}
	*d = duration(v)
	return err
}

// excluded reports whether nothing is to be said about a queue.
func (o Options) excluded(name string) bool {
	return name != "" && slices.ContainsFunc(o.Exclude, func(pattern string) bool {
		ok, err := path.Match(pattern, name)
		return ok && err == nil
	})
}
