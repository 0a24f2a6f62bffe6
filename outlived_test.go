package spillway_test

import (
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/spillway-mq/spillway"
	"github.com/spillway-mq/spillway/adapters/memory"
	"github.com/spillway-mq/spillway/middleware"
)

// Invariant 8: a suspect whose acknowledgements get lost is handed out again
// and again, and counted each time; but it ends no process.
func TestLostAcksDoNotConvictSuspect(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := installed(t, spillway.Config{})
		s.broker.Inject(
			memory.Fault{On: memory.Ack, Stream: topic, Times: 3, Do: memory.Fail(nil)}, // makes it a suspect
			memory.Fault{On: memory.Ack, Stream: suspectOf, Times: 6, Do: memory.Fail(nil)},
		)
		calls := 0
		s.consume(func(*message.Message) error { calls++; return nil })
		s.start()
		s.publish("x")
		after(0)
		s.stop()
		if left := s.broker.FaultsLeft(); len(left) > 0 {
			t.Errorf("the faults %v did not happen", left)
		}
		wantDepths(t, s.broker, map[string]int{})
		if calls != 3+7 {
			t.Errorf("%d calls, want one for each of 3 + 7 deliveries", calls)
		}
		for _, o := range s.outcomes {
			if o.Outcome == middleware.OutcomeDeadLettered {
				t.Errorf("dead-lettered: %v", o.Reason)
			}
		}
	})
}
