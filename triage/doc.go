// Package triage makes a handful of groups out of very many dead letters, each
// with a verdict and a next step.
//
// A group is error class, consumer version and signature, the error text
// without what varies: see package signature.
//
// # Groups that are kept
//
// An [Aggregate] is all that is kept of a group, in bounded memory. It is
// updated with every dead letter ([Aggregate.Add]), merged with what another
// instance has seen ([Aggregate.Merge]) and stored as JSON. Whoever keeps
// groups finds the aggregate by [Entry.Key], and makes a [Report] of all of
// them with [NewReport], together with what people have decided about them:
//
//	e := triage.EntryOf(deadLetter)
//	s := signature.Of(e.Text)
//	a := kept[e.Key(s)] // or triage.NewAggregate(e, s)
//	a.Add(e)
//
// Dead letters must be given once each. Taking one out of an aggregate is not
// possible: where that is needed, make the aggregate anew.
//
// # Verdicts
//
// The key of a group has the consumer version in it, so that a defect that
// lasts over weekly deployments makes many groups of a week each, of which
// every one looks like an incident. So a verdict is drawn from the first
// attempts of all groups with the same class and signature, cut into episodes
// where the silence is long: see [Thresholds.Judge]. All its numbers are in
// [Thresholds].
package triage
