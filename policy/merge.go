package policy

import (
	"cmp"
	"maps"
	"time"

	"github.com/spillway-mq/spillway/failure"
)

// defaults is the one place where the defaults are written down, besides those
// of Backoff, which is also used on its own.
var defaults = Policy{
	Attempts:      Attempts{Transient: 12, Unknown: 5, Permanent: 1, Ambiguous: 3},
	Backoff:       Backoff{}.withDefaults(),
	Parking:       Parking{Interval: 5 * time.Minute, Deadline: 24 * time.Hour, DeadlineWithoutReference: time.Hour},
	MaxRetryAfter: time.Hour,
	MaxReplays:    10,
}

// WithDefaults returns p with every zero field that has a default filled in.
// MaxAge stays zero, which means off, and so do the fields of Classes, which
// inherit. It does not repair what [Policy.Validate] refuses. It is for those
// who read a policy; [Decide] and the methods of Policy fill in for themselves.
func (p Policy) WithDefaults() Policy { return p.over(defaults) }

// Merge returns p with the fields that over sets replaced: the policy of a
// handler over that of its consumer. Zero fields of over inherit, so over
// cannot turn MaxAge off. Classes are merged by key, and below a key field by
// field; an override of a class in p therefore still holds against a limit
// that over sets for a nature. Neither p nor over is changed or shared.
func (p Policy) Merge(over Policy) Policy {
	m := over.over(p)
	m.Classes = maps.Clone(p.Classes)
	for class, o := range over.Classes {
		if m.Classes == nil {
			m.Classes = make(map[failure.Class]Override, len(over.Classes))
		}
		m.Classes[class] = o.over(m.Classes[class])
	}
	return m
}

// over fills the zero fields of p from under, except for Classes.
func (p Policy) over(under Policy) Policy {
	p.Attempts = p.Attempts.over(under.Attempts)
	p.Backoff = p.Backoff.over(under.Backoff)
	p.Parking = p.Parking.over(under.Parking)
	p.MaxRetryAfter = cmp.Or(p.MaxRetryAfter, under.MaxRetryAfter)
	p.MaxAge = cmp.Or(p.MaxAge, under.MaxAge)
	p.MaxReplays = cmp.Or(p.MaxReplays, under.MaxReplays)
	return p
}

func (o Override) over(under Override) Override {
	return Override{
		Nature:   cmp.Or(o.Nature, under.Nature),
		Attempts: cmp.Or(o.Attempts, under.Attempts),
		Backoff:  o.Backoff.over(under.Backoff),
		Parking:  o.Parking.over(under.Parking),
	}
}

func (a Attempts) over(under Attempts) Attempts {
	return Attempts{
		Transient: cmp.Or(a.Transient, under.Transient),
		Unknown:   cmp.Or(a.Unknown, under.Unknown),
		Permanent: cmp.Or(a.Permanent, under.Permanent),
		Ambiguous: cmp.Or(a.Ambiguous, under.Ambiguous),
	}
}

func (p Parking) over(under Parking) Parking {
	return Parking{
		Interval:                 cmp.Or(p.Interval, under.Interval),
		Deadline:                 cmp.Or(p.Deadline, under.Deadline),
		DeadlineWithoutReference: cmp.Or(p.DeadlineWithoutReference, under.DeadlineWithoutReference),
	}
}

// forFailure returns the policy, with defaults, and the failure as the
// override of the failure's class sees them.
func (p Policy) forFailure(f failure.Failure) (Policy, failure.Failure) {
	p = p.WithDefaults()
	o, ok := p.Classes[f.Class]
	if !ok {
		return p, f
	}
	if o.Nature != "" {
		f.Nature = o.Nature
		f.Park = f.Park && o.Nature == failure.NatureAmbiguous
	}
	return p.with(o), f
}

// with applies the fields of o that are about the policy.
func (p Policy) with(o Override) Policy {
	p.Attempts = Attempts{o.Attempts, o.Attempts, o.Attempts, o.Attempts}.over(p.Attempts)
	p.Backoff = o.Backoff.over(p.Backoff)
	p.Parking = o.Parking.over(p.Parking)
	return p
}

// of is the limit for a nature, never above MaxAttempts.
func (a Attempts) of(n failure.Nature) int {
	limit := a.Unknown
	switch n {
	case failure.NatureTransient:
		limit = a.Transient
	case failure.NaturePermanent:
		limit = a.Permanent
	case failure.NatureAmbiguous:
		limit = a.Ambiguous
	}
	return min(limit, MaxAttempts)
}

func (p Parking) deadline(reference bool) time.Duration {
	if reference {
		return p.Deadline
	}
	return p.DeadlineWithoutReference
}
