package policy_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spillway-mq/spillway/failure"
	. "github.com/spillway-mq/spillway/policy"
)

func TestStringGolden(t *testing.T) {
	t.Parallel()
	for name, p := range map[string]Policy{
		"default":    {},
		"everything": everythingSet(),
		"age":        {MaxAge: time.Minute, Attempts: Attempts{Ambiguous: 10, Unknown: 1}, MaxReplays: 1},
		"slow growth": {
			Attempts: Attempts{Transient: MaxAttempts},
			Backoff:  Backoff{Factor: 1.001, Max: time.Hour, Jitter: JitterNone},
		},
	} {
		golden(t, "string-"+strings.ReplaceAll(name, " ", "-"), p.String())
	}
}

func TestSchedule(t *testing.T) {
	t.Parallel()
	const s = time.Second
	want := []Delay{{1, s, 2 * s, 3 * s}, {2, 2 * s, 4 * s, 6 * s}, {3, 4 * s, 8 * s, 12 * s}, {4, 8 * s, 16 * s, 24 * s}}
	if diff := cmp.Diff(want, Policy{}.Schedule(unknown)); diff != "" {
		t.Errorf("unknown (-want +got)\n%s", diff)
	}
	if got := (Policy{}).Schedule(permanent); len(got) != 0 {
		t.Errorf("permanent: %v", got)
	}
	if got := (Policy{}).Schedule(transient); len(got) != 11 || got[10] != (Delay{11, 150 * s, 300 * s, 450 * s}) {
		t.Errorf("transient: %v", got)
	}
}

// The schedule that is printed is the one that is followed.
func TestScheduleIsWhatDecideDoes(t *testing.T) {
	t.Parallel()
	for _, p := range []Policy{{}, everythingSet(), {MaxAge: 10 * time.Minute}, {Backoff: Backoff{Jitter: JitterFull}}} {
		for _, n := range []failure.Nature{transient, unknown, permanent, ambiguous} {
			h := History{Attempts: 1, FirstAttemptAt: now}
			at := now
			var got []Delay
			for {
				retry, ok := Decide(p, of(n), h, at, 0.5).(Retry)
				if !ok {
					break
				}
				lo := Decide(Policy{Attempts: p.Attempts, Backoff: p.Backoff}, of(n), h, at, 0).(Retry)
				hi := Decide(Policy{Attempts: p.Attempts, Backoff: p.Backoff}, of(n), h, at, 1).(Retry)
				got = append(got, Delay{h.Attempts, lo.Due.Sub(at), retry.Due.Sub(at), hi.Due.Sub(at)})
				h.Attempts++
				at = retry.Due
			}
			nearly := cmp.Comparer(func(a, b time.Duration) bool { return (a - b).Abs() <= 1 }) // u is below 1
			if diff := cmp.Diff(p.Schedule(n), got, nearly); diff != "" {
				t.Errorf("%s of\n%s(-schedule +decide)\n%s", n, p, diff)
			}
		}
	}
}

func TestGivesUpAfter(t *testing.T) {
	t.Parallel()
	tests := []struct {
		policy Policy
		nature failure.Nature
		want   time.Duration
	}{
		{Policy{}, transient, 1410 * time.Second},
		{Policy{}, unknown, 30 * time.Second},
		{Policy{}, permanent, 0},
		{Policy{}, ambiguous, 24*time.Hour + 6*time.Second},
		{Policy{}, "cosmic", 30 * time.Second},
		{Policy{Backoff: Backoff{Jitter: JitterFull}}, transient, 705 * time.Second},
		{Policy{Backoff: Backoff{Jitter: JitterNone}}, transient, 1410 * time.Second},
		{Policy{MaxAge: time.Minute}, transient, 30 * time.Second},
		{Policy{MaxAge: 30 * time.Second}, transient, 30 * time.Second}, // the limit itself is allowed
		{Policy{MaxAge: 30*time.Second - 1}, transient, 14 * time.Second},
		{Policy{MaxAge: time.Hour}, ambiguous, time.Hour},
		{Policy{MaxAge: 5 * time.Second}, ambiguous, 2 * time.Second},
		{Policy{Parking: Parking{Deadline: math.MaxInt64}}, ambiguous, math.MaxInt64},
		{Policy{Attempts: Attempts{Transient: math.MaxInt}, Backoff: Backoff{Base: MaxDelay, Max: MaxDelay}}, transient, (MaxAttempts - 1) * MaxDelay},
	}
	for _, tt := range tests {
		if got := tt.policy.GivesUpAfter(tt.nature); got != tt.want {
			t.Errorf("%s: %s, want %s, of\n%s", tt.nature, got, tt.want, tt.policy)
		}
	}
}

// The average over many messages is what GivesUpAfter says: about 20 minutes
// and more, so that the default outlives an ordinary outage.
func TestGivesUpAfterIsTheAverage(t *testing.T) {
	t.Parallel()
	const messages = 2000
	var total time.Duration
	for i := range messages {
		for n := 1; n < 12; n++ {
			d := Decide(Policy{}, of(transient), History{Attempts: n}, now, Draw(string(rune('a'+i)), n))
			total += d.(Retry).Due.Sub(now)
		}
	}
	mean, want := total/messages, Policy{}.GivesUpAfter(transient)
	if off := (mean - want).Abs(); off > want/50 {
		t.Errorf("average %s, want about %s", mean, want)
	}
	if want < 20*time.Minute {
		t.Errorf("the default gives up after %s", want)
	}
}

func TestLongestDelay(t *testing.T) {
	t.Parallel()
	none := Backoff{Base: time.Second, Factor: 2, Max: 24 * time.Hour, Jitter: JitterNone}
	for name, tc := range map[string]struct {
		policy Policy
		want   time.Duration
	}{
		"defaults: what a failure may ask for": {Policy{}, 90 * time.Minute},
		"the last attempt that has a delay":    {Policy{Backoff: none, MaxRetryAfter: time.Second}, 2048 * time.Second},
		"jitter on top":                        {Policy{Backoff: Backoff{Base: 8 * time.Hour, Max: 8 * time.Hour}}, 12 * time.Hour},
		"none without a second attempt": {Policy{
			Attempts: Attempts{Transient: 1, Unknown: 1, Permanent: 1, Ambiguous: 1}, Backoff: Backoff{Base: time.Hour, Max: time.Hour},
		}, 0},
		"of a class": {Policy{Classes: map[failure.Class]Override{
			"slow": {Attempts: 2, Backoff: Backoff{Base: 10 * time.Hour, Max: 10 * time.Hour, Jitter: JitterNone}},
		}}, 10 * time.Hour},
		"cut by the limit of age": {Policy{Backoff: Backoff{Base: 8 * time.Hour, Max: 8 * time.Hour}, MaxAge: 6 * time.Hour}, 6 * time.Hour},
	} {
		if got := tc.policy.LongestDelay(); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}
