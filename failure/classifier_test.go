package failure_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spillway-mq/spillway/failure"
)

var (
	errPlain = errors.New("plain")
	errOther = errors.New("other")
)

func TestVoicesFillEachOther(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		err  error
		want failure.Failure
	}{
		"nature from the wrapper, class and code from the cause": {
			failure.Transient(fmt.Errorf("charge: %w", &statusError{400})),
			failure.Failure{Nature: transient, Class: failure.ClassValidation, Code: "http:400"},
		},
		"class from the wrapper, code from the cause": {
			failure.Permanent(&statusError{404}, failure.Class("no_such_card")),
			failure.Failure{Nature: permanent, Class: "no_such_card", Code: "http:404"},
		},
		"code from the wrapper, class from the cause": {
			failure.Permanent(&statusError{400}, failure.Code("INVALID_SCHEMA")),
			failure.Failure{Nature: permanent, Class: failure.ClassValidation, Code: "INVALID_SCHEMA"},
		},
		"the outermost wrapper wins": {
			failure.Transient(fmt.Errorf("x: %w", failure.Permanent(errPlain))),
			failure.Failure{Nature: transient, Class: failure.ClassUnknown},
		},
		"what the outer wrapper leaves open comes from the inner": {
			failure.Transient(fmt.Errorf("x: %w", failure.Permanent(errPlain, failure.Class("a"), failure.Code("b"))), failure.Class("c")),
			failure.Failure{Nature: transient, Class: "c", Code: "b"},
		},
		"the wish to park belongs to the nature": {
			failure.Transient(failure.Waiting(errPlain, "approval")),
			failure.Failure{Nature: transient, Class: failure.ClassUnknown, Reference: "approval"},
		},
		"waiting around a missing reference": {
			failure.Waiting(failure.Missing("customer", "42"), "approval"),
			failure.Failure{Nature: ambiguous, Class: failure.ClassReferenceNotFound, Reference: "approval", Park: true},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tt.want, said(tt.err)); diff != "" {
				t.Errorf("classified (-want +got):\n%s", diff)
			}
		})
	}
}

// K11: of joined errors the worst decides.
func TestJoins(t *testing.T) {
	t.Parallel()
	join := errors.Join
	timeout, invalid, missing := context.DeadlineExceeded, &statusError{422}, sql.ErrNoRows
	for name, tt := range map[string]struct {
		err    error
		nature failure.Nature
		class  failure.Class
	}{
		"transient, permanent":  {join(failure.Transient(errPlain), failure.Permanent(errPlain)), permanent, failure.ClassUnknown},
		"permanent, transient":  {join(failure.Permanent(errPlain), failure.Transient(errPlain)), permanent, failure.ClassUnknown},
		"timeout, invalid":      {join(timeout, invalid), permanent, failure.ClassValidation},
		"missing, invalid":      {join(missing, invalid), permanent, failure.ClassValidation},
		"timeout, missing":      {join(timeout, missing), ambiguous, failure.ClassReferenceNotFound},
		"unknown, timeout":      {join(errPlain, timeout), transient, failure.ClassDependencyTimeout},
		"unknown, panic":        {join(errPlain, failure.Panic("x", nil)), unknown, failure.ClassPanic},
		"panic, timeout":        {join(failure.Panic("x", nil), timeout), transient, failure.ClassDependencyTimeout},
		"equals, the first":     {join(failure.Permanent(errPlain, failure.Class("a")), failure.Permanent(errPlain, failure.Class("b"))), permanent, "a"},
		"several %w":            {fmt.Errorf("%w, and %w", timeout, invalid), permanent, failure.ClassValidation},
		"sentinel and cause":    {fmt.Errorf("%w: %w", errPlain, timeout), transient, failure.ClassDependencyTimeout},
		"under wraps":           {fmt.Errorf("a: %w", fmt.Errorf("b: %w", join(timeout, fmt.Errorf("c: %w", invalid)))), permanent, failure.ClassValidation},
		"nested":                {join(join(timeout, join(errPlain, invalid)), missing), permanent, failure.ClassValidation},
		"one":                   {join(invalid), permanent, failure.ClassValidation},
		"an old multierror":     {multi{timeout, invalid}, permanent, failure.ClassValidation},
		"nil branches":          {several{errPlain, []error{nil, invalid, nil}}, permanent, failure.ClassValidation},
		"only nil branches":     {several{errPlain, []error{nil, nil}}, unknown, failure.ClassUnknown},
		"no branches":           {several{errPlain, nil}, unknown, failure.ClassUnknown},
		"recognised, worst":     {several{invalid, []error{timeout, errPlain}}, permanent, failure.ClassValidation},
		"recognised, not worst": {several{timeout, []error{errPlain, invalid}}, permanent, failure.ClassValidation},
		"recognised, equal":     {several{timeout, []error{errPlain, &statusError{503}}}, transient, failure.ClassDependencyTimeout},

		"a wrapper speaks for its branch":          {join(failure.Transient(invalid), timeout), transient, failure.ClassValidation},
		"a wrapper speaks for all branches":        {failure.Transient(join(timeout, failure.Permanent(errPlain))), transient, failure.ClassUnknown},
		"class of the branch that would have won":  {failure.Permanent(join(timeout, invalid)), permanent, failure.ClassValidation},
		"the same for a sentinel and its cause":    {failure.Transient(fmt.Errorf("%w: %w", errPlain, invalid)), transient, failure.ClassValidation},
		"class of the wrapper around all branches": {failure.Permanent(join(timeout, invalid), failure.Class("a")), permanent, "a"},
		"branches that were wrapped themselves":    {failure.Permanent(join(failure.Transient(invalid), failure.Missing("a", "b"))), permanent, failure.ClassReferenceNotFound},
		"a wrapper around a join in a branch": {
			failure.Permanent(join(missing, failure.Transient(join(errPlain, invalid)))),
			permanent, failure.ClassReferenceNotFound,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := said(tt.err)
			if got.Nature != tt.nature || got.Class != tt.class {
				t.Errorf("classified as %s %s, want %s %s", got.Nature, got.Class, tt.nature, tt.class)
			}
		})
	}
}

