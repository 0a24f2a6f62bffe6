package app

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io/fs"
	"path/filepath"
	"slices"
	"time"

	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/envelope"
	"github.com/spillway-mq/spillway/middleware"
	"github.com/spillway-mq/spillway/poison"
)

// account is what was found when every published id was looked for.
type account struct {
	tally              // of ids, as found; not as counted on the way
	pending   int      // still in the topic, or on their way back to it
	lost      []string // found nowhere
	twice     int      // found in two end states: delivered twice, as at-least-once allows
	altered   int      // found with another body than they were published with
	others    int      // records of other runs, which were taken out too
	letters   []envelope.DeadLetter
	inParking []parked
}

// parked is a message in the parking lot.
type parked struct {
	reference string
	due       time.Time
}

// addsUp is the point of the whole program.
func (a *account) addsUp() bool {
	return len(a.lost) == 0 && a.altered == 0 &&
		a.published == a.processed+a.parked+a.deadLettered+a.lastResort+a.pending
}

// patience is how long a message is looked for that should be there to be read,
// such as one that its consumer has only just given back.
const patience = 3 * time.Second

// settle reads the streams of a consumer, which must have stopped, and accounts
// for every message of the ledger. main is the stream with the topic's own
// messages for that consumer.
func settle(ctx context.Context, broker adapters.Broker, c adapters.Consumer, main, lastResort string, l *ledger) (*account, error) {
	a := &account{}
	var names adapters.Names
	dead, lot, last, moving, fresh := map[string]bool{}, map[string]bool{}, map[string]bool{}, map[string]bool{}, map[string]bool{}

	found := func(in map[string]bool, id string, payload []byte) bool {
		f := l.fates[id]
		if f == nil {
			a.others++
			return false
		}
		if in[id] {
			return false // a duplicate
		}
		in[id] = true
		if f.body != maphash.Bytes(l.seed, payload) {
			a.altered++
		}
		return true
	}
	read := func(stream string, in map[string]bool, each func(adapters.Record, envelope.State)) error {
		return broker.Drain(ctx, stream, func(_ context.Context, r adapters.Record) error {
			if found(in, r.ID, r.Payload) && each != nil {
				each(r, envelope.Parse(r.Headers, time.Now()))
			}
			return nil
		})
	}
	readAll := func() error {
		return errors.Join(
			read(names.Of(adapters.StreamDeadLetter, c), dead, func(r adapters.Record, s envelope.State) {
				a.letters = append(a.letters, envelope.FromState(s, r.ID, r.Key, envelope.StripHeaders(r.Headers), r.Payload))
			}),
			read(names.Of(adapters.StreamParking, c), lot, func(_ adapters.Record, s envelope.State) {
				a.inParking = append(a.inParking, parked{reference: s.Reference, due: s.DueAt})
			}),
			read(names.Of(adapters.StreamRetry, c), moving, nil),
			read(names.Of(adapters.StreamSuspect, c), moving, nil),
			read(main, fresh, nil),
		)
	}
	// waits reports a message that is still on its way. In the topic it counts only
	// if nobody has ever handed it off: a log keeps what was handled.
	waits := func(id string, f *fate) bool { return moving[id] || fresh[id] && f.last == "" }
	// missing is how many messages were not found yet, and when the last of them
	// should be: a broker may keep what waits for its next attempt elsewhere
	// until then, as RabbitMQ does.
	missing := func() (n int, until time.Time) {
		for id, f := range l.fates {
			if f.last == middleware.OutcomeProcessed || dead[id] || lot[id] || last[id] || waits(id, f) {
				continue
			}
			n++
			if f.last == middleware.OutcomeRetried && f.due.After(until) {
				until = f.due
			}
		}
		return n, until
	}

	err := eachLastResort(lastResort, func(d envelope.DeadLetter) {
		if found(last, d.FailedMessage.ID, d.FailedMessage.Payload) {
			a.letters = append(a.letters, d)
		}
	})
	started := time.Now()
	for err == nil {
		if err = readAll(); err != nil {
			break
		}
		n, until := missing()
		if n == 0 || time.Now().After(later(started, until).Add(patience)) || time.Since(started) > limit {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	if err != nil {
		return nil, fmt.Errorf("read back what became of the messages: %w", err)
	}

	a.tally = tally{published: len(l.fates), retried: l.now.retried, retries: l.now.retries}
	for id, f := range l.fates {
		places := 0
		for _, place := range []struct {
			is    bool
			count *int
		}{
			{f.last == middleware.OutcomeProcessed, &a.processed},
			{dead[id], &a.deadLettered},
			{lot[id], &a.parked},
			{last[id], &a.lastResort},
		} {
			if !place.is {
				continue
			}
			if places == 0 {
				*place.count++
			}
			places++
		}
		switch {
		case places > 1:
			a.twice++
		case places == 0 && waits(id, f):
			a.pending++
		case places == 0:
			a.lost = append(a.lost, id)
		}
	}
	slices.Sort(a.lost)
	return a, nil
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// eachLastResort reads the files of a last resort; none is as good as empty.
func eachLastResort(dir string, fn func(envelope.DeadLetter)) error {
	files, err := filepath.Glob(filepath.Join(dir, "*.jsonl"))
	if err != nil {
		return err
	}
	for _, file := range files {
		torn, err := poison.ReadLastResort(file, func(line []byte) error {
			d, err := envelope.DecodeDeadLetter(line)
			if err == nil {
				fn(d)
			}
			return err
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if len(torn) > 0 {
			return fmt.Errorf("%s: %d lines are torn", file, len(torn))
		}
	}
	return nil
}
