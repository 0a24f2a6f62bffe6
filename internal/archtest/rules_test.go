package archtest_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/spillway-mq/spillway/internal/archtest"
)

const module = "github.com/spillway-mq/spillway"

// pkg makes a documented package of the module, "." for the root, or, when
// path begins with a domain, of another one.
func pkg(path string, imports ...string) archtest.Package {
	return archtest.Package{ImportPath: full(path), Doc: "Package x.", Imports: fullAll(imports)}
}

func full(path string) string {
	switch first, _, _ := strings.Cut(path, "/"); {
	case path == ".":
		return module
	case strings.Contains(first, "."), first == "std":
		return strings.TrimPrefix(path, "std/")
	default:
		return module + "/" + path
	}
}

func fullAll(paths []string) []string {
	var out []string
	for _, p := range paths {
		out = append(out, full(p))
	}
	return out
}

// The rows that the design cares about most, each with an import planted in a
// package graph that never existed. The real graph is the other test's.
func TestTableRefusesPlantedImports(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		pkgs []archtest.Package
		want []string // parts that the problems contain, in order; none means allowed
	}{
		"failure is stdlib only":                 {[]archtest.Package{pkg("failure", "std/net", "std/database/sql")}, nil},
		"failure imports the framework":          {[]archtest.Package{pkg("failure", "github.com/ThreeDotsLabs/watermill/message")}, []string{"package failure imports github.com/ThreeDotsLabs/watermill/message"}},
		"failure imports gRPC":                   {[]archtest.Package{pkg("failure", "google.golang.org/grpc/status")}, []string{"package failure imports google.golang.org/grpc/status"}},
		"policy knows failure":                   {[]archtest.Package{pkg("policy", "failure")}, nil},
		"policy imports envelope":                {[]archtest.Package{pkg("policy", "envelope")}, []string{"package policy imports " + module + "/envelope"}},
		"poison imports parking":                 {[]archtest.Package{pkg("poison", "parking")}, []string{"package poison imports"}},
		"parking imports the framework":          {[]archtest.Package{pkg("parking", "github.com/ThreeDotsLabs/watermill/message")}, []string{"package parking imports"}},
		"middleware imports the facade":          {[]archtest.Package{pkg("middleware", ".")}, []string{"package middleware imports " + module + ","}},
		"middleware imports signals":             {[]archtest.Package{pkg("middleware", "signals")}, []string{"package middleware imports"}},
		"facade imports a broker":                {[]archtest.Package{pkg(".", "adapters/kafka")}, []string{"package . imports " + module + "/adapters/kafka"}},
		"facade imports the embedded broker":     {[]archtest.Package{pkg(".", "adapters/memory")}, []string{"package . imports"}},
		"facade imports flag":                    {[]archtest.Package{pkg(".", "std/flag")}, []string{"package . imports flag"}},
		"the command parses flags":               {[]archtest.Package{pkg("internal/cli/root", "std/flag", "adapters/sqs")}, nil},
		"memory imports a client":                {[]archtest.Package{pkg("adapters/memory", "github.com/IBM/sarama")}, []string{"package adapters/memory imports github.com/IBM/sarama", "package adapters/memory must not link"}},
		"kafka imports its clients":              {[]archtest.Package{pkg("adapters/kafka", "github.com/IBM/sarama", "github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka")}, nil},
		"kafka imports rabbitmq":                 {[]archtest.Package{pkg("adapters/kafka", "adapters/rabbitmq")}, []string{"package adapters/kafka imports"}},
		"kafka imports another client":           {[]archtest.Package{pkg("adapters/kafka", "github.com/rabbitmq/amqp091-go")}, []string{"package adapters/kafka imports"}},
		"one name begins with another":           {[]archtest.Package{pkg("adapters", "github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka")}, []string{"package adapters imports"}},
		"signals imports Prometheus":             {[]archtest.Package{pkg("signals", "github.com/prometheus/client_golang/prometheus", "go.opentelemetry.io/otel/trace")}, nil},
		"dashboard imports Prometheus":           {[]archtest.Package{pkg("dashboard", "github.com/prometheus/client_golang/prometheus")}, []string{"package dashboard imports"}},
		"config links all brokers and YAML":      {[]archtest.Package{pkg("config", "adapters/kafka", "adapters/rabbitmq", "adapters/sqs", "go.yaml.in/yaml/v3")}, nil},
		"triage imports YAML":                    {[]archtest.Package{pkg("triage", "go.yaml.in/yaml/v3")}, []string{"package triage imports"}},
		"the suite imports testing":              {[]archtest.Package{pkg("adapters/adaptertest", "std/testing", "std/testing/synctest")}, nil},
		"memory imports testing":                 {[]archtest.Package{pkg("adapters/memory", "std/testing")}, []string{"package adapters/memory imports testing", "package adapters/memory must not link testing"}},
		"an example imports an internal package": {[]archtest.Package{pkg("examples/quickstart", "internal/cli")}, []string{"package examples/quickstart imports"}},
		"a package without a row":                {[]archtest.Package{pkg("util")}, []string{"package util has no row in internal/archtest/table.go: add one"}},
		"a package below one with a row":         {[]archtest.Package{pkg("policy/internal")}, []string{"package policy/internal has no row"}},
		"a package without a doc comment":        {[]archtest.Package{{ImportPath: full("failure")}}, []string{"package failure has no doc comment"}},
		"other modules' packages are theirs":     {[]archtest.Package{{ImportPath: "github.com/oklog/ulid", Imports: []string{"testing"}}}, nil},

		"the facade links testing through others": {
			[]archtest.Package{
				pkg(".", "middleware"),
				pkg("middleware", "github.com/ThreeDotsLabs/watermill/pubsub/tests"),
				pkg("github.com/ThreeDotsLabs/watermill/pubsub/tests", "std/testing", "github.com/stretchr/testify/require"),
				pkg("github.com/stretchr/testify/require", "gopkg.in/yaml.v3"),
			},
			[]string{
				"package . must not link github.com/stretchr/testify/require, but does: " + module + " -> " + module + "/middleware -> github.com/ThreeDotsLabs/watermill/pubsub/tests -> github.com/stretchr/testify/require",
				"package . must not link testing",
			},
		},
		"the facade links a broker client through others": {
			[]archtest.Package{
				pkg(".", "adapters"),
				pkg("adapters", "github.com/ThreeDotsLabs/watermill/message"),
				pkg("github.com/ThreeDotsLabs/watermill/message", "github.com/IBM/sarama"),
			},
			[]string{"package . must not link github.com/IBM/sarama"},
		},
		"a program links a test helper through a library": {
			[]archtest.Package{
				pkg("examples/kafka", "adapters/kafka"),
				pkg("adapters/kafka", "github.com/IBM/sarama"),
				pkg("github.com/IBM/sarama", "github.com/stretchr/testify/assert"),
			},
			[]string{"package examples/kafka must not link github.com/stretchr/testify/assert"},
		},
		"a cycle in the graph ends": {
			[]archtest.Package{pkg(".", "policy"), pkg("policy", "failure"), pkg("failure", ".")},
			[]string{"package failure imports"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assertProblems(t, archtest.Spillway.Check(tc.pkgs), tc.want)
		})
	}
}

