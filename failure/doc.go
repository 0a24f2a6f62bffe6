// Package failure lets handlers say what a failure means, and finds out where
// they don't.
//
// # What it does
//
// A handler returns an ordinary error, or wraps it with one of five words:
//
//	return failure.Permanent(err, failure.Class("validation"), failure.Code("INVALID_SCHEMA"))
//	return failure.Transient(err)
//	return failure.RetryAfter(err, 30*time.Second)
//	return failure.Missing("customer", id)
//	return failure.Waiting(err, "legal-approval")
//
// A [Classifier] turns either into a [Failure]: will trying again help (its
// [Nature]), what is the cause (its [Class] and [Code]), is there a wish about
// time or something to wait for. What follows from a Failure is decided
// elsewhere, in package policy.
//
// The wrappers keep their cause: its text is the text of the wrapper, and
// errors.Is and errors.As find it.
//
// # Who has the last word
//
// Three voices speak about an error, in this order:
//
//  1. the rules of the user, [Classifier].Rules, in their order: the first
//     that matches;
//  2. the explicit wrappers, from the outside in;
//  3. the built-in rules, of which [Builtin] returns the table.
//
// A voice need not say everything. What it leaves open (an empty Nature,
// Class, Code or Reference, a zero RetryAfter) is taken from the next voice,
// so Transient(err) around an HTTP 400 is transient and still has class
// "validation" and code "http:400", and a rule that only sets a Class leaves
// the nature to the others. What nobody says is [NatureUnknown] and
// [ClassUnknown]; neither field is ever empty. The wish to park belongs to the
// voice that decides about the nature, and what is permanent has no RetryAfter.
//
// An error with a method RetryAfter() time.Duration beside, or as, one that a
// built-in rule recognises gives the wish about time; the outermost counts.
//
// Of built-in rules the most specific wins, wherever in the tree its error is:
// the table is ordered by that. Of two errors that the same rule recognises,
// the outer one gives the code.
//
// A recovered panic ([Panic]) is opaque to wrappers and built-in rules: an
// error that was thrown says nothing about the message, so the class stays
// [ClassPanic] and the nature unknown, whatever the value wraps. Rules of the
// user do see into it.
//
// # Joined errors
//
// errors.Join, fmt.Errorf with several %w, and any error with Unwrap() []error
// or WrappedErrors() []error split the tree into branches. Each branch is
// classified by itself and the worst nature wins: permanent before ambiguous
// before transient before unknown. Of equals the first counts, but an error
// that somebody recognises before one that nobody does. An error that a
// built-in rule recognises and that itself has branches counts like a first
// branch.
//
// Wrappers and rules meet joins like this:
//
//   - A wrapper inside a branch speaks for that branch. So Transient(a) joined
//     with Permanent(b) is permanent.
//   - A wrapper around a join speaks for all of its branches, except those
//     which a rule of the user recognises. Class and code still come from the
//     branch that would have won without the wrapper.
//   - A rule is asked about the whole error first. If it matches the whole but
//     none of the branches, it has recognised something around the join, and
//     speaks for everything. If it matches a branch as well, it speaks for that
//     branch only. So a rule that makes one error transient does not hide the
//     permanent one that it was joined with.
//
// # Failure modes
//
// Errors are other people's code. A method (SQLState, Unwrap, Is, As, ...) or a
// rule that panics, such as a method of a nil pointer, counts as not matching,
// and the rest is still asked. Classification never calls Error, except
// indirectly through rules of the user.
//
// Of a tree, the first 16,384 errors are looked at, so that cycles end. If there
// are rules of the user and the tree has more than 256 errors, each rule is
// asked about one error of the tree at a time, with a stand-in on which Error,
// errors.Is and errors.As work but do not look further: a cycle would hang
// errors.Is itself.
//
// Nil stays nil: Permanent, Transient, RetryAfter, Waiting and Panic return nil
// for nil, so they may wrap the result of a call unseen. Mind that a handler
// which returns nil has processed its message: to wait without a cause, give
// Waiting an error that says why. Missing needs no cause.
//
// Limits of what a type can tell:
//
//   - Decoding errors count as undecodable wherever they come from. A handler
//     that fails to decode the *answer* of a service should wrap that with
//     Transient.
//   - json.Decoder reports a cut document as io.ErrUnexpectedEOF, which is also
//     what a broken connection looks like, and is taken for that. json.Unmarshal
//     does not have this problem.
//   - Package protobuf does not tell decoding from encoding errors. They are
//     permanent either way, with class "undecodable".
//   - context.Canceled is transient here: some call was given up. Whether the
//     consumer is shutting down is not a question for a classifier.
//
// # Concurrency
//
// A Classifier is a value without state, safe for concurrent use if the rules
// are. Each attempt is classified afresh; nothing is remembered.
package failure
