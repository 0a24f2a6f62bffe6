package failure

import (
	"errors"
	"fmt"
	"reflect"
)

// Rule recognises errors of the user's own. Make one with [Is] or [As], or
// write Match:
//
//	failure.Rule{Name: "card gateway is closed for the night", Match: func(err error) (failure.Failure, bool) {
//		var e *gateway.Error
//		if !errors.As(err, &e) || e.Reason != "CLOSED" {
//			return failure.Failure{}, false
//		}
//		return failure.Failure{Nature: failure.NatureTransient, RetryAfter: time.Until(e.OpensAt)}, true
//	}}
type Rule struct {
	// Name is for people: a list of rules is documentation. It may be empty.
	Name string
	// Match says whether the rule recognises err, and what it means then. Fields
	// left empty are taken from wrappers and built-in rules, except that Park
	// without a Nature means NatureAmbiguous; Err is ignored. Match should use
	// errors.Is and errors.As, which see the whole error tree. It must be safe
	// for concurrent use. If it panics or is nil, the rule does not match.
	Match func(err error) (Failure, bool)
}

// Is is a [Rule] for a sentinel: what errors.Is finds in the tree means f.
func Is(target error, f Failure) Rule {
	return Rule{
		Name:  fmt.Sprintf("errors.Is %v", target),
		Match: func(err error) (Failure, bool) { return f, errors.Is(err, target) },
	}
}

// As is a [Rule] for a type: the first T in the tree, in the order of errors.As,
// is given to match, which may still decline. T may be an interface that embeds
// error.
//
//	failure.As(func(e *gateway.Error) (failure.Failure, bool) {
//		return failure.Failure{Class: "card_declined", Nature: failure.NaturePermanent}, e.Declined
//	})
func As[T error](match func(T) (Failure, bool)) Rule {
	return Rule{
		Name: fmt.Sprintf("errors.As %v", reflect.TypeFor[T]()),
		Match: func(err error) (Failure, bool) {
			e, ok := errors.AsType[T](err)
			if !ok {
				return Failure{}, false
			}
			return match(e)
		},
	}
}

// ask calls Match, with a panic as no match and a tidy answer.
func (r Rule) ask(err error) (f Failure, ok bool) {
	defer func() {
		if recover() != nil {
			f, ok = Failure{}, false
		}
	}()
	if r.Match == nil {
		return Failure{}, false
	}
	if f, ok = r.Match(err); !ok {
		return Failure{}, false
	}
	if weigh(f.Nature) == 0 { // left open, or not a nature
		f.Nature = ""
		if f.Park {
			f.Nature = NatureAmbiguous
		}
	}
	return f, true
}

// alone stands for one error of a tree that is too large, or cyclic, to let
// errors.Is and errors.As loose on it: they see this error, and nothing below.
type alone struct{ error }

func (a alone) Is(target error) bool {
	if t := reflect.TypeOf(a.error); t == reflect.TypeOf(target) && t.Comparable() && a.error == target {
		return true
	}
	is, ok := a.error.(interface{ Is(error) bool })
	return ok && is.Is(target)
}

func (a alone) As(target any) bool {
	to := reflect.ValueOf(target).Elem()
	if from := reflect.ValueOf(a.error); from.Type().AssignableTo(to.Type()) {
		to.Set(from)
		return true
	}
	as, ok := a.error.(interface{ As(any) bool })
	return ok && as.As(target)
}
