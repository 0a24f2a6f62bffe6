package triage

import (
	"fmt"
	"strings"
	"time"

	"github.com/spillway-mq/spillway/failure"
	"github.com/spillway-mq/spillway/poison/foreign"
)

// advice is what a class of failures calls for.
type advice struct {
	// ended is the next step for an incident of this class that is over.
	ended string
	// cause is what to look at where it goes on or comes back.
	cause string
	// again means that a message of this class fails again whenever it comes,
	// unless something is changed.
	again bool
}

// The advice by class; the last row is for all others.
var advices = map[failure.Class]advice{
	failure.ClassDependencyTimeout:     {"Replay it, a canary first.", "find out why the dependency is slow, or raise the limits", false},
	failure.ClassDependencyUnavailable: {"Replay it, a canary first.", "find out why the dependency is away", false},
	failure.ClassUnauthorized:          {"See that the credentials are valid again, then replay it, a canary first.", "renew the credentials or the permission", false},
	failure.ClassReferenceNotFound: {"See that what was missing exists now, then replay it, a canary first; what will never exist is closed as entity_deleted.",
		"find out why what the messages refer to is missing; what will never exist is closed as entity_deleted", false},
	failure.ClassValidation: {"Do not replay it as it is: the same messages are refused again. Look at what the producer sent then; replay once a version accepts it, or close it.",
		"correct the producer, or accept what it sends", true},
	failure.ClassUndecodable: {"Do not replay it as it is: the same bytes cannot be read again. Look at what the producer sent then; replay once a version reads it, or close it.",
		"correct the producer, or read what it sends", true},
	failure.ClassSerialization: {"Do not replay it before a version writes such a document: it would fail again.",
		"correct what writes the document", true},
	failure.ClassIncompatibleSchema: {"Do not replay it before a consumer version knows the schema: it would fail again.",
		"deploy a consumer that knows the schema, or have the producer send the one it knows", true},
	failure.ClassPanic: {"Do not replay it before a version has the fix: it would panic again.",
		"fix the panic", true},
	failure.ClassConsumerCrash: {"Do not replay it before a version has the fix: it would take the consumer down again.",
		"fix the crash", true},
	failure.ClassExpired: {"Close it as window_expired, unless the messages still make sense.",
		"find out what holds messages back until they expire", true},
}

var otherAdvice = advice{"Replay it, a canary first: if the canary fails again, it was no incident.", "find the cause", false}

// suggest returns the next step for a group, or two for the parts of a mixed one.
func suggest(a *Aggregate, j Judgement, standing Standing, now time.Time) []string {
	adv, ok := advices[failure.Class(a.Class)]
	if !ok {
		adv = otherAdvice
	}
	if standing.State == Closed {
		return []string{"Nothing: it is closed."}
	}
	if a.Signature == Overflow {
		return []string{"Look at samples: these are many causes, or one whose texts a signature does not see through. Nothing is decided about them as one."}
	}
	if strings.HasPrefix(a.Signature, foreign.NoEvidence) {
		return []string{"Look at the sample, and find out who writes there: nothing says that it failed, or for whom. Then send it on by hand, or close it."}
	}
	structural := "Do not replay it: it comes back. First " + adv.cause + "; then close it as fixed_in_code and replay what still makes sense."

	switch p := standing.Previous; {
	case standing.State == Recurring && p != nil:
		s := fmt.Sprintf("It is back although it was closed as %s", p.Reason)
		if p.Version != "" {
			s += " in " + p.Version
		}
		if p.At.IsZero() {
			s += "."
		} else {
			s += " on " + p.At.UTC().Format(time.DateOnly) + "."
		}
		return []string{s + " See whether that decision still holds before anything else; do not replay it until then."}
	case standing.State == Residue:
		return []string{"It is fixed in a later version: deploy that everywhere, then replay it, a canary first."}
	}

	switch j.Verdict {
	case Incident:
		return []string{adv.ended + stillValid(a, now)}
	case Ongoing:
		return []string{"Do not replay it yet: it has not ended. Now " + adv.cause + "."}
	case Isolated:
		if adv.again {
			return []string{"Look at the sample. " + adv.ended}
		}
		return []string{"Look at the sample; then replay it by hand, or close it."}
	case Mixed:
		if m := j.Episodes[j.Main]; j.Count > m.Count {
			return []string{
				fmt.Sprintf("The %s from %s to %s: %s", number(m.Count), clock(m.First), clock(m.Last), adv.ended),
				fmt.Sprintf("The other %s: %s", number(j.Count-m.Count), structural),
			}
		}
	}
	return []string{structural}
}

func clock(t time.Time) string { return t.UTC().Format("2006-01-02 15:04") }

// stillValid asks the question that comes before every replay of old messages.
func stillValid(a *Aggregate, now time.Time) string {
	if a.LastSeen.IsZero() || now.Sub(a.LastSeen) < 24*time.Hour {
		return ""
	}
	return " First ask whether messages that are " + Span(now.Sub(a.LastSeen)) + " old still make sense."
}
