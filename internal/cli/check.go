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
	"github.com/spillway-mq/spillway/adapters/sqs/redrive"
	"github.com/spillway-mq/spillway/config"
)

func checkVerb() verb {
	return verb{
		name:    "check",
		args:    "BROKER [SOURCE DLQ | EXPORTS]",
		summary: "look for what is wrong with the streams of the configured consumers",
		detail: `Opens the broker of the configuration and looks at the streams of each of its
consumers. It declares, changes and consumes nothing. An error means exit code
1; with --strict so does a warning.

For sqs it also looks at exported attributes, without an account: at two files, a
source and its dead letter queue, or at all queues of a folder or of one file. An
export is {"QueueUrl": ..., "Attributes": ...}. docs/check-sqs.md has the rules.`,
		examples: []string{
			"spillway check rabbitmq --config spillway.yaml",
			"# For a pipeline:",
			"spillway check rabbitmq --config spillway.yaml --strict --output json",
			"# Will failures of this queue reach its dead letter queue, and stay there?",
			"spillway check sqs pedidos.json pedidos-dlq.json",
			"# All queues of an account, except for those that need no dead letter queue:",
			"spillway check sqs exports/ --exclude '*-parking'",
		},
		formats: []string{"table", "json", "jsonl"},
		config:  true,
		least:   1,
		most:    3,
		values:  map[string]func(*call) []string{"": checkArguments},
		setup: func(fs *flag.FlagSet) func(context.Context, *call) error {
			var f checkFlags
			fs.BoolVar(&f.strict, "strict", false, "fail on warnings too")
			fs.BoolVar(&f.exports.Template, "template", false, "of exports: accept policies that are objects, and attributes that are no strings")
			fs.StringVar(&f.application, "application", "", "of exports: the `FILE` that says what the consumers do")
			fs.Func("exclude", "of exports: say nothing about queues of this `NAME`, which may have * and ?; may be repeated", func(name string) error {
				f.exports.Exclude = append(f.exports.Exclude, name)
				return nil
			})
			return func(ctx context.Context, c *call) error { return check(ctx, c, f) }
		},
	}
}

type checkFlags struct {
	strict      bool
	exports     redrive.Options
	application string
}

// brokerSQS is checked by exports too.
const brokerSQS = "sqs"

// checkArguments completes the broker. What follows are files.
func checkArguments(c *call) []string {
	if len(c.args) > 0 {
		return nil
	}
	return checkable(c)
}

func checkable(c *call) []string {
	names := brokerNames(c.Brokers)
	if !slices.Contains(names, brokerSQS) {
		names = append(names, brokerSQS)
	}
	return names
}

func brokerNames(brokers []config.Broker) (names []string) {
	for _, b := range brokers {
		names = append(names, b.Name)
	}
	return names
}

func check(ctx context.Context, c *call, f checkFlags) error {
	name, paths := c.args[0], c.args[1:]
	switch known := checkable(c); {
	case !slices.Contains(known, name):
		return usagef("there is no broker %s%s", name, orNearest(name, known))
	case len(paths) > 0 && name != brokerSQS:
		return usagef("check %s looks at the broker, and takes no files", name)
	case len(paths) == 0 && (f.exports.Template || f.exports.Exclude != nil || f.application != ""):
		return usagef("--template, --application and --exclude are about exports: spillway check sqs SOURCE DLQ, or a folder")
	case len(paths) > 0:
		return checkExports(c, f, paths)
	}
	if !slices.Contains(brokerNames(c.Brokers), name) {
		return usagef("check %s needs exports: two files, a source and its dead letter queue, or a folder", name)
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
	if err := printFindings(c, findings, count(len(cfg.Consumers), "consumer")); err != nil {
		return err
	}
	return verdict(findings, f.strict)
}

// verdict is the error of a check that found one.
func verdict(findings []adapters.Finding, strict bool) error {
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
	// Of SQS. Without an account there is no consumer.
	queueFindingJSON struct {
		Rule     string            `json:"rule"`
		Severity adapters.Severity `json:"severity"`
		Consumer *consumerJSON     `json:"consumer,omitempty"`
		Queue    string            `json:"queue"`
		Message  string            `json:"message"`
		Fix      string            `json:"fix"`
	}
	consumerJSON struct {
		Topic string `json:"topic"`
		Group string `json:"group"`
	}
)

// printFindings prints them, errors first. where says what was looked at.
func printFindings(c *call, findings []adapters.Finding, where string) error {
	sqs := c.args[0] == brokerSQS
	describe, stream := func(f adapters.Finding) any { return describeFinding(f) }, "stream "
	if sqs {
		describe, stream = func(f adapters.Finding) any { return describeQueueFinding(f) }, "queue "
	}
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
		all := make([]any, len(findings))
		for i, f := range findings {
			all[i] = describe(f)
		}
		return c.json(map[string]any{"findings": all})
	case "jsonl":
		for _, f := range findings {
			if err := c.json(describe(f)); err != nil {
				return err
			}
		}
		return nil
	}
	for _, f := range findings {
		var at []string
		if f.Consumer.Topic != "" {
			at = append(at, fmt.Sprintf("group %s of %s", f.Consumer.Group, f.Consumer.Topic))
		}
		if f.Stream != "" {
			at = append(at, stream+f.Stream)
		}
		fmt.Fprintf(c.out, "%-8s %s", f.Severity, clean(f.Rule))
		if len(at) > 0 {
			fmt.Fprintf(c.out, ": %s", clean(strings.Join(at, ", ")))
		}
		fmt.Fprintf(c.out, "\n         %s\n", clean(f.Message))
		if f.Fix != "" {
			fmt.Fprintf(c.out, "         fix: %s\n", clean(f.Fix))
		}
	}
	_, err := fmt.Fprintf(c.out, "%s in %s\n", totals(findings), where)
	if sqs {
		_, err = fmt.Fprintf(c.out, "Attributes cannot prove:\n- %s\n", strings.Join(redrive.Unproven(), "\n- "))
	}
	return err
}

func describeFinding(f adapters.Finding) findingJSON {
	return findingJSON{Rule: f.Rule, Severity: f.Severity, Consumer: describeConsumer(f), Stream: f.Stream, Message: f.Message, Fix: f.Fix}
}

func describeQueueFinding(f adapters.Finding) queueFindingJSON {
	return queueFindingJSON{Rule: f.Rule, Severity: f.Severity, Consumer: describeConsumer(f), Queue: f.Stream, Message: f.Message, Fix: f.Fix}
}

func describeConsumer(f adapters.Finding) *consumerJSON {
	if f.Consumer.Topic == "" {
		return nil
	}
	return &consumerJSON{f.Consumer.Topic, f.Consumer.Group}
}
