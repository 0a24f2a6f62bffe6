package rabbitmq_test

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spillway-mq/spillway/adapters/rabbitmq"
)

func TestLadder(t *testing.T) {
	t.Parallel()
	got := rabbitmq.NewLadder(time.Second, 4*time.Second)
	want := rabbitmq.Ladder{
		1000 * time.Millisecond, 1250 * time.Millisecond, 1500 * time.Millisecond, 1750 * time.Millisecond,
		2000 * time.Millisecond, 2500 * time.Millisecond, 3000 * time.Millisecond, 3500 * time.Millisecond,
		4000 * time.Millisecond,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if n := len(rabbitmq.NewLadder(125*time.Millisecond, 15*time.Minute)); n != 52 {
		t.Errorf("the whole ladder has %d rungs", n)
	}
	if n := len(rabbitmq.NewLadder(time.Second, 450*time.Second)); n != 36 {
		t.Errorf("the default policy climbs %d rungs, and the documentation says 36", n)
	}
}

// A burst with proportional jitter leaves at six instants at least.
func TestJitterSpreads(t *testing.T) {
	t.Parallel()
	l := rabbitmq.NewLadder(125*time.Millisecond, 15*time.Minute)
	for base := time.Second; base <= 256*time.Second; base *= 2 {
		instants := map[time.Duration]bool{}
		for i := range 1000 {
			instants[l.Quantize(base/2+base*time.Duration(i)/1000)] = true
		}
		if len(instants) < 6 {
			t.Errorf("delays around %s leave at %d instants", base, len(instants))
		}
	}
}

func FuzzQuantize(f *testing.F) {
	for _, d := range []time.Duration{math.MinInt64, -1, 0, 1, 124e6, 125e6, 126e6, time.Second, time.Second + 1, 896e9, 896e9 + 1, 7 * 24 * time.Hour, math.MaxInt64} {
		f.Add(int64(d), int64(125e6), int64(15*time.Minute))
	}
	f.Add(int64(5e9), int64(1e9), int64(1e9))
	f.Fuzz(func(t *testing.T, delay, shortest, longest int64) {
		if shortest < 125e6 || longest < shortest || longest > int64(24*time.Hour) {
			return
		}
		d := time.Duration(delay)
		l := rabbitmq.NewLadder(time.Duration(shortest), time.Duration(longest))
		if len(l) == 0 {
			return
		}
		q := l.Quantize(d)
		if q < max(d, 0) {
			t.Errorf("%s became %s: early", d, q)
		}
		// Narrow ladders have nothing between their rungs.
		if len(l) > 4 && q-max(d, 0) > l.Step(d) {
			t.Errorf("%s became %s: %s longer, and the step is %s", d, q, q-d, l.Step(d))
		}
		// What it promises is what the hops take, when each starts a little late.
		left := q
		for hops := 0; left > 0 && hops < 4 && q < 1e15; hops++ {
			rung := l.Rung(left - 1)
			if rung > left && hops == 0 {
				t.Errorf("%s: the first rung, %s, is longer than all that was promised, %s", d, rung, q)
			}
			left -= rung
		}
	})
}
