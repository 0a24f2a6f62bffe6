package policy_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spillway-mq/spillway/failure"
	. "github.com/spillway-mq/spillway/policy"
)

var now = time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)

const (
	transient = failure.NatureTransient
	unknown   = failure.NatureUnknown
	permanent = failure.NaturePermanent
	ambiguous = failure.NatureAmbiguous
)

func of(n failure.Nature) failure.Failure { return failure.Failure{Nature: n, Class: "test"} }

func in(d time.Duration) Decision { return Retry{Due: now.Add(d)} }

func dead(r Reason) Decision { return DeadLetter{Reason: r} }

// TestDecideByDefault is the default policy, at the boundary of every nature,
// parked before or not; and for each row what shutdown, a dead letter stream
// and too many replays make of it.
func TestDecideByDefault(t *testing.T) {
	t.Parallel()
	var (
		longAgo = now.Add(-24 * time.Hour) // the parking deadline of a message that names a reference is now
		hourAgo = now.Add(-time.Hour)      // of one that names none
		recent  = now.Add(-10 * time.Minute)
	)
	withReference := failure.Failure{Nature: ambiguous, Class: "test", Reference: "customer/7"}
	waiting := failure.Failure{Nature: ambiguous, Class: "test", Park: true}
	never := time.Time{}
	tests := []struct {
		name     string
		failure  failure.Failure
		attempts int
		parkedAt time.Time
		want     Decision
	}{
		{"transient, first", of(transient), 1, never, in(2 * time.Second)},
		{"transient, second", of(transient), 2, never, in(4 * time.Second)},
		{"transient, eighth", of(transient), 8, never, in(256 * time.Second)},
		{"transient, ninth meets the cap", of(transient), 9, never, in(5 * time.Minute)},
		{"transient, last but one", of(transient), 11, never, in(5 * time.Minute)},
		{"transient, last", of(transient), 12, never, dead(ReasonAttemptsExhausted)},
		{"transient, beyond", of(transient), 13, never, dead(ReasonAttemptsExhausted)},
		{"transient, far beyond", of(transient), math.MaxInt, never, dead(ReasonAttemptsExhausted)},
		{"transient, once parked", of(transient), 3, recent, in(8 * time.Second)},
		{"transient, once parked, after the parking deadline", of(transient), 3, longAgo, in(8 * time.Second)},
		{"transient, once parked, last", of(transient), 12, recent, dead(ReasonAttemptsExhausted)},

		{"unknown, first", of(unknown), 1, never, in(2 * time.Second)},
		{"unknown, last but one", of(unknown), 4, never, in(16 * time.Second)},
		{"unknown, last", of(unknown), 5, never, dead(ReasonAttemptsExhausted)},
		{"unknown, once parked", of(unknown), 3, recent, in(8 * time.Second)},
		{"no nature counts as unknown", of(""), 4, never, in(16 * time.Second)},
		{"no nature counts as unknown, last", of(""), 5, never, dead(ReasonAttemptsExhausted)},
		{"foreign nature counts as unknown", of("cosmic"), 5, never, dead(ReasonAttemptsExhausted)},

		{"permanent, first", of(permanent), 1, never, dead(ReasonPermanent)},
		{"permanent, after others", of(permanent), 3, never, dead(ReasonPermanent)},
		{"permanent, once parked", of(permanent), 3, recent, dead(ReasonPermanent)},

		{"ambiguous, first", of(ambiguous), 1, never, in(2 * time.Second)},
		{"ambiguous, last but one", of(ambiguous), 2, never, in(4 * time.Second)},
		{"ambiguous, last", of(ambiguous), 3, never, Park{now.Add(5 * time.Minute), now.Add(time.Hour)}},
		{"ambiguous, last, with reference", withReference, 3, never, Park{now.Add(5 * time.Minute), now.Add(24 * time.Hour)}},
		{"ambiguous, after others", of(ambiguous), 11, never, Park{now.Add(5 * time.Minute), now.Add(time.Hour)}},
		{"ambiguous, once parked", of(ambiguous), 3, recent, Park{now.Add(5 * time.Minute), recent.Add(time.Hour)}},
		{"ambiguous, once parked, with attempts left", of(ambiguous), 1, recent, Park{now.Add(5 * time.Minute), recent.Add(time.Hour)}},
		{"ambiguous, the last check", of(ambiguous), 3, now.Add(-58 * time.Minute), Park{now.Add(2 * time.Minute), now.Add(2 * time.Minute)}},
		{"ambiguous, just before the deadline", of(ambiguous), 3, hourAgo.Add(1), Park{now.Add(1), now.Add(1)}},
		{"ambiguous, at the deadline", of(ambiguous), 3, hourAgo, dead(ReasonParkingDeadline)},
		{"ambiguous, after the deadline", of(ambiguous), 3, longAgo, dead(ReasonParkingDeadline)},
		{"ambiguous, with reference, within its deadline", withReference, 3, hourAgo, Park{now.Add(5 * time.Minute), hourAgo.Add(24 * time.Hour)}},
		{"ambiguous, with reference, at the deadline", withReference, 3, longAgo, dead(ReasonParkingDeadline)},
		{"ambiguous, parked by a clock that is ahead", of(ambiguous), 3, now.Add(time.Minute), Park{now.Add(5 * time.Minute), now.Add(time.Hour)}},

		{"waiting, first", waiting, 1, never, Park{now.Add(5 * time.Minute), now.Add(time.Hour)}},
		{"waiting, late", waiting, 200, never, Park{now.Add(5 * time.Minute), now.Add(time.Hour)}},
		{"waiting, at the deadline", waiting, 1, hourAgo, dead(ReasonParkingDeadline)},
		{"parking is asked for whatever the nature", failure.Failure{Nature: permanent, Park: true}, 1, never, Park{now.Add(5 * time.Minute), now.Add(time.Hour)}},

		{"attempts below 1 count as 1", of(transient), 0, never, in(2 * time.Second)},
		{"negative attempts count as 1", of(transient), math.MinInt, never, in(2 * time.Second)},
		{"attempts below 1, permanent", of(permanent), -1, never, dead(ReasonPermanent)},
	}
	for _, tt := range tests {
		for _, shutdown := range []bool{false, true} {
			for _, fromDeadLetters := range []bool{false, true} {
				for _, replays := range []int{-1, 0, 9, 10, 11} {
					name := fmt.Sprintf("%s/shutdown=%t/dlq=%t/replays=%d", tt.name, shutdown, fromDeadLetters, replays)
					t.Run(name, func(t *testing.T) {
						t.Parallel()
						want := tt.want
						if replays >= 10 {
							want = dead(ReasonReplayLimit)
						}
						if _, ok := want.(DeadLetter); shutdown || ok && fromDeadLetters {
							want = Return{}
						}
						got := Decide(Policy{}, tt.failure, History{
							Attempts:        tt.attempts,
							ParkedAt:        tt.parkedAt,
							ReplayCount:     replays,
							Shutdown:        shutdown,
							DeadLetterTopic: fromDeadLetters,
						}, now, 0.5)
						if diff := cmp.Diff(want, got); diff != "" {
							t.Errorf("(-want +got)\n%s", diff)
						}
					})
				}
			}
		}
	}
}