// multi is a join as it was written before Go 1.20.
type multi []error

func (multi) Error() string            { return "several errors" }
func (m multi) WrappedErrors() []error { return m }
func (m multi) Unwrap() error {
	if len(m) == 1 {
		return nil
	}
	return m[1:]
}

// several is an error with properties of its own and any branches.
type several struct {
	error
	causes []error
}

func (s several) Unwrap() []error      { return s.causes }
func (s several) Is(target error) bool { return errors.Is(s.error, target) }
func (s several) As(target any) bool   { return errors.As(s.error, target) }

func TestRules(t *testing.T) {
	t.Parallel()
	join := errors.Join
	isPlain := failure.Is(errPlain, failure.Failure{Nature: transient, Class: "plain"})
	isOther := failure.Is(errOther, failure.Failure{Nature: permanent, Class: "other"})
	whole := failure.As(func(several) (failure.Failure, bool) {
		return failure.Failure{Nature: ambiguous, Class: "whole"}, true
	})
	both := failure.Rule{Name: "both", Match: func(err error) (failure.Failure, bool) {
		return failure.Failure{Nature: ambiguous, Class: "both"}, errors.Is(err, errPlain) && errors.Is(err, errOther)
	}}
	for name, tt := range map[string]struct {
		rules []failure.Rule
		err   error
		want  failure.Failure
	}{
		"a rule for a sentinel": {
			[]failure.Rule{isPlain},
			fmt.Errorf("x: %w", errPlain),
			failure.Failure{Nature: transient, Class: "plain"},
		},
		"a rule for a type": {
			[]failure.Rule{failure.As(func(e *statusError) (failure.Failure, bool) {
				return failure.Failure{Nature: transient, RetryAfter: time.Duration(e.status) * time.Second}, e.status == 409
			})},
			fmt.Errorf("x: %w", &statusError{409}),
			failure.Failure{Nature: transient, Class: failure.ClassValidation, Code: "http:409", RetryAfter: 409 * time.Second},
		},
		"a rule for an interface": {
			[]failure.Rule{failure.As(func(e interface {
				error
				StatusCode() int
			}) (failure.Failure, bool) {
				return failure.Failure{Class: "status"}, true
			})},
			fmt.Errorf("x: %w", &statusError{409}),
			failure.Failure{Nature: permanent, Class: "status", Code: "http:409"},
		},
		"a rule that declines": {
			[]failure.Rule{failure.As(func(e *statusError) (failure.Failure, bool) {
				return failure.Failure{Nature: transient, Class: "x", Code: "x"}, false
			})},
			&statusError{409},
			failure.Failure{Nature: permanent, Class: failure.ClassValidation, Code: "http:409"},
		},
		"the first rule wins": {
			[]failure.Rule{
				failure.Is(errPlain, failure.Failure{Class: "first"}),
				failure.Is(errPlain, failure.Failure{Class: "second", Nature: permanent}),
			},
			errPlain,
			failure.Failure{Nature: unknown, Class: "first"},
		},
		"before wrappers": {
			[]failure.Rule{isPlain},
			failure.Permanent(errPlain, failure.Class("x"), failure.Code("y")),
			failure.Failure{Nature: transient, Class: "plain", Code: "y"},
		},
		"before built-in rules": {
			[]failure.Rule{failure.Is(context.DeadlineExceeded, failure.Failure{Nature: permanent})},
			fmt.Errorf("x: %w", context.DeadlineExceeded),
			failure.Failure{Nature: permanent, Class: failure.ClassDependencyTimeout, Code: "context:DeadlineExceeded"},
		},
		"only a class": {
			[]failure.Rule{failure.Is(errPlain, failure.Failure{Class: "x"})},
			failure.RetryAfter(errPlain, time.Minute),
			failure.Failure{Nature: transient, Class: "x", RetryAfter: time.Minute},
		},
		"says unknown": {
			[]failure.Rule{failure.Is(errPlain, failure.Failure{Nature: unknown})},
			failure.Permanent(errPlain),
			failure.Failure{Nature: unknown, Class: failure.ClassUnknown},
		},
		"park": {
			[]failure.Rule{failure.Is(errPlain, failure.Failure{Park: true, Reference: "approval"})},
			failure.Permanent(errPlain),
			failure.Failure{Nature: ambiguous, Class: failure.ClassUnknown, Reference: "approval", Park: true},
		},
		"nonsense is left out": {
			[]failure.Rule{failure.Is(errPlain, failure.Failure{Nature: "hopeless", Class: "x", RetryAfter: -1, Err: errOther})},
			errPlain,
			failure.Failure{Nature: unknown, Class: "x"},
		},
		"sees into a panic": {
			[]failure.Rule{isPlain},
			failure.Panic(fmt.Errorf("x: %w", errPlain), nil),
			failure.Failure{Nature: transient, Class: "plain", Code: "panic:*fmt.wrapError"},
		},
		"sees into a panic of a join": {
			[]failure.Rule{isPlain},
			failure.Panic(join(errPlain, failure.Permanent(errOther)), nil),
			failure.Failure{Nature: transient, Class: "plain", Code: "panic:*errors.joinError"},
		},
		"nil target and nil Match": {
			[]failure.Rule{failure.Is(nil, failure.Failure{Class: "x"}), {Name: "empty"}},
			errPlain,
			failure.Failure{Nature: unknown, Class: failure.ClassUnknown},
		},
		"a panicking rule does not match": {
			[]failure.Rule{{Match: func(error) (failure.Failure, bool) { panic("rule") }}, isPlain},
			errPlain,
			failure.Failure{Nature: transient, Class: "plain"},
		},

		// K11, with rules: a rule for one branch does not hide the other.
		"a branch does not hide a permanent one": {
			[]failure.Rule{isPlain},
			join(errPlain, failure.Permanent(errOther)),
			failure.Failure{Nature: permanent, Class: failure.ClassUnknown},
		},
		"nor the other way round": {
			[]failure.Rule{isPlain},
			fmt.Errorf("x: %w", join(&statusError{400}, fmt.Errorf("y: %w", errPlain))),
			failure.Failure{Nature: permanent, Class: failure.ClassValidation, Code: "http:400"},
		},
		"a rule for each branch": {
			[]failure.Rule{isPlain, isOther},
			join(errPlain, errOther),
			failure.Failure{Nature: permanent, Class: "other"},
		},
		"around the join": {
			[]failure.Rule{isOther, whole},
			several{io.EOF, []error{errOther, errPlain}},
			failure.Failure{Nature: ambiguous, Class: "whole"},
		},
		"around the join, only a class": {
			[]failure.Rule{failure.As(func(several) (failure.Failure, bool) { return failure.Failure{Class: "whole"}, true })},
			several{io.EOF, []error{context.DeadlineExceeded, &statusError{400}}},
			failure.Failure{Nature: permanent, Class: "whole", Code: "http:400"},
		},
		"needs both branches": {
			[]failure.Rule{both},
			join(errPlain, failure.Permanent(errOther)),
			failure.Failure{Nature: ambiguous, Class: "both"},
		},
		"a wrapper around does not overrule the rule": {
			[]failure.Rule{isOther},
			failure.Transient(join(errPlain, errOther)),
			failure.Failure{Nature: permanent, Class: "other"},
		},
		"a wrapper around speaks for the rest": {
			[]failure.Rule{isPlain},
			failure.Permanent(join(errPlain, io.EOF), failure.Class("x")),
			failure.Failure{Nature: permanent, Class: "x"},
		},
		"rules for all branches": {
			[]failure.Rule{isPlain},
			failure.Permanent(join(errPlain, errPlain)),
			failure.Failure{Nature: transient, Class: "plain"},
		},
		"only a class, among nobody's": {
			[]failure.Rule{failure.Is(errPlain, failure.Failure{Class: "x"})},
			join(errOther, errPlain),
			failure.Failure{Nature: unknown, Class: "x"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := failure.Classifier{Rules: tt.rules}.Classify(tt.err)
			got.Err = nil
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("classified (-want +got):\n%s", diff)
			}
		})
	}
}

