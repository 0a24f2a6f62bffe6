package cli

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/config"
	"github.com/spillway-mq/spillway/inventory"
	"github.com/spillway-mq/spillway/triage"
)

func collectVerb() verb {
	return verb{
		name:    "collect",
		summary: "empty dead letter streams into the inventory",
		detail: `Reads the dead letter streams of the configured consumers, or those of --stream,
whoever filled them, until they are empty. Each record is removed from its
stream after it was committed to the inventory, so an interruption loses nothing
and counts nothing twice. What is in no form that is known has class unknown;
what cannot be stored as a dead letter is kept in the quarantine.

With --peek nothing is removed, where the broker can be looked at. What was
looked at is collected again later, and counts once.`,
		examples: []string{
			"# What is there?",
			"spillway collect --config spillway.yaml --dry-run",
			"spillway collect --config spillway.yaml",
			"# A queue that is not in the configuration, filled by somebody else:",
			"spillway collect --config spillway.yaml --stream legacy.orders.error",
			"# As a service:",
			"spillway collect --config spillway.yaml --follow",
		},
		formats: []string{"table", "json", "jsonl"},
		config:  true,
		setup: func(fs *flag.FlagSet) func(context.Context, *call) error {
			var f collectFlags
			fs.Var(&f.streams, "stream", "a `STREAM` to read instead of those of the configuration; may be repeated")
			fs.BoolVar(&f.follow, "follow", false, "go on when the streams are empty, until interrupted; and purge hourly what is past its time")
			fs.BoolVar(&f.peek, "peek", false, "remove nothing from the streams")
			fs.BoolVar(&f.leaveOut, "leave-out-payloads", false, "with --peek: do not store payloads, keys and headers")
			fs.BoolVar(&f.dryRun, "dry-run", false, "only say how much there is")
			fs.IntVar(&f.batch, "batch", 1000, "commit at most `N` records together")
			fs.StringVar(&f.author, "author", "", "the `NAME` for the audit; default inventory.author, else the user of the system")
			return func(ctx context.Context, c *call) error { return collect(ctx, c, f) }
		},
		values: map[string]func(*call) []string{"stream": func(c *call) []string {
			cfg, err := c.load()
			if err != nil {
				return nil
			}
			return deadLetterStreams(cfg)
		}},
	}
}

type collectFlags struct {
	streams                        listFlag
	follow, peek, leaveOut, dryRun bool
	batch                          int
	author                         string
}

func collect(ctx context.Context, c *call, f collectFlags) error {
	switch {
	case f.leaveOut && !f.peek:
		return usagef("--leave-out-payloads needs --peek: what is collected is gone from its stream, and the inventory has the only copy")
	case f.follow && f.peek:
		return usagef("--peek cannot --follow: what is only looked at stays, and would be looked at again and again")
	case f.batch < 1 || f.batch > 20_000:
		return usagef("--batch must be from 1 to 20000, is %d", f.batch)
	}
	cfg, err := c.load()
	if err != nil {
		return err
	}
	streams := []string(f.streams)
	if len(streams) == 0 {
		streams = deadLetterStreams(cfg)
	}
	if len(streams) == 0 {
		return errors.New("there is nothing to collect: add consumers to the configuration, each with topic, group and owner, or name a --stream")
	}
	return withBroker(ctx, cfg, func(broker adapters.Broker) error {
		if f.dryRun {
			return countStreams(ctx, c, broker, streams)
		}
		return c.withInventory(ctx, true, func(_ *config.Config, s *inventory.Store) error {
			return collectInto(ctx, c, cfg, s, broker, streams, f)
		})
	})
}

func collectInto(ctx context.Context, c *call, cfg *config.Config, s *inventory.Store, broker adapters.Broker, streams []string, f collectFlags) error {
	who, err := author(f.author, cfg)
	if err != nil {
		return err
	}
	redact, err := redactor(cfg)
	if err != nil {
		return err
	}
	if f.follow {
		stop := sweepHourly(ctx, cfg, s)
		defer stop()
	}
	told := time.Duration(0)
	p, err := s.Collect(ctx, broker, inventory.CollectConfig{
		Streams: streams, Names: cfg.Spillway.Names, Redactor: redact, Batch: f.batch, Follow: f.follow, Peek: f.peek, LeaveOut: f.leaveOut,
		NewSignatures: cfg.Triage.MaxSignatures,
		Author:        who, Logger: cfg.Spillway.Logger,
		Progress: func(p inventory.Progress) {
			if p.Elapsed-told >= tellEvery {
				told = p.Elapsed
				tell(c.Stderr, p)
			}
		},
	})
	if printErr := printCollected(c, p, f.peek); printErr != nil && err == nil {
		err = printErr
	}
	if errors.Is(err, context.Canceled) {
		return fmt.Errorf("interrupted: what was not collected is where it was: %w", err)
	}
	return err
}