func TestDecideByPolicy(t *testing.T) {
	t.Parallel()
	class := func(o Override) Policy { return Policy{Classes: map[failure.Class]Override{"test": o}} }
	aged := func(p Policy) Policy { p.MaxAge = time.Minute; return p }
	tests := []struct {
		name    string
		policy  Policy
		failure failure.Failure
		history History
		want    Decision
	}{
		// Reasons of a permanent failure.
		{"undecodable", Policy{}, failure.Failure{Nature: permanent, Class: failure.ClassUndecodable}, History{Attempts: 1}, dead(ReasonUndecodable)},
		{"undecodable, retried in vain", Policy{Attempts: Attempts{Permanent: 3}}, failure.Failure{Nature: permanent, Class: failure.ClassUndecodable}, History{Attempts: 3}, dead(ReasonUndecodable)},
		{"undecodable, but not permanent", Policy{}, failure.Failure{Nature: unknown, Class: failure.ClassUndecodable}, History{Attempts: 5}, dead(ReasonAttemptsExhausted)},
		{"crash", Policy{}, failure.Failure{Nature: permanent, Class: failure.ClassConsumerCrash}, History{Attempts: 1}, dead(ReasonConsumerCrash)},
		{"permanent with retries", Policy{Attempts: Attempts{Permanent: 3}}, of(permanent), History{Attempts: 2}, in(4 * time.Second)},
		{"permanent with retries, last", Policy{Attempts: Attempts{Permanent: 3}}, of(permanent), History{Attempts: 3}, dead(ReasonAttemptsExhausted)},
		{"a limit of 1 does not make a transient failure permanent", Policy{Attempts: Attempts{Transient: 1}}, of(transient), History{Attempts: 1}, dead(ReasonAttemptsExhausted)},

		// Overrides by class.
		{"class makes permanent", class(Override{Nature: permanent}), of(transient), History{Attempts: 1}, dead(ReasonPermanent)},
		{"class makes transient", class(Override{Nature: transient}), of(permanent), History{Attempts: 11}, in(5 * time.Minute)},
		{"class makes ambiguous", class(Override{Nature: ambiguous}), of(permanent), History{Attempts: 3}, Park{now.Add(5 * time.Minute), now.Add(time.Hour)}},
		{"class overrules a wish to park", class(Override{Nature: permanent}), failure.Failure{Nature: ambiguous, Class: "test", Park: true}, History{Attempts: 1}, dead(ReasonPermanent)},
		{"class leaves a wish to park", class(Override{Nature: ambiguous}), failure.Failure{Nature: ambiguous, Class: "test", Park: true}, History{Attempts: 1}, Park{now.Add(5 * time.Minute), now.Add(time.Hour)}},
		{"class limits transient", class(Override{Attempts: 2}), of(transient), History{Attempts: 2}, dead(ReasonAttemptsExhausted)},
		{"class limits permanent", class(Override{Attempts: 2}), of(permanent), History{Attempts: 1}, in(2 * time.Second)},
		{"class limits ambiguous", class(Override{Attempts: 1}), of(ambiguous), History{Attempts: 1}, Park{now.Add(5 * time.Minute), now.Add(time.Hour)}},
		{"class changes part of the backoff", class(Override{Backoff: Backoff{Base: time.Minute}}), of(transient), History{Attempts: 1}, in(2 * time.Minute)},
		{"class changes part of parking", class(Override{Parking: Parking{Interval: time.Minute}}), of(ambiguous), History{Attempts: 3}, Park{now.Add(time.Minute), now.Add(time.Hour)}},
		{"another class", Policy{Classes: map[failure.Class]Override{"other": {Attempts: 1}}}, of(transient), History{Attempts: 1}, in(2 * time.Second)},

		// RetryAfter, with u = 0.5.
		{"no sooner than asked", Policy{}, failure.Failure{Nature: transient, RetryAfter: time.Minute}, History{Attempts: 1}, in(75 * time.Second)},
		{"no sooner than the backoff", Policy{}, failure.Failure{Nature: transient, RetryAfter: time.Second}, History{Attempts: 5}, in(32 * time.Second)},
		{"capped", Policy{}, failure.Failure{Nature: transient, RetryAfter: math.MaxInt64}, History{Attempts: 1}, in(75 * time.Minute)},
		{"capped by the policy", Policy{MaxRetryAfter: 10 * time.Second}, failure.Failure{Nature: transient, RetryAfter: time.Hour}, History{Attempts: 1}, in(12500 * time.Millisecond)},
		{"without jitter", Policy{Backoff: Backoff{Jitter: JitterNone}}, failure.Failure{Nature: transient, RetryAfter: time.Minute}, History{Attempts: 1}, in(time.Minute)},
		{"negative is no wish", Policy{}, failure.Failure{Nature: transient, RetryAfter: -time.Hour}, History{Attempts: 1}, in(2 * time.Second)},
		{"does not buy attempts", Policy{}, failure.Failure{Nature: transient, RetryAfter: time.Hour}, History{Attempts: 12}, dead(ReasonAttemptsExhausted)},
		{"of an ambiguous failure", Policy{}, failure.Failure{Nature: ambiguous, RetryAfter: time.Minute}, History{Attempts: 1}, in(75 * time.Second)},
		{"does not reorder the parking lot", Policy{}, failure.Failure{Nature: ambiguous, RetryAfter: 30 * time.Minute}, History{Attempts: 3}, Park{now.Add(5 * time.Minute), now.Add(time.Hour)}},

		// MaxAge.
		{"young enough", aged(Policy{}), of(transient), History{Attempts: 2, FirstAttemptAt: now.Add(-56 * time.Second)}, in(4 * time.Second)},
		{"the retry would come too late", aged(Policy{}), of(transient), History{Attempts: 2, FirstAttemptAt: now.Add(-56*time.Second - 1)}, dead(ReasonTooOld)},
		{"at the limit, even without delay", aged(Policy{Backoff: Backoff{Base: 1, Max: 1, Jitter: JitterFull}}), of(transient), History{Attempts: 2, FirstAttemptAt: now.Add(-time.Minute)}, dead(ReasonTooOld)},
		{"too old to wait as asked", aged(Policy{}), failure.Failure{Nature: transient, RetryAfter: time.Hour}, History{Attempts: 1, FirstAttemptAt: now}, dead(ReasonTooOld)},
		{"unknown age", aged(Policy{}), of(transient), History{Attempts: 11}, in(5 * time.Minute)},
		{"first attempt by a clock that is ahead", aged(Policy{}), of(transient), History{Attempts: 1, FirstAttemptAt: now.Add(time.Hour)}, in(2 * time.Second)},
		{"permanent keeps its reason", aged(Policy{}), of(permanent), History{Attempts: 1, FirstAttemptAt: now.Add(-time.Hour)}, dead(ReasonPermanent)},
		{"exhausted keeps its reason", aged(Policy{}), of(transient), History{Attempts: 12, FirstAttemptAt: now.Add(-time.Hour)}, dead(ReasonAttemptsExhausted)},
		{"parking ends with age", aged(Policy{}), of(ambiguous), History{Attempts: 3, FirstAttemptAt: now.Add(-10 * time.Second)}, Park{now.Add(50 * time.Second), now.Add(50 * time.Second)}},
		{"parking ends before age", Policy{MaxAge: 48 * time.Hour}, of(ambiguous), History{Attempts: 3, FirstAttemptAt: now}, Park{now.Add(5 * time.Minute), now.Add(time.Hour)}},
		{"parked, at the age limit", aged(Policy{}), of(ambiguous), History{Attempts: 3, FirstAttemptAt: now.Add(-time.Minute), ParkedAt: now.Add(-50 * time.Second)}, dead(ReasonTooOld)},
		{"parked, beyond both", aged(Policy{}), of(ambiguous), History{Attempts: 3, FirstAttemptAt: now.Add(-2 * time.Hour), ParkedAt: now.Add(-2 * time.Hour)}, dead(ReasonParkingDeadline)},

		// MaxReplays: the reason names it whatever the failure, because nature
		// and class are in the dead letter anyway.
		{"replayed to the limit, permanent", Policy{MaxReplays: 1}, of(permanent), History{Attempts: 1, ReplayCount: 1}, dead(ReasonReplayLimit)},
		{"replayed to the limit, waiting", Policy{MaxReplays: 1}, failure.Failure{Nature: ambiguous, Park: true}, History{Attempts: 1, ReplayCount: 1}, dead(ReasonReplayLimit)},
		{"replayed, with replays left", Policy{MaxReplays: 2}, of(transient), History{Attempts: 1, ReplayCount: 1}, in(2 * time.Second)},
		{"never replayed, nonsense limit", Policy{MaxReplays: -1}, of(transient), History{Attempts: 1}, in(2 * time.Second)},

		// A retry from the dead letter stream is allowed.
		{"dead letter stream, age", aged(Policy{}), of(transient), History{Attempts: 1, FirstAttemptAt: now.Add(-time.Hour), DeadLetterTopic: true}, Return{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := Decide(tt.policy, tt.failure, tt.history, now, 0.5)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			// A caller that fills in the defaults once gets the same.
			if diff := cmp.Diff(tt.want, Decide(tt.policy.WithDefaults(), tt.failure, tt.history, now, 0.5)); diff != "" {
				t.Errorf("with defaults (-want +got)\n%s", diff)
			}
		})
	}
}