func TestRuleNames(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		rule failure.Rule
		want string
	}{
		{failure.Is(io.EOF, failure.Failure{}), "errors.Is EOF"},
		{failure.As(func(*statusError) (failure.Failure, bool) { return failure.Failure{}, true }), "errors.As *failure_test.statusError"},
	} {
		if tt.rule.Name != tt.want {
			t.Errorf("name = %q, want %q", tt.rule.Name, tt.want)
		}
	}
}

// K11: transient twice, then permanent, is three calls: nothing is remembered.
func TestEachAttemptIsClassifiedAfresh(t *testing.T) {
	t.Parallel()
	var c failure.Classifier
	var got []failure.Nature
	for _, err := range []error{context.DeadlineExceeded, &statusError{503}, &statusError{422}} {
		got = append(got, c.Classify(err).Nature)
	}
	if diff := cmp.Diff([]failure.Nature{transient, transient, permanent}, got); diff != "" {
		t.Errorf("natures (-want +got):\n%s", diff)
	}
}

// hostile panics in every method that a classifier might call.
type hostile struct{ cause error }

func (*hostile) Error() string                  { panic("Error") }
func (*hostile) Is(error) bool                  { panic("Is") }
func (*hostile) As(any) bool                    { panic("As") }
func (h *hostile) Unwrap() error                { return h.cause }
func (*hostile) SQLState() string               { panic("SQLState") }
func (*hostile) StatusCode() int                { panic("StatusCode") }
func (*hostile) HTTPStatusCode() int            { panic("HTTPStatusCode") }
func (*hostile) ErrorCode() string              { panic("ErrorCode") }
func (*hostile) GRPCStatus() *grpcStatus        { panic("GRPCStatus") }
func (*hostile) Timeout() bool                  { panic("Timeout") }
func (*hostile) Temporary() bool                { panic("Temporary") }
func (*hostile) RetryAfter() time.Duration      { panic("RetryAfter") }
func (*hostile) Format(fmt.State, rune)         { panic("Format") }
func (h *hostile) MarshalJSON() ([]byte, error) { panic("MarshalJSON") }

