package redrive_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/adapters/sqs/redrive"
)

var update = flag.Bool("update", false, "write testdata/findings.golden and the table of docs/check-sqs.md anew")

// fixture runs what lies in testdata/rules/NAME: source.json and dlq.json, or
// queues.json, with application.json.
func fixture(t *testing.T, name string) redrive.Report {
	t.Helper()
	dir := filepath.Join("testdata", "rules", name)
	read := func(file string) []byte {
		t.Helper()
		data, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	opts := redrive.Options{Partial: name == "redrive-dangling.warning", Live: name == "retention-unknown"}
	if name == "exclude-unused" {
		opts.Exclude = []string{"gone-*"}
	}
	if _, err := os.Stat(filepath.Join(dir, "application.json")); err == nil {
		if opts.Application, err = redrive.ParseApplication(read("application.json")); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "queues.json")); err == nil {
		exports, findings := redrive.Parse("queues.json", read("queues.json"))
		if len(findings) > 0 {
			return redrive.Report{Findings: findings}
		}
		return redrive.Check(exports, opts)
	}
	return pair(read("source.json"), read("dlq.json"), opts)
}

func pair(source, deadLetter []byte, opts redrive.Options) redrive.Report {
	s, findings := redrive.ParseOne("source.json", source)
	d, more := redrive.ParseOne("dlq.json", deadLetter)
	if findings = append(findings, more...); len(findings) > 0 {
		return redrive.Report{Findings: findings}
	}
	return redrive.CheckPair(s, d, opts)
}

func fixtures(t *testing.T) (names []string) {
	t.Helper()
	entries, err := os.ReadDir("testdata/rules")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// Each severity that a rule can have has a fixture, named RULE or
// RULE.SEVERITY. Where that is an error, it is the fixture's only error; where it
// is not, the fixture has none. dlq-consumed-as-retry is S30: a retry queue as
// the target of a policy.
func TestEveryRuleHasAFixtureThatTriggersItAlone(t *testing.T) {
	t.Parallel()
	names := fixtures(t)
	for _, rule := range redrive.Rules() {
		for n, severity := range rule.Severities {
			name := rule.Name
			if n > 0 {
				name += "." + string(severity)
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				if !slices.Contains(names, name) {
					t.Fatalf("there is no testdata/rules/%s", name)
				}
				found := false
				for _, f := range fixture(t, name).Findings {
					mine := f.Rule == rule.Name && f.Severity == severity
					found = found || mine
					if f.Severity == adapters.SeverityError && !mine {
						t.Errorf("another error: %+v", f)
					}
				}
				if !found {
					t.Errorf("no %s %s", severity, rule.Name)
				}
			})
		}
	}
}

func TestGoodQueuesHaveNoFindings(t *testing.T) {
	t.Parallel()
	for _, name := range fixtures(t) {
		if strings.HasPrefix(name, "good") {
			if report := fixture(t, name); len(report.Findings) > 0 || len(report.Links) != 1 {
				t.Errorf("%s: %+v", name, report)
			}
		}
	}
}

// Whatever is found belongs to the table, and says what, where and what to do.
func TestFindingsAreComplete(t *testing.T) {
	t.Parallel()
	rules := map[string]redrive.Rule{}
	for _, rule := range redrive.Rules() {
		if _, twice := rules[rule.Name]; twice {
			t.Errorf("two rules %s", rule.Name)
		}
		rules[rule.Name] = rule
	}
	var got strings.Builder
	for _, name := range fixtures(t) {
		fmt.Fprintf(&got, "# %s\n", name)
		_, err := os.Stat(filepath.Join("testdata", "rules", name, "source.json"))
		strict := err == nil
		report := fixture(t, name)
		for _, f := range report.Findings {
			rule, known := rules[f.Rule]
			switch {
			case !known || !slices.Contains(rule.Severities, f.Severity):
				t.Errorf("%s: %s of severity %s is not in the table", name, f.Rule, f.Severity)
			case strict && !rule.Pair:
				t.Errorf("%s: %s applied to a pair", name, f.Rule)
			case f.Stream == "" || f.Message == "" || f.Fix == "":
				t.Errorf("%s: incomplete: %+v", name, f)
			}
			fmt.Fprintf(&got, "%s %s: %s\n    %s\n    fix: %s\n", f.Severity, f.Rule, f.Stream, f.Message, f.Fix)
		}
		for _, l := range report.Links {
			fmt.Fprintf(&got, "%s: %s\n", l.Source, l)
		}
	}
	golden(t, "testdata/findings.golden", got.String())
}

func golden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got; -update writes it anew):\n%s", file, diff)
	}
}

// The table in docs is made of the table in code: go test -update.
func TestDocumentedRules(t *testing.T) {
	t.Parallel()
	const file, begin, end = "../../../docs/check-sqs.md", "<!-- Made from the table of adapters/sqs/redrive by `go test ./adapters/sqs/redrive -update`. -->\n", "<!-- End of what is made. -->\n"
	page, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := bytes.Cut(page, []byte(begin))
	_, after, closed := bytes.Cut(rest, []byte(end))
	if !ok || !closed {
		t.Fatalf("%s has no place for the table", file)
	}
	var b strings.Builder
	b.Write(before)
	b.WriteString(begin + "\n| rule | severity | pair | finds | because | needs |\n|---|---|---|---|---|---|\n")
	for _, r := range redrive.Rules() {
		severities := make([]string, len(r.Severities))
		for n, s := range r.Severities {
			severities[n] = string(s)
		}
		where := ""
		if r.Pair {
			where = "yes"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s | %s |\n", r.Name, strings.Join(severities, ", "), where, r.Finds, r.Why, r.Needs)
	}
	b.WriteString("\n" + end)
	b.Write(after)
	golden(t, file, b.String())
}
