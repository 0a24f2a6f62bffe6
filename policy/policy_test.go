package policy_test

import (
	"flag"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spillway-mq/spillway/failure"
	. "github.com/spillway-mq/spillway/policy"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got)\n%s", path, diff)
	}
}

func TestReasonsAreFrozen(t *testing.T) {
	t.Parallel()
	golden(t, "reasons", fmt.Sprintln(
		ReasonPermanent, ReasonAttemptsExhausted, ReasonParkingDeadline, ReasonTooOld,
		ReasonConsumerCrash, ReasonUndecodable, ReasonRejectedByBroker, ReasonReplayLimit,
	))
}

func TestWithDefaults(t *testing.T) {
	t.Parallel()
	defaults := Policy{
		Attempts:      Attempts{Transient: 12, Unknown: 5, Permanent: 1, Ambiguous: 3},
		Backoff:       Backoff{Base: time.Second, Factor: 2, Max: 5 * time.Minute, Jitter: JitterProportional},
		Parking:       Parking{Interval: 5 * time.Minute, Deadline: 24 * time.Hour, DeadlineWithoutReference: time.Hour},
		MaxRetryAfter: time.Hour,
		MaxReplays:    10,
	}
	if diff := cmp.Diff(defaults, Policy{}.WithDefaults()); diff != "" {
		t.Errorf("zero policy (-want +got)\n%s", diff)
	}
	full := everythingSet()
	if diff := cmp.Diff(full, full.WithDefaults()); diff != "" {
		t.Errorf("fields that are set (-want +got)\n%s", diff)
	}
	nonsense := Policy{Attempts: Attempts{Transient: -1}, Backoff: Backoff{Base: -1}}
	if err := nonsense.WithDefaults().Validate(); err == nil {
		t.Error("WithDefaults hides nonsense from Validate")
	}
}

func everythingSet() Policy {
	return Policy{
		Attempts:      Attempts{Transient: 20, Unknown: 6, Permanent: 2, Ambiguous: 4},
		Backoff:       Backoff{Base: 2 * time.Second, Factor: 1.5, Max: time.Minute, Jitter: JitterFull},
		Parking:       Parking{Interval: time.Minute, Deadline: 2 * time.Hour, DeadlineWithoutReference: 30 * time.Minute},
		MaxRetryAfter: 10 * time.Minute,
		MaxAge:        36 * time.Hour,
		MaxReplays:    3,
		Classes: map[failure.Class]Override{
			"validation": {Nature: permanent, Attempts: 1},
			"gateway":    {Attempts: 7, Backoff: Backoff{Base: 5 * time.Second, Jitter: JitterNone}, Parking: Parking{Interval: 2 * time.Minute}},
		},
	}
}

