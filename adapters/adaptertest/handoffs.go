package adaptertest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spillway-mq/spillway"
	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/failure"
	"github.com/spillway-mq/spillway/middleware"
)

var errDown = errors.New("the gateway is down")

// ends are the three ways out of a failure, by the message's id.
var ends = map[string]struct {
	stream  adapters.Stream
	outcome middleware.Outcome
	err     error
}{
	"retry": {adapters.StreamRetry, middleware.OutcomeRetried, failure.Transient(errDown)},
	"park":  {adapters.StreamParking, middleware.OutcomeParked, failure.Waiting(errDown, "approval")},
	"dead":  {adapters.StreamDeadLetter, middleware.OutcomeDeadLettered, failure.Permanent(errDown)},
}

// failFirst fails the first attempt in the way that the id begins with.
func failFirst(c *call) error {
	for prefix, end := range ends {
		if strings.HasPrefix(c.UUID, prefix) && c.attempt == 1 && c.delivery.State.ParkedAt.IsZero() {
			return end.err
		}
	}
	return nil
}

// Invariant 1; K1, K2, K27, K30: the hand-off fails n times, for each stream.
// The source is acknowledged after the confirmation and not before, there is
// one copy, the handler is called once for the attempt, and a restart brings
// nothing back.
func handoffIsRepeated(w *world) {
	const fails = 3
	for _, end := range ends {
		w.inject(fault{on: opHandoff, stream: end.stream, times: fails, do: failWith(errInjected)})
	}
	a := app{handle: failFirst, config: parkLong}
	p := w.start(a)
	for id, end := range ends {
		w.publish(id)
		w.wait(id+" is handed off", 1, ended(end.outcome), of(id))
	}
	w.wait("acks", len(ends)+1, is(acked)) // the retried one is processed, too
	for id, end := range ends {
		var failed, done, ackedAfter int
		for _, e := range w.find(of(id)) {
			switch {
			case e.kind == handedOff && e.err != nil:
				failed++
			case e.kind == handedOff:
				done++
			case e.kind == acked && done == 0:
				w.Errorf("%s was acknowledged after %d failed hand-offs and no confirmed one", id, failed)
			case e.kind == acked:
				ackedAfter++
			}
		}
		if failed != fails || done != 1 || ackedAfter < 1 {
			w.Errorf("%s: %d hand-offs failed, %d were confirmed, %d acks after that, want %d, 1, at least 1", id, failed, done, ackedAfter, fails)
		}
		if n := w.count(is(called), of(id), func(e event) bool { return e.attempt == 1 }); n != 1 {
			w.Errorf("%s: the handler was called %d times for attempt 1, want once", id, n)
		}
		if end.stream == adapters.StreamRetry {
			w.wait("second attempt", 1, ended(middleware.OutcomeProcessed), of(id))
		}
	}
	p.close()
	before := w.count(is(called))
	w.start(a)
	w.stays("handler calls after a restart", before, is(called))
	w.only(adapters.StreamDeadLetter, "dead")
	w.only(adapters.StreamParking, "park")
}

// Invariant 1: 100 ms doubling to 30 s, jittered by half of it, and the gauge
// of the next pause tells the truth. It heals within one pause.
func handoffBackoffGrows(w *world) {
	fails := pick(w, 4, 12)
	w.inject(fault{on: opHandoff, stream: adapters.StreamDeadLetter, times: fails, do: failWith(errInjected)})
	w.start(app{handle: failFirst})
	w.publish("dead")
	w.wait("dead letter", 1, ended(middleware.OutcomeDeadLettered))
	tries := w.find(is(handedOff))
	if len(tries) != fails+1 {
		w.Fatalf("%d tries, want %d", len(tries), fails+1)
	}
	mean := 100 * time.Millisecond
	for i := 1; i < len(tries); i++ {
		gap := tries[i].at.Sub(tries[i-1].at)
		if slack := pick(w, 2*time.Second, 0); gap < mean/2 || gap > mean*3/2+slack {
			w.Errorf("the pause after try %d was %s, want %s to %s", i, gap, mean/2, mean*3/2)
		}
		mean = min(2*mean, 30*time.Second)
	}
}

