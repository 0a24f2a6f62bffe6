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
var forbidden = []struct{ function, why string }{
	{"middleware.Retry.Middleware", "it retries in place and blocks everything behind; set Config.Policy instead"},
	{"middleware.poisonQueue.Middleware", "it turns failures into successes; Spillway dead-letters with evidence"},
	{"middleware.IgnoreErrors.Middleware", "it turns failures into successes; return nil from the handler instead"},
	{"middleware.InstantAck", "it acknowledges before the message is safe"},
	{"middleware.(*DelayOnError).Middleware", "it writes delays into the message's metadata; set Config.Policy instead"},
}

const watermillMiddleware = "github.com/ThreeDotsLabs/watermill/message/router/"

// Forbidden reports middlewares of r that must not stand beside the chain, and
// a chain that is not outermost, as far as this can be seen from outside: a
// middleware wrapped in a function of the user's own cannot. Nil if all is well.
func Forbidden(r *message.Router) error {
	var errs []error
	for i, m := range installed(r) {
		name := strings.TrimSuffix(m, "-fm")
		if isChain(name) {
			if i > 0 {
				errs = append(errs, errors.New("spillway: Install must be called before any other middleware is added to the router: the chain must be outermost"))
			}
			continue
		}
		for _, f := range forbidden {
			if name == watermillMiddleware+f.function {
				errs = append(errs, fmt.Errorf("spillway: %s cannot stand beside Spillway: %s", f.function, f.why))
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
