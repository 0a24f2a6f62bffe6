package policy

import (
	"time"

	"github.com/spillway-mq/spillway/failure"
)

const (
	// MaxAttempts is the highest limit of attempts, and of replays, that a
	// policy may set. Unlimited attempts do not exist.
	MaxAttempts = 10_000

	// MaxDelay is the longest delay that a decision makes. A due time further
	// ahead is not believed when it is read back from a message.
	MaxDelay = 7 * 24 * time.Hour
)

// Jitter says how a drawn number spreads a delay d.
type Jitter string

const (
	// JitterProportional spreads to d*(0.5+u): the default.
	JitterProportional Jitter = "proportional"
	// JitterFull spreads to d*u.
	JitterFull Jitter = "full"
	// JitterNone keeps d.
	JitterNone Jitter = "none"
)

// Backoff is the delay before the next attempt: min(Max, Base*Factor^n),
// spread by Jitter, where n is the number of attempts counted so far. Zero
// fields mean the defaults. It is a value and safe for concurrent use.
type Backoff struct {
	// Base defaults to 1 s. The delay after the first attempt is Base*Factor.
	Base time.Duration
	// Factor defaults to 2; at least 1, which makes all delays alike.
	Factor float64
	// Max caps the delay before jitter; it defaults to 5 min. At most MaxDelay.
	Max time.Duration
	// Jitter defaults to JitterProportional.
	Jitter Jitter
}

// Attempts limits the counted attempts by the nature of the current failure.
// Zero means the default; a limit of 1 means no retry; the highest limit is
// [MaxAttempts].
type Attempts struct {
	Transient int // default 12
	Unknown   int // default 5
	Permanent int // default 1
	Ambiguous int // default 3; then the message is parked
}

// Parking says how long a parked message waits, and how often it is looked at.
type Parking struct {
	// Interval between two re-checks; default 5 min. It is constant and has no
	// jitter, and heeds no RetryAfter, so that first in is first due. Only the
	// last re-check comes sooner: at the deadline. At most MaxDelay.
	Interval time.Duration
	// Deadline of a message whose failure names a reference, counted from its
	// first parking; default 24 h.
	Deadline time.Duration
	// DeadlineWithoutReference defaults to 1 h.
	DeadlineWithoutReference time.Duration
}

// Override replaces parts of a policy for one class. Zero fields inherit.
type Override struct {
	// Nature, if set, replaces what the classifier said. A nature other than
	// ambiguous also overrules a failure that asks to be parked.
	Nature failure.Nature
	// Attempts, if set, is the limit whatever the nature. An ambiguous failure
	// is parked after that many.
	Attempts int
	// Backoff fields that are set replace those of the policy.
	Backoff Backoff
	// Parking fields that are set replace those of the policy.
	Parking Parking
}

// Policy is everything that [Decide] needs to know about what the user wants.
// Zero fields mean the defaults, so the zero Policy is the default policy. It
// is a value and safe for concurrent use as long as nobody changes Classes.
//
// Decoders need no help from this package: durations in nanoseconds, plain
// fields, and [Policy.Validate] for what a decoder cannot know.
type Policy struct {
	Attempts Attempts
	Backoff  Backoff
	Parking  Parking
	// MaxRetryAfter caps what a failure may ask for with RetryAfter; default
	// 1 h. At most MaxDelay. Jitter comes on top.
	MaxRetryAfter time.Duration
	// MaxAge ends retries and parking at this time after the first attempt:
	// no attempt is scheduled beyond it. Zero means off.
	MaxAge time.Duration
	// MaxReplays dead-letters a failed message that was replayed this often
	// already, without retrying it again; default 10.
	MaxReplays int
	// Classes overrides by class of the failure; nil means none.
	Classes map[failure.Class]Override
}

// History is what is known of a message when its attempt has just failed.
type History struct {
	// Attempts counted so far, including the one that just failed; less than 1
	// counts as 1.
	Attempts int
	// FirstAttemptAt is when the first attempt began; zero if that is unknown.
	FirstAttemptAt time.Time
	// ParkedAt is when the message was first parked; zero if it never was.
	ParkedAt time.Time
	// ReplayCount is how often a person sent the message back.
	ReplayCount int
	// Shutdown says that the consumer is closing: the attempt does not count.
	Shutdown bool
	// DeadLetterTopic says that the message was read from a dead letter
	// stream, which must never feed itself.
	DeadLetterTopic bool
}

// Reason says why a message was dead-lettered. Its values travel in message
// headers and are frozen.
type Reason string

const (
	ReasonPermanent         Reason = "permanent"          // it can never succeed
	ReasonAttemptsExhausted Reason = "attempts_exhausted" // it was tried as often as the policy allows
	ReasonParkingDeadline   Reason = "parking_deadline"   // what it waited for never came
	ReasonTooOld            Reason = "too_old"            // Policy.MaxAge
	ReasonConsumerCrash     Reason = "consumer_crash"     // it kills the process that handles it
	ReasonUndecodable       Reason = "undecodable"        // its body cannot be read
	ReasonRejectedByBroker  Reason = "rejected_by_broker" // the broker dead-lettered it by itself, or takes it in no stream; never made by Decide
	ReasonReplayLimit       Reason = "replay_limit"       // Policy.MaxReplays
)

// Decision is one of [Retry], [Park], [DeadLetter] and [Return].
type Decision interface{ decision() }

// Retry delivers the message again, to the same consumer, not before Due.
type Retry struct{ Due time.Time }

// Park puts the message into the parking lot. It is looked at again at Due,
// which is never after Deadline; an ambiguous failure at or after Deadline
// dead-letters it.
type Park struct{ Due, Deadline time.Time }

// DeadLetter takes the message out of the flow, with its evidence.
type DeadLetter struct{ Reason Reason }

// Return gives the message back to the broker, uncounted. It names no pause:
// a consumer of a dead letter stream takes one from [Backoff.Delay].
type Return struct{}

func (Retry) decision()      {}
func (Park) decision()       {}
func (DeadLetter) decision() {}
func (Return) decision()     {}