func TestTableRefusesPlantedTestImports(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		pkg     string
		imports []string
		want    []string
	}{
		"tests run on the embedded broker": {"middleware", []string{"middleware", ".", "adapters/memory", "adapters/adaptertest", "std/testing/synctest"}, nil},
		"tests compare with go-cmp":        {"failure", []string{"failure", "github.com/google/go-cmp/cmp"}, nil},
		"tests use what the package uses":  {"signals", []string{"github.com/prometheus/client_golang/prometheus/testutil"}, nil},
		"the row allows a fake":            {"adapters/kafka", []string{"github.com/twmb/franz-go/pkg/kfake"}, nil},
		"the fake is for that row only":    {"middleware", []string{"github.com/twmb/franz-go/pkg/kfake"}, []string{"tests of package middleware import github.com/twmb/franz-go/pkg/kfake"}},
		"testify":                          {"policy", []string{"github.com/stretchr/testify/assert"}, []string{"tests of package policy import github.com/stretchr/testify/assert"}},
		"gRPC in the tests of failure":     {"failure", []string{"google.golang.org/grpc/status"}, []string{"tests of package failure import google.golang.org/grpc/status"}},
		"one adapter's tests use another":  {"adapters/sqs", []string{"adapters/kafka"}, []string{"tests of package adapters/sqs import"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inside, outside := pkg(tc.pkg), pkg(tc.pkg)
			inside.TestImports = fullAll(tc.imports)
			outside.XTestImports = fullAll(tc.imports)
			assertProblems(t, archtest.Spillway.Check([]archtest.Package{inside}), tc.want)
			assertProblems(t, archtest.Spillway.Check([]archtest.Package{outside}), tc.want)
		})
	}
}

func TestLongestRowHolds(t *testing.T) {
	t.Parallel()
	rules := archtest.Rules{Module: module, Rows: []archtest.Row{
		{Package: "cmd/...", External: []string{archtest.Any}},
		{Package: "cmd/strict"},
		{Package: archtest.Any, External: []string{"example.com/a"}},
	}}
	assertProblems(t, rules.Check([]archtest.Package{
		pkg("cmd", "example.com/b"),
		pkg("cmd/loose", "example.com/b"),
		pkg("cmd/strict", "example.com/b"),
		pkg("elsewhere", "example.com/a/deep", "example.com/b"),
	}), []string{
		"package cmd/strict imports example.com/b",
		"package elsewhere imports example.com/b",
	})
}

// What the table sees is what `go list` says of real files.
func TestPlantedImportIsSeenInRealFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":                "module " + module + "\n\ngo 1.26\n",
		"failure/doc.go":        "// Package failure is planted.\npackage failure\n\nimport _ \"" + module + "/policy\"\n",
		"policy/policy.go":      "package policy\n",
		"policy/x_test.go":      "package policy_test\n\nimport _ \"" + module + "/triage\"\n",
		"triage/doc.go":         "// Package triage is planted.\npackage triage\n",
		"triage/triage_test.go": "package triage\n\nimport _ \"" + module + "/failure\"\n",
	} {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	pkgs, err := goList(dir)
	if err != nil {
		t.Fatal(err)
	}
	assertProblems(t, archtest.Spillway.Check(pkgs), []string{
		"package failure imports " + module + "/policy",
		"package policy has no doc comment",
		"tests of package policy import " + module + "/triage",
	})
}

// assertProblems wants as many problems as parts, each containing its part.
func assertProblems(t *testing.T, got, want []string) {
	t.Helper()
	matched := len(got) == len(want)
	for i := 0; matched && i < len(got); i++ {
		matched = strings.Contains(got[i], want[i])
	}
	if !matched {
		t.Errorf("problems do not match the wanted parts (-want +got):\n%s", cmp.Diff(want, got))
	}
}
