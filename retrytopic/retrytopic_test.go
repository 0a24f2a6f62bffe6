package retrytopic_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spillway-mq/spillway/retrytopic"
)

func TestTiersAreFixedAndAFactorOfTwoApart(t *testing.T) {
	t.Parallel()
	var names []string
	tiers := retrytopic.DefaultTiers()
	for i, d := range tiers {
		names = append(names, retrytopic.Name(d))
		if i > 0 && (d > 2*tiers[i-1] || d <= tiers[i-1]) {
			t.Errorf("tier %s follows %s, want more and at most twice that", d, tiers[i-1])
		}
	}
	// K22: topics of these names hold messages; one that is renamed strands them.
	want := []string{"2s", "4s", "8s", "16s", "32s", "64s", "128s", "256s", "512s", "1024s", "2048s", "3600s"}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("tiers (-want +got):\n%s", diff)
	}
	for d, want := range map[time.Duration]time.Duration{
		-time.Second: 2 * time.Second, 0: 2 * time.Second, 2 * time.Second: 2 * time.Second, 2*time.Second + 1: 4 * time.Second,
		time.Hour: time.Hour, 100 * time.Hour: time.Hour,
	} {
		if got := tiers.Of(d); got != want {
			t.Errorf("a delay of %s waits in %s, want %s", d, got, want)
		}
	}
}

// Invariant 5; K17, and A9 of the facts about Kafka: messages with jitter leave a
// tier at their own times, although the topic is in another order.
func TestJitteredMessagesLeaveAtTheirOwnTimes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const n, rate = 5000, 100
		r := rand.New(rand.NewPCG(1, 2))
		w := retrytopic.NewWindow[time.Time](10_000, 1<<20)
		var left []time.Time
		hand := func() {
			for {
				i, ok := w.Pop(time.Now())
				if !ok {
					return
				}
				if late := time.Since(i.Value); late != 0 {
					t.Fatalf("a message left %s after it was due", late)
				}
				left = append(left, time.Now())
			}
		}
		arrival := time.NewTicker(time.Second / rate)
		defer arrival.Stop()
		for sent := 0; len(left) < n; {
			var due <-chan time.Time
			if next, ok := w.Next(); ok {
				due = time.After(time.Until(next.Due))
			}
			select {
			case <-arrival.C:
				if sent < n {
					at := time.Now().Add(time.Duration(float64(10*time.Second) * (0.8 + 0.4*r.Float64())))
					w.Push(retrytopic.Item[time.Time]{Due: at, Seq: int64(sent), Bytes: 1, Value: at})
					sent++
				}
			case <-due:
			}
			hand()
		}
		same := 0
		for i := 1; i < n; i++ {
			if left[i].Equal(left[i-1]) {
				same++
			}
		}
		if share := float64(same) / n; share >= 0.02 {
			t.Errorf("%.1f%% of the messages left at the instant of the one before, want less than 2%%", 100*share)
		}
	})
}

func TestWindowIsBoundedByCountAndBytes(t *testing.T) {
	t.Parallel()
	item := func(seq int64, bytes int) retrytopic.Item[int] { return retrytopic.Item[int]{Seq: seq, Bytes: bytes} }
	w := retrytopic.NewWindow[int](3, 100)
	if w.Full() {
		t.Error("an empty window is full")
	}
	w.Push(item(1, 500)) // larger than the window, and gets through all the same
	if !w.Full() || w.Len() != 1 || w.Bytes() != 500 {
		t.Errorf("after 500 of 100 bytes: full %v, %d items, %d bytes", w.Full(), w.Len(), w.Bytes())
	}
	if _, ok := w.Pop(time.Now()); !ok || w.Full() || w.Bytes() != 0 {
		t.Errorf("after it left: popped %v, full %v, %d bytes", ok, w.Full(), w.Bytes())
	}
	for seq := range int64(3) {
		if w.Full() {
			t.Errorf("full with %d of 3", seq)
		}
		w.Push(item(3-seq, 1))
	}
	if !w.Full() {
		t.Error("not full with 3 of 3")
	}
	w.Remove(func(i retrytopic.Item[int]) bool { return i.Seq == 2 })
	var got []int64
	for {
		i, ok := w.Pop(time.Time{})
		if !ok {
			break
		}
		got = append(got, i.Seq)
	}
	if diff := cmp.Diff([]int64{1, 3}, got); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
}