// Invariant 1: the broker wrote, and the confirmation got lost. A copy more at
// worst, with the same identity, and never one less.
func handoffWithUnknownResult(w *world) {
	for _, end := range ends {
		w.inject(fault{on: opHandoff, stream: end.stream, do: unknownResult()})
	}
	w.start(app{handle: failFirst, config: parkLong})
	for id, end := range ends {
		w.publish(id)
		w.wait(id+" is handed off", 1, ended(end.outcome), of(id))
	}
	w.wait("retry is processed", 1, ended(middleware.OutcomeProcessed), of("retry"))
	w.quiet()
	if n := w.count(is(called), of("retry")); n < 2 || n > 3 {
		w.Errorf("the retried message was handled %d times, want 2, or 3 with its copy", n)
	}
	dead := w.drain(adapters.StreamDeadLetter, group)
	if len(dead) < 1 || len(dead) > 2 {
		w.Errorf("%d dead letters, want 1, or 2 with the copy", len(dead))
	}
	for _, l := range dead {
		if l.state.DeadLetterID == "" || l.state.DeadLetterID != dead[0].state.DeadLetterID {
			w.Errorf("copies of a dead letter have the ids %q and %q, want one that both share", l.state.DeadLetterID, dead[0].state.DeadLetterID)
		}
	}
	if parked := w.drain(adapters.StreamParking, group); len(parked) < 1 || len(parked) > 2 {
		w.Errorf("%d parked messages, want 1, or 2 with the copy", len(parked))
	}
}

// Invariant 1; K4: what no stream takes goes to the last resort, and is
// acknowledged after that.
func refusedGoesToLastResort(w *world) {
	dir := w.TempDir()
	w.inject(fault{on: opHandoff, stream: adapters.StreamDeadLetter, do: failWith(fmt.Errorf("policy: %w", adapters.ErrRefused))})
	p := w.start(app{handle: failFirst, config: func(c *spillway.Config) { c.LastResort = dir }})
	w.publish("dead")
	w.wait("last resort", 1, ended(middleware.OutcomeLastResort), of("dead"))
	w.wait("ack", 1, is(acked), of("dead"))
	p.close()
	files, err := filepath.Glob(filepath.Join(dir, "*.jsonl"))
	if err != nil || len(files) != 1 {
		w.Fatalf("the last resort has the files %q (%v), want one", files, err)
	}
	text, err := os.ReadFile(files[0])
	if err != nil {
		w.Fatal(err)
	}
	if !json.Valid(bytes.TrimSpace(text)) || !strings.Contains(string(text), `"dead"`) {
		w.Errorf("the last resort holds %s, want the one message", text)
	}
	w.empty(adapters.StreamDeadLetter, group)
}

// Invariant 1; K2, K27: without a last resort the message stays with the
// broker, the hand-off is repeated slowly, and another process gets it.
func refusedStays(w *world) {
	w.inject(fault{on: opHandoff, stream: adapters.StreamDeadLetter, do: failWith(adapters.ErrRefused)})
	p := w.start(app{handle: failFirst})
	w.publish("dead")
	w.wait("refusal", 1, is(handedOff), of("dead"))
	p.close()
	if n := w.count(is(acked)); n != 0 {
		w.Errorf("the message was acknowledged %d times although no stream took it", n)
	}
	w.start(app{handle: failFirst})
	w.wait("dead letter in the next process", 1, ended(middleware.OutcomeDeadLettered), of("dead"))
	w.only(adapters.StreamDeadLetter, "dead")
}

