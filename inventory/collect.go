package inventory

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/envelope"
	"github.com/spillway-mq/spillway/poison"
	"github.com/spillway-mq/spillway/poison/foreign"
)

// CollectConfig is how dead letter streams are emptied into an inventory.
type CollectConfig struct {
	// Streams by name. At least one. Which is named twice is read once.
	Streams []string
	// Names are the templates of the consumers' streams.
	Names adapters.Names
	// Redactor for the error texts of others; nil means the shipped rules.
	Redactor *poison.Redactor
	// Batch is how many records are committed together at most; 0 means 1000.
	// It also bounds what is held in memory, for each stream: twice as many.
	Batch int
	// NewSignatures is as in a Batch.
	NewSignatures int
	// Follow goes on when the streams are empty, until the context ends. Then
	// errors of broker and database are logged and tried again instead of
	// returned.
	Follow bool
	// Peek looks at the records instead of taking them, where the broker can:
	// adapters.Peeker. What was only looked at is collected again later, and
	// counts once. It cannot follow.
	Peek bool
	// LeaveOut stores no payloads, keys and headers; only with Peek, because
	// otherwise the record is gone afterwards. They are filled in once it is
	// collected.
	LeaveOut bool
	// Poll is how often an empty stream is looked at; 0 means 2 s.
	Poll time.Duration
	// Progress is called after every batch, by one goroutine at a time. May be nil.
	Progress func(Progress)
	// Author is written to the audit, which gets a line for each stream at the
	// end and, so that little is missing after a crash, every AuditEvery until
	// then; 0 means a minute.
	Author     string
	AuditEvery time.Duration
	// Logger for what is tried again; nil means slog.Default.
	Logger *slog.Logger
}

// Progress is how far a collection is.
type Progress struct {
	Streams []StreamProgress // in the order of the configuration
	Elapsed time.Duration
}

// StreamProgress is how far the collection of a stream is.
type StreamProgress struct {
	Stream string
	Read   int64 // records, removed from the stream, or looked at
	Added        // of them
	// Unknown are those of Read in no form that is known: dead letters of class
	// unknown.
	Unknown int64
	// Remaining is how many lie in the stream; -1 where the broker does not say.
	Remaining int64
}

// Total adds up the streams. Remaining is -1 if it is for any of them.
func (p Progress) Total() StreamProgress {
	var t StreamProgress
	for _, s := range p.Streams {
		t.Read += s.Read
		t.Unknown += s.Unknown
		t.Added.add(s.Added)
		if s.Remaining < 0 || t.Remaining < 0 {
			t.Remaining = -1
		} else {
			t.Remaining += s.Remaining
		}
	}
	return t
}

// atOnce is how many streams are read at a time.
const atOnce = 4

// Collect signs anew what earlier rules have signed, as [Store.Resign] does, and
// empties dead letter streams into the inventory, until they are empty
// or, with Follow, until ctx ends, which is no error then. A record is removed
// from its stream after it was committed. What is in no form that is known is a
// dead letter of class unknown; what cannot be stored as one goes to the
// quarantine. The result is also valid with an error.
func (s *Store) Collect(ctx context.Context, broker adapters.Broker, cfg CollectConfig) (Progress, error) {
	if len(cfg.Streams) == 0 {
		return Progress{}, errors.New("inventory: collect: no stream is named")
	}
	peeker, peeks := broker.(adapters.Peeker)
	switch {
	case cfg.Peek && !peeks:
		return Progress{}, fmt.Errorf("inventory: collect: %w: on %s nobody can look at records without taking them", adapters.ErrUnsupported, broker.Capabilities().Broker)
	case cfg.Peek && cfg.Follow:
		return Progress{}, errors.New("inventory: collect: what is only looked at cannot be followed")
	case cfg.LeaveOut && !cfg.Peek:
		return Progress{}, errors.New("inventory: collect: payloads can be left out only of what is looked at: what is collected is gone from its stream")
	}
	cfg.Streams = once(cfg.Streams) // two readers of one would number its copies alike
	cfg.Batch, cfg.Poll = cmp.Or(cfg.Batch, 1000), cmp.Or(cfg.Poll, 2*time.Second)
	cfg.AuditEvery = cmp.Or(cfg.AuditEvery, time.Minute)
	if cfg.Redactor == nil {
		cfg.Redactor = new(poison.Redactor)
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	c := &collector{store: s, broker: broker, peeker: peeker, cfg: cfg, begun: time.Now(), copies: make([]copies, len(cfg.Streams)), audited: make([]audited, len(cfg.Streams))}
	for i, stream := range c.cfg.Streams {
		c.streams = append(c.streams, StreamProgress{Stream: stream, Remaining: -1})
		c.audited[i].at = c.begun
	}
	// What was signed by earlier rules would stand beside its like. Looking only
	// changes nothing.
	if !cfg.Peek {
		if _, err := s.Resign(ctx, false); err != nil {
			return c.progress(), err
		}
	}
	err := c.run(ctx)
	for i := range c.streams {
		if auditErr := c.audit(context.WithoutCancel(ctx), i); err == nil {
			err = auditErr
		}
	}
	return c.progress(), err
}

// once returns each stream where it stands first.
func once(streams []string) (each []string) {
	for _, s := range streams {
		if !slices.Contains(each, s) {
			each = append(each, s)
		}
	}
	return each
}

// collector is one run of Collect.
type collector struct {
	store  *Store
	broker adapters.Broker
	peeker adapters.Peeker
	cfg    CollectConfig
	begun  time.Time

	copies  []copies // of each stream
	audited []audited

	mu      sync.Mutex
	streams []StreamProgress
	report  sync.Mutex // held while Progress is called
}

func (c *collector) progress() Progress {
	c.mu.Lock()
	defer c.mu.Unlock()
	return Progress{Streams: append([]StreamProgress(nil), c.streams...), Elapsed: time.Since(c.begun)}
}

// run reads all streams, some at a time. In Follow each has its turn for good:
// a busy one must not keep another waiting.
func (c *collector) run(ctx context.Context) error {
	turns := make(chan struct{}, atOnce)
	if c.cfg.Follow {
		turns = make(chan struct{}, len(c.streams))
	}
	errs := make([]error, len(c.streams))
	var wg sync.WaitGroup
	for i := range c.streams {
		wg.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			if errs[i] = ctx.Err(); errs[i] != nil {
				return
			}
			if c.cfg.Follow {
				c.follow(ctx, i)
				return
			}
			errs[i] = c.drain(ctx, i)
		})
	}
	wg.Wait()
	if c.cfg.Follow {
		return nil
	}
	return errors.Join(errs...)
}