// Live messages are queued and others sorted: the order must be that of one list.
func TestWindowOrdersWhateverComes(t *testing.T) {
	t.Parallel()
	begin := time.Unix(1_000_000, 0)
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		w := retrytopic.NewWindow[int](1000, 1000)
		var model []retrytopic.Item[int]
		seq, size := int64(0), 0
		for range 300 {
			switch r.IntN(5) {
			case 0, 1: // in order
				i := retrytopic.Item[int]{Seq: seq, Bytes: r.IntN(10)}
				if seq++; r.IntN(3) == 0 {
					i.Due = begin.Add(time.Duration(r.IntN(20)) * time.Second)
				}
				w.Push(i)
				model, size = append(model, i), size+i.Bytes
			case 2: // put back
				i, ok := w.Pop(begin.Add(time.Hour))
				if ok {
					w.Push(i)
				}
			case 3:
				now := begin.Add(time.Duration(r.IntN(20)) * time.Second)
				slices.SortFunc(model, func(a, b retrytopic.Item[int]) int {
					if c := a.Due.Compare(b.Due); c != 0 {
						return c
					}
					return int(a.Seq - b.Seq)
				})
				i, ok := w.Pop(now)
				if want := len(model) > 0 && !model[0].Due.After(now); ok != want || ok && i != model[0] {
					t.Fatalf("seed %d: popped %+v, %v of %+v at %s", seed, i, ok, model, now)
				}
				if ok {
					model, size = model[1:], size-i.Bytes
				}
			case 4:
				odd := func(i retrytopic.Item[int]) bool { return i.Seq%7 == 3 }
				w.Remove(odd)
				model = slices.DeleteFunc(model, func(i retrytopic.Item[int]) bool {
					if odd(i) {
						size -= i.Bytes
					}
					return odd(i)
				})
			}
			if w.Len() != len(model) || w.Bytes() != size {
				t.Fatalf("seed %d: %d items of %d bytes, want %d of %d", seed, w.Len(), w.Bytes(), len(model), size)
			}
		}
	}
}

func TestNothingLeavesEarly(t *testing.T) {
	t.Parallel()
	due := time.Now()
	w := retrytopic.NewWindow[int](10, 10)
	w.Push(retrytopic.Item[int]{Due: due})
	if _, ok := w.Pop(due.Add(-1)); ok {
		t.Error("a message left a nanosecond early")
	}
	if _, ok := w.Pop(due); !ok {
		t.Error("a message did not leave when it was due")
	}
}

// model is what Offsets are, in few words.
type model struct {
	start    int64
	read     map[int64]bool
	highest  int64
	finished map[int64]bool
}

func (m *model) mark() int64 {
	for o := m.start; ; o++ {
		if o >= m.highest || m.read[o] && !m.finished[o] {
			return o
		}
	}
}

func TestOffsetsAgainstAModel(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 7))
		start := r.Int64N(1000)
		o := retrytopic.NewOffsets(start)
		m := &model{start: start, read: map[int64]bool{}, highest: start, finished: map[int64]bool{}}
		var open []int64
		for range 500 {
			switch r.IntN(3) {
			case 0, 1:
				next := m.highest + r.Int64N(3)*r.Int64N(40)
				if !o.Fits(next) {
					t.Fatalf("seed %d: %d does not fit above %d", seed, next, o.Mark())
				}
				if !o.Read(next) {
					t.Fatalf("seed %d: %d is not fresh", seed, next)
				}
				m.read[next], m.highest = true, next+1
				open = append(open, next)
			case 2:
				if len(open) > 0 {
					i := r.IntN(len(open))
					o.Finish(open[i])
					m.finished[open[i]] = true
					open = slices.Delete(open, i, i+1)
				}
			}
			if o.Mark() != m.mark() {
				t.Fatalf("seed %d: the mark is %d, want %d", seed, o.Mark(), m.mark())
			}
			for _, offset := range open {
				if o.Finished(offset) {
					t.Fatalf("seed %d: %d is open, and said to be finished", seed, offset)
				}
			}
		}
		// What is read anew after a restart: exactly what is open.
		p, err := retrytopic.DecodeProgress(o.Mark(), retrytopic.Progress{Offsets: o}.Encode())
		if err != nil {
			t.Fatal(err)
		}
		var again []int64
		for offset := p.Offsets.Mark(); offset < m.highest; offset++ {
			if m.read[offset] && p.Offsets.Read(offset) {
				again = append(again, offset)
			}
		}
		slices.Sort(open)
		if diff := cmp.Diff(open, again); diff != "" && len(open)+len(again) > 0 {
			t.Fatalf("seed %d: read anew (-want +got):\n%s", seed, diff)
		}
	}
}

