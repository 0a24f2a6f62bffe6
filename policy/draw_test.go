package policy_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	. "github.com/spillway-mq/spillway/policy"
)

// The draws are frozen: two versions of a consumer, on any two platforms, give
// duplicates of a message the same due time.
func TestDrawIsFrozen(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	for _, id := range []string{
		"", "a", "b", "0", "order-1", "order-2", "0190a5c8-7f3e-7c31-9d5a-0c8f6c2d1e4b",
		"ключ", "\x00", "\xff\xfe", strings.Repeat("x", 1000),
	} {
		for _, attempt := range []int{math.MinInt32, -1, 0, 1, 2, 12, 1_000_000} {
			shown := id
			if len(id) > 40 {
				shown = fmt.Sprintf("%d x %s", len(id), id[:1])
			}
			fmt.Fprintf(&b, "%q %d %b\n", shown, attempt, Draw(id, attempt))
		}
	}
	golden(t, "draw", b.String())
}

// Whatever varies, an id's last digits or the attempt, the draws are spread
// evenly. The bound is the 99.9th percentile of chi-square with 99 degrees of
// freedom; nothing here is random, so it holds always or never.
func TestDrawIsUniform(t *testing.T) {
	t.Parallel()
	const draws, bins, bound = 10_000, 100, 148.2
	for name, draw := range map[string]func(i int) float64{
		"numbers":          func(i int) float64 { return Draw(fmt.Sprint(i), 1) },
		"padded numbers":   func(i int) float64 { return Draw(fmt.Sprintf("order-%09d", i), 1) },
		"number first":     func(i int) float64 { return Draw(fmt.Sprintf("%d/orders.billing/main", i), 3) },
		"UUIDs, version 7": func(i int) float64 { return Draw(fmt.Sprintf("0190a5c8-%04x-7c31-9d5a-0c8f6c2d1e4b", i), 2) },
		"bytes":            func(i int) float64 { return Draw(string([]byte{byte(i), byte(i >> 8)}), 1) },
		"attempts":         func(i int) float64 { return Draw("order-1", i) },
		"the next attempt, relative to this one": func(i int) float64 {
			id := fmt.Sprintf("order-%d", i)
			d := Draw(id, 2) - Draw(id, 1)
			return d - math.Floor(d)
		},
		"the next id, relative to this one": func(i int) float64 {
			d := Draw(fmt.Sprint(i+1), 1) - Draw(fmt.Sprint(i), 1)
			return d - math.Floor(d)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var counts [bins]int
			for i := range draws {
				u := draw(i)
				if !(u >= 0 && u < 1) {
					t.Fatalf("draw %d is %v", i, u)
				}
				counts[int(u*bins)]++
			}
			var chi2 float64
			for _, n := range counts {
				d := float64(n) - draws/bins
				chi2 += d * d / (draws / bins)
			}
			if chi2 > bound {
				t.Errorf("chi-square %.1f, want at most %.1f", chi2, bound)
			}
		})
	}
}

var sink float64

// Not parallel: the allocations of other tests would be counted.
func TestDrawAndDecideDoNotAllocateMuch(t *testing.T) {
	id := strings.Repeat("x", 36)
	if n := testing.AllocsPerRun(100, func() { sink = Draw(id, 3) }); n != 0 {
		t.Errorf("Draw allocates %v times", n)
	}
	p, f, h := Policy{}, of(transient), History{Attempts: 3}
	if n := testing.AllocsPerRun(100, func() { Decide(p, f, h, now, 0.5) }); n > 1 {
		t.Errorf("Decide allocates %v times, want no more than its result", n)
	}
}

func FuzzDraw(f *testing.F) {
	f.Add("", 0)
	f.Add("order-1", 1)
	f.Add("\xff\x00", math.MinInt)
	f.Fuzz(func(t *testing.T, id string, attempt int) {
		u := Draw(id, attempt)
		if !(u >= 0 && u < 1) {
			t.Errorf("Draw(%q, %d) = %v", id, attempt, u)
		}
		if again := Draw(strings.Clone(id), attempt); u != again {
			t.Errorf("Draw(%q, %d) = %v, then %v", id, attempt, u, again)
		}
	})
}
