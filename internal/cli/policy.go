package cli

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spillway-mq/spillway/config"
	"github.com/spillway-mq/spillway/failure"
	"github.com/spillway-mq/spillway/policy"
)

func policyVerb() verb {
	return verb{
		name:    "policy",
		summary: "print when a failing message is tried again, and when it is given up",
		detail: `Without a configuration it prints the defaults. With --handler it prints what
holds for that handler, which inherits what it does not override.`,
		examples: []string{
			"# What does our configuration mean for an outage?",
			"spillway policy --config spillway.yaml",
			"# And for the handler that charges cards?",
			"spillway policy --config spillway.yaml --handler charge",
		},
		formats: []string{"table", "json", "jsonl"},
		config:  true,
		values:  map[string]func(*call) []string{"handler": handlers},
		setup: func(fs *flag.FlagSet) func(context.Context, *call) error {
			handler := fs.String("handler", "", "the handler's `NAME`, as the Router knows it")
			return func(_ context.Context, c *call) error { return printPolicy(c, *handler) }
		},
	}
}

// handlers are those that have a policy of their own.
func handlers(c *call) []string {
	cfg, err := config.Loader{Environ: c.Environ, Brokers: c.Brokers}.Load(c.config)
	if err != nil {
		return nil
	}
	return slices.Sorted(maps.Keys(cfg.Spillway.HandlerPolicies))
}

func printPolicy(c *call, handler string) error {
	cfg, err := c.load()
	if err != nil {
		return err
	}
	p := cfg.Spillway.Policy
	own := slices.Sorted(maps.Keys(cfg.Spillway.HandlerPolicies))
	switch over, ok := cfg.Spillway.HandlerPolicies[handler]; {
	case ok:
		p = p.Merge(over)
	case handler != "":
		fmt.Fprintf(c.Stderr, "note: handler %s has no policy of its own in %s%s; this is what holds for all others\n",
			clean(handler), cmp.Or(c.config, "the environment"), list("; those that have one: ", own))
	}
	if c.output != "table" {
		return c.json(describePolicy(handler, p))
	}
	fmt.Fprint(c.out, p)
	if handler == "" && len(own) > 0 {
		fmt.Fprintln(c.out, "handlers with a policy of their own, which --handler shows: "+clean(strings.Join(own, ", ")))
	}
	return nil
}

func list(lead string, items []string) string {
	if len(items) == 0 {
		return ""
	}
	return lead + clean(strings.Join(items, ", "))
}

// The JSON form of a policy. Its names are stable.
type (
	policyJSON struct {
		Handler string         `json:"handler,omitempty"`
		Natures []scheduleJSON `json:"natures"`
		Classes []classJSON    `json:"classes,omitempty"`
	}
	classJSON struct {
		Class   failure.Class  `json:"class"`
		Natures []scheduleJSON `json:"natures"`
	}
	scheduleJSON struct {
		Nature       failure.Nature `json:"nature"`
		Attempts     int            `json:"attempts"`
		GivesUpAfter float64        `json:"givesUpAfterSeconds"`
		Delays       []delayJSON    `json:"delays"`
		Parking      *parkingJSON   `json:"parking,omitempty"` // after the last attempt
	}
	delayJSON struct {
		AfterAttempt int     `json:"afterAttempt"`
		Min          float64 `json:"minSeconds"`
		Mean         float64 `json:"meanSeconds"`
		Max          float64 `json:"maxSeconds"`
	}
	parkingJSON struct {
		Interval                 float64 `json:"intervalSeconds"`
		Deadline                 float64 `json:"deadlineSeconds"`
		DeadlineWithoutReference float64 `json:"deadlineWithoutReferenceSeconds"`
	}
)

var natures = []failure.Nature{
	failure.NatureTransient, failure.NatureUnknown, failure.NaturePermanent, failure.NatureAmbiguous,
}

func describePolicy(handler string, p policy.Policy) policyJSON {
	d := policyJSON{Handler: handler, Natures: describeNatures(p, natures)}
	for _, class := range slices.Sorted(maps.Keys(p.Classes)) {
		o := p.Classes[class]
		of := natures
		if o.Nature != "" {
			of = []failure.Nature{o.Nature}
		}
		with := p.Merge(policy.Policy{
			Attempts: policy.Attempts{Transient: o.Attempts, Unknown: o.Attempts, Permanent: o.Attempts, Ambiguous: o.Attempts},
			Backoff:  o.Backoff, Parking: o.Parking,
		})
		d.Classes = append(d.Classes, classJSON{class, describeNatures(with, of)})
	}
	return d
}

func describeNatures(p policy.Policy, of []failure.Nature) (schedules []scheduleJSON) {
	p = p.WithDefaults()
	for _, n := range of {
		s := scheduleJSON{Nature: n, GivesUpAfter: p.GivesUpAfter(n).Seconds(), Delays: []delayJSON{}}
		for _, d := range p.Schedule(n) {
			s.Delays = append(s.Delays, delayJSON{d.Attempt, d.Min.Seconds(), d.Mean.Seconds(), d.Max.Seconds()})
		}
		s.Attempts = len(s.Delays) + 1
		if n == failure.NatureAmbiguous && s.Attempts >= p.Attempts.Ambiguous { // else it is too old by then
			s.Parking = &parkingJSON{p.Parking.Interval.Seconds(), p.Parking.Deadline.Seconds(), p.Parking.DeadlineWithoutReference.Seconds()}
		}
		schedules = append(schedules, s)
	}
	return schedules
}
