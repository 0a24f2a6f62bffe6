package triage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"runtime"
	"strings"
	"sync"

	"github.com/spillway-mq/spillway/triage/signature"
)

const (
	// blockBytes is how much is read and handed to a worker at once.
	blockBytes = 256 << 10
	// MaxLine is how long a line may be. A longer one is counted as undecodable.
	MaxLine = 16 << 20
	// maxBadLines is how many undecodable lines are located.
	maxBadLines = 5
	// maxWorkers bounds the memory: each worker has a block. More would wait for
	// their turn to count.
	maxWorkers = 8
)

// Limits bound the memory of [Read]. Zero fields mean the defaults, which are
// beside them.
type Limits struct {
	// Signatures of one consumer that are told apart; 500. Further ones fall
	// into the group (overflow) of their class and version: a text that a
	// signature does not see through would otherwise make a group of every
	// message.
	Signatures int
	// Groups that are told apart; 5,000.
	Groups int
	// IDs of dead letters that are remembered, so that one that is there twice
	// counts once; 4,194,304, for which 64 MiB are used.
	IDs int
}

// WithDefaults returns l with its zero fields filled.
func (l Limits) WithDefaults() Limits {
	if l.Signatures <= 0 {
		l.Signatures = 500
	}
	if l.Groups <= 0 {
		l.Groups = 5_000
	}
	if l.IDs <= 0 {
		l.IDs = 1 << 22
	}
	return l
}

// Overflow stands in the place of the signatures beyond a limit.
const Overflow = "(overflow)"

// overflowID is their signature's id.
const overflowID = signature.Version + ":" + Overflow

// Pass is what one pass over dead letters has found.
type Pass struct {
	Groups      []*Aggregate // in no order
	Messages    int64        // that are counted in Groups
	Undecodable int64        // lines that are no dead letter
	Duplicates  int64        // lines whose deadLetterId was there before
	Overflowed  int64        // messages in groups named (overflow)
	Bytes       int64        // read
	BadLines    []BadLine    // the first of the undecodable lines
}

// BadLine is a line that is no dead letter.
type BadLine struct {
	Number int64 // from 1
	Err    error // never holds a value of the line
}

