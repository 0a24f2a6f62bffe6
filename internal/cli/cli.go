package cli

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/spillway-mq/spillway/config"
	"github.com/spillway-mq/spillway/internal/nearest"
	"github.com/spillway-mq/spillway/poison"
)

// The exit codes, as the package comment explains them.
const (
	exitOK      = 0
	exitError   = 1
	exitUsage   = 2
	exitNothing = 3
	exitAborted = 4
	exitRefused = 5
)

// App is the command with everything that it touches. Its zero fields do
// nothing, except for Brokers, which means those of package config.
type App struct {
	// Environ is the environment, in the form of os.Environ.
	Environ        []string
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// Brokers are those that a configuration can name.
	Brokers []config.Broker
}

// Run runs the command in the environment of this process. args come without
// the program's name. It returns the exit code.
func Run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	return App{Environ: os.Environ(), Stdin: stdin, Stdout: stdout, Stderr: stderr}.Run(ctx, args)
}

// Run runs the command and returns its exit code.
func (a App) Run(ctx context.Context, args []string) int {
	if a.Environ == nil {
		a.Environ = []string{}
	}
	if a.Brokers == nil {
		a.Brokers = config.Brokers()
	}
	out := bufio.NewWriter(a.Stdout)
	err := a.dispatch(ctx, args, out)
	if flushErr := out.Flush(); flushErr != nil && err == nil {
		err = fmt.Errorf("write the output: %w", flushErr)
	}
	if err == nil {
		return exitOK
	}
	fmt.Fprintln(a.Stderr, "spillway: "+cleanLines(redact(err.Error())))
	var coded codedError
	if errors.As(err, &coded) {
		return coded.code
	}
	return exitError
}

// codedError is an error with an exit code other than 1.
type codedError struct {
	code int
	error
}

func usagef(format string, args ...any) error {
	return codedError{exitUsage, fmt.Errorf(format, args...)}
}

// redact takes secrets out of what others say. Addresses of owners are none
// here, and ids of messages pass for numbers of cards.
func redact(s string) string {
	r, err := poison.NewRedactor(poison.Redaction{Disable: []poison.Rule{poison.RuleEmail, poison.RuleCard}})
	if err != nil {
		return "a text that cannot be shown: " + err.Error()
	}
	return r.Text(s)
}

// options are the flags that stand before the verb as well as after it.
type options struct{ config, output string }

func (o *options) register(fs *flag.FlagSet, v verb) {
	if v.config {
		fs.StringVar(&o.config, "config", o.config, "the configuration `FILE`; SPILLWAY_CONFIG is its default")
	}
	if len(v.formats) > 0 {
		fs.StringVar(&o.output, "output", o.output, "the `FORMAT`: "+orList(v.formats)+"; default "+v.formats[0])
	}
}

// orList is a list of which one is to be chosen.
func orList(list []string) string {
	last := len(list) - 1
	if last < 1 {
		return strings.Join(list, "")
	}
	return strings.Join(list[:last], ", ") + " or " + list[last]
}

func (a App) dispatch(ctx context.Context, args []string, out *bufio.Writer) error {
	opts := options{config: a.env("SPILLWAY_CONFIG")}
	global := newFlagSet("spillway")
	opts.register(global, verb{config: true, formats: []string{"table", "json", "jsonl"}})
	version := global.Bool("version", false, "")
	switch err := global.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		writeOverview(out)
		return nil
	case err != nil:
		return flagError("spillway", global, err)
	case *version:
		return a.run(ctx, verbs()["version"], nil, opts, out)
	}
	switch args = global.Args(); {
	case len(args) == 0:
		writeOverview(a.Stderr)
		return usagef("a verb is missing")
	case args[0] == "help":
		return help(out, args[1:])
	case args[0] == completeVerb:
		a.complete(out, args[1:])
		return nil
	}
	v, rest, err := find(args)
	if err != nil {
		return err
	}
	return a.run(ctx, v, rest, opts, out)
}

