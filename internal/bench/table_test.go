package main

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestPercentile(t *testing.T) {
	t.Parallel()
	hundred := make([]int, 100)
	for i := range hundred {
		hundred[i] = i + 1
	}
	for _, test := range []struct {
		values  []int
		p, want int
	}{
		{hundred, 50, 50}, {hundred, 99, 99}, {hundred, 100, 100}, {hundred, 0, 1},
		{[]int{7}, 50, 7}, {[]int{7}, 99, 7}, {[]int{1, 2, 3}, 50, 2}, {[]int{1, 2, 3}, 99, 3},
	} {
		if got := percentile(test.values, test.p); got != test.want {
			t.Errorf("percentile %d of %d values: got %d, want %d", test.p, len(test.values), got, test.want)
		}
	}
}

func TestInTurnsAlternates(t *testing.T) {
	t.Parallel()
	var calls strings.Builder
	runner := func(name string, rates ...float64) func() (float64, error) {
		return func() (float64, error) {
			calls.WriteString(name)
			rate := rates[0]
			rates = rates[1:]
			return rate, nil
		}
	}
	got, err := inTurns(3, runner("a", 1, 5, 2), runner("b", 3, 2, 1))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(rates{{1, 5, 2}, {3, 2, 1}}, got); diff != "" {
		t.Error(diff)
	}
	if got, want := calls.String(), "abbaab"; got != want {
		t.Errorf("order %s, want %s", got, want)
	}
}

func TestRatioIsOfTheSameRound(t *testing.T) {
	t.Parallel()
	// The machine was ten times slower in the second round, for both.
	r := rates{{90, 9, 80}, {100, 10, 100}}
	if got := r.ratio(0, 1); got != 0.9 {
		t.Errorf("got %v, want 0.9", got)
	}
	if got := r.median(0); got != 80 {
		t.Errorf("median %v, want 80", got)
	}
}

func TestInTurnsEndsWithAnError(t *testing.T) {
	t.Parallel()
	broken := errors.New("broker is gone")
	if _, err := inTurns(3, func() (float64, error) { return 0, broken }); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
}

func TestTable(t *testing.T) {
	t.Parallel()
	var tab table
	tab.note("rate", "%d msg/s", 5)
	tab.check("ratio", true, "at least 1", "%.1f", 1.2)
	tab.check("lost", false, "none", "%d", 3)
	tab.fail("late", errors.New("no broker"))
	if got := tab.unmet(); got != 2 {
		t.Errorf("%d unmet, want 2", got)
	}
	var out strings.Builder
	tab.print(&out)
	want := `WHAT   MEASURED   TARGET      VERDICT
rate   5 msg/s    -           -
ratio  1.2        at least 1  ok
lost   3          none        MISSED
late   no broker  -           NOT MEASURED
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Error(diff)
	}
}

func TestPacer(t *testing.T) {
	t.Parallel()
	var p pacer
	now := time.Now()
	count := func(d time.Duration) int {
		n := 0
		for end := now.Add(d); now.Before(end); now = now.Add(100 * time.Microsecond) {
			if p.next(now) {
				n++
			}
		}
		return n
	}
	count(time.Second)
	if n := count(time.Second); n != retriesPerSecond {
		t.Errorf("%d in a second, want %d", n, retriesPerSecond)
	}
	now = now.Add(time.Minute) // in which nobody asked
	if n := count(time.Second); n > retriesPerSecond+retriesPerSecond/10 {
		t.Errorf("%d in the second after a pause, want at most a tenth more than %d", n, retriesPerSecond)
	}
}
