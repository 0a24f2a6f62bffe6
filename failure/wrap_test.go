package failure_test

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spillway-mq/spillway/failure"
)

// said is Classify by the zero classifier, without Err, which is not
// comparable by value and has its own test.
func said(err error) failure.Failure {
	f := failure.Classifier{}.Classify(err)
	f.Err = nil
	return f
}

func TestWrappers(t *testing.T) {
	t.Parallel()
	cause := errors.New("boom")
	for name, tt := range map[string]struct {
		err  error
		want failure.Failure
	}{
		// O38: permanent errors are not retried, and class and code reach the envelope.
		"permanent": {
			failure.Permanent(cause),
			failure.Failure{Nature: failure.NaturePermanent, Class: failure.ClassUnknown},
		},
		"permanent with class and code": {
			failure.Permanent(cause, failure.Class("validation"), failure.Code("INVALID_SCHEMA")),
			failure.Failure{Nature: failure.NaturePermanent, Class: failure.ClassValidation, Code: "INVALID_SCHEMA"},
		},
		"a class of the user": {
			failure.Permanent(cause, failure.Class("card_declined")),
			failure.Failure{Nature: failure.NaturePermanent, Class: "card_declined"},
		},
		"nil option": {
			failure.Permanent(cause, nil, failure.Code("X")),
			failure.Failure{Nature: failure.NaturePermanent, Class: failure.ClassUnknown, Code: "X"},
		},
		"transient": {
			failure.Transient(cause, failure.ClassDependencyTimeout),
			failure.Failure{Nature: failure.NatureTransient, Class: failure.ClassDependencyTimeout},
		},
		"retry after": {
			failure.RetryAfter(cause, 30*time.Second, failure.Code("BUSY")),
			failure.Failure{Nature: failure.NatureTransient, Class: failure.ClassUnknown, Code: "BUSY", RetryAfter: 30 * time.Second},
		},
		"retry after nothing": {
			failure.RetryAfter(cause, 0),
			failure.Failure{Nature: failure.NatureTransient, Class: failure.ClassUnknown},
		},
		"retry after the past": {
			failure.RetryAfter(cause, -time.Hour),
			failure.Failure{Nature: failure.NatureTransient, Class: failure.ClassUnknown},
		},
		"permanent has no time": {
			failure.Permanent(failure.RetryAfter(cause, time.Hour)),
			failure.Failure{Nature: failure.NaturePermanent, Class: failure.ClassUnknown},
		},
		"missing": {
			failure.Missing("customer", "42"),
			failure.Failure{Nature: failure.NatureAmbiguous, Class: failure.ClassReferenceNotFound, Reference: "customer/42"},
		},
		"missing, wrapped": {
			fmt.Errorf("order 7: %w", failure.Missing("customer", "42")),
			failure.Failure{Nature: failure.NatureAmbiguous, Class: failure.ClassReferenceNotFound, Reference: "customer/42"},
		},
		"missing with a class of the user": {
			failure.Missing("customer", "42", failure.Class("customer_unknown")),
			failure.Failure{Nature: failure.NatureAmbiguous, Class: "customer_unknown", Reference: "customer/42"},
		},
		"missing without id": {
			failure.Missing("customer", ""),
			failure.Failure{Nature: failure.NatureAmbiguous, Class: failure.ClassReferenceNotFound, Reference: "customer"},
		},
		"missing without kind": {
			failure.Missing("", "42"),
			failure.Failure{Nature: failure.NatureAmbiguous, Class: failure.ClassReferenceNotFound, Reference: "42"},
		},
		"missing something": {
			failure.Missing("", ""),
			failure.Failure{Nature: failure.NatureAmbiguous, Class: failure.ClassReferenceNotFound},
		},
		"waiting": {
			failure.Waiting(cause, "legal-approval"),
			failure.Failure{Nature: failure.NatureAmbiguous, Class: failure.ClassUnknown, Reference: "legal-approval", Park: true},
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

func TestNilStaysNil(t *testing.T) {
	t.Parallel()
	for name, err := range map[string]error{
		"Permanent":  failure.Permanent(nil, failure.ClassValidation),
		"Transient":  failure.Transient(nil),
		"RetryAfter": failure.RetryAfter(nil, time.Second),
		"Waiting":    failure.Waiting(nil, "approval"),
		"Panic":      failure.Panic(nil, []byte("stack")),
	} {
		if err != nil {
			t.Errorf("%s of nil = %v, want nil", name, err)
		}
	}
	if failure.Missing("", "") == nil {
		t.Error("Missing is nil, want an error: it has no cause that could be nil")
	}
}

func TestCauseSurvives(t *testing.T) {
	t.Parallel()
	cause := &statusError{status: 418}
	for name, err := range map[string]error{
		"Permanent":  failure.Permanent(cause, failure.ClassValidation, failure.Code("X")),
		"Transient":  failure.Transient(cause),
		"RetryAfter": failure.RetryAfter(cause, time.Second),
		"Waiting":    failure.Waiting(cause, "approval"),
		"nested":     failure.Permanent(failure.Transient(failure.Waiting(cause, "approval"))),
	} {
		if err.Error() != cause.Error() {
			t.Errorf("%s: text = %q, want that of the cause, %q", name, err, cause)
		}
		if !errors.Is(err, cause) {
			t.Errorf("%s: errors.Is does not find the cause", name)
		}
		if got, ok := errors.AsType[*statusError](err); !ok || got != cause {
			t.Errorf("%s: errors.As does not find the cause", name)
		}
		if f := (failure.Classifier{}).Classify(err); f.Err != err {
			t.Errorf("%s: Failure.Err = %v, want the error that was classified", name, f.Err)
		}
	}
}

func TestWrapperCanBeReadBack(t *testing.T) {
	t.Parallel()
	err := fmt.Errorf("handler: %w", failure.RetryAfter(io.EOF, time.Minute, failure.Code("BUSY")))
	e, ok := errors.AsType[*failure.Error](err)
	if !ok {
		t.Fatal("errors.As does not find *failure.Error")
	}
	want := failure.Failure{Nature: failure.NatureTransient, Code: "BUSY", RetryAfter: time.Minute, Err: io.EOF}
	if e.Said() != want {
		t.Errorf("Said() = %+v, want %+v", e.Said(), want)
	}
}

func TestMissingText(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ kind, id, want string }{
		{"customer", "42", "customer/42 not found"},
		{"customer", "", "customer not found"},
		{"", "42", "42 not found"},
		{"", "", "not found"},
	} {
		if got := failure.Missing(tt.kind, tt.id).Error(); got != tt.want {
			t.Errorf("Missing(%q, %q) = %q, want %q", tt.kind, tt.id, got, tt.want)
		}
	}
}

// K11: a panic's value is classified as a panic, whatever it is.
func TestPanic(t *testing.T) {
	t.Parallel()
	recovered := func(f func()) (value any) {
		defer func() { value = recover() }()
		f()
		return nil
	}
	for name, tt := range map[string]struct {
		value any
		text  string
		code  failure.Code
	}{
		"text":            {"boom", "panic: boom", "panic:string"},
		"number":          {7, "panic: 7", "panic:int"},
		"error":           {io.ErrUnexpectedEOF, "panic: unexpected EOF", "panic:*errors.errorString"},
		"explicit":        {failure.Permanent(io.EOF), "panic: EOF", "panic:*failure.Error"},
		"joined":          {errors.Join(io.EOF, failure.Permanent(io.EOF)), "panic: EOF\nEOF", "panic:*errors.joinError"},
		"nil pointer":     {(*statusError)(nil), "panic: <nil>", "panic:*failure_test.statusError"},
		"of the runtime":  {recovered(func() { _ = []int{}[len(t.Name())] }), "panic: runtime error: index out of range [9] with length 0", "panic:runtime.boundsError"},
		"panic(nil)":      {recovered(func() { panic(nil) }), "panic: " + new(runtime.PanicNilError).Error(), "panic:*runtime.PanicNilError"},
		"panic's own":     {failure.Panic("inner", nil), "panic: panic: inner", "panic:*failure.PanicError"},
		"unusable String": {unusable{}, "panic: %!v(PANIC=String method: no text)", "panic:failure_test.unusable"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := failure.Panic(tt.value, []byte("goroutine 1 [running]: secret()"))
			if err.Error() != tt.text {
				t.Errorf("text = %q, want %q", err, tt.text)
			}
			if strings.Contains(fmt.Sprintf("%v %+v %s", err, err, err), "secret") {
				t.Error("the stack is part of the text")
			}
			want := failure.Failure{Nature: failure.NatureUnknown, Class: failure.ClassPanic, Code: tt.code}
			if diff := cmp.Diff(want, said(fmt.Errorf("handler: %w", err))); diff != "" {
				t.Errorf("classified (-want +got):\n%s", diff)
			}
			if value, ok := tt.value.(error); ok && !errors.Is(err, value) {
				t.Error("errors.Is does not find the value")
			}
			if e, ok := errors.AsType[*failure.PanicError](err); !ok || string(e.Stack) == "" {
				t.Error("the stack is lost")
			}
		})
	}
}

type unusable struct{}

func (unusable) String() string { panic("no text") }

// Who recovers a panic by hand and returns its value has panicked all the same.
func TestRuntimeErrorIsPanic(t *testing.T) {
	t.Parallel()
	call := func() (err error) {
		defer func() { err = recover().(error) }()
		var e *statusError
		return fmt.Errorf("%d", e.status)
	}
	got := said(fmt.Errorf("handler: %w", call()))
	if got.Class != failure.ClassPanic || got.Nature != failure.NatureUnknown {
		t.Errorf("classified as %+v, want an unknown panic", got)
	}
}

func TestPanicInsideWrapper(t *testing.T) {
	t.Parallel()
	got := said(failure.Permanent(failure.Panic("boom", nil)))
	want := failure.Failure{Nature: failure.NaturePermanent, Class: failure.ClassPanic, Code: "panic:string"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("classified (-want +got):\n%s", diff)
	}
}
