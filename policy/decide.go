package policy

import (
	"time"

	"github.com/spillway-mq/spillway/failure"
)

// Decide says what becomes of a failed message. It is pure: the same input
// gives the same decision, and u in [0,1), which [Draw] makes from the
// message's identity and attempt, is the only source of jitter.
func Decide(p Policy, f failure.Failure, h History, now time.Time, u float64) Decision {
	return Return{}
}

// Draw makes the number in [0,1) that spreads the delay after an attempt from
// the identity of the message, so that duplicates of a message draw alike.
func Draw(id string, attempt int) float64 { return 0 }