// journey plays a message that fails each time with what fail says, until it
// is dead-lettered, and returns the number of counted attempts, of re-checks,
// the time it took and the reason. As in the chain, an invocation that ends in
// parking is not counted.
func journey(t *testing.T, p Policy, fail func(call int) failure.Failure) (attempts, checks int, took time.Duration, reason Reason) {
	t.Helper()
	h := History{Attempts: 1, FirstAttemptAt: now}
	at := now
	for call := 1; call <= 100_000; call++ {
		switch d := Decide(p, fail(call), h, at, Draw("journey", call)).(type) {
		case Retry:
			h.Attempts++
			at = d.Due
		case Park:
			if d.Due.After(d.Deadline) {
				t.Fatalf("call %d: parked until %s, after its deadline %s", call, d.Due, d.Deadline)
			}
			if h.ParkedAt.IsZero() {
				h.ParkedAt = at
			}
			checks++
			at = d.Due
		case DeadLetter:
			return h.Attempts, checks, at.Sub(now), d.Reason
		default:
			t.Fatalf("call %d: %#v", call, d)
		}
	}
	t.Fatal("never given up")
	return
}

func always(f failure.Failure) func(int) failure.Failure {
	return func(int) failure.Failure { return f }
}

// K6: a count in one byte never reached a limit above 127.
func TestThreeHundredAttemptsAreExactly300(t *testing.T) {
	t.Parallel()
	for _, limit := range []int{1, 127, 128, 255, 256, 257, 300, MaxAttempts} {
		attempts, _, _, reason := journey(t, Policy{Attempts: Attempts{Transient: limit}}, always(of(transient)))
		if attempts != limit || reason != ReasonAttemptsExhausted {
			t.Errorf("limit %d: %d attempts, then %s", limit, attempts, reason)
		}
	}
}

