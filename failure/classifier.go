package failure

import (
	"cmp"
	"slices"
)

// Classifier turns errors into failures. The zero Classifier has the built-in
// rules. The package documentation says which rule wins.
type Classifier struct {
	// Rules of the user; asked before everything else, in this order.
	Rules []Rule
}

const (
	// maxErrors bounds how many errors of one tree are looked at.
	maxErrors = 1 << 14
	// maxShared is the size up to which rules of the user get the tree itself.
	maxShared = 1 << 8
)

// Classify says what err means. Nature and Class of the result are never
// empty, and Nature is one of the four constants. Err is err. Nil is unknown.
func (c Classifier) Classify(err error) Failure {
	w := walk{rules: c.Rules, left: maxErrors}
	w.apart = len(c.Rules) > 0 && largerThan(maxShared, err)
	f := w.classify(err, Failure{}, Failure{}).Failure
	f.Err = err
	return f
}

// walk is one pass over an error tree.
type walk struct {
	rules []Rule
	apart bool // ask the rules about one error at a time
	left  int  // errors that may still be looked at
}

// verdict is what one branch of a tree means.
type verdict struct {
	Failure
	// weight of the branch in itself, regardless of what was said around it.
	// A wrapper around a join makes its branches equal in nature; the one that
	// would have won without it still gives class and code.
	weight int
}

func (v verdict) worseThan(o verdict) bool {
	return cmp.Or(cmp.Compare(weigh(v.Nature), weigh(o.Nature)), cmp.Compare(v.weight, o.weight)) > 0
}

// weigh orders natures: of joined errors the heaviest wins. Nothing weighs less
// than an error of which nobody said anything.
func weigh(n Nature) int {
	switch n {
	case NaturePermanent:
		return 4
	case NatureAmbiguous:
		return 3
	case NatureTransient:
		return 2
	case NatureUnknown:
		return 1
	}
	return 0
}

// classify follows err down to its end or to a join, and then its branches.
// ruled and said are what rules of the user and explicit wrappers have said
// about everything around err.
func (w *walk) classify(err error, ruled, said Failure) verdict {
	var here struct{ ruled, said Failure } // the same, about this branch only
	if !w.apart {
		here.ruled = w.askTree(err)
	}
	found := newMatch()
	var branches []error
	for answered := false; err != nil && branches == nil && w.left > 0; {
		w.left--
		if w.apart && !answered {
			here.ruled, answered = w.askAlone(err)
		}
		if e, ok := err.(*Error); ok && e != nil {
			here.said.fill(e.said)
		} else {
			found.look(err)
		}
		branches, err = inside(err)
	}
	ruled.fill(here.ruled)
	said.fill(here.said)

	builtin := found.failure()
	v := verdict{Failure: ruled}
	v.fill(said)
	v.fill(builtin)
	v.weight = weigh(cmp.Or(here.ruled.Nature, here.said.Nature, builtin.Nature))
	if v.weight == 0 && v.Class != "" {
		v.weight = weigh(NatureUnknown)
	}
	v.fill(Failure{Nature: NatureUnknown, Class: ClassUnknown})
	if len(branches) == 0 {
		return v
	}

	if !found.any() { // nothing but what every branch inherits
		v, branches = w.classify(branches[0], ruled, said), branches[1:]
	}
	for _, b := range branches {
		if w.left == 0 {
			break
		}
		if o := w.classify(b, ruled, said); o.worseThan(v) {
			v = o
		}
	}
	if n := cmp.Or(here.ruled.Nature, here.said.Nature); n != "" {
		v.weight = weigh(n)
	}
	return v
}

// askTree asks the rules about err with everything below it. A rule that also
// matches a branch has recognised that branch, and is asked again there.
func (w *walk) askTree(err error) Failure {
	var branches []error
	split := false
	for _, r := range w.rules {
		f, ok := r.ask(err)
		if !ok {
			continue
		}
		if !split {
			branches, split = firstJoin(err), true
		}
		inBranch := func(b error) bool { _, ok := r.ask(b); return ok }
		if !slices.ContainsFunc(branches, inBranch) {
			return f
		}
	}
	return Failure{}
}

// askAlone asks the rules about err without what it wraps.
func (w *walk) askAlone(err error) (Failure, bool) {
	for _, r := range w.rules {
		if f, ok := r.ask(alone{err}); ok {
			return f, true
		}
	}
	return Failure{}, false
}

// fill takes from g what f leaves open.
func (f *Failure) fill(g Failure) {
	if f.Nature == "" {
		f.Nature, f.Park = g.Nature, g.Park
	}
	if f.Class == "" {
		f.Class = g.Class
	}
	if f.Code == "" {
		f.Code = g.Code
	}
	if f.RetryAfter <= 0 && f.Nature != NaturePermanent {
		f.RetryAfter = max(g.RetryAfter, 0)
	}
	if f.Reference == "" {
		f.Reference = g.Reference
	}
}

// inside is unwrap, except that a panic is opaque.
func inside(err error) (branches []error, next error) {
	if _, ok := err.(*PanicError); ok {
		return nil, nil
	}
	return unwrap(err)
}

// unwrap returns what err wraps: one error, or the branches of a join, of which
// there are at least two.
func unwrap(err error) (branches []error, next error) {
	defer func() {
		if recover() != nil {
			branches, next = nil, nil
		}
	}()
	switch e := err.(type) {
	case interface{ WrappedErrors() []error }: // before Unwrap, which lists the same errors as a chain
		branches = e.WrappedErrors()
	case interface{ Unwrap() error }:
		return nil, e.Unwrap()
	case interface{ Unwrap() []error }:
		branches = e.Unwrap()
	default:
		return nil, nil
	}
	isNil := func(err error) bool { return err == nil }
	if slices.ContainsFunc(branches, isNil) {
		branches = slices.DeleteFunc(slices.Clone(branches), isNil)
	}
	switch len(branches) {
	case 0:
		return nil, nil
	case 1:
		return nil, branches[0]
	}
	return branches, nil
}

// firstJoin returns the branches of the outermost join in err.
func firstJoin(err error) (branches []error) {
	for range maxShared {
		if branches, err = inside(err); err == nil {
			break
		}
	}
	return branches
}

// largerThan says whether the tree of err has more than n errors.
func largerThan(n int, err error) bool {
	todo := []error{err}
	for ; len(todo) > 0; n-- {
		if len(todo) > n {
			return true
		}
		branches, next := unwrap(todo[len(todo)-1])
		todo = todo[:len(todo)-1]
		if next != nil {
			todo = append(todo, next)
		}
		todo = append(todo, branches...)
	}
	return false
}
