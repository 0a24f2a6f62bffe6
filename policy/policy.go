package policy

import (
	"time"

	"github.com/spillway-mq/spillway/failure"
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
// spread by Jitter, where n is the number of attempts counted so far.
type Backoff struct {
	// Base defaults to 1 s.
	Base time.Duration
	// Factor defaults to 2; at least 1.
	Factor float64
	// Max caps the delay before jitter; it defaults to 5 min.
	Max time.Duration
	// Jitter defaults to JitterProportional.
	Jitter Jitter
}

// Attempts limits the counted attempts by the nature of the current failure.
// Zero means the default; a limit of 1 means no retry. Unlimited attempts do
// not exist.
type Attempts struct {
	Transient int // default 12
	Unknown   int // default 5
	Permanent int // default 1
	Ambiguous int // default 3; then the message is parked
}

// Parking says how long a parked message waits, and how often it is looked at.
type Parking struct {
	// Interval between two re-checks; default 5 min. It is constant and has no
	// jitter, so that first in is first due.
	Interval time.Duration
	// Deadline from the first parking of a message that names a reference;
	// default 24 h.
	Deadline time.Duration
	// DeadlineWithoutReference defaults to 1 h.
	DeadlineWithoutReference time.Duration
}

// Override replaces parts of a policy for one class. Zero fields inherit.
type Override struct {
	// Nature, if set, replaces what the classifier said.
	Nature failure.Nature
	// Attempts, if set, is the limit whatever the nature.
	Attempts int
	// Backoff fields that are set replace those of the policy.
	Backoff Backoff
	// Parking fields that are set replace those of the policy.
	Parking Parking
}

// Policy is everything that [Decide] needs to know about what the user wants.
// Zero fields mean the defaults, so the zero Policy is the default policy. It
// is a value and safe for concurrent use as long as nobody changes Classes.
type Policy struct {
	Attempts Attempts
	Backoff  Backoff
	Parking  Parking
	// MaxRetryAfter caps what a failure may ask for with RetryAfter; default 1 h.
	MaxRetryAfter time.Duration
	// MaxAge dead-letters a failed message whose first attempt is older;
	// zero means off.
	MaxAge time.Duration
	// MaxReplays dead-letters a failed message that was replayed this often
	// already, without retrying it again; default 10.
	MaxReplays int
	// Classes overrides by class of the failure.
	Classes map[failure.Class]Override
}

// History is what is known of a message when its attempt has just failed.
type History struct {
	// Attempts counted so far, including the one that just failed; at least 1.
	Attempts int
	// FirstAttemptAt is when the first attempt began.
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
	ReasonPermanent         Reason = "permanent"
	ReasonAttemptsExhausted Reason = "attempts_exhausted"
	ReasonParkingDeadline   Reason = "parking_deadline"
	ReasonTooOld            Reason = "too_old"
	ReasonConsumerCrash     Reason = "consumer_crash"
	ReasonUndecodable       Reason = "undecodable"
	ReasonRejectedByBroker  Reason = "rejected_by_broker"
	ReasonReplayLimit       Reason = "replay_limit"
)

// Decision is one of [Retry], [Park], [DeadLetter] and [Return].
type Decision interface{ decision() }

// Retry delivers the message again, to the same consumer, not before Due.
type Retry struct{ Due time.Time }

// Park puts the message into the parking lot. It is looked at again at Due;
// a failure after Deadline dead-letters it.
type Park struct{ Due, Deadline time.Time }

// DeadLetter takes the message out of the flow, with its evidence.
type DeadLetter struct{ Reason Reason }

// Return gives the message back to the broker, uncounted.
type Return struct{}

func (Retry) decision()      {}
func (Park) decision()       {}
func (DeadLetter) decision() {}
func (Return) decision()     {}