// sweepHourly purges what is past its time, every hour, until stop is called.
func sweepHourly(ctx context.Context, cfg *config.Config, s *inventory.Store) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(time.Hour)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				if _, err := s.Sweep(ctx, retention(cfg)); err != nil && ctx.Err() == nil {
					cfg.Spillway.Logger.LogAttrs(ctx, slog.LevelError, "purging is put off", slog.Any("error", err))
				}
			case <-ctx.Done():
				return
			}
		}
	})
	return func() { cancel(); wg.Wait() }
}

// tellEvery is how often progress is told.
const tellEvery = 2 * time.Second

func tell(w io.Writer, p inventory.Progress) {
	t := p.Total()
	if t.Read == 0 || p.Elapsed <= 0 {
		return
	}
	rest := ""
	if t.Remaining >= 0 {
		rest = fmt.Sprintf(", %s remain", number(t.Remaining))
	}
	fmt.Fprintf(w, "%s read, %s/s%s\n", number(t.Read), number(int64(float64(t.Read)/p.Elapsed.Seconds())), rest)
}

// The JSON form of what was collected. Its names are stable.
type (
	collectedJSON struct {
		Streams []streamJSON `json:"streams"`
		Total   streamJSON   `json:"total"`
	}
	streamJSON struct {
		Stream      string `json:"stream,omitempty"`
		Read        int64  `json:"read"`
		New         int    `json:"new"`
		Duplicates  int    `json:"duplicates"`
		Quarantined int    `json:"quarantined"`
		Unknown     int64  `json:"unknown"`             // in no form that is known: of class unknown
		Overflowed  int    `json:"overflowed"`          // in groups named (overflow)
		Remaining   *int64 `json:"remaining,omitempty"` // where the broker says
	}
)

func describeStream(p inventory.StreamProgress) streamJSON {
	d := streamJSON{Stream: p.Stream, Read: p.Read, New: p.New, Duplicates: p.Duplicates, Quarantined: p.Quarantined, Unknown: p.Unknown, Overflowed: p.Overflowed}
	if p.Remaining >= 0 {
		d.Remaining = &p.Remaining
	}
	return d
}

func printCollected(c *call, p inventory.Progress, peek bool) error {
	switch c.output {
	case "json":
		all := collectedJSON{Streams: []streamJSON{}, Total: describeStream(p.Total())}
		for _, s := range p.Streams {
			all.Streams = append(all.Streams, describeStream(s))
		}
		return c.json(all)
	case "jsonl":
		for _, s := range p.Streams {
			if err := c.json(describeStream(s)); err != nil {
				return err
			}
		}
		return nil
	}
	tw := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "STREAM\tREAD\tNEW\tDUPLICATES\tQUARANTINED")
	for _, s := range p.Streams {
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\n", clean(s.Stream), number(s.Read), number(int64(s.New)), number(int64(s.Duplicates)), number(int64(s.Quarantined)))
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	if peek {
		fmt.Fprintln(c.out, "They were only looked at, and are where they were.")
	}
	if n := p.Total().Unknown; n > 0 {
		fmt.Fprintf(c.out, "%s in no form that is known: see class unknown of spillway triage\n", count(int(n), "record"))
	}
	if n := p.Total().Overflowed; n > 0 {
		fmt.Fprintf(c.out, "%s in groups named %s: more new signatures of a consumer in an hour than triage.maxSignatures\n", count(n, "record"), triage.Overflow)
	}
	if n := p.Total().Quarantined; n > 0 {
		fmt.Fprintf(c.out, "%s could not be stored as dead letters: spillway quarantine list\n", count(n, "record"))
	}
	return nil
}

type countJSON struct {
	Stream string `json:"stream"`
	Lying  *int64 `json:"toCollect"` // null where the broker does not say
}

func countStreams(ctx context.Context, c *call, broker adapters.Broker, streams []string) error {
	counter, ok := broker.(adapters.Counter)
	counts := make([]countJSON, len(streams))
	var errs []error
	for i, stream := range streams {
		counts[i].Stream = stream
		if !ok {
			continue
		}
		n, err := counter.Count(ctx, stream)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		counts[i].Lying = &n
	}
	if c.output != "table" {
		for _, n := range counts {
			if c.output == "jsonl" {
				errs = append(errs, c.json(n))
			}
		}
		if c.output == "json" {
			errs = append(errs, c.json(map[string]any{"streams": counts}))
		}
		return errors.Join(errs...)
	}
	tw := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "STREAM\tTO COLLECT")
	for _, n := range counts {
		lying := "the broker does not say"
		if n.Lying != nil {
			lying = number(*n.Lying)
		}
		fmt.Fprintf(tw, "%s\t%s\n", clean(n.Stream), lying)
	}
	return cmp.Or(tw.Flush(), errors.Join(errs...))
}
