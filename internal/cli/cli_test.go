package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/adapters/memory"
	"github.com/spillway-mq/spillway/config"
	"github.com/spillway-mq/spillway/internal/cli"
)

var update = flag.Bool("update", false, "write the output in testdata/*.script anew")

// Scripts are what a person would see in a terminal: comments, command lines
// behind a dollar, their output, and their exit code where it is not 0. Lines
// of stderr begin with "! ".
func TestScripts(t *testing.T) {
	t.Parallel()
	scripts, err := filepath.Glob("testdata/*.script")
	if err != nil || len(scripts) < 5 {
		t.Fatalf("%d scripts, %v", len(scripts), err)
	}
	for _, file := range scripts {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".script"), func(t *testing.T) {
			t.Parallel()
			script, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var got strings.Builder
			for line := range strings.Lines(string(script)) {
				switch {
				case strings.HasPrefix(line, "# "):
					got.WriteString(line)
				case strings.HasPrefix(line, "$ "):
					got.WriteString(line)
					got.WriteString(run(t, strings.TrimSpace(line[2:])))
					got.WriteString("\n")
				}
			}
			if *update {
				if err := os.WriteFile(file, []byte(got.String()), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(string(script), got.String()); diff != "" {
				t.Errorf("(-want +got; -update writes it anew):\n%s", diff)
			}
		})
	}
}

// run runs a command line: NAME=value ... spillway ARGUMENT ...
func run(t *testing.T, line string) string {
	t.Helper()
	environ := []string{}
	words := fields(line)
	for len(words) > 0 && words[0] != "spillway" {
		environ, words = append(environ, words[0]), words[1:]
	}
	if len(words) == 0 {
		t.Fatalf("no command: %s", line)
	}
	stdout, stderr, code := app(t, environ, words[1:]...)
	for line := range strings.Lines(stderr) {
		stdout += "! " + line
	}
	if code != 0 {
		stdout += fmt.Sprintf("exit %d\n", code)
	}
	return stdout
}

// fields splits at spaces outside of single quotes.
func fields(line string) (words []string) {
	for _, m := range regexp.MustCompile(`'([^']*)'|(\S+)`).FindAllStringSubmatch(line, -1) {
		words = append(words, m[1]+m[2])
	}
	return words
}

func app(t *testing.T, environ []string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, errOut bytes.Buffer
	code = cli.App{
		Environ: environ, Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errOut,
		Brokers: append(config.Brokers(), config.Broker{Name: "otherq", Opener: otherq()}),
	}.Run(t.Context(), args)
	return out.String(), errOut.String(), code
}

// otherq is a broker whose URL says what a check finds.
func otherq() adapters.Opener {
	return adapters.Opener{Schemes: []string{"otherq"}, Open: func(ctx context.Context, p adapters.OpenParams) (adapters.Broker, error) {
		if p.URL.Host == "down" {
			return nil, fmt.Errorf("dial %s: refused", p.URL.Redacted())
		}
		broker, err := memory.Opener().Open(ctx, adapters.OpenParams{Names: p.Names, Logger: p.Logger})
		return checked{broker, p}, err
	}}
}

type checked struct {
	adapters.Broker
	params adapters.OpenParams
}

func (c checked) Check(_ context.Context, consumers []adapters.Consumer) ([]adapters.Finding, error) {
	first, last := consumers[0], consumers[len(consumers)-1]
	warning := adapters.Finding{
		Rule: "rung-slow", Severity: adapters.SeverityWarning,
		Message: "the oldest message of the rung of 2s waits for 9s", Fix: "give the broker more room",
	}
	switch c.params.URL.Host {
	case "healthy":
		return nil, nil
	case "slow":
		return []adapters.Finding{warning}, nil
	case "forbidden":
		return nil, errors.New("read queue orders: access refused for amqp://user:hunter2@host/")
	}
	return []adapters.Finding{
		{Rule: "plain-queue", Severity: adapters.SeverityInfo, Consumer: last, Message: fmt.Sprintf("concurrency is %d", last.Concurrency)},
		warning,
		{
			Rule: "stream-missing", Severity: adapters.SeverityError, Consumer: last, Stream: c.params.Names.Of(adapters.StreamDeadLetter, last),
			Message: "the queue does not exist", Fix: "start the application once: it declares it",
		},
		{
			Rule: "no-net", Severity: adapters.SeverityError, Consumer: first, Stream: first.Topic,
			Message: "rejected messages are dropped\x1b[2J\nbecause <no> exchange takes them",
		},
	}, nil
}

