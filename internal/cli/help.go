package cli

import (
	"flag"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

const exitCodes = `Exit codes: 0 done; 1 an error, or a check that found one; 2 wrong usage;
3 nothing matched; 4 aborted by a threshold; 5 refused.
`

func writeOverview(w io.Writer) {
	fmt.Fprint(w, "spillway looks after messages that their handlers could not process.\n\nUsage: spillway [--config FILE] [--output FORMAT] VERB\n\n")
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, v := range all() {
		fmt.Fprintf(tw, "  %s\t%s\n", strings.TrimSpace(v.name+" "+v.args), v.summary)
	}
	fmt.Fprint(tw, "  help [VERB]\tsay more about a verb\n")
	tw.Flush()
	fmt.Fprint(w, "\n", exitCodes)
}

func help(w io.Writer, args []string) error {
	if len(args) == 0 {
		writeOverview(w)
		return nil
	}
	if args[0] == "help" {
		writeOverview(w)
		return nil
	}
	v, rest, err := find(args)
	if err != nil {
		return err
	}
	// What follows check is part of what it does, and not a second verb.
	if len(rest) > 0 && v.most == 0 {
		return usagef("help takes one verb, and %s is one", v.name)
	}
	writeHelp(w, v)
	return nil
}

func writeHelp(w io.Writer, v verb) {
	fs := newFlagSet(v.name)
	new(options).register(fs, v)
	v.setup(fs)
	flags := 0
	fs.VisitAll(func(*flag.Flag) { flags++ })

	usage := "Usage: spillway " + v.name
	if flags > 0 {
		usage += " [FLAGS]"
	}
	fmt.Fprintf(w, "spillway %s: %s\n\n%s\n", v.name, v.summary, strings.TrimSpace(usage+" "+v.args))
	if v.detail != "" {
		fmt.Fprintf(w, "\n%s\n", strings.TrimSpace(v.detail))
	}
	if flags > 0 {
		fmt.Fprint(w, "\nFlags:\n")
		tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		fs.VisitAll(func(f *flag.Flag) {
			value, text := flag.UnquoteUsage(f)
			if d := shownDefault(f); d != "" && !strings.Contains(text, "default") {
				text += "; default " + d
			}
			fmt.Fprintf(tw, "  --%s\t%s\n", strings.TrimSpace(f.Name+" "+value), text)
		})
		tw.Flush()
	}
	if len(v.examples) > 0 {
		fmt.Fprint(w, "\nExamples:\n")
		for _, line := range v.examples {
			fmt.Fprintf(w, "  %s\n", line)
		}
	}
	fmt.Fprint(w, "\n", exitCodes)
}

// shownDefault is the default of a flag as it is written, or nothing if it is
// off, none, or not known before the command runs.
func shownDefault(f *flag.Flag) string {
	if d, err := time.ParseDuration(f.DefValue); err == nil && d > 0 {
		return strings.NewReplacer("m0s", "m", "h0m0s", "h").Replace(d.String())
	}
	if f.DefValue == "false" {
		return ""
	}
	return f.DefValue
}
