package cli

import (
	"context"
	"flag"
	"fmt"
	"strings"
)

// verb is something that the command can do.
type verb struct {
	name    string // one word or two: noun and verb
	args    string // as help shows them: "[FILE]"
	summary string // half a line, without a full stop
	detail  string // paragraphs for help
	// examples are command lines, each under a comment that begins with #.
	examples []string
	// formats of --output, the default first; none if there is nothing to
	// choose.
	formats []string
	config  bool // takes --config
	// least and most bound the number of arguments.
	least, most int
	// setup declares flags and returns what runs once they are parsed.
	setup func(fs *flag.FlagSet) func(ctx context.Context, c *call) error
	// values completes the value of a flag, by its name, or an argument, by "".
	values map[string]func(c *call) []string
}

// all lists the verbs in the order of help. A new verb is a new line.
func all() []verb {
	return []verb{
		collectVerb(),
		groupsListVerb(),
		groupsShowVerb(),
		groupsMergeVerb(),
		groupsSplitVerb(),
		groupsRestoreVerb(),
		groupsResignVerb(),
		closeVerb(),
		reopenVerb(),
		muteVerb(),
		reportVerb(),
		quarantineListVerb(),
		auditListVerb(),
		retentionRunVerb(),
		whereVerb(),
		policyVerb(),
		triageVerb(),
		signatureVerb(),
		checkVerb(),
		configCheckVerb(),
		configExampleVerb(),
		completionVerb(),
		versionVerb(),
	}
}

func verbs() map[string]verb {
	m := map[string]verb{}
	for _, v := range all() {
		m[v.name] = v
	}
	return m
}

func names() (names []string) {
	for _, v := range all() {
		names = append(names, v.name)
	}
	return names
}

// firstWords returns what can stand first, each once.
func firstWords() (words []string) {
	for _, name := range append(names(), "help") {
		first, _, _ := strings.Cut(name, " ")
		if len(words) == 0 || words[len(words)-1] != first {
			words = append(words, first)
		}
	}
	return words
}

// wants says how many arguments the verb takes.
func (v verb) wants() string {
	switch {
	case v.most == 0:
		return "no arguments"
	case v.least == v.most:
		return count(v.most, "argument")
	case v.least > 0:
		return fmt.Sprintf("%d to %s", v.least, count(v.most, "argument"))
	default:
		return "at most " + count(v.most, "argument")
	}
}

func noFlags(run func(ctx context.Context, c *call) error) func(*flag.FlagSet) func(context.Context, *call) error {
	return func(*flag.FlagSet) func(context.Context, *call) error { return run }
}
