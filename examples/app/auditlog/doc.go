// Package auditlog is the consumer of the examples for -input: it projects
// webhooks of GitHub into an audit log, which says who did what, where, and on
// whose behalf. It knows nothing of brokers.
//
// Whatever fails, fails for a reason that is found in a payload: a field that
// has another type than in the other events, an object that is null or absent,
// an event that refers to something of which no event has told yet.
package auditlog