func TestOffsetsAreBounded(t *testing.T) {
	t.Parallel()
	o := retrytopic.NewOffsets(0)
	for i := range int64(retrytopic.MaxSpan) {
		if !o.Fits(i) {
			t.Fatalf("%d does not fit", i)
		}
		o.Read(i)
		if i > 0 {
			o.Finish(i)
		}
	}
	if o.Fits(retrytopic.MaxSpan) {
		t.Errorf("%d fits above an unfinished 0", retrytopic.MaxSpan)
	}
	p := retrytopic.Progress{Offsets: o, Owner: 1<<64 - 1, Topic: 1<<64 - 1, Running: true, Careful: true, Blamed: retrytopic.MaxSpan, Until: 1 << 50}
	for i := range 3 * int64(retrytopic.MaxTrials) {
		p.Trials = append(p.Trials, retrytopic.Trial{Offset: retrytopic.MaxSpan - 1000 + i, Crashes: 1000, Out: true})
	}
	for i := range uint64(2 * retrytopic.MaxAccused) {
		p.Accused = append(p.Accused, 1<<64-1-i)
	}
	p.BlamedBy = 1
	if n := len(p.Encode()); n > retrytopic.MaxProgress {
		t.Errorf("the largest progress has %d bytes, want at most %d", n, retrytopic.MaxProgress)
	}
	for _, most := range []int{2000, 1500, 100, 60} {
		text := p.EncodeWithin(most)
		got, err := retrytopic.DecodeProgress(0, text)
		if len(text) > most || err != nil || len(text) < most*9/10 && most > 1000 || got.Owner != p.Owner || got.Running != p.Running {
			t.Errorf("within %d bytes there are %d: %v", most, len(text), err)
		}
	}
	if text := p.EncodeWithin(10); text != "" {
		t.Errorf("within 10 bytes it is %q", text)
	}
	o.Finish(0)
	if o.Mark() != retrytopic.MaxSpan || o.Above() != 0 {
		t.Errorf("when all are finished the mark is %d with %d above it", o.Mark(), o.Above())
	}
	// Offsets that retention has removed do not block.
	if far := int64(1 << 40); !o.Fits(far) || !o.Read(far) || o.Mark() != far {
		t.Errorf("after a gap the mark is %d, want %d", o.Mark(), far)
	}
}

func TestProgressSurvivesTheCommit(t *testing.T) {
	t.Parallel()
	o := retrytopic.NewOffsets(1000)
	for i := range int64(300) {
		o.Read(1000 + i)
		if i%3 == 1 {
			o.Finish(1000 + i)
		}
	}
	want := retrytopic.Progress{
		Offsets: o, Owner: 77, Topic: 1<<63 + 5, Running: true, Careful: true, Blamed: 1200, Until: 5000,
		Trials:   []retrytopic.Trial{{Offset: 1000, Crashes: 2, By: 2}, {Offset: 1002, Out: true}, {Offset: 1299, Crashes: 1, Out: true, By: 1}},
		BlamedBy: 2, Accused: []uint64{1, 1<<64 - 1},
	}
	got, err := retrytopic.DecodeProgress(o.Mark(), want.Encode())
	if err != nil {
		t.Fatal(err)
	}
	if got.Offsets.Above() != 100 {
		t.Errorf("%d offsets above the mark are finished, want 100", got.Offsets.Above())
	}
	got.Offsets, want.Offsets = nil, nil
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Groups may have positions of other clients, and metadata of theirs.
func TestForeignMetadataIsNoProgress(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "x", "spillway1:", "spillway1:!!", "spillway2:AAAA", "spillway1:" + strings.Repeat("A", 5000)} {
		if p, err := retrytopic.DecodeProgress(5, text); err == nil {
			t.Errorf("%.20q is read as %+v", text, p)
		}
	}
}

func FuzzDecodeProgress(f *testing.F) {
	o := retrytopic.NewOffsets(9)
	o.Read(9)
	o.Read(11)
	o.Finish(11)
	f.Add(int64(9), retrytopic.Progress{Offsets: o, Owner: 3, Trials: []retrytopic.Trial{{Offset: 9, Crashes: 1, Out: true}}}.Encode())
	f.Add(int64(9), retrytopic.Progress{Offsets: o, Accused: []uint64{4}, BlamedBy: 1, Trials: []retrytopic.Trial{{Offset: 9, Crashes: 1, By: 1}}}.Encode())
	f.Add(int64(0), "")
	f.Add(int64(-1), "spillway1:AAAAAAAAAAAAAAAAAAAA")
	f.Add(int64(1)<<62, "spillway1://////////////////////////8")
	f.Fuzz(func(t *testing.T, mark int64, text string) {
		p, err := retrytopic.DecodeProgress(mark, text)
		if err != nil {
			return
		}
		if p.Offsets.Mark() != mark {
			t.Fatalf("the mark is %d, want %d", p.Offsets.Mark(), mark)
		}
		again, err := retrytopic.DecodeProgress(mark, p.Encode())
		if err != nil {
			t.Fatalf("what was encoded anew cannot be read: %v", err)
		}
		if again.Offsets.Above() != p.Offsets.Above() {
			t.Fatalf("%d finished, then %d", p.Offsets.Above(), again.Offsets.Above())
		}
		p.Offsets, again.Offsets = nil, nil
		if diff := cmp.Diff(p, again); diff != "" {
			t.Fatalf("(-want +got):\n%s", diff)
		}
	})
}