// The pauses after an error in Follow.
const (
	pauseMin = time.Second
	pauseMax = 30 * time.Second
)

func (c *collector) follow(ctx context.Context, i int) {
	pause := pauseMin
	for {
		wait := c.cfg.Poll
		if err := c.drain(ctx, i); ctx.Err() != nil {
			return
		} else if err != nil {
			c.cfg.Logger.LogAttrs(ctx, slog.LevelError, "collecting is interrupted",
				slog.String("stream", c.cfg.Streams[i]), slog.Duration("delay", pause), slog.Any("error", err))
			wait, pause = pause, min(2*pause, pauseMax)
		} else {
			pause = pauseMin
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return
		}
	}
}

// drain empties a stream.
func (c *collector) drain(ctx context.Context, i int) error {
	stream := c.cfg.Streams[i]
	counter, counts := c.broker.(adapters.Counter)
	var counted time.Time
	seen := &c.copies[i]
	take := func(ctx context.Context, records []adapters.Record) error {
		items, unknown := c.decode(stream, records)
		seen.number(items)
		added, err := c.take(ctx, stream, items)
		if err != nil {
			return err
		}
		// Asking costs a round trip.
		remaining := int64(-1)
		if now := time.Now(); counts && now.Sub(counted) >= time.Second {
			counted = now
			if n, err := counter.Count(ctx, stream); err == nil {
				remaining = n
			}
		}
		c.note(i, len(records), unknown, added, remaining)
		if time.Since(c.audited[i].at) >= c.cfg.AuditEvery {
			return c.audit(ctx, i)
		}
		return nil
	}
	var err error
	if d, ok := c.broker.(adapters.BatchDrainer); c.cfg.Peek {
		err = c.peek(ctx, stream, take)
	} else if ok {
		err = d.DrainBatch(ctx, stream, c.cfg.Batch, take)
	} else {
		err = c.broker.Drain(ctx, stream, func(ctx context.Context, r adapters.Record) error {
			return take(ctx, []adapters.Record{r})
		})
	}
	if err != nil {
		seen.takeBack()
		return fmt.Errorf("inventory: collect %s: %w", stream, err)
	}
	c.note(i, 0, 0, Added{}, 0)
	return nil
}

// peek is DrainBatch for looking.
func (c *collector) peek(ctx context.Context, stream string, take func(context.Context, []adapters.Record) error) error {
	var held []adapters.Record
	err := c.peeker.Peek(ctx, stream, func(ctx context.Context, r adapters.Record) error {
		held = append(held, r)
		if len(held) < c.cfg.Batch {
			return nil
		}
		batch := held
		held = nil
		return take(ctx, batch)
	})
	if err != nil || len(held) == 0 {
		return err
	}
	return take(ctx, held)
}

// note counts a batch and reports it. A remaining of -1 is not known now, and
// is then what it was without this batch.
func (c *collector) note(i, read, unknown int, added Added, remaining int64) {
	c.mu.Lock()
	p := &c.streams[i]
	p.Read += int64(read)
	p.Unknown += int64(unknown)
	p.Added.add(added)
	if remaining < 0 && p.Remaining >= 0 {
		remaining = max(0, p.Remaining-int64(read))
	}
	p.Remaining = remaining
	c.mu.Unlock()
	if c.cfg.Progress != nil {
		c.report.Lock()
		defer c.report.Unlock()
		c.cfg.Progress(c.progress())
	}
}

