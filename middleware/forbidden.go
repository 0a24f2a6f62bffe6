package middleware

import (
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"strings"

	"github.com/ThreeDotsLabs/watermill/message"
)

// forbidden are Watermill's own middlewares that turn a failure into a success,
// or change when it is seen, before the chain can decide.
var forbidden = []struct{ function, name, why string }{
	{"middleware.Retry.Middleware", "Retry", "it retries in place and blocks everything behind; remove it and set Config.Policy"},
	{"middleware.poisonQueue.Middleware", "PoisonQueue", "it turns failures into successes; remove it, Spillway dead-letters with evidence"},
	{"middleware.IgnoreErrors.Middleware", "IgnoreErrors", "it turns failures into successes; remove it and return nil from the handler"},
	{"middleware.InstantAck", "InstantAck", "it acknowledges before the message is safe; remove it and set Config.Concurrency"},
	{"middleware.(*DelayOnError).Middleware", "DelayOnError", "it writes delays into the message's metadata; remove it and set Config.Policy"},
}

const watermillMiddleware = "github.com/ThreeDotsLabs/watermill/message/router/"

// Forbidden reports middlewares of r that must not stand beside the chain, and
// a chain that is not outermost, as far as this can be seen from outside: a
// middleware wrapped in a function of the user's own cannot. Nil if all is well.
func Forbidden(r *message.Router) error {
	var errs []error
	chains := 0
	for i, m := range installed(r) {
		name := strings.TrimSuffix(m, "-fm")
		if isChain(name) {
			switch chains++; {
			case chains == 2:
				errs = append(errs, errors.New("spillway: the chain is installed twice: call Install once for each router, and not beside Middleware"))
			case chains == 1 && i > 0:
				errs = append(errs, errors.New("spillway: call Install first, before any other middleware is added to the router: the chain must be outermost"))
			}
			continue
		}
		for _, f := range forbidden {
			if name == watermillMiddleware+f.function {
				errs = append(errs, fmt.Errorf("spillway: Watermill's middleware %s cannot stand beside Spillway: %s", f.name, f.why))
			}
		}
	}
	return errors.Join(errs...)
}

func isChain(name string) bool {
	return strings.HasSuffix(name, "spillway/middleware.(*Chain).Middleware")
}

// installed returns the names of the router's middleware functions, outermost
// first. Watermill does not export them; if a later version keeps them
// elsewhere there is nothing to see, and nothing to refuse.
func installed(r *message.Router) []string {
	list := reflect.ValueOf(r).Elem().FieldByName("middlewares")
	if !list.IsValid() || list.Kind() != reflect.Slice {
		return nil
	}
	var names []string
	for i := range list.Len() {
		if list.Index(i).Kind() != reflect.Struct {
			return nil
		}
		f := list.Index(i).FieldByName("Handler")
		if !f.IsValid() || f.Kind() != reflect.Func {
			return nil
		}
		names = append(names, runtime.FuncForPC(f.Pointer()).Name())
	}
	return names
}