// K11: the limit of the current failure counts, not that of the first one.
func TestPermanentAfterTwoTransientIsTheThirdAndLastAttempt(t *testing.T) {
	t.Parallel()
	attempts, _, _, reason := journey(t, Policy{}, func(call int) failure.Failure {
		if call < 3 {
			return of(transient)
		}
		return of(permanent)
	})
	if attempts != 3 || reason != ReasonPermanent {
		t.Errorf("%d attempts, then %s; want 3, then permanent", attempts, reason)
	}
}

// O38: a permanent failure is not retried, and says why it is dead.
func TestPermanentIsOneAttempt(t *testing.T) {
	t.Parallel()
	attempts, checks, took, reason := journey(t, Policy{}, always(of(permanent)))
	if attempts != 1 || checks != 0 || took != 0 || reason != ReasonPermanent {
		t.Errorf("%d attempts, %d checks, %s, then %s", attempts, checks, took, reason)
	}
}

// S38: whatever a message fails with, in whatever order, it is given up.
func TestDefaultPolicyIsFinite(t *testing.T) {
	t.Parallel()
	kinds := []failure.Failure{
		of(transient), of(unknown), of(ambiguous), of("cosmic"),
		{Nature: ambiguous, Reference: "customer/7"},
		{Nature: ambiguous, Park: true},
		{Nature: transient, RetryAfter: math.MaxInt64},
	}
	for i, first := range kinds {
		for j, second := range kinds {
			for k, third := range kinds {
				attempts, _, took, _ := journey(t, Policy{}, func(call int) failure.Failure {
					return [...]failure.Failure{first, second, third}[call%3]
				})
				// 24 h parked, and 12 attempts that may each ask for an hour and a half.
				if attempts > 12 || took > 24*time.Hour+11*90*time.Minute {
					t.Errorf("failures %d, %d, %d: %d attempts in %s", i, j, k, attempts, took)
				}
			}
		}
	}
}