func TestVersion(t *testing.T) {
	t.Parallel()
	form := regexp.MustCompile(`^spillway \S+( [0-9a-f]+)? go1\.\S+ \w+/\w+\n$`)
	for _, args := range [][]string{{"version"}, {"--version"}} {
		stdout, stderr, code := app(t, nil, args...)
		if !form.MatchString(stdout) || stderr != "" || code != 0 {
			t.Errorf("%v: %q, %q, exit %d", args, stdout, stderr, code)
		}
	}
	stdout, _, _ := app(t, nil, "version", "--output", "json")
	var v struct{ Version, Go string }
	if err := json.Unmarshal([]byte(stdout), &v); err != nil || v.Version == "" || !strings.HasPrefix(v.Go, "go1") {
		t.Errorf("%s: %v", stdout, err)
	}
}

// Output that could not be written is an error, and not half a success.
func TestOutputThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"policy"}, {"config", "example"}, {"policy", "--output", "json"}, {"help"}} {
		var stderr bytes.Buffer
		code := cli.App{Stdout: full{}, Stderr: &stderr}.Run(t.Context(), args)
		if code != 1 || !strings.Contains(stderr.String(), "disk is full") {
			t.Errorf("%v: exit %d, %q", args, code, stderr.String())
		}
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("the disk is full") }

// Run itself uses the environment of the process.
func TestRun(t *testing.T) {
	t.Setenv("SPILLWAY_CONFIG", "testdata/bad.yaml")
	var stdout, stderr bytes.Buffer
	code := cli.Run(t.Context(), []string{"policy"}, strings.NewReader(""), &stdout, &stderr)
	if code != 1 || stdout.Len() > 0 || !strings.Contains(stderr.String(), "testdata/bad.yaml:2: ") {
		t.Errorf("exit %d, %q, %q", code, &stdout, &stderr)
	}
}

// Whatever a person types, there is an exit code of the list and no panic.
func FuzzArguments(f *testing.F) {
	for _, line := range []string{
		"", "policy --handler", "config check -- --x", "--config= policy", "help help", "__complete --output", "__complete a = =",
		"__complete config check --config testdata/good.yaml --", "check memory --strict=x", "-", "-- policy", "policy ---x", "completion zsh zsh",
	} {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		if _, stderr, code := app(t, nil, strings.Fields(line)...); code < 0 || code > 5 || (code == 0) != !strings.Contains(stderr, "spillway: ") {
			t.Errorf("%q: exit %d, %q", line, code, stderr)
		}
	})
}

// Every verb has an example in its help, and every flag that takes a number or a
// time says its default.
func TestHelpHasExamplesAndDefaults(t *testing.T) {
	t.Parallel()
	overview, _, _ := app(t, nil, "help")
	flags := 0
	for line := range strings.Lines(overview) {
		line, ok := strings.CutPrefix(line, "  ")
		if !ok || strings.HasPrefix(line, "help ") {
			continue
		}
		verb, _, _ := strings.Cut(line, "  ")
		words := slices.DeleteFunc(strings.Fields(verb), func(w string) bool { return strings.ToLower(w) != w })
		if len(words) == 0 {
			continue
		}
		text, _, code := app(t, nil, append([]string{"help"}, words[:min(len(words), 2)]...)...)
		if strings.HasPrefix(verb, "completion") {
			text, _, code = app(t, nil, "help", "completion")
		}
		if code != 0 || !strings.Contains(text, "\nExamples:\n  ") && words[0] != "version" {
			t.Errorf("%s: exit %d, without an example:\n%s", verb, code, text)
		}
		for line := range strings.Lines(text) {
			flag := strings.Fields(line)
			if len(flag) < 2 || !strings.HasPrefix(flag[0], "--") || flag[1] != "N" && flag[1] != "PART" {
				continue
			}
			flags++
			if !strings.Contains(line, "; default ") {
				t.Errorf("%s: %s", verb, line)
			}
		}
	}
	if flags < 10 {
		t.Errorf("%d flags with numbers", flags)
	}
}