// half panics in one method, and answers in another.
type half struct{}

func (half) Error() string   { panic("Error") }
func (half) StatusCode() int { panic("StatusCode") }
func (half) SQLState() string {
	return "23505"
}

type (
	panickingUnwrap struct{ error }
	panickingJoin   struct{ error }
	oddGRPC1        struct{ error }
	oddGRPC2        struct{ error }
	oddGRPC3        struct{ error }
	uncomparable    struct{ cause []error }
)

func (panickingUnwrap) Unwrap() error        { panic("Unwrap") }
func (panickingJoin) Unwrap() []error        { panic("Unwrap") }
func (oddGRPC1) GRPCStatus(int) *grpcStatus  { return nil }
func (oddGRPC2) GRPCStatus() (a, b grpcCode) { return 14, 14 }
func (oddGRPC3) GRPCStatus() *json.Decoder   { return nil }
func (uncomparable) Error() string           { return "uncomparable" }
func (u uncomparable) Unwrap() []error       { return u.cause }
func (u uncomparable) Is(target error) bool  { return false }

func TestHostileErrors(t *testing.T) {
	t.Parallel()
	rules := []failure.Rule{
		{Match: func(err error) (failure.Failure, bool) { return failure.Failure{}, err.Error() == "" }},
		failure.Is(errOther, failure.Failure{Class: "x"}),
		failure.As(func(e *statusError) (failure.Failure, bool) { return failure.Failure{}, e.status == 1 }),
	}
	for name, tt := range map[string]struct {
		err  error
		want failure.Failure
	}{
		"everything panics":            {&hostile{}, failure.Failure{Nature: unknown, Class: failure.ClassUnknown}},
		"the cause still counts":       {&hostile{&statusError{400}}, failure.Failure{Nature: permanent, Class: failure.ClassValidation, Code: "http:400"}},
		"so do the other branches":     {errors.Join(&hostile{}, &statusError{400}), failure.Failure{Nature: permanent, Class: failure.ClassValidation, Code: "http:400"}},
		"so do its other methods":      {half{}, failure.Failure{Nature: permanent, Class: failure.ClassValidation, Code: "pg:23505"}},
		"wrapped":                      {failure.Permanent(&hostile{}), failure.Failure{Nature: permanent, Class: failure.ClassUnknown}},
		"panicked with":                {failure.Panic(&hostile{}, nil), failure.Failure{Nature: unknown, Class: failure.ClassPanic, Code: "panic:*failure_test.hostile"}},
		"nil pointer, own type":        {(*statusError)(nil), failure.Failure{Nature: unknown, Class: failure.ClassUnknown}},
		"nil pointer, wrapped":         {fmt.Errorf("x: %w", (*sqlError)(nil)), failure.Failure{Nature: unknown, Class: failure.ClassUnknown}},
		"nil *failure.Error":           {(*failure.Error)(nil), failure.Failure{Nature: unknown, Class: failure.ClassUnknown}},
		"empty *failure.Error":         {&failure.Error{}, failure.Failure{Nature: unknown, Class: failure.ClassUnknown}},
		"nil *failure.PanicError":      {(*failure.PanicError)(nil), failure.Failure{Nature: unknown, Class: failure.ClassUnknown}},
		"nil *json.SyntaxError":        {(*json.SyntaxError)(nil), failure.Failure{Nature: permanent, Class: failure.ClassUndecodable, Code: "json:SyntaxError"}},
		"Unwrap panics":                {panickingUnwrap{&statusError{400}}, failure.Failure{Nature: unknown, Class: failure.ClassUnknown}},
		"Unwrap of a join panics":      {panickingJoin{errPlain}, failure.Failure{Nature: unknown, Class: failure.ClassUnknown}},
		"GRPCStatus with a parameter":  {oddGRPC1{errPlain}, failure.Failure{Nature: unknown, Class: failure.ClassUnknown}},
		"GRPCStatus with two results":  {oddGRPC2{errPlain}, failure.Failure{Nature: unknown, Class: failure.ClassUnknown}},
		"GRPCStatus of something else": {oddGRPC3{errPlain}, failure.Failure{Nature: unknown, Class: failure.ClassUnknown}},
		"uncomparable": {
			uncomparable{[]error{uncomparable{}, sql.ErrNoRows}},
			failure.Failure{Nature: ambiguous, Class: failure.ClassReferenceNotFound, Code: "sql:ErrNoRows"},
		},
	} {
		for _, c := range []failure.Classifier{{}, {Rules: rules}} {
			got := c.Classify(tt.err)
			got.Err = nil
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("%s, %d rules: classified (-want +got):\n%s", name, len(c.Rules), diff)
			}
		}
	}
}

