package storm_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/internal/storm"
)

var epoch = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

const (
	topic  = "orders"
	acting = "billing"
	other  = "audit"
)

// history is written as it happens: each step a millisecond after the last.
type history struct {
	storm.History
	now time.Time
	n   uint64
}

func newHistory() *history {
	return &history{now: epoch, History: storm.History{
		Script: storm.Script{Seed: 1, Messages: 1000},
		Topic:  topic, Groups: []string{acting, other}, Acting: acting,
	}}
}

// id of a message with a fate.
func (h *history) id(t *testing.T, f storm.Fate) string {
	t.Helper()
	for n := range h.Script.Messages {
		if h.Script.Fate(n) == f {
			return h.Script.ID(n)
		}
	}
	t.Fatalf("the script has no message that is %s", f)
	return ""
}

func (h *history) add(e storm.Event) *storm.Event {
	h.now = h.now.Add(time.Millisecond)
	e.At = h.now.UnixNano()
	h.Events = append(h.Events, e)
	return &h.Events[len(h.Events)-1]
}

func (h *history) wait(d time.Duration) { h.now = h.now.Add(d) }

func (h *history) published(id string) {
	h.add(storm.Event{Kind: storm.Publishing, ID: id, Digest: "d", Process: "producer.0"})
	h.add(storm.Event{Kind: storm.Confirmed, ID: id, Process: "producer.0"})
}

// delivery is one in the first process of a group.
type delivery struct {
	h     *history
	event storm.Event
}

func (h *history) delivered(id, group string, from adapters.Stream, attempt int) delivery {
	h.n++
	e := storm.Event{ID: id, Group: group, Number: h.n, Process: group + "-0.0"}
	d := e
	d.Kind, d.Stream, d.Digest = storm.Delivered, from, "d"
	if from != adapters.StreamMain {
		d.Owner, d.Attempt = topic+"/"+group, attempt
	}
	h.add(d)
	d.Kind, d.Attempt = storm.Handling, attempt
	h.add(d)
	return delivery{h, e}
}

func (d delivery) add(k storm.Kind, note string) delivery {
	e := d.event
	e.Kind, e.Note = k, note
	d.h.add(e)
	return d
}

func (d delivery) handedOff(to adapters.Stream, attempt int, due time.Duration, outcome string) delivery {
	e := d.event
	e.Number = 0
	e.Kind, e.Stream, e.Attempt, e.Due = storm.HandingOff, to, attempt, d.h.now.Add(due).UnixNano()
	d.h.add(e)
	e.Kind = storm.HandedOff
	d.h.add(e)
	return d.add(storm.Outcome, outcome)
}

func (d delivery) processed() delivery    { return d.add(storm.Outcome, "processed") }
func (d delivery) acknowledged() delivery { return d.add(storm.Acknowledged, "") }

// taken is a message that a group takes well at once.
func (h *history) taken(id, group string) {
	h.delivered(id, group, adapters.StreamMain, 1).processed().acknowledged()
}

// problems are what the checker names, as "problem id group".
func (h *history) problems() []string {
	var found []string
	for _, v := range storm.Check(h.History).Violations {
		found = append(found, fmt.Sprintf("%s %s %s", v.Problem, v.ID, v.Group))
	}
	return found
}

func (h *history) want(t *testing.T, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, h.problems()); diff != "" {
		t.Errorf("violations (-want +got):\n%s", diff)
	}
}

// good is a storm in which all is well: a message that is retried once, one that
// is a dead letter, and one that a fault made a duplicate of.
func good(t *testing.T) (h *history, retried, dead, twice string) {
	h = newHistory()
	retried, dead, twice = h.id(t, storm.Transient), h.id(t, storm.Permanent), h.id(t, storm.Healthy)
	for _, id := range []string{retried, dead, twice} {
		h.published(id)
		h.taken(id, other)
	}
	h.delivered(retried, acting, adapters.StreamMain, 1).handedOff(adapters.StreamRetry, 2, 500*time.Millisecond, "retried").acknowledged()
	h.wait(510 * time.Millisecond)
	h.delivered(retried, acting, adapters.StreamRetry, 2).processed().acknowledged()
	h.delivered(dead, acting, adapters.StreamMain, 1).handedOff(adapters.StreamDeadLetter, 1, 0, "dead_lettered permanent").acknowledged()
	h.Left = append(h.Left, storm.Left{Stream: adapters.StreamDeadLetter, Group: acting, ID: dead, Digest: "d", Owner: topic + "/" + acting, Reason: "permanent"})
	h.delivered(twice, acting, adapters.StreamMain, 1).processed()
	h.delivered(twice, acting, adapters.StreamMain, 1).processed().acknowledged()
	return h, retried, dead, twice
}

