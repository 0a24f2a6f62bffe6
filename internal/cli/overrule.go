package cli

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spillway-mq/spillway/config"
	"github.com/spillway-mq/spillway/inventory"
)

func groupsMergeVerb() verb {
	return verb{
		name:    "groups merge",
		args:    "GROUP INTO",
		summary: "have a group count as another one, where a signature says too much",
		detail: `All dead letters with the class and signature of GROUP, of all consumer versions
and also those that are collected later, count as those of INTO. What was decided
about either is shown with it. spillway groups restore takes it back. A file that
triage reads with --input knows nothing of it.`,
		examples: []string{"spillway groups merge g4kqzr7 gfsc5cp --note 'names of products in the text'"},
		formats:  []string{"table", "json", "jsonl"},
		config:   true,
		least:    2,
		most:     2,
		values:   map[string]func(*call) []string{"": groupIDs},
		setup: func(fs *flag.FlagSet) func(context.Context, *call) error {
			d := decisionFlags(fs)
			return func(ctx context.Context, c *call) error {
				return overrule(ctx, c, d, func(s *inventory.Store) (inventory.Resigned, error) { return s.MergeGroups(ctx, *d, c.args[1]) })
			}
		},
	}
}

func groupsSplitVerb() verb {
	return verb{
		name:    "groups split",
		args:    "GROUP",
		summary: "tell the dead letters of a group apart by a field, where a signature says too little",
		detail: `All dead letters with the class and signature of GROUP, of all consumer versions
and also those that are collected later, are in groups by the value of the field:
code, consumer, handler, topic or type. What was decided about GROUP is shown with
each. spillway groups restore takes it back.`,
		examples: []string{"spillway groups split g4kqzr7 --by code"},
		formats:  []string{"table", "json", "jsonl"},
		config:   true,
		least:    1,
		most:     1,
		values:   map[string]func(*call) []string{"": groupIDs, "by": func(*call) []string { return inventory.SplitFields() }},
		setup: func(fs *flag.FlagSet) func(context.Context, *call) error {
			d := decisionFlags(fs)
			by := fs.String("by", "", "the `FIELD`")
			return func(ctx context.Context, c *call) error {
				return overrule(ctx, c, d, func(s *inventory.Store) (inventory.Resigned, error) { return s.SplitGroup(ctx, *d, *by) })
			}
		},
	}
}

func groupsRestoreVerb() verb {
	return verb{
		name:     "groups restore",
		args:     "GROUP",
		summary:  "take back what groups were merged or split by",
		detail:   "GROUP is one that groups merge or groups split has made.",
		examples: []string{"spillway groups restore g4kqzr7"},
		formats:  []string{"table", "json", "jsonl"},
		config:   true,
		least:    1,
		most:     1,
		values:   map[string]func(*call) []string{"": groupIDs},
		setup: func(fs *flag.FlagSet) func(context.Context, *call) error {
			d := decisionFlags(fs)
			return func(ctx context.Context, c *call) error {
				return overrule(ctx, c, d, func(s *inventory.Store) (inventory.Resigned, error) { return s.Restore(ctx, *d) })
			}
		},
	}
}

func groupsResignVerb() verb {
	return verb{
		name:    "groups resign",
		summary: "sign dead letters anew after the rules of signatures have changed",
		detail: `spillway collect does it by itself before it collects. --dry-run shows what would
move. What was decided about a group is shown with those that it becomes, whether
the new rules split or merge it; its old id still finds it.`,
		examples: []string{"spillway groups resign --dry-run"},
		formats:  []string{"table", "json", "jsonl"},
		config:   true,
		setup: func(fs *flag.FlagSet) func(context.Context, *call) error {
			dry := fs.Bool("dry-run", false, "only say what would move")
			return func(ctx context.Context, c *call) error {
				return c.withInventory(ctx, false, func(_ *config.Config, s *inventory.Store) error {
					done, err := s.Resign(ctx, *dry)
					if err != nil {
						return err
					}
					return printMoves(c, done, *dry)
				})
			}
		},
	}
}

func overrule(ctx context.Context, c *call, d *inventory.Decision, do func(*inventory.Store) (inventory.Resigned, error)) error {
	return c.withInventory(ctx, false, func(cfg *config.Config, s *inventory.Store) error {
		var err error
		if d.Author, err = author(d.Author, cfg); err != nil {
			return err
		}
		d.Group = c.args[0]
		done, err := do(s)
		if errors.Is(err, inventory.ErrRefused) {
			return codedError{exitRefused, err}
		}
		if err != nil {
			return err
		}
		return printMoves(c, done, d.DryRun)
	})
}

// moveJSON is a move as JSON. Its names are stable.
type moveJSON struct {
	From        string `json:"from"`
	To          string `json:"to"`
	Class       string `json:"class"`
	Signature   string `json:"signature"`
	ToSignature string `json:"toSignature"`
	DeadLetters int64  `json:"deadLetters"`
}

func printMoves(c *call, done inventory.Resigned, dry bool) error {
	if c.output != "table" {
		all := make([]moveJSON, len(done.Moves))
		for i, m := range done.Moves {
			all[i] = moveJSON{m.From, m.To, m.Class, redact(m.FromText), redact(m.ToText), m.DeadLetters}
		}
		return c.json(map[string]any{"dryRun": dry, "moves": all})
	}
	if len(done.Moves) == 0 {
		_, err := fmt.Fprintln(c.out, "Nothing has to move.")
		return err
	}
	tw := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "FROM\tTO\tDEAD LETTERS\tSIGNATURE")
	for _, m := range done.Moves {
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\n", m.From, m.To, number(m.DeadLetters), clean(shorten(redact(m.ToText), 80)))
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	if dry {
		_, err := fmt.Fprintln(c.out, "Nothing has moved yet.")
		return err
	}
	return nil
}

// tellStale says that groups stand apart which belong together.
func tellStale(ctx context.Context, w io.Writer, s *inventory.Store) error {
	n, err := s.Stale(ctx)
	if err == nil && n > 0 {
		fmt.Fprintf(w, "note: %s signed by earlier rules: spillway groups resign\n", count(n, "group"))
	}
	return err
}
