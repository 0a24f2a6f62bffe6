package app

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"path/filepath"
)

// maxN is what fits into memory, and into half a minute, with ease.
const maxN = 200_000

type options struct {
	n       int
	seed    uint64
	json    bool
	input   string
	verbose bool
}

// errHelp means that the help was asked for, and written.
var errHelp = errors.New("help")

func parseOptions(args []string, stdout io.Writer) (options, error) {
	var o options
	fs := flag.NewFlagSet("example", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.IntVar(&o.n, "n", 2000, fmt.Sprintf("`number` of orders, 1 to %d", maxN))
	fs.Uint64Var(&o.seed, "seed", 1, "`number` that the orders are made from: the same one makes the same orders")
	fs.BoolVar(&o.json, "json", false, "end with one JSON object on stdout, and show everything else on stderr")
	fs.StringVar(&o.input, "input", "", "JSON lines of {\"type\",\"payload\"} to publish instead of orders: a `file`, or - for stdin")
	fs.BoolVar(&o.verbose, "v", false, "log each failure to stderr")
	switch err := fs.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(stdout, "Publishes messages, consumes them with a handler that fails in every way,\nand accounts for each.\n\n")
		fs.SetOutput(stdout)
		fs.PrintDefaults()
		return o, errHelp
	case err != nil:
		return o, fmt.Errorf("%w; see -h", err)
	}
	given := map[string]bool{}
	fs.Visit(func(f *flag.Flag) { given[f.Name] = true })
	var errs []error
	if fs.NArg() > 0 {
		errs = append(errs, fmt.Errorf("unexpected argument %q: flags come first, as in -n 500 -seed 7", fs.Arg(0)))
	}
	if o.n < 1 || o.n > maxN {
		errs = append(errs, fmt.Errorf("-n is %d: choose a number of orders from 1 to %d", o.n, maxN))
	}
	if given["input"] && o.input == "" {
		errs = append(errs, errors.New("-input is empty: give it a file, or - for stdin"))
	}
	for _, name := range []string{"n", "seed"} {
		if given["input"] && given[name] {
			errs = append(errs, fmt.Errorf("-%s is about generated orders, and -input takes the messages of a file: leave one out", name))
		}
	}
	return o, errors.Join(errs...)
}

func inputName(name string) string {
	if name == "-" {
		return "stdin"
	}
	return filepath.Base(name)
}
