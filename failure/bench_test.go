package failure_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/spillway-mq/spillway/failure"
)

var errGateway = errors.New("gateway says no")

func BenchmarkClassify(b *testing.B) {
	wrapped := func(err error) error { return fmt.Errorf("handle order: %w", fmt.Errorf("charge: %w", err)) }
	rules := []failure.Rule{
		failure.Is(errGateway, failure.Failure{Nature: failure.NatureTransient}),
		failure.As(func(*statusError) (failure.Failure, bool) { return failure.Failure{}, false }),
	}
	for _, bench := range []struct {
		name  string
		rules []failure.Rule
		err   error
	}{
		{"plain", nil, wrapped(errors.New("boom"))},
		{"explicit", nil, failure.Permanent(wrapped(errors.New("boom")))},
		{"deadline", nil, wrapped(context.DeadlineExceeded)},
		{"http", nil, wrapped(&statusError{status: 503})},
		{"join", nil, errors.Join(wrapped(errors.New("boom")), wrapped(&statusError{status: 503}))},
		{"plain with rules", rules, wrapped(errors.New("boom"))},
	} {
		b.Run(bench.name, func(b *testing.B) {
			c := failure.Classifier{Rules: bench.rules}
			b.ReportAllocs()
			for b.Loop() {
				c.Classify(bench.err)
			}
		})
	}
}

// statusError is an error of an HTTP client.
type statusError struct {
	status int
}

func (e *statusError) Error() string   { return fmt.Sprint("status ", e.status) }
func (e *statusError) StatusCode() int { return e.status }