func TestAmbiguousIsTriedThenParkedThenDead(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		reference string
		checks    int
		parked    time.Duration
	}{
		{"", 12, time.Hour},
		{"customer/7", 288, 24 * time.Hour},
	} {
		attempts, checks, took, reason := journey(t, Policy{}, always(failure.Failure{Nature: ambiguous, Reference: tt.reference}))
		if attempts != 3 || checks != tt.checks || reason != ReasonParkingDeadline {
			t.Errorf("reference %q: %d attempts, %d checks, then %s", tt.reference, attempts, checks, reason)
		}
		if retries := took - tt.parked; retries < 3*time.Second || retries > 9*time.Second {
			t.Errorf("reference %q: took %s, want 3 s to 9 s and then %s", tt.reference, took, tt.parked)
		}
	}
}

func TestLastCheckIsAtTheDeadline(t *testing.T) {
	t.Parallel()
	p := Policy{Parking: Parking{Interval: 25 * time.Minute}}
	_, checks, took, reason := journey(t, p, always(failure.Failure{Nature: ambiguous, Park: true}))
	if checks != 3 || took != time.Hour || reason != ReasonParkingDeadline {
		t.Errorf("%d checks in %s, then %s; want 3 in 1h, then parking_deadline", checks, took, reason)
	}
}

