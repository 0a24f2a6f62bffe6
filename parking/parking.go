package parking

import (
	"time"

	"github.com/spillway-mq/spillway/envelope"
)

// Enter returns the state of a message that goes into the parking lot now, for
// the first time or again, and is looked at again at due. The attempt that led
// here is not counted, so Attempt stays.
func Enter(s envelope.State, now, due time.Time) envelope.State {
	if s.ParkedAt.IsZero() {
		s.ParkedAt = now
	} else {
		s.ParkChecks++
	}
	s.DueAt = due
	s.Hops = 0
	return s
}
