package policy_test

import (
	"math"
	"testing"
	"time"

	. "github.com/spillway-mq/spillway/policy"
)

func TestBackoffDelay(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	tests := []struct {
		name    string
		backoff Backoff
		n       int
		u       float64
		want    time.Duration
	}{
		{"default, before any attempt", Backoff{}, 0, 0.5, time.Second},
		{"default, first", Backoff{}, 1, 0.5, 2 * time.Second},
		{"default, first, lowest", Backoff{}, 1, 0, time.Second},
		{"default, first, highest", Backoff{}, 1, 0.9999999999, 3 * time.Second},
		{"default, cap", Backoff{}, 9, 0.5, 5 * time.Minute},
		{"default, cap, highest: jitter comes on top", Backoff{}, 9, 0.75, 375 * time.Second},
		{"default, attempt 10^6", Backoff{}, 1_000_000, 0.5, 5 * time.Minute},
		{"default, highest attempt", Backoff{}, math.MaxInt, 0.5, 5 * time.Minute},
		{"negative attempt", Backoff{}, -1, 0.5, 500 * time.Millisecond},
		{"lowest attempt", Backoff{}, math.MinInt, 0.5, 0},
		{"full", Backoff{Jitter: JitterFull}, 3, 0.25, 2 * time.Second},
		{"full, lowest", Backoff{Jitter: JitterFull}, 3, 0, 0},
		{"none", Backoff{Jitter: JitterNone}, 3, 0.99, 8 * time.Second},
		// D4: in integer arithmetic 1.5 is 1 and the delay never grows.
		{"factor 1.5, first", Backoff{Factor: 1.5, Jitter: JitterNone}, 1, 0, 1500 * time.Millisecond},
		{"factor 1.5, second", Backoff{Factor: 1.5, Jitter: JitterNone}, 2, 0, 2250 * time.Millisecond},
		{"factor 1.5, third", Backoff{Factor: 1.5, Jitter: JitterNone}, 3, 0, 3375 * time.Millisecond},
		{"factor 1", Backoff{Factor: 1, Jitter: JitterNone}, 1_000_000, 0, time.Second},
		{"factor 1e308", Backoff{Factor: 1e308, Jitter: JitterNone}, 2, 0, 5 * time.Minute},
		{"factor infinite", Backoff{Factor: math.Inf(1), Jitter: JitterNone}, 1, 0, 5 * time.Minute},
		{"factor not a number", Backoff{Factor: math.NaN()}, 1, 0.5, 0},
		{"factor negative", Backoff{Factor: -2}, 1, 0.5, 0},
		{"smallest base", Backoff{Base: 1, Jitter: JitterNone}, 10, 0, 1024},
		{"largest base", Backoff{Base: math.MaxInt64, Jitter: JitterNone}, 1_000_000, 0, 5 * time.Minute},
		{"negative base", Backoff{Base: math.MinInt64}, 1_000_000, 0.5, 0},
		{"negative max", Backoff{Max: -1}, 1, 0.5, 0},
		{"everything at its largest", Backoff{math.MaxInt64, math.MaxFloat64, math.MaxInt64, ""}, math.MaxInt, 0.9, 7 * day},
		{"max 30 days", Backoff{Base: 30 * day, Max: 30 * day, Jitter: JitterNone}, 1, 0, MaxDelay},
		{"u negative", Backoff{}, 1, -1, time.Second},
		{"u minus infinity", Backoff{}, 1, math.Inf(-1), time.Second},
		{"u is 1", Backoff{}, 1, 1, 3 * time.Second},
		{"u infinite", Backoff{}, 1, math.Inf(1), 3 * time.Second},
		{"u not a number", Backoff{}, 1, math.NaN(), time.Second},
		{"unknown jitter is the default", Backoff{Jitter: "?"}, 1, 0, time.Second},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := tt.backoff.Delay(tt.n, tt.u)
			if diff := got - tt.want; diff < -1 || diff > 1 { // the last bit of u is less than 1 ns
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

// D3: asking twice, or in another order, changes no delay.
func TestAskingForADelayDoesNotChangeIt(t *testing.T) {
	t.Parallel()
	b := Backoff{Base: 10 * time.Minute, Max: 24 * time.Hour, Jitter: JitterNone}
	var up, down [6]time.Duration
	for n := range up {
		b.Delay(n, 0.3)
		up[n] = b.Delay(n, 0)
	}
	for n := len(down) - 1; n >= 0; n-- {
		down[n] = b.Delay(n, 0)
	}
	want := [6]time.Duration{10 * time.Minute, 20 * time.Minute, 40 * time.Minute, 80 * time.Minute, 160 * time.Minute, 320 * time.Minute}
	if up != want || down != want {
		t.Errorf("up %v, down %v, want %v", up, down, want)
	}
}

func FuzzBackoffDelay(f *testing.F) {
	f.Add(int64(0), 0.0, int64(0), "", 1, 0.5)
	f.Add(int64(math.MaxInt64), 1e308, int64(math.MaxInt64), "proportional", 1_000_000, 0.999)
	f.Add(int64(1), 1.0000001, int64(math.MaxInt64), "full", math.MaxInt, 1.0)
	f.Add(int64(math.MinInt64), math.Inf(-1), int64(math.MinInt64), "none", math.MinInt, math.NaN())
	f.Fuzz(func(t *testing.T, base int64, factor float64, most int64, jitter string, n int, u float64) {
		b := Backoff{time.Duration(base), factor, time.Duration(most), Jitter(jitter)}
		d := b.Delay(n, u)
		if d < 0 || d > MaxDelay {
			t.Fatalf("%+v.Delay(%d, %v) = %s", b, n, u, d)
		}
		if most > 0 && d > longer(b.Max) {
			t.Errorf("%+v.Delay(%d, %v) = %s", b, n, u, d)
		}
		if base >= 0 && factor >= 1 && n < math.MaxInt && b.Delay(n+1, u) < d-ulp {
			t.Errorf("%+v: %s after %d, then %s", b, d, n, b.Delay(n+1, u))
		}
	})
}