// Read groups dead letters from JSON lines, in any form that
// [github.com/spillway-mq/spillway/envelope.DecodeDeadLetter] accepts, in one
// pass with bounded memory. Empty lines are passed over; lines that are no dead
// letter are counted, and do not end the pass. Of dead letters with the same
// deadLetterId, one is counted.
//
// It uses up to eight processors, and calls r from one goroutine; what it finds
// does not depend on how many there are. The end of ctx ends it between two
// reads. An error is that of r or of ctx.
func Read(ctx context.Context, r io.Reader, limits Limits) (*Pass, error) {
	var source Pass
	t := newTally(limits.WithDefaults())
	blocks := make(chan block, 2)
	pool := sync.Pool{New: func() any { b := make([]byte, 0, blockBytes+4096); return &b }}
	var wait sync.WaitGroup
	for range min(max(runtime.GOMAXPROCS(0), 1), maxWorkers) {
		w := &worker{tally: t}
		wait.Go(func() {
			for b := range blocks {
				w.block(b)
				*b.data = (*b.data)[:0]
				pool.Put(b.data)
			}
		})
	}
	before := make(chan struct{})
	close(before)
	err := split(ctx, r, &pool, &source, func(b block) error {
		b.before, b.counted = before, make(chan struct{})
		before = b.counted
		select {
		case blocks <- b:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	close(blocks)
	wait.Wait()
	if err != nil {
		return nil, err
	}
	return t.finish(source), nil
}

// block is a run of whole lines.
type block struct {
	data *[]byte
	line int64 // the number of its first line

	before, counted chan struct{} // closed when the block before it, and itself, is counted
}

// split reads r and hands out blocks of whole lines. What only it knows it
// writes to source.
func split(ctx context.Context, r io.Reader, pool *sync.Pool, source *Pass, hand func(block) error) error {
	line := int64(1)
	cur := pool.Get().(*[]byte)
	first, skipping := true, false
	whole := 0 // where the last whole line in cur ends
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		buf := *cur
		if len(buf) == cap(buf) {
			buf = append(buf, 0)[:len(buf)]
		}
		got, err := r.Read(buf[len(buf):min(cap(buf), len(buf)+blockBytes)])
		buf = buf[:len(buf)+got]
		source.Bytes += int64(got)
		if first && len(buf) >= 3 {
			buf, first = bytes.TrimPrefix(buf, []byte("\ufeff")), false
		}
		eof := errors.Is(err, io.EOF)
		if err != nil && !eof {
			return err
		}
		if skipping { // the rest of a line that is too long
			i := bytes.IndexByte(buf, '\n')
			if i < 0 && !eof {
				*cur = buf[:0]
				continue
			}
			skipping, got = false, len(buf)-i-1
			line++
			if i < 0 {
				return nil
			}
			buf = append(buf[:0], buf[i+1:]...)
		}
		from := max(len(buf)-got, 0)
		if i := bytes.LastIndexByte(buf[from:], '\n'); i >= 0 {
			whole = from + i + 1
		}
		end := whole
		if eof {
			end = len(buf)
		}
		if end == 0 || !eof && end < blockBytes/2 && len(buf) < blockBytes {
			*cur = buf
			if end == 0 && len(buf) > MaxLine {
				whole = 0
				source.Undecodable++
				source.BadLines = append(source.BadLines, BadLine{line, fmt.Errorf("a line of more than %d MiB", MaxLine>>20)})
				*cur, skipping = buf[:0], true
			}
			if eof {
				return nil
			}
			continue
		}
		next := pool.Get().(*[]byte)
		*next = append((*next)[:0], buf[end:]...)
		*cur, whole = buf[:end], 0
		lines := int64(bytes.Count(buf[:end], []byte{'\n'}))
		if err := hand(block{data: cur, line: line}); err != nil {
			return err
		}
		line, cur = line+lines, next
		if eof {
			return nil
		}
	}
}

// worker decodes and signs, which is nearly all of the work, and counts when it
// is the turn of its block: what is counted in the order of the lines does not
// depend on chance.
type worker struct {
	tally   *tally
	decoder decoder
	signer  signature.Signer
	lines   []line // of the block
	keys    []byte // all of theirs
}

// line is a line that was read.
type line struct {
	entry  Entry
	err    error
	number int64
	id     uint64 // hash of the entry's id; zero if it has none
	key    int    // where its key ends
}

func (w *worker) block(b block) {
	data := *b.data
	text, number := string(data), b.line
	w.lines, w.keys = w.lines[:0], w.keys[:0]
	for start := 0; start < len(data); number++ {
		end := len(data)
		if i := bytes.IndexByte(data[start:], '\n'); i >= 0 {
			end = start + i
		}
		if same := bytes.TrimSpace(data[start:end]); len(same) > 0 {
			at := start + bytes.Index(data[start:end], same[:1])
			w.line(text[at:at+len(same)], same, number)
		}
		start = end + 1
	}
	<-b.before
	key := 0
	for i := range w.lines {
		l := &w.lines[i]
		w.tally.count(l, w.keys[key:l.key], &w.signer)
		key = l.key
	}
	close(b.counted)
	clear(w.lines) // of parts of text
}

func (w *worker) line(text string, same []byte, number int64) {
	l := line{number: number}
	if l.entry, l.err = w.decoder.decode(text, same); l.err == nil {
		l.id = w.tally.known.hash(l.entry.ID)
		k := l.entry.Key(signature.Signature{})
		w.keys = append(append(append(append(w.keys, k.Class...), 0), k.Version...), 0)
		w.keys = append(w.keys, w.signer.Sign(l.entry.Text)...)
	}
	l.key = len(w.keys)
	w.lines = append(w.lines, l)
}

// tally is what the lines so far add up to. One worker at a time has it.
type tally struct {
	pass       Pass
	limits     Limits
	known      *ids
	groups     map[string]*group // by class, version and key of the signature
	signatures map[string]int    // by consumer, how many
	seen       map[string]bool   // consumer and key of the signature
}

func newTally(limits Limits) *tally {
	return &tally{
		limits: limits, known: newIDs(limits.IDs),
		groups: map[string]*group{}, signatures: map[string]int{}, seen: map[string]bool{},
	}
}

// group is an aggregate with a sample whose memory is used again.
type group struct {
	Aggregate
	sample sampleBuffer
}

// count counts a line. The key is that of its group.
func (t *tally) count(l *line, key []byte, signer *signature.Signer) {
	switch {
	case l.err != nil:
		t.pass.Undecodable++
		if len(t.pass.BadLines) < maxBadLines {
			t.pass.BadLines = append(t.pass.BadLines, BadLine{l.number, l.err})
		}
		return
	case l.id != 0 && !t.known.add(l.id):
		t.pass.Duplicates++
		return
	}
	t.pass.Messages++
	g := t.groups[string(key)]
	if g == nil {
		g = t.group(&l.entry, key, signer)
	}
	if g.count(l.entry) {
		g.sample.set(l.entry)
	}
}

// group returns a new group, or that for what is beyond the limits.
func (t *tally) group(e *Entry, key []byte, signer *signature.Signer) *group {
	k := e.Key(signature.Signature{})
	// A further version of a signature that is known is no new signature.
	name := e.Consumer + "\x00" + string(key[len(k.Class)+1+len(k.Version)+1:])
	seen := t.seen[name]
	if !seen && t.signatures[e.Consumer] >= t.limits.Signatures || len(t.groups) >= t.limits.Groups {
		return t.overflow(*e, k)
	}
	if !seen {
		t.signatures[strings.Clone(e.Consumer)]++
		t.seen[name] = true
	}
	signer.Sign(e.Text)
	g := &group{Aggregate: *NewAggregate(*e, signer.Signature())}
	t.groups[string(key)] = g
	return g
}

// overflow returns the group for what is beyond the limits.
func (t *tally) overflow(e Entry, k Key) *group {
	t.pass.Overflowed++
	if len(t.groups) >= t.limits.Groups+t.limits.Groups/2 { // then classes or versions are made up, too
		e.Class, e.Version = Overflow, Overflow
		k = e.Key(signature.Signature{})
	}
	name := k.Class + "\x00" + k.Version + "\x00\x00" // which is no signature's key
	g := t.groups[name]
	if g == nil {
		g = &group{Aggregate: *NewAggregate(e, signature.Signature{ID: overflowID, Text: Overflow})}
		t.groups[name] = g
	}
	return g
}

// finish returns what was found, with what the source knows.
func (t *tally) finish(source Pass) *Pass {
	for _, g := range t.groups {
		g.Sample = g.sample.sample(g.LastFailed)
		t.pass.Groups = append(t.pass.Groups, &g.Aggregate)
	}
	t.pass.Bytes = source.Bytes
	t.pass.Undecodable += source.Undecodable
	t.pass.BadLines = append(t.pass.BadLines, source.BadLines...)
	sortBadLines(&t.pass)
	return &t.pass
}

// ids remembers ids by their hash, each of 64 bits: that two of a million
// different ones meet happens once in forty million passes.
type ids struct {
	seed   maphash.Seed
	shards [64]idShard
}

// idShard is a part, so that growing copies little at once.
type idShard struct {
	table []uint64 // open addressing; zero is free
	n     int
	most  int
}

func newIDs(most int) *ids {
	s := &ids{seed: maphash.MakeSeed()}
	for i := range s.shards {
		s.shards[i].most = max(most/len(s.shards), 1)
	}
	return s
}

// hash is what an id is remembered by; zero for none.
func (s *ids) hash(id string) uint64 {
	if id == "" {
		return 0
	}
	return max(maphash.String(s.seed, id), 1)
}

// add reports whether an id is new, as far as is remembered.
func (s *ids) add(h uint64) bool { return s.shards[h>>58].add(h) }

func (s *idShard) add(h uint64) bool {
	if len(s.table) == 0 {
		s.table = make([]uint64, 64)
	}
	i := s.find(h)
	if s.table[i] == h {
		return false
	}
	if s.n >= s.most {
		return true // not remembered
	}
	s.table[i] = h
	if s.n++; s.n*4 > len(s.table)*3 {
		old := s.table
		s.table = make([]uint64, 2*len(old))
		for _, h := range old {
			if h != 0 {
				s.table[s.find(h)] = h
			}
		}
	}
	return true
}

func (s *idShard) find(h uint64) int {
	mask := len(s.table) - 1
	i := int(h) & mask
	for s.table[i] != 0 && s.table[i] != h {
		i = (i + 1) & mask
	}
	return i
}
