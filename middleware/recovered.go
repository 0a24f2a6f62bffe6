package middleware

import (
	"errors"
	"reflect"

	"github.com/spillway-mq/spillway/failure"
)

// withoutStack replaces the error of Watermill's Recoverer, whose text contains
// the whole stack, by a panic of ours, whose text does not.
func withoutStack(err error) error {
	for e := err; e != nil; e = errors.Unwrap(e) {
		t := reflect.TypeOf(e)
		if t.Name() != "RecoveredPanicError" || t.PkgPath() != watermillMiddleware+"middleware" {
			continue
		}
		v := reflect.ValueOf(e)
		value, stack := v.FieldByName("V"), v.FieldByName("Stacktrace")
		if !value.IsValid() || !stack.IsValid() || stack.Kind() != reflect.String {
			return err
		}
		return failure.Panic(value.Interface(), []byte(stack.String()))
	}
	return err
}
