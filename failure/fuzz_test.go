package failure_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"

	"github.com/spillway-mq/spillway/failure"
)

// tree is a generated error together with what the documentation says about
// it, worked out without the classifier.
type tree struct {
	err error
	// nature, given the nature that a wrapper outside demands ("" for none),
	// under a rule that makes errPlain transient if ruled.
	nature func(outside failure.Nature, ruled bool) failure.Nature
	// plain says that errPlain can be found in it.
	plain bool
}

var order = []failure.Nature{unknown, transient, ambiguous, permanent}

// grow reads a tree from data: an opcode a byte, in prefix order. It returns
// what is left of data.
func grow(data []byte, depth int) (tree, []byte) {
	leaf := func(err error, n failure.Nature) tree {
		return tree{err: err, nature: func(outside failure.Nature, _ bool) failure.Nature {
			if outside != "" {
				return outside
			}
			return n
		}}
	}
	if len(data) == 0 || depth > 40 {
		return leaf(io.EOF, unknown), nil
	}
	op := data[0]
	data = data[1:]
	explicit := func(n failure.Nature, wrap func(error) error) (tree, []byte) {
		in, rest := grow(data, depth+1)
		return tree{err: wrap(in.err), plain: in.plain, nature: func(outside failure.Nature, ruled bool) failure.Nature {
			if outside == "" {
				outside = n
			}
			return in.nature(outside, ruled)
		}}, rest
	}
	switch op % 18 {
	case 0:
		return leaf(errOther, unknown), data
	case 1:
		return tree{err: errPlain, plain: true, nature: func(outside failure.Nature, ruled bool) failure.Nature {
			switch {
			case ruled:
				return transient
			case outside != "":
				return outside
			}
			return unknown
		}}, data
	case 2:
		return leaf(context.DeadlineExceeded, transient), data
	case 3:
		return leaf(&statusError{503}, transient), data
	case 4:
		return leaf(&statusError{422}, permanent), data
	case 5:
		return leaf(sql.ErrNoRows, ambiguous), data
	case 6:
		return leaf(&sqlError{"23505"}, permanent), data
	case 7:
		return leaf(half{}, permanent), data
	case 8:
		return leaf((*statusError)(nil), unknown), data
	case 9:
		return leaf(failure.Missing("customer", "42"), ambiguous), data
	case 10:
		return explicit(permanent, func(err error) error { return failure.Permanent(err) })
	case 11:
		return explicit(transient, func(err error) error { return failure.RetryAfter(err, 1) })
	case 12:
		return explicit(ambiguous, func(err error) error { return failure.Waiting(err, "x") })
	case 13:
		in, rest := grow(data, depth+1)
		return tree{err: failure.Panic(in.err, nil), plain: in.plain, nature: func(outside failure.Nature, ruled bool) failure.Nature {
			switch {
			case ruled && in.plain:
				return transient
			case outside != "":
				return outside
			}
			return unknown
		}}, rest
	case 14:
		in, rest := grow(data, depth+1)
		return tree{err: fmt.Errorf("x: %w", in.err), plain: in.plain, nature: in.nature}, rest
	default:
		n := 2 + int(op%2)
		branches := make([]tree, n)
		errs := make([]error, n)
		for i := range branches {
			branches[i], data = grow(data, depth+1)
			errs[i] = branches[i].err
		}
		return tree{
			err:   errors.Join(errs...),
			plain: slices.ContainsFunc(branches, func(b tree) bool { return b.plain }),
			nature: func(outside failure.Nature, ruled bool) failure.Nature {
				worst := 0
				for _, b := range branches {
					worst = max(worst, slices.Index(order, b.nature(outside, ruled)))
				}
				return order[worst]
			},
		}, data
	}
}

// FuzzClassify compares the nature of generated trees with the documentation:
// above all, a permanent branch of a join is never lost (K11).
func FuzzClassify(f *testing.F) {
	for _, seed := range [][]byte{
		{},
		{14, 14, 14, 14, 14, 4},
		{15, 11, 0, 10, 0},           // Join(transient, permanent, rest)
		{16, 11, 1, 10, 1},           // the same around what a rule knows
		{10, 16, 2, 13, 4},           // Permanent(Join(timeout, Panic(422)))
		{13, 16, 1, 10, 0},           // Panic(Join(plain, Permanent))
		{14, 16, 14, 16, 2, 4, 7},    // wraps and nested joins
		{12, 15, 9, 8, 7},            // Waiting(Join(missing, nil pointer, half a panic))
		{16, 16, 16, 16, 1, 2, 3, 4}, // left-deep
	} {
		f.Add(seed)
	}
	plain := failure.Is(errPlain, failure.Failure{Nature: transient})
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 200 {
			data = data[:200] // small enough for rules to see the whole
		}
		tree, _ := grow(data, 0)
		for _, ruled := range []bool{false, true} {
			var c failure.Classifier
			if ruled {
				c.Rules = []failure.Rule{plain}
			}
			got := c.Classify(tree.err)
			if got.Class == "" || !slices.Contains(order, got.Nature) {
				t.Fatalf("ruled %v: class %q and nature %q, want both set", ruled, got.Class, got.Nature)
			}
			if want := tree.nature("", ruled); got.Nature != want {
				t.Fatalf("ruled %v: nature = %s, want %s", ruled, got.Nature, want)
			}
			if got.Err != tree.err {
				t.Fatalf("ruled %v: Err is another error", ruled)
			}
		}
	})
}

// FuzzForeignText feeds what other people's methods return.
func FuzzForeignText(f *testing.F) {
	f.Add("40001", 503, "ThrottlingException", uint32(14))
	f.Add("", 0, "", uint32(0))
	f.Add("08\x00\xff?", -1, "*", uint32(1<<31))
	f.Fuzz(func(t *testing.T, state string, status int, code string, grpc uint32) {
		for _, err := range []error{&sqlError{state}, &statusError{status}, &sdkError{status}, &awsError{code}, &grpcError{grpcCode(grpc)}} {
			got := said(err)
			if got.Class == "" || !slices.Contains(order, got.Nature) {
				t.Errorf("%T: class %q and nature %q, want both set", err, got.Class, got.Nature)
			}
			if len(got.Code) > 64 {
				t.Errorf("%T: code of %d bytes", err, len(got.Code))
			}
		}
	})
}