func TestCheckPassesAStormInWhichAllIsWell(t *testing.T) {
	t.Parallel()
	h, _, _, twice := good(t)
	h.want(t)
	r := storm.Check(h.History)
	want := map[string]map[string]int{acting: {"processed": 2, "dlq": 1}, other: {"processed": 3}}
	if diff := cmp.Diff(want, r.States); diff != "" {
		t.Errorf("states (-want +got):\n%s", diff)
	}
	if len(r.Duplicates) != 1 || r.Duplicates[0].ID != twice || r.Duplicates[0].Hop != storm.HopUnacked {
		t.Errorf("duplicates are %+v, want the one of %s that was not acknowledged", r.Duplicates, twice)
	}
}

func TestCheckNamesALostMessageAndItsLastSteps(t *testing.T) {
	t.Parallel()
	h, _, dead, _ := good(t)
	h.Left = nil
	h.want(t, "lost "+dead+" "+acting)
	v := storm.Check(h.History).Violations[0]
	if last := v.Steps[len(v.Steps)-1]; last.Kind != storm.Acknowledged || last.Group != acting {
		t.Errorf("the last step is %v, want the acknowledgement", last)
	}
	if !strings.Contains(fmt.Sprint(v.Steps), "handed off dlq") {
		t.Errorf("the steps do not tell of the hand-off: %v", v.Steps)
	}
}

func TestCheckNamesAMessageThatNoGroupEverSaw(t *testing.T) {
	t.Parallel()
	h, _, _, _ := good(t)
	id := h.Script.ID(999)
	h.published(id)
	h.want(t, "lost "+id+" "+acting, "lost "+id+" "+other)
}

func TestCheckForgivesAnUnconfirmedPublish(t *testing.T) {
	t.Parallel()
	h, _, _, _ := good(t)
	h.add(storm.Event{Kind: storm.Publishing, ID: h.Script.ID(999), Digest: "d", Process: "producer.0"})
	h.want(t)
}

func TestCheckNamesAMessageThatIsStillInItsTopic(t *testing.T) {
	t.Parallel()
	h, _, _, _ := good(t)
	id := h.Script.ID(999)
	h.published(id)
	h.taken(id, other)
	h.Left = append(h.Left, storm.Left{Stream: adapters.StreamMain, Group: acting, ID: id, Digest: "d"})
	h.want(t, "stuck "+id+" "+acting)
}

func TestCheckTakesEveryEndStateForOne(t *testing.T) {
	t.Parallel()
	for _, stream := range []adapters.Stream{
		adapters.StreamRetry, adapters.StreamParking, adapters.StreamDeadLetter, storm.StreamLastResort, storm.StreamUndeliverable,
	} {
		h, _, dead, _ := good(t)
		h.Left[0].Stream = stream
		h.want(t)
		if n := storm.Check(h.History).States[acting][string(stream)]; n != 1 {
			t.Errorf("%d messages in %s, want %s", n, stream, dead)
		}
	}
}

func TestCheckNamesAnEarlyRetry(t *testing.T) {
	t.Parallel()
	t.Run("by the state that it came with", func(t *testing.T) {
		t.Parallel()
		h, retried, _, _ := good(t)
		for i := range h.Events {
			if e := &h.Events[i]; e.ID == retried && e.Kind == storm.Handling && e.Stream == adapters.StreamRetry {
				e.Due = e.At + int64(3*time.Millisecond)
			}
		}
		h.want(t, "early "+retried+" "+acting)
	})
	t.Run("by its hand-off, though the state was lost on the way", func(t *testing.T) {
		t.Parallel()
		h, retried, _, _ := good(t)
		for i := range h.Events {
			if e := &h.Events[i]; e.ID == retried && (e.Kind == storm.HandingOff || e.Kind == storm.HandedOff) {
				e.Due += int64(time.Minute)
			}
		}
		h.want(t, "early "+retried+" "+acting)
	})
}

