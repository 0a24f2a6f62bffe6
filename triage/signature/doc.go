// Package signature makes the signature of an error text: the text without
// what varies from message to message. Dead letters with the same class,
// consumer version and signature are a triage group.
//
//	order 48213 not found          order <n> not found
//	dial tcp 10.42.7.19:5432: EOF  dial tcp <addr>: EOF
//	unexpected status 503          unexpected status 503
//
// # A pure function
//
// A signature depends on the text alone: not on other texts, on the order of
// arrival or on configuration, because decisions refer to it for months. Its
// id begins with the version of the rules, [Version]. When a rule changes, the
// version does.
//
// # The id
//
// The id is made of the first 120 runes of the normalised text, in which all
// kinds of values count as the same and several in a row count as one. Only
// the first 500 runes and three lines of a text are looked at, which is what
// dead letters keep, so that the kept part and the whole text sign alike. So do
// redacted and raw texts. Any bytes are accepted; what is not UTF-8 becomes
// U+FFFD. Upper and lower case differ.
//
// # Cost
//
// The scanner is written by hand and goes once through the text: about two
// microseconds for a text of 120 bytes, without allocations in [Signer.Sign].
// Signatures may be made concurrently; a [Signer] serves one goroutine.
//
// docs/signature.md lists all rules and says why.
package signature