// O37: with and without a dead letter stream behind it, both are bounded: what
// comes from a dead letter stream is retried as often, and then left there.
func TestDeadLetterStreamNeverFeedsItself(t *testing.T) {
	t.Parallel()
	for _, limit := range []int{1, 2, 5} {
		p := Policy{Attempts: Attempts{Transient: limit}}
		for n := 1; n <= limit+1; n++ {
			got := Decide(p, of(transient), History{Attempts: n, DeadLetterTopic: true}, now, 0.5)
			_, returned := got.(Return)
			if want := n >= limit; returned != want {
				t.Errorf("limit %d, attempt %d: %#v", limit, n, got)
			}
		}
	}
}

// K7: whatever a forged or broken history says, the decision is in bounds.
func TestWildHistoriesAreHarmless(t *testing.T) {
	t.Parallel()
	year9999 := time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)
	for _, attempts := range []int{math.MinInt, -1, 0, 1, 2, 128, 1_000_000, math.MaxInt} {
		for _, replays := range []int{math.MinInt, -1, 0, math.MaxInt} {
			for _, at := range []time.Time{{}, time.Unix(0, 0), now, year9999} {
				for _, n := range []failure.Nature{transient, unknown, permanent, ambiguous} {
					h := History{Attempts: attempts, ReplayCount: replays, ParkedAt: at, FirstAttemptAt: at}
					got := Decide(Policy{MaxAge: time.Hour}, of(n), h, now, 0.999)
					checkBounds(t, got, 24*time.Hour)
				}
			}
		}
	}
}

func checkBounds(t *testing.T, d Decision, most time.Duration) {
	t.Helper()
	var due time.Time
	switch d := d.(type) {
	case Retry:
		due = d.Due
	case Park:
		due = d.Due
		if d.Due.After(d.Deadline) {
			t.Errorf("parked beyond the deadline: %+v", d)
		}
	default:
		return
	}
	if due.Before(now) {
		t.Errorf("due %s, %s before now", due, now.Sub(due))
	}
	if due.After(now.Add(most)) {
		t.Errorf("due in %s, want at most %s", due.Sub(now), most)
	}
}