func TestCheckNamesAForeignRetry(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		do   func(h *history, id string)
		want []string // for the message that was retried
	}{
		{"published to everyone, with its state", func(h *history, id string) {
			d := h.delivered(id, other, adapters.StreamMain, 1)
			h.Events[len(h.Events)-2].Owner = topic + "/" + acting
			d.processed().acknowledged()
		}, []string{"unexplained", "foreign"}},
		{"published to everyone, without its state", func(h *history, id string) {
			h.taken(id, other)
		}, []string{"unexplained"}},
		{"in the retry stream of the other group", func(h *history, id string) {
			d := h.delivered(id, other, adapters.StreamRetry, 2)
			h.Events[len(h.Events)-2].Owner = topic + "/" + acting
			d.processed().acknowledged()
		}, []string{"unexplained", "foreign", "foreign"}},
		{"lies in the parking stream of the other group", func(h *history, id string) {
			h.Left = append(h.Left, storm.Left{Stream: adapters.StreamParking, Group: other, ID: id, Digest: "d", Owner: topic + "/" + acting})
		}, []string{"unexplained", "foreign"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			h, retried, _, _ := good(t)
			test.do(h, retried)
			var want []string
			for _, problem := range test.want {
				want = append(want, problem+" "+retried+" "+other)
			}
			h.want(t, want...)
		})
	}
}

func TestCheckNamesARetryFromNowhere(t *testing.T) {
	t.Parallel()
	h, retried, _, _ := good(t)
	for i := range h.Events {
		if e := &h.Events[i]; e.ID == retried && e.Kind == storm.HandingOff {
			e.Attempt = 7
		}
	}
	h.want(t, "foreign "+retried+" "+acting)
}

func TestCheckNamesChangedBytes(t *testing.T) {
	t.Parallel()
	t.Run("of a delivery", func(t *testing.T) {
		t.Parallel()
		h, retried, _, _ := good(t)
		for i := range h.Events {
			if e := &h.Events[i]; e.ID == retried && e.Kind == storm.Delivered && e.Stream == adapters.StreamRetry {
				e.Digest = "other"
			}
		}
		h.want(t, "changed "+retried+" "+acting)
	})
	t.Run("of a dead letter", func(t *testing.T) {
		t.Parallel()
		h, _, dead, _ := good(t)
		h.Left[0].Digest = "other"
		h.want(t, "changed "+dead+" "+acting)
	})
}

func TestCheckNamesAnUnexplainedDuplicate(t *testing.T) {
	t.Parallel()
	h, retried, _, _ := good(t)
	h.delivered(retried, acting, adapters.StreamRetry, 2).processed().acknowledged()
	h.want(t, "unexplained "+retried+" "+acting)
}

func TestCheckNamesTheHopThatMadeADuplicate(t *testing.T) {
	t.Parallel()
	again := func(h *history, id string) {
		h.delivered(id, acting, adapters.StreamRetry, 2).processed().acknowledged()
	}
	for _, test := range []struct {
		hop string
		do  func(h *history, id string)
	}{
		{storm.HopPublish, func(h *history, id string) {
			h.published(id)
			h.taken(id, acting)
			h.taken(id, other)
		}},
		{storm.HopHandoff, func(h *history, id string) {
			e := storm.Event{Kind: storm.HandingOff, ID: id, Group: acting, Stream: adapters.StreamRetry, Attempt: 2, Process: "billing-0.0"}
			h.add(e)
			e.Kind = storm.NotHandedOff
			h.add(e)
			again(h, id)
		}},
		{storm.HopHandoff, func(h *history, id string) { // the process died during the write
			h.add(storm.Event{Kind: storm.HandingOff, ID: id, Group: acting, Stream: adapters.StreamRetry, Attempt: 2, Process: "billing-0.0"})
			again(h, id)
		}},
		{storm.HopUnacked, func(h *history, id string) {
			h.delivered(id, acting, adapters.StreamRetry, 2).processed()
		}},
		{storm.HopDoubt, func(h *history, id string) {
			at := h.now.UnixNano()
			again(h, id)
			h.Events = append(h.Events, storm.Event{Kind: storm.Disturbed, At: at, Due: h.now.UnixNano(), Scope: "billing-0.0", Note: "cut"})
		}},
		{storm.HopMove, func(h *history, id string) {
			again(h, id)
			h.Events = append(h.Events, storm.Event{Kind: storm.Disturbed, At: epoch.UnixNano(), Due: epoch.Add(5 * time.Millisecond).UnixNano(), Scope: "nobody", Broker: true, Note: "kill"})
		}},
	} {
		h, retried, _, _ := good(t)
		test.do(h, retried)
		h.want(t)
		found := false
		for _, d := range storm.Check(h.History).Duplicates {
			found = found || d.ID == retried && d.Group == acting && d.Hop == test.hop
		}
		if !found {
			t.Errorf("no duplicate of %s by %q: %+v", retried, test.hop, storm.Check(h.History).Duplicates)
		}
	}
}

