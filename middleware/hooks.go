package middleware

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/failure"
	"github.com/spillway-mq/spillway/poison"
	"github.com/spillway-mq/spillway/policy"
)

// Hooks are told what happens to messages. Every field is optional. Hooks are
// called on the message's own goroutine: they must return quickly, must not keep
// the context, must not change what they are told, and must be safe for concurrent
// use. Infos are pointers because the Router starts a goroutine for each message,
// whose stack is too small for copies of them and would have to grow.
type Hooks struct {
	// OnOpen: a chain was made for a broker. Called once by [NewChain], before
	// anything else, on its goroutine.
	OnOpen func(context.Context, *OpenInfo)
	// OnStart: a delivery has entered the chain.
	OnStart func(context.Context, *StartInfo)
	// OnAttempt: the handler has returned, or panicked.
	OnAttempt func(context.Context, *AttemptInfo)
	// OnHandoffFailure: a hand-off was not confirmed; it will be repeated, or
	// ends as the outcome says that follows.
	OnHandoffFailure func(context.Context, *HandoffFailureInfo)
	// OnOutcome: the delivery has left the chain. Called once for each OnStart,
	// where the decision was taken and carried out. What was handed off may have
	// come back, and may even be finished, before it is called.
	OnOutcome func(context.Context, *OutcomeInfo)
}

// hookList calls the hooks of several [Hooks] in turn. A panic of one ends in the
// log: one that got out would send back a message that is handed off already.
type hookList struct {
	start          []func(context.Context, *StartInfo)
	attempt        []func(context.Context, *AttemptInfo)
	handoffFailure []func(context.Context, *HandoffFailureInfo)
	outcome        []func(context.Context, *OutcomeInfo)

	logger   *slog.Logger
	evidence poison.Evidence
}

func newHookList(all []Hooks, logger *slog.Logger, evidence poison.Evidence) hookList {
	l := hookList{logger: logger, evidence: evidence}
	for _, h := range all {
		l.start = appendHook(l.start, h.OnStart)
		l.attempt = appendHook(l.attempt, h.OnAttempt)
		l.handoffFailure = appendHook(l.handoffFailure, h.OnHandoffFailure)
		l.outcome = appendHook(l.outcome, h.OnOutcome)
	}
	return l
}

func appendHook[I any](hooks []func(context.Context, *I), hook func(context.Context, *I)) []func(context.Context, *I) {
	if hook == nil {
		return hooks
	}
	return append(hooks, hook)
}

// callHook calls one hook.
func callHook[I any](ctx context.Context, l *hookList, name string, hook func(context.Context, *I), info *I) {
	defer l.guard(ctx, name)
	hook(ctx, info)
}

// guard is deferred around a hook.
func (l *hookList) guard(ctx context.Context, name string) {
	if value := recover(); value != nil {
		l.logPanic(ctx, name, value)
	}
}

func (l *hookList) logPanic(ctx context.Context, name string, value any) {
	l.logger.LogAttrs(ctx, slog.LevelError, "hook panicked",
		slog.String("hook", name), slog.String("panic", l.evidence.Text(fmt.Sprint(value))), slog.String("stack", l.evidence.Text(string(debug.Stack()))))
}

// Outcome is how a delivery ended.
type Outcome string

const (
	OutcomeProcessed    Outcome = "processed"     // the handler, and the publishing of its outputs, succeeded
	OutcomeRetried      Outcome = "retried"       // handed off to retry
	OutcomeParked       Outcome = "parked"        // handed off to the parking lot
	OutcomeDeadLettered Outcome = "dead_lettered" // handed off to the dead letter stream
	OutcomeLastResort   Outcome = "last_resort"   // written to the last resort, because no stream takes it
	OutcomeReturned     Outcome = "returned"      // given back to the broker, uncounted
	OutcomeDelayed      Outcome = "delayed"       // came before its due time and was handed off for the rest of it
	OutcomeSuspected    Outcome = "suspected"     // handed off to the suspect stream: delivered too often without an outcome
)

// MessageInfo identifies a delivery. It is comparable.
type MessageInfo struct {
	Consumer      adapters.Consumer
	Stream        adapters.Stream
	Handler       string
	MessageID     string
	Partition     int32 // of the stream it came from; zero where the broker has none
	Offset        int64
	Attempt       int  // from 1
	Replay        bool // a person sent it back
	DeliveryCount int  // zero where the broker does not count
}

// OpenInfo is what [Hooks].OnOpen is told.
type OpenInfo struct {
	// Broker is its kind, such as "kafka".
	Broker string
	// Windows returns what the broker has read ahead at the moment of the call; nil
	// for a broker that is no [adapters.Windowed]. It may be called at any time, by
	// any goroutine; once the broker is closed, there are none.
	Windows func() []adapters.Window
}

// StartInfo is what [Hooks].OnStart is told.
type StartInfo struct {
	MessageInfo
	// At is when the delivery entered the chain.
	At time.Time
	// DueAt is when it was due; zero for a first delivery.
	DueAt time.Time
}

// AttemptInfo is what [Hooks].OnAttempt is told.
type AttemptInfo struct {
	MessageInfo
	// Duration of the handler's call.
	Duration time.Duration
	// Err is what the handler returned; nil for success.
	Err error
}

// HandoffFailureInfo is what [Hooks].OnHandoffFailure is told.
type HandoffFailureInfo struct {
	MessageInfo
	// To is the stream that did not take the message.
	To adapters.Stream
	// Tries so far, from 1.
	Tries int
	// Next is the pause before the next try; zero if there is none.
	Next time.Duration
	Err  error
}

// OutcomeInfo is what [Hooks].OnOutcome is told.
type OutcomeInfo struct {
	MessageInfo
	Outcome Outcome
	// Failure that was decided about; zero for the outcomes processed, returned,
	// delayed and suspected.
	Failure failure.Failure
	// Reason for a dead letter, else empty.
	Reason policy.Reason
	// DeadLetterID of a dead letter, else empty.
	DeadLetterID string
	// DueAt is the next delivery of a retried, parked or delayed message, else
	// zero.
	DueAt time.Time
	// LastResort is the file that the message was written to, else empty.
	LastResort string
}