// loop is an error that wraps itself through whatever it is given.
type loop struct{ next []error }

func (*loop) Error() string     { return "loop" }
func (l *loop) Unwrap() []error { return l.next }

// endless makes a new cause each time.
type endless struct{ n int }

func (endless) Error() string   { return "endless" }
func (e endless) Unwrap() error { return endless{e.n + 1} }

func TestLargeTrees(t *testing.T) {
	t.Parallel()
	nest := func(n int, err error, wrap func(error) error) error {
		for range n {
			err = wrap(err)
		}
		return err
	}
	wrap := func(err error) error { return fmt.Errorf("%w", err) }
	joinLeft := func(err error) error { return errors.Join(err, io.EOF) }
	joinRight := func(err error) error { return errors.Join(io.EOF, err) }
	twice := func(err error) error { return errors.Join(err, err) }
	cycle := &loop{}
	cycle.next = []error{wrap(wrap(cycle))}
	tangle := &loop{}
	tangle.next = []error{&statusError{503}, tangle, wrap(tangle)}
	known := failure.Failure{Nature: permanent, Class: failure.ClassValidation, Code: "http:400"}
	ruled := failure.Failure{Nature: permanent, Class: "ruled", Code: "http:400"}
	plain := failure.Failure{Nature: unknown, Class: failure.ClassUnknown}
	busy := failure.Failure{Nature: transient, Class: failure.ClassDependencyUnavailable, Code: "http:503"}
	rules := []failure.Rule{
		failure.Is(errOther, failure.Failure{Class: "other"}),
		failure.As(func(e *statusError) (failure.Failure, bool) { return failure.Failure{Class: "ruled"}, e.status == 400 }),
	}
	for name, tt := range map[string]struct {
		err         error
		want, ruled failure.Failure
	}{
		"10,000 deep":               {nest(10_000, &statusError{400}, wrap), known, ruled},
		"10,000 deep, joined left":  {nest(5_000, &statusError{400}, joinLeft), known, ruled},
		"10,000 deep, joined right": {nest(5_000, &statusError{400}, joinRight), known, ruled},
		"10,000 deep, explicit":     {nest(10_000, &statusError{503}, func(err error) error { return failure.Transient(err) }), busy, busy},
		"10,000 wide":               {errors.Join(append(slices.Repeat([]error{io.EOF}, 10_000), nest(1_000, &statusError{400}, wrap))...), known, ruled},
		"too wide":                  {errors.Join(append(slices.Repeat([]error{io.EOF}, 1_000_000), &statusError{400})...), plain, plain},
		"bottomless":                {nest(1_000_000, &statusError{400}, wrap), plain, plain},
		"2^100 paths":               {nest(100, &statusError{400}, twice), known, ruled},
		"cycle":                     {cycle, plain, plain},
		"tangle":                    {tangle, busy, busy},
		"endless":                   {endless{}, plain, plain},
		"cycle in a panic":          {failure.Panic(cycle, nil), failure.Failure{Nature: unknown, Class: failure.ClassPanic, Code: "panic:*failure_test.loop"}, failure.Failure{Nature: unknown, Class: failure.ClassPanic, Code: "panic:*failure_test.loop"}},
		"before a cycle":            {errors.Join(&statusError{400}, cycle), known, ruled},
		"around a cycle":            {failure.Permanent(cycle, failure.Class("x")), failure.Failure{Nature: permanent, Class: "x"}, failure.Failure{Nature: permanent, Class: "x"}},
	} {
		for _, c := range []failure.Classifier{{}, {Rules: rules}} {
			want := tt.want
			if len(c.Rules) > 0 {
				want = tt.ruled
			}
			got := c.Classify(tt.err)
			got.Err = nil
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s, %d rules: classified (-want +got):\n%s", name, len(c.Rules), diff)
			}
		}
	}
}

