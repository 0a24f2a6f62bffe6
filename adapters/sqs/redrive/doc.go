// Package redrive finds what is wrong with the redrive policies of SQS queues:
// with where a queue sends what its consumers do not delete, and whether that
// arrives and stays there long enough to be looked at.
//
// It is pure. It reads exported attributes, in the form in which AWS returns
// them, and calls nobody. [Parse] and [ParseOne] read files; a program that has
// asked AWS itself makes an [Export] of each answer.
//
// # Two forms
//
// [CheckPair] takes a source and its dead letter queue and is strict: whatever
// is not as it must be is an error. [Check] takes all queues of a folder or an
// account. There roles follow from the graph: who is the target of a policy is
// a dead letter queue, all others are sources, and a source without a policy is
// an error unless [Options].Exclude names it.
//
// Some rules need to know what the application does: which queue is for
// retries, how long its handler may take. [Options] tells; without it these rules
// are silent.
//
// # Rules
//
// [Rules] lists them, and docs/check-sqs.md is made from that list. Their names
// and severities are frozen: pipelines filter by them.
//
// # What attributes cannot prove
//
// [Unproven] lists it: a queue moves only what its consumers leave undeleted,
// and whether they do is in no attribute.
package redrive