// find returns the verb that args begin with, and what follows it.
func find(args []string) (verb, []string, error) {
	all := verbs()
	if v, ok := all[args[0]]; ok {
		return v, args[1:], nil
	}
	var of []string // what may follow the noun
	for _, name := range names() {
		if second, ok := strings.CutPrefix(name, args[0]+" "); ok {
			of = append(of, second)
		}
	}
	switch {
	case len(of) == 0:
		return verb{}, nil, usagef("there is no verb %s%s", args[0], orNearest(args[0], firstWords()))
	case len(args) == 1 || strings.HasPrefix(args[1], "-"):
		return verb{}, nil, usagef("%s needs one of: %s", args[0], strings.Join(of, ", "))
	}
	if v, ok := all[args[0]+" "+args[1]]; ok {
		return v, args[2:], nil
	}
	return verb{}, nil, usagef("there is no verb %s %s%s", args[0], args[1], orNearest(args[1], of))
}

// orNearest ends a sentence about something unknown.
func orNearest(name string, known []string) string {
	if near, ok := nearest.To(name, known); ok {
		return "; did you mean " + near + "?"
	}
	return "; there are " + strings.Join(known, ", ")
}

func (a App) run(ctx context.Context, v verb, args []string, opts options, out *bufio.Writer) error {
	fs := newFlagSet(v.name)
	opts.register(fs, v)
	do := v.setup(fs)
	args, err := parse(fs, args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		writeHelp(out, v)
		return nil
	case err != nil:
		return flagError(v.name, fs, err)
	case len(args) < v.least || len(args) > v.most:
		return usagef("%s takes %s, not %d; see spillway %s --help", v.name, v.wants(), len(args), v.name)
	}
	if len(v.formats) > 0 {
		if opts.output = cmp.Or(opts.output, v.formats[0]); !slices.Contains(v.formats, opts.output) {
			return usagef("%s prints %s, not %s", v.name, orList(v.formats), opts.output)
		}
	}
	return do(ctx, &call{App: a, out: out, args: args, config: opts.config, output: opts.output})
}

// parse is fs.Parse for flags that stand anywhere. What follows -- is no flag.
func parse(fs *flag.FlagSet, args []string) (positional []string, err error) {
	var literal []string
	if i := slices.Index(args, "--"); i >= 0 {
		args, literal = args[:i], args[i+1:]
	}
	for {
		if err := fs.Parse(args); err != nil {
			return nil, err
		}
		if args = fs.Args(); len(args) == 0 {
			return append(positional, literal...), nil
		}
		positional, args = append(positional, args[0]), args[1:]
	}
}

func newFlagSet(name string) *flag.FlagSet {
	fs := flag.NewFlagSet(name, flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.Usage = func() {}
	return fs
}

// flagError says what package flag says, in our words and with two dashes.
func flagError(name string, fs *flag.FlagSet, err error) error {
	if unknown, ok := strings.CutPrefix(err.Error(), "flag provided but not defined: -"); ok {
		known := []string{"--help"}
		fs.VisitAll(func(f *flag.Flag) { known = append(known, "--"+f.Name) })
		return usagef("%s has no flag --%s%s", name, strings.TrimPrefix(unknown, "-"), orNearest("--"+unknown, known))
	}
	return usagef("%s", oneDash.ReplaceAllString(err.Error(), "$1--$2"))
}

var oneDash = regexp.MustCompile(`( )-([a-z])`)

// call is one run of a verb.
type call struct {
	App
	out    io.Writer
	args   []string // what is no flag
	config string   // the file; may be empty
	output string   // one of the verb's formats
}

// load reads the configuration. Logs go to stderr, from warnings up.
func (c *call) load() (*config.Config, error) {
	cfg, err := config.Loader{Environ: c.Environ, Brokers: c.Brokers}.Load(c.config)
	if err != nil {
		return nil, problems(c.config, err)
	}
	cfg.Spillway.Logger = slog.New(slog.NewTextHandler(c.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	return cfg, nil
}

// problems puts a heading over several lines.
func problems(file string, err error) error {
	var found config.Problems
	if errors.As(err, &found) && len(found) > 1 {
		return fmt.Errorf("%s in %s:\n%w", count(len(found), "problem"), cmp.Or(file, "the environment"), err)
	}
	return err
}

func (a App) env(name string) string {
	for _, kv := range a.Environ {
		if value, ok := strings.CutPrefix(kv, name+"="); ok {
			return value
		}
	}
	return ""
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
