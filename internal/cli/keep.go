package cli

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/spillway-mq/spillway/config"
	"github.com/spillway-mq/spillway/inventory"
)

func quarantineListVerb() verb {
	return verb{
		name:    "quarantine list",
		summary: "list records that could not become dead letters",
		detail: `They are kept as they came. With --payloads the JSON forms have the payloads, in
base64; headers are redacted.`,
		examples: []string{"spillway quarantine list", "spillway quarantine list --output jsonl --payloads > records.jsonl"},
		formats:  []string{"table", "json", "jsonl"},
		config:   true,
		setup: func(fs *flag.FlagSet) func(context.Context, *call) error {
			limit := fs.Int("limit", 50, "at most `N` records, the latest")
			payloads := fs.Bool("payloads", false, "with payloads, as JSON")
			return func(ctx context.Context, c *call) error { return listQuarantine(ctx, c, *limit, *payloads) }
		},
	}
}

type (
	quarantinedJSON struct {
		Stream      string       `json:"stream"`
		MessageID   string       `json:"messageId,omitempty"`
		Partition   *int32       `json:"partition,omitempty"`
		Offset      *int64       `json:"offset,omitempty"`
		CollectedAt time.Time    `json:"collectedAt"`
		Copies      int          `json:"copies"`
		Cause       string       `json:"cause"`
		Headers     []headerJSON `json:"headers"`
		Bytes       int          `json:"bytes"` // of the payload
		Payload     []byte       `json:"payloadBase64,omitempty"`
	}
	headerJSON struct {
		Key   string `json:"key"`
		Value string `json:"value"`
	}
)

func listQuarantine(ctx context.Context, c *call, limit int, payloads bool) error {
	return c.withInventory(ctx, false, func(cfg *config.Config, s *inventory.Store) error {
		redact, err := redactor(cfg)
		if err != nil {
			return err
		}
		records, err := s.Quarantine(ctx, limit)
		if err != nil {
			return err
		}
		all := make([]quarantinedJSON, len(records))
		for i, q := range records {
			r := q.Record
			all[i] = quarantinedJSON{
				Stream: q.Stream, MessageID: r.ID, Partition: r.Position.Partition, Offset: r.Position.Offset, CollectedAt: q.At, Copies: q.Copies,
				Cause: redact.Text(q.Cause), Headers: []headerJSON{}, Bytes: len(r.Payload),
			}
			for _, h := range redact.Headers(r.Headers) {
				all[i].Headers = append(all[i].Headers, headerJSON{h.Key, string(h.Value)})
			}
			if payloads {
				all[i].Payload = r.Payload
			}
		}
		switch c.output {
		case "json":
			return c.json(map[string]any{"records": all})
		case "jsonl":
			for _, q := range all {
				if err := c.json(q); err != nil {
					return err
				}
			}
			return nil
		}
		tw := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)
		fmt.Fprintln(tw, "COLLECTED\tSTREAM\tMESSAGE\tBYTES\tCOPIES\tCAUSE")
		for _, q := range all {
			fmt.Fprintf(tw, "%s\t%s\t%s\t%d\t%d\t%s\n", moment(q.CollectedAt), clean(q.Stream), clean(shorten(q.MessageID, 40)), q.Bytes, q.Copies, clean(shorten(q.Cause, 100)))
		}
		return tw.Flush()
	})
}

func auditListVerb() verb {
	return verb{
		name:     "audit list",
		summary:  "list who did what",
		detail:   "The audit only grows: the database refuses to change it.",
		examples: []string{"spillway audit list", "spillway audit list --target g4kqzr7tq2ab --output jsonl"},
		formats:  []string{"table", "json", "jsonl"},
		config:   true,
		setup: func(fs *flag.FlagSet) func(context.Context, *call) error {
			target := fs.String("target", "", "only what was done to this group or `STREAM`")
			limit := fs.Int("limit", 50, "at most `N` lines, the latest")
			return func(ctx context.Context, c *call) error { return listAudit(ctx, c, *target, *limit) }
		},
	}
}

type auditJSON struct {
	Seq     int64           `json:"seq"`
	At      time.Time       `json:"at"`
	Author  string          `json:"author"`
	Action  string          `json:"action"`
	Target  string          `json:"target"`
	Filter  string          `json:"filter,omitempty"`
	Total   int64           `json:"total"`
	Details json.RawMessage `json:"details,omitempty"`
}

func listAudit(ctx context.Context, c *call, target string, limit int) error {
	return c.withInventory(ctx, false, func(_ *config.Config, s *inventory.Store) error {
		lines, err := s.Audit(ctx, target, limit)
		if err != nil {
			return err
		}
		all := make([]auditJSON, len(lines))
		for i, l := range lines {
			all[i] = auditJSON{Seq: l.Seq, At: l.At, Author: l.Author, Action: l.Action, Target: l.Target, Filter: l.Filter, Total: l.Total}
			if json.Valid([]byte(l.Details)) {
				all[i].Details = json.RawMessage(l.Details)
			}
		}
		switch c.output {
		case "json":
			return c.json(map[string]any{"audit": all})
		case "jsonl":
			for _, l := range all {
				if err := c.json(l); err != nil {
					return err
				}
			}
			return nil
		}
		tw := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)
		fmt.Fprintln(tw, "TIME\tWHO\tWHAT\tTO\tHOW MANY")
		for _, l := range all {
			fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\n", l.At.Format("2006-01-02 15:04:05"), clean(l.Author), clean(l.Action), clean(l.Target), number(l.Total))
		}
		return tw.Flush()
	})
}

func retentionRunVerb() verb {
	return verb{
		name:    "retention run",
		summary: "purge payloads that are past their time",
		detail: `Removes payload, key and headers of dead letters that were closed longer ago than
inventory.keepClosed, and of open ones that failed longer ago than
inventory.keepOpen, which are closed as expired. spillway collect --follow does
it every hour.`,
		examples: []string{"spillway retention run --dry-run", "spillway retention run"},
		formats:  []string{"table", "json"},
		config:   true,
		setup: func(fs *flag.FlagSet) func(context.Context, *call) error {
			dry := fs.Bool("dry-run", false, "only say what would be purged")
			return func(ctx context.Context, c *call) error { return runRetention(ctx, c, *dry) }
		},
	}
}

// retention is what the configuration says.
func retention(cfg *config.Config) inventory.Retention {
	if cfg.Inventory.Payloads == config.PayloadsKeep {
		return inventory.Retention{Open: inventory.Keep, Closed: inventory.Keep}
	}
	return inventory.Retention{Open: cfg.Inventory.KeepOpen, Closed: cfg.Inventory.KeepClosed}
}

func runRetention(ctx context.Context, c *call, dry bool) error {
	return c.withInventory(ctx, false, func(cfg *config.Config, s *inventory.Store) error {
		do := s.Sweep
		if dry {
			do = s.SweepPlan
		}
		swept, err := do(ctx, retention(cfg))
		if err != nil {
			return err
		}
		if c.output == "json" {
			return c.json(map[string]any{"dryRun": dry, "expired": swept.Expired, "purged": swept.Purged})
		}
		would := ""
		if dry {
			would = "would be "
		}
		_, err = fmt.Fprintf(c.out, "%sclosed as expired and purged: %s; purged of those closed before: %s\n", would, deadLetters(swept.Expired), number(swept.Purged))
		return err
	})
}
