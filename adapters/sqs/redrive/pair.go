package redrive

import (
	"fmt"

	"github.com/spillway-mq/spillway/adapters"
)

// CheckPair looks at a source and the queue that is to be its dead letter queue.
// It is the strict form: whatever is not as it must be is an error. Exclude and
// Partial of opts mean nothing here.
func CheckPair(source, deadLetter Export, opts Options) Report {
	c := &check{opts: opts, pair: true}
	s, d := c.node(source), c.node(deadLetter)
	s.role, d.role = adapters.StreamMain, adapters.StreamDeadLetter
	c.both(s, d)
	return Report{Findings: c.findings, Links: c.links, Queues: 2}
}

func (c *check) both(s, d *node) {
	if s.id.known() && d.id.known() && s.id.is(d.id) {
		c.add("queue-duplicate", s, fmt.Sprintf("both files are exports of %s", quote(s.id.String())), "give the source's export first, and that of its dead letter queue second")
		return
	}
	if !s.hasPolicy() && d.hasPolicy() {
		// Both were looked at; what is wrong with a policy in the wrong place is
		// not of interest.
		if p := (&check{opts: c.opts}).redrive(d); p != nil && s.id.known() && p.target.known() && p.target.is(s.id) {
			c.add("pair-order", d, fmt.Sprintf("its RedrivePolicy names %s, which is the first file: the files are in the wrong order", s.label), "give the source's export first, and that of its dead letter queue second")
			return
		}
	}
	d.allowed = c.allow(d)
	c.allow(s) // only its form is of interest
	if d.hasPolicy() {
		c.deadLetterRedrives(d)
	}
	if !s.hasPolicy() {
		if !s.misnamed() {
			c.missing(s)
		}
		return
	}
	if s.policy = c.redrive(s); s.policy == nil {
		return
	}
	c.link(s)
	c.count(s)
	target := s.policy.target
	switch {
	case !target.known():
	case s.id.known() && target.is(s.id):
		c.add("redrive-self", s, "RedrivePolicy names the queue itself", "let it name "+d.label)
	case c.place(s) && d.id.known() && !target.is(d.id):
		c.add("pair-target", s, fmt.Sprintf("RedrivePolicy names %s, and the second file is of %s", quote(target.String()), quote(d.id.String())),
			"give the export of "+target.name+" as the second file, or correct RedrivePolicy")
	case d.id.known() && target.name != d.id.name:
		// It is in the wrong place too, which was said.
	default:
		c.edge(s, d)
	}
}

func (c *check) deadLetterRedrives(d *node) {
	c.add("dlq-redrive", d, "it is a dead letter queue, and has a RedrivePolicy: looking at its messages moves them on", "remove RedrivePolicy here: set it to an empty string")
}
