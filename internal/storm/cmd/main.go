// Command storm breaks everything around the consumers of a broker for a while,
// looks for every message by its id, and prints a table. It exits with 1 if a
// promise was broken, and with 2 if the storm could not be run.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spillway-mq/spillway/internal/storm"
)

func main() {
	storm.RunPart()
	var cfg storm.Config
	flag.StringVar(&cfg.Broker, "broker", "memory", "what to hit")
	flag.DurationVar(&cfg.Duration, "duration", time.Minute, "how long")
	flag.Uint64Var(&cfg.Seed, "seed", 0, "of the script and of the order of faults; 0 draws one")
	flag.IntVar(&cfg.Messages, "messages", 0, "how many; 0 means 100 for each second")
	flag.IntVar(&cfg.Consumers, "consumers", 4, "processes that act; two more watch")
	flag.IntVar(&cfg.Concurrency, "concurrency", 16, "messages that each handles at a time")
	flag.IntVar(&cfg.Flow, "flow", 0, "messages that must end between two faults, for machines where little moves meanwhile")
	flag.StringVar(&cfg.Dir, "dir", "", "empty folder for ledgers and logs; default: a temporary one, kept after a violation")
	only := flag.String("only", "", "only the faults whose names contain one of these, separated by commas")
	flag.BoolVar(&cfg.Keep, "keep", false, "leave the broker running; the streams are read all the same")
	quiet := flag.Bool("quiet", false, "no line for each fault")
	flag.Parse()
	if *only != "" {
		cfg.Only = strings.Split(*only, ",")
	}
	if !*quiet {
		cfg.Log = os.Stderr
	}
	if cfg.Seed == 0 {
		cfg.Seed = uint64(time.Now().UnixNano()) % 1_000_000
	}
	ok, err := run(cfg)
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	case !ok:
		os.Exit(1)
	}
}

func run(cfg storm.Config) (ok bool, err error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	temporary := cfg.Dir == ""
	if temporary {
		if cfg.Dir, err = os.MkdirTemp("", "storm-"); err != nil {
			return false, err
		}
	}
	report, err := storm.Run(ctx, cfg)
	if err == nil {
		err = report.Print(os.Stdout)
		ok = report.OK()
	}
	if temporary && ok && err == nil {
		return ok, os.RemoveAll(cfg.Dir)
	}
	fmt.Fprintf(os.Stderr, "ledgers and logs are in %s\n", cfg.Dir)
	return ok, err
}
