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
	// maxWorkers bounds the memory: each worker has groups of its own.
	maxWorkers = 4
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

func (l Limits) withDefaults() Limits {
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
// It uses up to four processors, and calls r from one goroutine. The end of ctx
// ends it between two reads. An error is that of r or of ctx.
func Read(ctx context.Context, r io.Reader, limits Limits) (*Pass, error) {
	limits = limits.withDefaults()
	workers := make([]*worker, min(max(runtime.GOMAXPROCS(0), 1), maxWorkers))
	known := newIDs(limits.IDs)
	var wait sync.WaitGroup
	pool := sync.Pool{New: func() any { b := make([]byte, 0, blockBytes+4096); return &b }}
	for i := range workers {
		w := &worker{limits: limits, known: known, blocks: make(chan block, 2), groups: map[string]*group{}, signatures: map[string]int{}, seen: map[string]bool{}}
		workers[i] = w
		wait.Go(func() {
			for b := range w.blocks {
				w.block(b)
				*b.data = (*b.data)[:0]
				pool.Put(b.data)
			}
		})
	}
	pass := &Pass{}
	err := split(ctx, r, &pool, pass, func(n int, b block) error {
		// By turns, so that the same input gives the same report.
		select {
		case workers[n%len(workers)].blocks <- b:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	for _, w := range workers {
		close(w.blocks)
	}
	wait.Wait()
	if err != nil {
		return nil, err
	}
	merge(pass, workers, limits)
	return pass, nil
}

// block is a run of whole lines.
type block struct {
	data *[]byte
	line int64 // the number of its first line
}

// split reads r and hands out blocks of whole lines.
func split(ctx context.Context, r io.Reader, pool *sync.Pool, pass *Pass, hand func(n int, b block) error) error {
	line, n := int64(1), 0
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
		pass.Bytes += int64(got)
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
				pass.bad(line, fmt.Errorf("a line of more than %d MiB", MaxLine>>20))
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
		if err := hand(n, block{cur, line}); err != nil {
			return err
		}
		line, n, cur = line+lines, n+1, next
		if eof {
			return nil
		}
	}
}

func (p *Pass) bad(line int64, err error) {
	p.Undecodable++
	p.BadLines = append(p.BadLines, BadLine{line, err})
}

// worker groups the dead letters of its blocks.
type worker struct {
	limits     Limits
	known      *ids
	blocks     chan block
	decoder    decoder
	signer     signature.Signer
	groups     map[string]*group // by class, version and key of the signature
	signatures map[string]int    // by consumer, how many
	seen       map[string]bool   // consumer and signature's id
	buf        []byte

	messages, undecodable, duplicates, overflowed int64
	bad                                           []BadLine
}

// group is an aggregate with a sample whose memory is used again.
type group struct {
	Aggregate
	sample sampleBuffer
}

func (w *worker) block(b block) {
	data := *b.data
	text, number := string(data), b.line
	for start := 0; start < len(data); number++ {
		end := len(data)
		if i := bytes.IndexByte(data[start:], '\n'); i >= 0 {
			end = start + i
		}
		line := bytes.TrimSpace(data[start:end])
		if len(line) > 0 {
			at := start + bytes.Index(data[start:end], line[:1])
			w.line(text[at:at+len(line)], line, number)
		}
		start = end + 1
	}
}

func (w *worker) line(line string, same []byte, number int64) {
	e, err := w.decoder.decode(line, same)
	if err != nil {
		w.undecodable++
		if len(w.bad) < maxBadLines {
			w.bad = append(w.bad, BadLine{number, err})
		}
		return
	}
	if e.ID != "" && !w.known.add(e.ID) {
		w.duplicates++
		return
	}
	w.messages++
	g := w.group(e)
	if g.count(e) {
		g.sample.set(e)
	}
}

// group returns the group of e.
func (w *worker) group(e Entry) *group {
	key := w.signer.Sign(e.Text)
	k := e.Key(signature.Signature{})
	w.buf = append(append(append(append(append(w.buf[:0], k.Class...), 0), k.Version...), 0), key...)
	if g := w.groups[string(w.buf)]; g != nil {
		return g
	}
	s := w.signer.Signature()
	// A further version of a signature that is known is no new signature.
	seen := w.seen[e.Consumer+"\x00"+s.ID]
	if !seen && w.signatures[e.Consumer] >= w.limits.Signatures || len(w.groups) >= w.limits.Groups {
		return w.overflow(e, k)
	}
	if !seen {
		consumer := strings.Clone(e.Consumer)
		w.signatures[consumer]++
		w.seen[consumer+"\x00"+s.ID] = true
	}
	g := &group{Aggregate: *NewAggregate(e, s)}
	w.groups[string(w.buf)] = g
	return g
}

// overflow returns the group for what is beyond the limits.
func (w *worker) overflow(e Entry, k Key) *group {
	w.overflowed++
	if len(w.groups) >= w.limits.Groups+w.limits.Groups/2 { // then classes or versions are made up, too
		e.Class, e.Version = Overflow, Overflow
		k = e.Key(signature.Signature{})
	}
	name := k.Class + "\x00" + k.Version + "\x00" + Overflow
	g := w.groups[name]
	if g == nil {
		g = &group{Aggregate: *NewAggregate(e, signature.Signature{ID: overflowID, Text: Overflow})}
		w.groups[name] = g
	}
	return g
}

// merge makes one of what the workers have found.
func merge(pass *Pass, workers []*worker, limits Limits) {
	all := map[Key]*Aggregate{}
	var bad []BadLine
	for _, w := range workers {
		pass.Messages += w.messages
		pass.Undecodable += w.undecodable
		pass.Duplicates += w.duplicates
		pass.Overflowed += w.overflowed
		bad = append(bad, w.bad...)
		for _, g := range w.groups {
			g.Sample = g.sample.sample(g.LastFailed)
			a := &g.Aggregate
			if have := all[a.Key()]; have != nil {
				if a.Signature < have.Signature {
					have.Signature = a.Signature
				}
				have.Merge(a)
				continue
			}
			all[a.Key()] = a
		}
		w.groups = nil
	}
	for _, a := range all {
		pass.Groups = append(pass.Groups, a)
	}
	pass.BadLines = append(pass.BadLines, bad...)
	sortBadLines(pass)
}

// ids remembers ids by their hash, each of 64 bits: that two of a million
// different ones meet happens once in forty million passes.
type ids struct {
	seed   maphash.Seed
	shards [64]idShard
}

type idShard struct {
	mu    sync.Mutex
	table []uint64 // open addressing; zero is free
	n     int
	most  int
	_     [24]byte // a cache line of its own
}

func newIDs(most int) *ids {
	s := &ids{seed: maphash.MakeSeed()}
	for i := range s.shards {
		s.shards[i].most = max(most/len(s.shards), 1)
	}
	return s
}

// add reports whether an id is new, as far as is remembered.
func (s *ids) add(id string) bool {
	h := max(maphash.String(s.seed, id), 1)
	return s.shards[h>>58].add(h)
}

func (s *idShard) add(h uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
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
