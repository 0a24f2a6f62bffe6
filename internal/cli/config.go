package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spillway-mq/spillway/config"
)

func configCheckVerb() verb {
	return verb{
		name:    "config check",
		args:    "[FILE]",
		summary: "say what is wrong with a configuration file, all at once",
		detail: `Reads the file, or the one of --config, and the variables that override it, as
an application would. It connects to nothing. A problem means exit code 1.`,
		examples: []string{
			"# In CI, before a deployment:",
			"spillway config check deploy/spillway.yaml",
			"# For an editor or a bot:",
			"spillway config check --output json deploy/spillway.yaml",
		},
		formats: []string{"table", "json", "jsonl"},
		config:  true,
		most:    1,
		setup:   noFlags(checkConfig),
	}
}

type (
	checkedJSON struct {
		File     string        `json:"file"`
		OK       bool          `json:"ok"`
		Problems []problemJSON `json:"problems"`
	}
	problemJSON struct {
		File string `json:"file,omitempty"`
		Line int    `json:"line,omitempty"`
		Env  string `json:"env,omitempty"`
		Key  string `json:"key,omitempty"`
		Text string `json:"text"`
	}
)

func checkConfig(_ context.Context, c *call) error {
	if len(c.args) == 1 {
		c.config = c.args[0]
	}
	if c.config == "" {
		return usagef("no file is named: spillway config check FILE")
	}
	cfg, err := config.Loader{Environ: c.Environ, Brokers: c.Brokers}.Load(c.config)
	var found config.Problems
	if err != nil && !errors.As(err, &found) {
		return err
	}
	if c.output != "table" {
		checked := checkedJSON{File: c.config, OK: err == nil, Problems: []problemJSON{}}
		for _, p := range found {
			checked.Problems = append(checked.Problems, problemJSON(p))
		}
		if err := c.json(checked); err != nil {
			return err
		}
	} else {
		for _, p := range found {
			fmt.Fprintln(c.out, p)
		}
	}
	switch {
	case err != nil:
		return fmt.Errorf("%s in %s", count(len(found), "problem"), c.config)
	case c.output == "table":
		summarize(c.out, c.config, cfg)
	}
	return nil
}

// summarize says what was understood, so that a key in the wrong file shows.
func summarize(w io.Writer, file string, cfg *config.Config) {
	fmt.Fprintf(w, "%s: ok\n", file)
	broker := "not set"
	if name := cfg.BrokerName(); name != "" {
		broker = fmt.Sprintf("%s, %s", name, cfg.BrokerURL)
	}
	owners := map[string]bool{}
	for _, consumer := range cfg.Consumers {
		owners[consumer.Owner] = true
	}
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range [][2]string{
		{"broker", broker},
		{"group", cfg.Spillway.Group},
		{"handlers", strings.Join(slices.Sorted(maps.Keys(cfg.Spillway.HandlerPolicies)), ", ")},
		{"consumers", fmt.Sprint(len(cfg.Consumers))},
		{"owners", strings.Join(slices.Sorted(maps.Keys(owners)), ", ")},
	} {
		fmt.Fprintf(tw, "  %s\t%s\n", row[0], clean(cmp.Or(row[1], "none")))
	}
	tw.Flush()
}

func configExampleVerb() verb {
	return verb{
		name:     "config example",
		summary:  "print a configuration file with every key and its default",
		detail:   "All keys are comments: the file changes nothing until one is uncommented.",
		examples: []string{"spillway config example > spillway.yaml"},
		setup: noFlags(func(_ context.Context, c *call) error {
			_, err := io.WriteString(c.out, config.Example())
			return err
		}),
	}
}