func TestCheckDoubtsOnlyWhatAFaultCouldReach(t *testing.T) {
	t.Parallel()
	for name, e := range map[string]storm.Event{
		"another process": {At: epoch.UnixNano(), Due: epoch.Add(time.Minute).UnixNano(), Scope: "billing-1"},
		"another time":    {At: epoch.Add(time.Hour).UnixNano(), Due: epoch.Add(2 * time.Hour).UnixNano()},
	} {
		h, retried, _, _ := good(t)
		h.delivered(retried, acting, adapters.StreamRetry, 2).processed().acknowledged()
		e.Kind, e.Note = storm.Disturbed, name
		h.Events = append(h.Events, e)
		h.want(t, "unexplained "+retried+" "+acting)
	}
}

// Who deletes a topic deletes what is in it, and nothing else.
func TestCheckExcusesOnlyWhatWasDeletedWithItsStream(t *testing.T) {
	t.Parallel()
	deleted := func(at time.Time, group string) (h *history, dead string) {
		h, _, dead, _ = good(t)
		h.Left = nil
		h.Events = append(h.Events, storm.Event{
			Kind: storm.Disturbed, At: at.UnixNano(), Due: at.UnixNano(), Scope: "nobody",
			Stream: adapters.StreamDeadLetter, Group: group, Note: "dead letters deleted",
		})
		return h, dead
	}
	h, _ := deleted(epoch.Add(time.Hour), acting)
	h.want(t)
	if got := storm.Check(h.History).States[acting]["deleted by the storm"]; got != 1 {
		t.Errorf("%d messages deleted, want 1", got)
	}
	h, dead := deleted(epoch, acting) // before it was handed off
	h.want(t, "lost "+dead+" "+acting)
	h, dead = deleted(epoch.Add(time.Hour), other)
	h.want(t, "lost "+dead+" "+acting)
}

func TestCheckNamesAMessageThatWasGivenUpWithoutReason(t *testing.T) {
	t.Parallel()
	h, _, _, _ := good(t)
	id := h.id(t, storm.Missing)
	h.published(id)
	h.taken(id, other)
	left := storm.Left{Stream: adapters.StreamDeadLetter, Group: acting, ID: id, Digest: "d", Owner: topic + "/" + acting, Reason: "attempts_exhausted"}
	h.Left = append(h.Left, left)
	h.want(t, "blamed "+id+" "+acting)

	// Whose processes the storm killed three times while it was alone, looks like
	// one that kills.
	h.Left[len(h.Left)-1].Reason = "consumer_crash"
	h.want(t)
	if r := storm.Check(h.History); r.CrashOthers != 1 || r.CrashScripted != 0 {
		t.Errorf("%d by script and %d others, want 0 and 1", r.CrashScripted, r.CrashOthers)
	}
}

func TestCheckComparesOutputsWithWhatWasProcessed(t *testing.T) {
	t.Parallel()
	h, _, _, _ := good(t)
	id := h.id(t, storm.Output)
	h.published(id)
	h.taken(id, other)
	h.delivered(id, acting, adapters.StreamMain, 1).add(storm.OutputStarted, "").processed().acknowledged()
	h.want(t, "output lost "+id+" "+acting)
	h.Outputs = []string{id}
	h.want(t)
	for i := range h.Events {
		if h.Events[i].Kind == storm.OutputStarted {
			h.Events[i].Kind = storm.Handled
		}
	}
	h.want(t, "output without success "+id+" "+acting)
}

func TestCheckNamesAMessageThatNobodyPublished(t *testing.T) {
	t.Parallel()
	h, _, _, _ := good(t)
	h.Left = append(h.Left, storm.Left{Stream: adapters.StreamDeadLetter, Group: acting, ID: "storm-0000999", Digest: "d"})
	h.want(t, "stranger storm-0000999 "+acting)
}
