package failure_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spillway-mq/spillway/failure"
)

// What a handler returns, and what is made of it.
func ExampleClassifier() {
	errSchema := errors.New("field total: want a number")
	errBusy := errors.New("gateway busy")

	var classifier failure.Classifier
	for _, err := range []error{
		failure.Permanent(errSchema, failure.Class("validation"), failure.Code("INVALID_SCHEMA")),
		failure.RetryAfter(errBusy, 30*time.Second),
		failure.Missing("customer", "42"),
		failure.Waiting(errors.New("amount over limit"), "legal-approval"),
		fmt.Errorf("charge: %w", context.DeadlineExceeded), // not wrapped: the built-in rules know it
		errors.Join(context.DeadlineExceeded, failure.Permanent(errSchema)),
		errors.New("something else"),
	} {
		f := classifier.Classify(err)
		fmt.Println(f.Nature, f.Class, f.Code, f.RetryAfter, f.Reference, f.Park)
	}
	// Output:
	// permanent validation INVALID_SCHEMA 0s  false
	// transient unknown  30s  false
	// ambiguous reference_not_found  0s customer/42 false
	// ambiguous unknown  0s legal-approval true
	// transient dependency_timeout context:DeadlineExceeded 0s  false
	// permanent unknown  0s  false
	// unknown unknown  0s  false
}

// declinedError stands for an error type of the application.
type declinedError struct{ reason string }

func (e *declinedError) Error() string { return "card declined: " + e.reason }

// Rules of the user come before everything else.
func ExampleRule() {
	errClosed := errors.New("gateway closed for the night")

	classifier := failure.Classifier{Rules: []failure.Rule{
		failure.Is(errClosed, failure.Failure{Nature: failure.NatureTransient, RetryAfter: time.Hour}),
		failure.As(func(e *declinedError) (failure.Failure, bool) {
			return failure.Failure{
				Nature: failure.NaturePermanent,
				Class:  "card_declined",
				Code:   failure.Code(e.reason),
			}, true
		}),
		{
			Name: "a deadline of ours that will not get better",
			Match: func(err error) (failure.Failure, bool) {
				return failure.Failure{Nature: failure.NaturePermanent, Class: failure.ClassExpired},
					errors.Is(err, context.DeadlineExceeded) && errors.Is(err, errClosed)
			},
		},
	}}

	for _, err := range []error{
		fmt.Errorf("charge: %w", errClosed),
		fmt.Errorf("charge: %w", &declinedError{"STOLEN"}),
		fmt.Errorf("%w: %w", errClosed, context.DeadlineExceeded),
	} {
		f := classifier.Classify(err)
		fmt.Println(f.Nature, f.Class, f.Code, f.RetryAfter)
	}
	// Output:
	// transient unknown  1h0m0s
	// permanent card_declined STOLEN 0s
	// permanent expired  0s
}

// The built-in rules are data, so a program can print what it will do.
func ExampleBuiltin() {
	for _, rule := range failure.Builtin() {
		if rule.Class == failure.ClassUnauthorized {
			fmt.Println(rule.Name, rule.Nature, rule.Codes)
		}
	}
	// Output:
	// HTTP unauthorized permanent [http:401 http:403]
	// gRPC unauthorized permanent [grpc:Unauthenticated grpc:PermissionDenied]
}

func ExamplePanic() {
	call := func(handler func()) (err error) {
		defer func() { err = failure.Panic(recover(), nil) }()
		handler()
		return nil
	}
	err := call(func() { panic("index out of mind") })
	f := failure.Classifier{}.Classify(err)
	fmt.Println(err)
	fmt.Println(f.Nature, f.Class, f.Code)
	fmt.Println(call(func() {}))
	// Output:
	// panic: index out of mind
	// unknown panic panic:string
	// <nil>
}
