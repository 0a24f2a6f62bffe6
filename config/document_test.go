package config

import (
	"flag"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/adapters/rabbitmq"
	"github.com/spillway-mq/spillway/adapters/sqs"
	"github.com/spillway-mq/spillway/poison"
	"github.com/spillway-mq/spillway/policy"
)

var update = flag.Bool("update", false, "write the golden files anew")

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

// The page lists what the code has.
func TestDocumentation(t *testing.T) {
	t.Parallel()
	const page, begin, end = "../docs/configuration.md", "<!-- keys -->\n", "<!-- end of keys -->\n"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, found := strings.Cut(string(text), begin)
	_, tail, found2 := strings.Cut(rest, end)
	if !found || !found2 {
		t.Fatalf("%s has lost the marks around the tables", page)
	}
	golden(t, page, head+begin+"\n"+reference()+"\n"+end+tail)
}

// The file that the page shows is a good one.
func TestDocumentationExample(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "```yaml\n")
	file, _, found := strings.Cut(rest, "```\n")
	if !found {
		t.Fatal("the page shows no file")
	}
	if _, err := (Loader{Environ: []string{}}).Parse("page", []byte(file)); err != nil {
		t.Error(err)
	}
}

func TestExampleIsGolden(t *testing.T) {
	t.Parallel()
	golden(t, "testdata/example.yaml", Example())
}

// As it is printed, the example changes nothing; uncommented, it sets all keys
// and is valid.
func TestExampleLoads(t *testing.T) {
	t.Parallel()
	l := Loader{Environ: []string{}}
	if _, err := l.Parse("example", []byte(Example())); err != nil {
		t.Errorf("commented: %v", err)
	}
	file := regexp.MustCompile(`(?m)^# `).ReplaceAllString(Example(), "")
	file = strings.ReplaceAll(file, "Configuration of", "# Configuration of")
	file = strings.ReplaceAll(file, "what you want", "# what you want")
	got, err := l.Parse("example", []byte(file))
	if err != nil {
		t.Fatalf("uncommented: %v", err)
	}
	if len(got.Consumers) != 1 || len(got.Spillway.HandlerPolicies) != 1 || len(got.Spillway.Policy.Classes) != 1 || len(got.Spillway.Redaction.Patterns) != 1 {
		t.Errorf("the example leaves something out: %+v", got)
	}
	new(Config).schema().leaves(func(l leaf) {
		if name := regexp.MustCompile(`(?m)^ *(- )?` + l.name + `:`); !strings.Contains(l.path, "HANDLER") && !name.MatchString(file) {
			t.Errorf("the example has no %s", l.path)
		}
	})
}

// The defaults that the page shows are those that the packages have.
func TestDefaultsAreTrue(t *testing.T) {
	t.Parallel()
	var c Config
	c.schema().leaves(func(l leaf) {
		s, ok := l.value.(scalar)
		if !ok || l.env == "" || l.def == "" || strings.Contains(l.def, " ") {
			return
		}
		if err := s.set(l.def); err != nil {
			t.Errorf("%s: default %q: %v", l.path, l.def, err)
		}
	})
	if diff := cmp.Diff(policy.Policy{}.WithDefaults(), c.Spillway.Policy); diff != "" {
		t.Errorf("policy (-code +page):\n%s", diff)
	}
	if diff := cmp.Diff(adapters.Names{}.WithDefaults(), c.Spillway.Names); diff != "" {
		t.Errorf("names (-code +page):\n%s", diff)
	}
	rabbit := c.RabbitMQ
	rabbit.Topic = rabbitmq.Topic{} // its defaults are those of its templates
	if diff := cmp.Diff(rabbitmq.Config{}.WithDefaults(), rabbit.WithDefaults(), cmpopts.IgnoreFields(rabbitmq.Config{}, "Dial")); diff != "" || rabbit.Prefix == "" {
		t.Errorf("rabbitmq (-code +page):\n%s", diff)
	}
	if diff := cmp.Diff(sqs.Config{}.WithDefaults(), c.SQS, cmpopts.IgnoreFields(sqs.Config{}, "AWS", "HTTPClient")); diff != "" {
		t.Errorf("sqs (-code +page):\n%s", diff)
	}
	// These two are documented at spillway.Config.
	if c.Spillway.Concurrency != 1 || c.Spillway.CloseGrace != 20*time.Second {
		t.Errorf("concurrency %d, closeGrace %s", c.Spillway.Concurrency, c.Spillway.CloseGrace)
	}
}

// The rules that can be turned off are all the shipped ones.
func TestRulesAreListed(t *testing.T) {
	t.Parallel()
	r, err := poison.NewRedactor(poison.Redaction{})
	if err != nil {
		t.Fatal(err)
	}
	var want, got []string
	for rule := range r.Hits() {
		want = append(want, rule)
	}
	new(Config).schema().leaves(func(l leaf) {
		if l.path == "redaction.disable" {
			for _, m := range regexp.MustCompile("`([a-z_]+)`").FindAllStringSubmatch(l.doc, -1) {
				got = append(got, m[1])
			}
		}
	})
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-code +page):\n%s", diff)
	}
}

// Every variable is a name that a shell takes, and belongs to one key.
func TestEnvironmentNames(t *testing.T) {
	t.Parallel()
	owner := map[string]string{"SPILLWAY_CONFIG": "the command"}
	new(Config).schema().leaves(func(l leaf) {
		switch {
		case l.env == "":
		case owner[l.env] != "":
			t.Errorf("%s belongs to %s and to %s", l.env, owner[l.env], l.path)
		case !regexp.MustCompile(`^SPILLWAY(_[A-Z]+)+$`).MatchString(l.env):
			t.Errorf("%s: %s", l.path, l.env)
		}
		owner[l.env] = l.path
	})
	if owner["SPILLWAY_POLICY_PARKING_DEADLINE_WITHOUT_REFERENCE"] == "" {
		t.Error("the longest name is missing")
	}
}