// Invariant 1; K4, S27: too large is tried once more, at once, with the
// optional evidence left out.
func tooLargeIsTrimmed(w *world) {
	w.inject(fault{on: opHandoff, stream: adapters.StreamDeadLetter, do: failWith(adapters.ErrTooLarge)})
	w.start(app{handle: failFirst})
	w.publish("dead")
	w.wait("dead letter", 1, ended(middleware.OutcomeDeadLettered))
	tries := w.find(is(handedOff))
	if len(tries) != 2 {
		w.Fatalf("%d tries, want 2", len(tries))
	}
	if full, trimmed := len(tries[0].handoff.State), len(tries[1].handoff.State); trimmed >= full {
		w.Errorf("the second try had %d keys, the first %d, want fewer", trimmed, full)
	}
	l := w.only(adapters.StreamDeadLetter, "dead")
	if !l.state.Truncated || l.state.DeadLetterID == "" || l.state.Reason == "" || l.state.Source.Topic != w.topic {
		w.Errorf("the trimmed dead letter has the state %+v, want truncated with id, reason and source", l.state)
	}
}

// Invariant 1 and 2; S37: an ack that never arrives brings the message again,
// and takes nothing away.
func lostAck(w *world) {
	w.inject(fault{on: opAck, id: "fine", do: lost()}, fault{on: opAck, id: "dead", do: lost()})
	p := w.start(app{handle: failFirst, config: func(c *spillway.Config) { c.Concurrency = 4 }})
	w.publish("fine", "dead")
	w.wait("lost acks", 2, is(acked))
	p.close()
	w.start(app{handle: failFirst, config: func(c *spillway.Config) { c.Concurrency = 4 }})
	w.wait("processed again", 2, ended(middleware.OutcomeProcessed), of("fine"))
	w.wait("dead-lettered again", 2, ended(middleware.OutcomeDeadLettered), of("dead"))
	dead := w.drain(adapters.StreamDeadLetter, group)
	if len(dead) != 2 || dead[0].state.DeadLetterID != dead[1].state.DeadLetterID {
		w.Errorf("%d dead letters, want 2 that share an id", len(dead))
	}
}

var errDrain = errors.New("stop here")

// The seam: Drain removes a record after fn returned nil for it, stops at the
// first error, and ends with nil when the stream is empty. O34.
func drainSemantics(w *world) {
	c := w.consumer(group)
	w.ensure(c)
	stream := adapters.Names{}.Of(adapters.StreamDeadLetter, c)
	ctx := context.Background()
	drain := func(fn func(adapters.Record) error) ([]string, error) {
		var got []string
		err := w.op.Drain(ctx, stream, func(_ context.Context, r adapters.Record) error {
			got = append(got, r.ID)
			return fn(r)
		})
		return got, err
	}
	keep := func(adapters.Record) error { return nil }
	if got, err := drain(keep); err != nil || len(got) != 0 {
		w.Errorf("draining an empty stream: %q, %v, want nothing and nil", got, err)
	}
	const n = 5
	for _, id := range ids("d", n) {
		h := adapters.Handoff{Consumer: c, Stream: adapters.StreamDeadLetter, Record: adapters.Record{ID: id, Payload: []byte(id)}}
		if err := w.op.Handoff(ctx, h); err != nil {
			w.Fatalf("hand-off: %v", err)
		}
	}
	calls := 0
	taken, err := drain(func(adapters.Record) error {
		if calls++; calls > 2 {
			return errDrain
		}
		return nil
	})
	if !errors.Is(err, errDrain) || len(taken) != 3 {
		w.Errorf("a drain whose third call fails: saw %q, %v, want three and the error", taken, err)
	}
	rest, err := drain(keep)
	if err != nil || len(rest) != n-2 {
		w.Errorf("the next drain: %q, %v, want the %d that were not taken", rest, err, n-2)
	}
	for _, id := range rest {
		if len(taken) >= 2 && (id == taken[0] || id == taken[1]) {
			w.Errorf("%s was drained twice", id)
		}
	}
	if got, err := drain(keep); err != nil || len(got) != 0 {
		w.Errorf("a drain after everything was taken: %q, %v, want nothing and nil", got, err)
	}
}

