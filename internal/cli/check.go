package cli

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"

	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/config"
)

func checkVerb() verb {
	return verb{
		name:    "check",
		args:    "BROKER",
		summary: "look for what is wrong with the streams of the configured consumers",
		detail: `Opens the broker of the configuration and looks at the streams of each of its
consumers. It declares, changes and consumes nothing. An error means exit code
1; with --strict so does a warning.`,
		examples: []string{
			"spillway check rabbitmq --config spillway.yaml",
			"# For a pipeline:",
			"spillway check rabbitmq --config spillway.yaml --strict --output json",
		},
		formats: []string{"table", "json", "jsonl"},
		config:  true,
		least:   1,
		most:    1,
		values:  map[string]func(*call) []string{"": func(c *call) []string { return brokerNames(c.Brokers) }},
		setup: func(fs *flag.FlagSet) func(context.Context, *call) error {
			strict := fs.Bool("strict", false, "fail on warnings too")
			return func(ctx context.Context, c *call) error { return check(ctx, c, *strict) }
		},
	}
}

func brokerNames(brokers []config.Broker) (names []string) {
	for _, b := range brokers {
		names = append(names, b.Name)
	}
	return names
}

func check(ctx context.Context, c *call, strict bool) error {
	name := c.args[0]
	if known := brokerNames(c.Brokers); !slices.Contains(known, name) {
		return usagef("there is no broker %s%s", name, orNearest(name, known))
	}
	cfg, err := c.load()
	if err != nil {
		return err
	}
	if have := cfg.BrokerName(); have != "" && have != name {
		return fmt.Errorf("broker.url of %s is for %s, not for %s", cmp.Or(c.config, "the environment"), have, name)
	}
	findings, err := findings(ctx, cfg, name)
	if err != nil {
		return err
	}
	if err := printFindings(c, findings, len(cfg.Consumers)); err != nil {
		return err
	}
	if n := severities(findings); n[adapters.SeverityError] > 0 || strict && n[adapters.SeverityWarning] > 0 {
		return errors.New(totals(findings))
	}
	return nil
}

// findings opens the broker and has it looked at, if it can be.
func findings(ctx context.Context, cfg *config.Config, name string) (_ []adapters.Finding, err error) {
	broker, err := cfg.OpenBroker(ctx)
	if err != nil {
		return nil, err
	}
	defer func() {
		if closeErr := broker.Close(context.WithoutCancel(ctx)); closeErr != nil && err == nil {
			err = fmt.Errorf("check %s: close: %w", name, closeErr)
		}
	}()
	checker, ok := broker.(adapters.Checker)
	if !ok {
		return nil, fmt.Errorf("check %s: %w: there is nothing to look at from outside", name, adapters.ErrUnsupported)
	}
	if len(cfg.Consumers) == 0 {
		return nil, errors.New("the configuration lists no consumers to check: add them under consumers, each with topic, group and owner")
	}
	consumers := make([]adapters.Consumer, len(cfg.Consumers))
	for i, consumer := range cfg.Consumers {
		consumers[i] = adapters.Consumer{
			Topic: consumer.Topic, Group: consumer.Group,
			Concurrency: max(1, cfg.Spillway.Concurrency), Retry: cfg.Spillway.Retry,
		}
	}
	found, err := checker.Check(ctx, consumers)
	if err != nil {
		return nil, fmt.Errorf("check %s: %w", name, err)
	}
	return found, nil
}

// bySeverity is the order in which findings are printed.
var bySeverity = []adapters.Severity{adapters.SeverityError, adapters.SeverityWarning, adapters.SeverityInfo}

func severities(findings []adapters.Finding) map[adapters.Severity]int {
	n := map[adapters.Severity]int{}
	for _, f := range findings {
		n[f.Severity]++
	}
	return n
}

func totals(findings []adapters.Finding) string {
	n := severities(findings)
	return fmt.Sprintf("%s, %s, %d info", count(n[adapters.SeverityError], "error"), count(n[adapters.SeverityWarning], "warning"), n[adapters.SeverityInfo])
}

// The JSON form of a finding. Its names are stable.
type (
	findingJSON struct {
		Rule     string            `json:"rule"`
		Severity adapters.Severity `json:"severity"`
		Consumer *consumerJSON     `json:"consumer,omitempty"`
		Stream   string            `json:"stream,omitempty"`
		Message  string            `json:"message"`
		Fix      string            `json:"fix,omitempty"`
	}
	consumerJSON struct {
		Topic string `json:"topic"`
		Group string `json:"group"`
	}
)

func printFindings(c *call, findings []adapters.Finding, consumers int) error {
	for i := range findings {
		findings[i].Message, findings[i].Fix = redact(findings[i].Message), redact(findings[i].Fix)
	}
	slices.SortStableFunc(findings, func(a, b adapters.Finding) int {
		return cmp.Or(
			slices.Index(bySeverity, a.Severity)-slices.Index(bySeverity, b.Severity),
			cmp.Compare(a.Consumer.Topic, b.Consumer.Topic),
			cmp.Compare(a.Consumer.Group, b.Consumer.Group),
			cmp.Compare(a.Stream, b.Stream),
			cmp.Compare(a.Rule, b.Rule),
		)
	})
	switch c.output {
	case "json":
		all := make([]findingJSON, len(findings))
		for i, f := range findings {
			all[i] = describeFinding(f)
		}
		return c.json(map[string]any{"findings": all})
	case "jsonl":
		for _, f := range findings {
			if err := c.json(describeFinding(f)); err != nil {
				return err
			}
		}
		return nil
	}
	for _, f := range findings {
		var where []string
		if f.Consumer.Topic != "" {
			where = append(where, fmt.Sprintf("group %s of %s", f.Consumer.Group, f.Consumer.Topic))
		}
		if f.Stream != "" {
			where = append(where, "stream "+f.Stream)
		}
		fmt.Fprintf(c.out, "%-8s %s", f.Severity, clean(f.Rule))
		if len(where) > 0 {
			fmt.Fprintf(c.out, ": %s", clean(strings.Join(where, ", ")))
		}
		fmt.Fprintf(c.out, "\n         %s\n", clean(f.Message))
		if f.Fix != "" {
			fmt.Fprintf(c.out, "         fix: %s\n", clean(f.Fix))
		}
	}
	_, err := fmt.Fprintf(c.out, "%s in %s\n", totals(findings), count(consumers, "consumer"))
	return err
}

func describeFinding(f adapters.Finding) findingJSON {
	d := findingJSON{Rule: f.Rule, Severity: f.Severity, Stream: f.Stream, Message: f.Message, Fix: f.Fix}
	if f.Consumer.Topic != "" {
		d.Consumer = &consumerJSON{f.Consumer.Topic, f.Consumer.Group}
	}
	return d
}