func TestMerge(t *testing.T) {
	t.Parallel()
	base := everythingSet()
	over := Policy{
		Attempts:   Attempts{Unknown: 9},
		Backoff:    Backoff{Max: 2 * time.Minute, Jitter: JitterNone},
		Parking:    Parking{Deadline: 3 * time.Hour},
		MaxReplays: 4,
		Classes: map[failure.Class]Override{
			"gateway": {Nature: transient, Backoff: Backoff{Base: 7 * time.Second}, Parking: Parking{Deadline: time.Hour}},
			"new":     {Attempts: 2},
		},
	}
	want := Policy{
		Attempts:      Attempts{Transient: 20, Unknown: 9, Permanent: 2, Ambiguous: 4},
		Backoff:       Backoff{Base: 2 * time.Second, Factor: 1.5, Max: 2 * time.Minute, Jitter: JitterNone},
		Parking:       Parking{Interval: time.Minute, Deadline: 3 * time.Hour, DeadlineWithoutReference: 30 * time.Minute},
		MaxRetryAfter: 10 * time.Minute,
		MaxAge:        36 * time.Hour,
		MaxReplays:    4,
		Classes: map[failure.Class]Override{
			"validation": {Nature: permanent, Attempts: 1},
			"gateway": {
				Nature: transient, Attempts: 7,
				Backoff: Backoff{Base: 7 * time.Second, Jitter: JitterNone},
				Parking: Parking{Interval: 2 * time.Minute, Deadline: time.Hour},
			},
			"new": {Attempts: 2},
		},
	}
	if diff := cmp.Diff(want, base.Merge(over)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if diff := cmp.Diff(everythingSet(), base); diff != "" {
		t.Errorf("merging changed the policy (-want +got)\n%s", diff)
	}
	if len(over.Classes) != 2 || over.Classes["gateway"].Attempts != 0 {
		t.Errorf("merging changed what was merged: %+v", over.Classes)
	}
}

func TestMergeLaws(t *testing.T) {
	t.Parallel()
	a, b := everythingSet(), Policy{Attempts: Attempts{Transient: 3}, Classes: map[failure.Class]Override{"x": {Attempts: 2}}}
	c := Policy{MaxAge: time.Hour, Classes: map[failure.Class]Override{"x": {Nature: permanent}, "validation": {Attempts: 4}}}
	for name, pair := range map[string][2]Policy{
		"nothing over a policy":      {a, a.Merge(Policy{})},
		"a policy over nothing":      {a, Policy{}.Merge(a)},
		"nothing over nothing":       {{}, Policy{}.Merge(Policy{})},
		"a policy over itself":       {a, a.Merge(a)},
		"grouping does not matter":   {a.Merge(b).Merge(c), a.Merge(b.Merge(c))},
		"defaults may come at last":  {Policy{}.WithDefaults().Merge(b), b.WithDefaults()},
		"defaults may come at first": {a.WithDefaults().Merge(b), a.Merge(b).WithDefaults()},
	} {
		if diff := cmp.Diff(pair[0], pair[1]); diff != "" {
			t.Errorf("%s (-want +got)\n%s", name, diff)
		}
	}
}

func TestMergeSharesNoMap(t *testing.T) {
	t.Parallel()
	base, over := everythingSet(), everythingSet()
	want := maps.Clone(base.Classes)
	for _, merged := range []Policy{base.Merge(Policy{}), Policy{}.Merge(over), base.Merge(over)} {
		merged.Classes["validation"] = Override{Attempts: 99}
		merged.Classes["added"] = Override{}
	}
	if diff := cmp.Diff(want, base.Classes) + cmp.Diff(want, over.Classes); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestValidateNamesEveryProblemAtOnce(t *testing.T) {
	t.Parallel()
	err := Policy{
		Attempts:      Attempts{Transient: -1, Unknown: 10_001, Permanent: math.MaxInt, Ambiguous: math.MinInt},
		Backoff:       Backoff{Base: -time.Second, Factor: 0.5, Max: 8 * 24 * time.Hour, Jitter: "some"},
		Parking:       Parking{Interval: 8 * 24 * time.Hour, Deadline: -time.Hour, DeadlineWithoutReference: -1},
		MaxRetryAfter: -time.Minute,
		MaxAge:        -time.Hour,
		MaxReplays:    -1,
		Classes: map[failure.Class]Override{
			"":           {},
			"validation": {Nature: "hopeless", Attempts: -3, Backoff: Backoff{Factor: 0.5}},
			"50%d \"x\"": {Backoff: Backoff{Factor: math.NaN(), Jitter: "?"}},
			"inf":        {Backoff: Backoff{Factor: math.Inf(1)}, Attempts: 10_001},
			"minus inf":  {Backoff: Backoff{Factor: math.Inf(-1)}},
			"interval":   {Parking: Parking{Interval: -1}},
		},
	}.Validate()
	if err == nil {
		t.Fatal("no error")
	}
	golden(t, "validate", err.Error()+"\n")
	if many, ok := err.(interface{ Unwrap() []error }); !ok || len(many.Unwrap()) != 1+strings.Count(err.Error(), "\n") {
		t.Error("the problems are not joined one by one")
	}
}

func TestValidateContradictions(t *testing.T) {
	t.Parallel()
	class := func(o Override) Policy { return Policy{Classes: map[failure.Class]Override{"c": o}} }
	tests := []struct {
		policy Policy
		want   string // empty if valid
	}{
		{Policy{}, ""},
		{Policy{}.WithDefaults(), ""},
		{everythingSet(), ""},
		{everythingSet().WithDefaults(), ""},
		{Policy{Attempts: Attempts{Transient: MaxAttempts, Permanent: 5}}, ""},
		{Policy{Backoff: Backoff{Factor: 1}}, ""},
		{Policy{Backoff: Backoff{Factor: 1e308, Max: MaxDelay}}, ""},
		{Policy{Backoff: Backoff{Base: time.Minute, Max: time.Minute}}, ""},
		{Policy{Parking: Parking{Interval: time.Hour}}, ""},
		{class(Override{}), ""},
		{
			Policy{Backoff: Backoff{Base: 2 * time.Minute, Max: time.Minute}},
			"policy: backoff.base must be at most max, which is 1m, is 2m",
		},
		{
			Policy{Backoff: Backoff{Base: 10 * time.Minute}},
			"policy: backoff.base must be at most max, which is 5m (not set here), is 10m",
		},
		{
			Policy{Backoff: Backoff{Max: 500 * time.Millisecond}},
			"policy: backoff.base must be at most max, which is 500ms, is 1s (not set here)",
		},
		{
			Policy{Parking: Parking{Interval: 2 * time.Hour}},
			"policy: parking.interval must be at most deadlineWithoutReference, which is 1h (not set here), is 2h",
		},
		{
			Policy{Parking: Parking{Interval: time.Hour, Deadline: time.Minute}},
			"policy: parking.interval must be at most deadline, which is 1m, is 1h",
		},
		{
			Policy{Backoff: Backoff{Base: time.Minute}, Classes: map[failure.Class]Override{"c": {Backoff: Backoff{Max: time.Second}}}},
			`policy: classes["c"].backoff.base must be at most max, which is 1s, is 1m (not set here)`,
		},
		{
			class(Override{Parking: Parking{DeadlineWithoutReference: time.Minute}}),
			`policy: classes["c"].parking.interval must be at most deadlineWithoutReference, which is 1m, is 5m (not set here)`,
		},
		{ // one contradiction is one problem: the class did not add to it
			Policy{
				Backoff: Backoff{Base: 10 * time.Minute},
				Classes: map[failure.Class]Override{"c": {Backoff: Backoff{Factor: 3}}},
			},
			"policy: backoff.base must be at most max, which is 5m (not set here), is 10m",
		},
		{
			Policy{Backoff: Backoff{Max: -1}, Classes: map[failure.Class]Override{"c": {Backoff: Backoff{Base: time.Minute}}}},
			"policy: backoff.max must not be negative, is -1ns",
		},
	}
	for _, tt := range tests {
		got := ""
		if err := tt.policy.Validate(); err != nil {
			got = err.Error()
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%+v (-want +got)\n%s", tt.policy, diff)
		}
	}
}
