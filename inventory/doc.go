// Package inventory keeps dead letters where they can be looked at, counted by
// cause, decided about, and sent back: a dead letter stream can do none of it.
//
// # What it does
//
// [Open] opens the database: a file, with the SQLite that is built in, or a
// PostgreSQL for several instances. [Collect] empties dead letter streams into
// it. With every batch the triage groups are brought up to date, so that
// [Store.Groups] is as quick for a million dead letters as for ten.
//
// # Delivery semantics
//
// A record is removed from its stream after the transaction with it was
// committed, and synced to the disk. A crash between the two brings the record
// again, and it counts once, by its dead letter id. Two dead letters that have
// one id but not the same content are kept both: the later one gets an id of
// its own, with a tilde in it.
//
// What is in no form that is known is a dead letter of class unknown, and what
// cannot be stored as a dead letter is not lost and stops nothing: it is kept as
// it came, in the quarantine.
//
// # Ordering
//
// None is promised, and none is needed: what counts is when something failed,
// not when it was collected.
//
// # Failure modes
//
// A database that is down, full or locked fails the batch, which stays with the
// broker. A database that a later version of Spillway has migrated is refused.
//
// # Defaults
//
// Payloads are kept for 90 days while a dead letter is open, and for 15 days
// after it was closed; then [Store.Sweep] removes them. Groups, decisions and
// the audit are kept for ever.
//
// All methods are safe for concurrent use, also by several processes.
package inventory
