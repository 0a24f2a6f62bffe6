package middleware

import (
	"cmp"
	"errors"
	"reflect"

	"github.com/spillway-mq/spillway/failure"
)

// withoutStack replaces the error of Watermill's Recoverer, whose text contains
// the whole stack, by a panic of ours, whose text does not.
func withoutStack(err error) error {
	if p := recoveredPanic(err, 1<<10); p != nil {
		return p
	}
	return err
}

// recoveredPanic looks for the Recoverer's error among at most left errors.
func recoveredPanic(err error, left int) error {
	for e := err; e != nil && left > 0; left-- {
		if p := panicOf(e); p != nil {
			return p
		}
		if join, ok := e.(interface{ Unwrap() []error }); ok {
			for _, branch := range join.Unwrap() {
				if p := recoveredPanic(branch, left/2); p != nil {
					return p
				}
			}
			return nil
		}
		e = errors.Unwrap(e)
	}
	return nil
}

func panicOf(e error) error {
	t := reflect.TypeOf(e)
	if t.Name() != "RecoveredPanicError" || t.PkgPath() != watermillMiddleware+"middleware" {
		return nil
	}
	v := reflect.ValueOf(e)
	value, stack := v.FieldByName("V"), v.FieldByName("Stacktrace")
	if !value.IsValid() || !stack.IsValid() || stack.Kind() != reflect.String {
		return nil
	}
	// GODEBUG=panicnil=1 brings nil panics back.
	return failure.Panic(cmp.Or(value.Interface(), any("nil")), []byte(stack.String()))
}