// take stores records. One that the database refuses whatever is tried goes to
// the quarantine, alone.
func (c *collector) take(ctx context.Context, stream string, records []decoded) (Added, error) {
	added, err := c.store.Add(ctx, c.batch(stream, records))
	if err == nil || !c.store.dialect.refuses(err) {
		return added, err
	}
	if len(records) == 1 {
		return c.store.Add(ctx, Batch{Quarantine: []Quarantined{{Stream: stream, Cause: err.Error(), Record: records[0].record}}})
	}
	half := len(records) / 2
	added, err = c.take(ctx, stream, records[:half])
	if err != nil {
		return added, err
	}
	rest, err := c.take(ctx, stream, records[half:])
	added.add(rest)
	return added, err
}

// decoded is a record that was drained, and the dead letter that it is.
type decoded struct {
	record adapters.Record
	letter envelope.DeadLetter
	err    error // why it is none
}

// decode decodes records, and says how many are in no form that is known.
func (c *collector) decode(stream string, records []adapters.Record) (all []decoded, unknown int) {
	from := foreign.From{Broker: c.broker.Capabilities().Broker, Stream: stream, Names: c.cfg.Names, Redactor: c.cfg.Redactor}
	all = make([]decoded, len(records))
	formats := make([]foreign.Format, len(records))
	inParts(len(records), func(i int) {
		all[i].record = records[i]
		all[i].letter, formats[i], all[i].err = Decode(records[i], from)
	})
	for i := range formats {
		if all[i].err == nil && formats[i] == foreign.FormatUnknown {
			unknown++
		}
	}
	return all, unknown
}

func (c *collector) batch(stream string, records []decoded) Batch {
	b := Batch{LeaveOut: c.cfg.LeaveOut, NewSignatures: c.cfg.NewSignatures, Items: make([]Item, 0, len(records))}
	for _, r := range records {
		if r.err != nil {
			r.record.Native = nil
			b.Quarantine = append(b.Quarantine, Quarantined{Stream: stream, Cause: r.err.Error(), Record: r.record})
			continue
		}
		b.Items = append(b.Items, Item{DeadLetter: r.letter, Stream: stream, At: r.record.Position.Timestamp})
	}
	return b
}

// copies numbers the records of a stream that have neither message id nor
// position and are equal in every byte: to hand out two, the broker must have
// two. The second one gets an id of its own, which is the same one when the two
// are read again after a crash.
type copies struct {
	seen map[string]int
	last []string // ids of the latest batch
}

// maxCopies bounds what is remembered. What is forgotten counts as one with its
// copy, as across two runs.
const maxCopies = 1 << 17

func (c *copies) number(records []decoded) {
	c.last = c.last[:0]
	if c.seen == nil || len(c.seen) > maxCopies {
		c.seen = map[string]int{}
	}
	for i := range records {
		r := &records[i]
		if r.err != nil || !foreign.IsAnonymous(r.record) {
			continue
		}
		id := r.letter.ID
		n := c.seen[id]
		c.seen[id]++
		c.last = append(c.last, id)
		if n > 0 {
			r.letter.ID = envelope.DeadLetterID(envelope.State{}, fmt.Sprint(id, " ", n), nil)
		}
	}
}

// takeBack forgets the latest batch, which comes again after an error.
func (c *copies) takeBack() {
	for _, id := range c.last {
		c.seen[id]--
	}
	c.last = nil
}

// Decode reads a record of a dead letter stream, in all forms that package
// foreign knows, and gives it an id. What is in none of them has class unknown.
// It fails only where decoding panics.
func Decode(r adapters.Record, from foreign.From) (d envelope.DeadLetter, format foreign.Format, err error) {
	defer func() {
		if p := recover(); p != nil { // one record must not stop the others
			err = fmt.Errorf("decoding it panicked: %v", p)
		}
	}()
	d, format = foreign.Decode(r, from)
	if d.ID == "" {
		d.ID = envelope.DeadLetterID(envelope.State{}, "", nil) // drawn
	}
	return d, format, nil
}

// audited is what the audit has of a stream.
type audited struct {
	StreamProgress
	at time.Time
}

// audit writes what was collected from a stream since the line before.
func (c *collector) audit(ctx context.Context, i int) error {
	p, last := c.progress().Streams[i], &c.audited[i]
	read := p.Read - last.Read
	if read == 0 {
		return nil
	}
	action := "collect"
	if c.cfg.Peek {
		action = "peek"
	}
	err := c.store.Record(ctx, AuditEntry{
		Author: c.cfg.Author, Action: action, Target: p.Stream, Total: int64(p.New - last.New),
		Details: fmt.Sprintf(`{"read":%d,"new":%d,"duplicates":%d,"quarantined":%d,"unknown":%d}`,
			read, p.New-last.New, p.Duplicates-last.Duplicates, p.Quarantined-last.Quarantined, p.Unknown-last.Unknown),
	})
	if err == nil {
		*last = audited{p, time.Now()}
	}
	return err
}
