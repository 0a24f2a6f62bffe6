package cli

import (
	"context"
	"flag"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// completeVerb is what the scripts call. It is not listed.
const completeVerb = "__complete"

// scripts are short, because the command itself knows what can follow.
var scripts = map[string]string{
	"bash": `_spillway() {
	local candidate
	COMPREPLY=()
	while IFS= read -r candidate; do
		COMPREPLY+=("$candidate")
	done < <("${COMP_WORDS[0]}" ` + completeVerb + ` "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -o default -F _spillway spillway
`,
	"zsh": `#compdef spillway
_spillway() {
	local -a candidates
	candidates=("${(@f)$("${words[1]}" ` + completeVerb + ` "${(@)words[2,CURRENT]}" 2>/dev/null)}")
	if [[ -n "${candidates[1]}" ]]; then
		compadd -- "${candidates[@]}"
	else
		_files
	fi
}
if [[ "${funcstack[1]}" == _spillway ]]; then
	_spillway
else
	compdef _spillway spillway
fi
`,
	"fish": `function __spillway_complete
	set -l words (commandline -opc)
	$words[1] ` + completeVerb + ` $words[2..-1] (commandline -ct) 2>/dev/null
end
complete -c spillway -f -a '(__spillway_complete)'
complete -c spillway -n 'not count (__spillway_complete) >/dev/null' -F
`,
}

func completionVerb() verb {
	shells := slices.Sorted(maps.Keys(scripts))
	return verb{
		name:    "completion",
		args:    strings.Join(shells, "|"),
		summary: "print the script that completes verbs and flags in a shell",
		examples: []string{
			"source <(spillway completion bash)",
			"spillway completion zsh > \"${fpath[1]}/_spillway\"",
			"spillway completion fish > ~/.config/fish/completions/spillway.fish",
		},
		least: 1, most: 1,
		values: map[string]func(*call) []string{"": func(*call) []string { return shells }},
		setup: noFlags(func(_ context.Context, c *call) error {
			script, ok := scripts[c.args[0]]
			if !ok {
				return usagef("there is no script for %s%s", c.args[0], orNearest(c.args[0], shells))
			}
			_, err := io.WriteString(c.out, script)
			return err
		}),
	}
}

// complete prints what the last of words can become, one a line. It prints
// nothing where that is a file, or anything.
func (a App) complete(w io.Writer, words []string) {
	if len(words) == 0 {
		words = []string{""}
	}
	words, last := split(words)
	for _, candidate := range a.candidates(words, strings.HasPrefix(last, "-")) {
		if strings.HasPrefix(candidate, last) {
			fmt.Fprintln(w, candidate)
		}
	}
}

// split takes the word to complete from those before it. Bash makes three
// words of --output=json.
func split(words []string) (before []string, last string) {
	for i, word := range words {
		if word == "=" && i < len(words)-1 {
			continue
		}
		before = append(before, strings.TrimSuffix(word, "="))
	}
	n := len(before) - 1
	return before[:n], before[n]
}

func (a App) candidates(before []string, wantFlag bool) []string {
	// Which verb is it, and what was said before?
	var plain []string
	c := &call{App: a, config: a.env("SPILLWAY_CONFIG")}
	for i := 0; i < len(before); i++ {
		switch word := before[i]; {
		case word == "--config" && i+1 < len(before):
			i++
			c.config = before[i]
		case word == "--output" && i+1 < len(before):
			i++
		case !strings.HasPrefix(word, "-"):
			plain = append(plain, word)
		}
	}
	var previous string
	if len(before) > 0 {
		previous = before[len(before)-1]
	}
	if len(plain) > 0 && plain[0] == "help" {
		plain = plain[1:]
	}
	v, given, found := verb{config: true, formats: []string{"table", "json", "jsonl"}, setup: noFlags(nil)}, 0, false
	if len(plain) > 0 {
		if match, rest, err := find(plain); err == nil {
			v, given, found = match, len(rest), true
			c.args = rest
		}
	}

	fs := newFlagSet("")
	new(options).register(fs, v)
	v.setup(fs)
	if name, isFlag := strings.CutPrefix(previous, "--"); isFlag {
		if f := fs.Lookup(name); f != nil && !isBool(f) {
			switch values := v.values[name]; {
			case name == "output":
				return v.formats
			case values != nil:
				return values(c)
			}
			return nil
		}
	}
	switch {
	case wantFlag:
		flags := []string{"--help"}
		fs.VisitAll(func(f *flag.Flag) { flags = append(flags, "--"+f.Name) })
		slices.Sort(flags)
		return flags
	case found:
		if values := v.values[""]; values != nil && given < v.most {
			return values(c)
		}
		return nil
	case len(plain) == 0:
		return firstWords()
	}
	var of []string
	for _, name := range names() {
		if second, ok := strings.CutPrefix(name, plain[0]+" "); ok && len(plain) == 1 {
			of = append(of, second)
		}
	}
	return of
}

func isBool(f *flag.Flag) bool {
	b, ok := f.Value.(interface{ IsBoolFlag() bool })
	return ok && b.IsBoolFlag()
}