// FuzzDecide states what holds for every input, also for policies that
// Validate refuses.
func FuzzDecide(f *testing.F) {
	f.Add("transient", "", int64(0), false, "", 1, int64(0), int64(0), 0, int64(0), int64(0), 0.0, "", 0, 0, int64(0), int64(0), int64(0), 0.5)
	f.Add("ambiguous", "test", int64(time.Hour), true, "a/1", 1_000_000, int64(time.Hour), int64(time.Hour), 3, int64(1), int64(math.MaxInt64), 1e308, "full", 12, 1, int64(time.Minute), int64(time.Hour), int64(time.Hour), 1.0)
	f.Add("permanent", "test", int64(math.MinInt64), false, "", math.MinInt, int64(-1), int64(-1), -1, int64(math.MinInt64), int64(math.MinInt64), math.Inf(-1), "none", -1, -1, int64(-1), int64(-1), int64(-1), math.NaN())
	f.Add("unknown", "undecodable", int64(math.MaxInt64), false, "x", math.MaxInt, int64(math.MaxInt64), int64(math.MaxInt64), math.MaxInt, int64(math.MaxInt64), int64(math.MaxInt64), math.NaN(), "?", math.MaxInt, math.MaxInt, int64(math.MaxInt64), int64(math.MaxInt64), int64(math.MaxInt64), math.Inf(1))
	f.Add("transient", "test", int64(90*time.Second), false, "", 3, int64(0), int64(time.Minute), 0, int64(time.Second), int64(time.Minute), 1.5, "proportional", 12, 0, int64(0), int64(0), int64(time.Hour), -0.5)
	f.Fuzz(func(t *testing.T,
		nature, class string, retryAfter int64, park bool, reference string,
		attempts int, parkedAgo, age int64, replays int,
		base, most int64, factor float64, jitter string, limit, classLimit int,
		interval, deadline, maxAge int64, u float64,
	) {
		p := Policy{
			Attempts:      Attempts{limit, limit, limit, limit},
			Backoff:       Backoff{time.Duration(base), factor, time.Duration(most), Jitter(jitter)},
			Parking:       Parking{time.Duration(interval), time.Duration(deadline), time.Duration(deadline)},
			MaxRetryAfter: time.Duration(most),
			MaxAge:        time.Duration(maxAge),
			Classes:       map[failure.Class]Override{"test": {Attempts: classLimit}},
		}
		fail := failure.Failure{
			Nature: failure.Nature(nature), Class: failure.Class(class),
			RetryAfter: time.Duration(retryAfter), Park: park, Reference: reference,
		}
		h := History{Attempts: attempts, ReplayCount: replays}
		if age != 0 {
			h.FirstAttemptAt = now.Add(-time.Duration(age))
		}
		if parkedAgo != 0 {
			h.ParkedAt = now.Add(-time.Duration(parkedAgo))
		}

		got := Decide(p, fail, h, now, u)
		if again := Decide(p, fail, h, now, u); got != again {
			t.Errorf("not deterministic: %#v, then %#v", got, again)
		}
		if filled := Decide(p.WithDefaults(), fail, h, now, u); got != filled {
			t.Errorf("%#v, but with defaults %#v", got, filled)
		}
		checkBounds(t, got, MaxDelay)

		full := p.WithDefaults()
		if retry, ok := got.(Retry); ok {
			delay := retry.Due.Sub(now)
			if limit := longer(max(full.Backoff.Max, full.MaxRetryAfter)); delay > limit {
				t.Errorf("delay %s, want at most %s", delay, limit)
			}
			if wish := min(fail.RetryAfter, full.MaxRetryAfter, MaxDelay); delay < wish {
				t.Errorf("delay %s, sooner than %s", delay, wish)
			}
			if attempts >= MaxAttempts {
				t.Errorf("retried after %d attempts", attempts)
			}
			if end := h.FirstAttemptAt.Add(p.MaxAge); p.MaxAge > 0 && age != 0 && retry.Due.After(end) {
				t.Errorf("due %s, beyond the age limit %s", retry.Due, end)
			}
			// More luck never means sooner, and one attempt more never does.
			if later, ok := Decide(p, fail, h, now, u+0.1).(Retry); ok && later.Due.Before(retry.Due) && u == u {
				t.Errorf("u+0.1 is due %s sooner", retry.Due.Sub(later.Due))
			}
			next := h
			next.Attempts = max(1, attempts) + 1
			if later, ok := Decide(p, fail, next, now, u).(Retry); ok && factor >= 1 && later.Due.Before(retry.Due.Add(-ulp)) {
				t.Errorf("the next attempt is due %s sooner", retry.Due.Sub(later.Due))
			}
		}

		h.Shutdown = true
		if d := Decide(p, fail, h, now, u); d != (Return{}) {
			t.Errorf("at shutdown: %#v", d)
		}
		h.Shutdown, h.DeadLetterTopic = false, true
		d := Decide(p, fail, h, now, u)
		if _, isDead := got.(DeadLetter); isDead {
			got = Return{}
		}
		if d != got {
			t.Errorf("from a dead letter stream: %#v, want %#v", d, got)
		}
	})
}

// ulp forgives the last bit of a power: two powers that should be equal may
// lie on both sides of a nanosecond.
const ulp = time.Nanosecond

// longer is what jitter can make of a delay.
func longer(d time.Duration) time.Duration {
	d = min(max(d, 0), MaxDelay)
	return min(d+d/2, MaxDelay)
}