// The seam, where the adapter has it: DrainBatch removes a batch after fn
// returned nil for it, and nothing of one that fn refused. O34.
func drainBatchSemantics(w *world) {
	d, ok := w.op.(adapters.BatchDrainer)
	if !ok {
		return
	}
	c := w.consumer(group)
	w.ensure(c)
	stream := adapters.Names{}.Of(adapters.StreamDeadLetter, c)
	ctx := context.Background()
	drain := func(most int, fn func(batch int) error) (got []string, sizes []int, err error) {
		err = d.DrainBatch(ctx, stream, most, func(_ context.Context, batch []adapters.Record) error {
			if len(batch) < 1 || len(batch) > most {
				w.Errorf("a batch of %d, want 1 to %d", len(batch), most)
			}
			sizes = append(sizes, len(batch))
			if err := fn(len(sizes)); err != nil {
				return err
			}
			for _, r := range batch {
				if string(r.Payload) != r.ID {
					w.Errorf("record %q has payload %q", r.ID, r.Payload)
				}
				got = append(got, r.ID)
			}
			return nil
		})
		return got, sizes, err
	}
	keep := func(int) error { return nil }
	if got, _, err := drain(7, keep); err != nil || len(got) != 0 {
		w.Errorf("draining an empty stream: %q, %v, want nothing and nil", got, err)
	}
	const n = 23
	all := ids("b", n)
	for _, id := range all {
		h := adapters.Handoff{Consumer: c, Stream: adapters.StreamDeadLetter, Record: adapters.Record{ID: id, Payload: []byte(id)}}
		if err := w.op.Handoff(ctx, h); err != nil {
			w.Fatalf("hand-off: %v", err)
		}
	}
	taken, sizes, err := drain(5, func(batch int) error {
		if batch > 2 {
			return errDrain
		}
		return nil
	})
	if !errors.Is(err, errDrain) || len(sizes) != 3 {
		w.Errorf("a drain whose third call fails: batches %v, %v, want three and the error", sizes, err)
	}
	rest, _, err := drain(n, keep)
	if err != nil {
		w.Errorf("the next drain: %v", err)
	}
	got := slices.Sorted(slices.Values(slices.Concat(taken, rest)))
	if !slices.Equal(got, slices.Sorted(slices.Values(all))) {
		w.Errorf("the two drains took %q, want each of %q once", got, all)
	}
	if got, _, err := drain(5, keep); err != nil || len(got) != 0 {
		w.Errorf("a drain after everything was taken: %q, %v, want nothing and nil", got, err)
	}
}

// The seam, where the adapter has it: whoever looks takes nothing.
func countAndPeek(w *world) {
	c := w.consumer(group)
	w.ensure(c)
	stream := adapters.Names{}.Of(adapters.StreamDeadLetter, c)
	ctx := context.Background()
	const n = 5
	for _, id := range ids("p", n) {
		h := adapters.Handoff{Consumer: c, Stream: adapters.StreamDeadLetter, Record: adapters.Record{ID: id}}
		if err := w.op.Handoff(ctx, h); err != nil {
			w.Fatalf("hand-off: %v", err)
		}
	}
	counter, counts := w.op.(adapters.Counter)
	peeker, peeks := w.op.(adapters.Peeker)
	for range 2 {
		if counts {
			if got, err := counter.Count(ctx, stream); err != nil || got != n {
				w.Errorf("count: %d, %v, want %d", got, err, n)
			}
		}
		if peeks {
			var got []string
			err := peeker.Peek(ctx, stream, func(_ context.Context, r adapters.Record) error {
				got = append(got, r.ID)
				return nil
			})
			if err != nil || len(got) != n {
				w.Errorf("peek: %q, %v, want %d records", got, err, n)
			}
		}
	}
	left := 0
	if err := w.op.Drain(ctx, stream, func(context.Context, adapters.Record) error { left++; return nil }); err != nil || left != n {
		w.Errorf("after all that, %d records, %v, want %d", left, err, n)
	}
}