// In a tree too large to share, rules see one error at a time.
func TestRulesOnLargeTrees(t *testing.T) {
	t.Parallel()
	deep := func(err error) error {
		for range 1000 {
			err = fmt.Errorf("x: %w", err)
		}
		return err
	}
	mark := failure.Failure{Class: "marked"}
	type noted struct{ error }
	for name, tt := range map[string]struct {
		rule failure.Rule
		err  error
		want bool
	}{
		"sentinel":                 {failure.Is(errPlain, mark), deep(errPlain), true},
		"another sentinel":         {failure.Is(errOther, mark), deep(errPlain), false},
		"sentinel by method Is":    {failure.Is(errPlain, mark), deep(posing{errPlain}), true},
		"type":                     {failure.As(func(noted) (failure.Failure, bool) { return mark, true }), deep(noted{errPlain}), true},
		"type by method As":        {failure.As(func(noted) (failure.Failure, bool) { return mark, true }), deep(posing{noted{errPlain}}), true},
		"another type":             {failure.As(func(noted) (failure.Failure, bool) { return mark, true }), deep(errPlain), false},
		"text":                     {failure.Rule{Match: func(err error) (failure.Failure, bool) { return mark, err.Error() == "plain" }}, deep(errPlain), true},
		"uncomparable is no match": {failure.Is(uncomparable{}, mark), deep(uncomparable{}), false},
	} {
		got := failure.Classifier{Rules: []failure.Rule{tt.rule}}.Classify(tt.err)
		if (got.Class == "marked") != tt.want {
			t.Errorf("%s: class = %s, rule matched = %v, want %v", name, got.Class, !tt.want, tt.want)
		}
	}
}
