package cli_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/spillway-mq/spillway/config"
	"github.com/spillway-mq/spillway/internal/cli"
)

// live runs the command with a broker sqs whose URL says what a check finds.
func live(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, errOut bytes.Buffer
	code = cli.App{
		Environ: []string{"SPILLWAY_BROKER_URL=otherq://host"}, Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errOut,
		Brokers: []config.Broker{{Name: "sqs", Opener: otherq()}},
	}.Run(t.Context(), args)
	return out.String(), errOut.String(), code
}

// Without files the broker is asked, and what it finds is in the same form as
// what is in exports: a queue, and what cannot be proven.
func TestCheckSQSAtTheBroker(t *testing.T) {
	t.Parallel()
	stdout, _, code := live(t, "check", "sqs", "--config", "testdata/otherq.yaml", "--output", "json")
	var got struct {
		Findings []map[string]any `json:"findings"`
	}
	if err := json.Unmarshal([]byte(stdout), &got); err != nil || code != 1 || len(got.Findings) != 4 {
		t.Fatalf("exit %d, %v: %s", code, err, stdout)
	}
	want := map[string]any{
		"rule": "stream-missing", "severity": "error", "queue": "orders.billing.dlq", "consumer": map[string]any{"topic": "orders", "group": "billing"},
		"message": "the queue does not exist", "fix": "start the application once: it declares it",
	}
	if diff := cmp.Diff(want, got.Findings[0]); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	stdout, _, code = live(t, "check", "sqs", "--config", "testdata/otherq.yaml")
	for _, line := range []string{
		"error    stream-missing: group billing of orders, queue orders.billing.dlq\n",
		"\n2 errors, 1 warning, 1 info in 2 consumers\nAttributes cannot prove:\n- that the handler leaves failures undeleted",
	} {
		if code != 1 || !strings.Contains(stdout, line) {
			t.Errorf("exit %d, no %q in:\n%s", code, line, stdout)
		}
	}
	if _, stderr, code := live(t, "check", "sqs", "--config", "testdata/otherq.yaml", "--exclude", "a"); code != 2 || !strings.Contains(stderr, "are about exports") {
		t.Errorf("exit %d: %s", code, stderr)
	}
}

// A finding has these five keys, whatever it is about.
func TestFindingsOfExportsHaveFiveKeys(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "x.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"testdata/sqs/pedidos.json", "testdata/sqs/short-dlq.json"}, {"testdata/sqs/account"}, {folder}, {"testdata/sqs/cut-off.json", "testdata/sqs/pedidos-dlq.json"},
	} {
		stdout, _, code := app(t, nil, append([]string{"check", "sqs", "--output", "json"}, args...)...)
		var got struct {
			Findings []map[string]string `json:"findings"`
		}
		if err := json.Unmarshal([]byte(stdout), &got); err != nil || code != 1 || len(got.Findings) == 0 {
			t.Fatalf("%v: exit %d, %v: %s", args, code, err, stdout)
		}
		for _, f := range got.Findings {
			keys := make([]string, 0, len(f))
			for k, v := range f {
				if keys = append(keys, k); v == "" {
					t.Errorf("%v: %s is empty in %v", args, k, f)
				}
			}
			slices.Sort(keys)
			if diff := cmp.Diff([]string{"fix", "message", "queue", "rule", "severity"}, keys); diff != "" {
				t.Errorf("%v (-want +got):\n%s", args, diff)
			}
		}
	}
}

// A file cannot write to the terminal.
func TestExportsCannotControlTheTerminal(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "x.json")
	hostile := `{"QueueUrl":"http://x/\u001b[2J","Attributes":{"QueueArn":"\u001b]0;x\u0007","\u001bedrivePolicy":"\u202e","DelaySeconds":"\u001b[2J","RedrivePolicy":"{\"\u001b\":1}"}}`
	if err := os.WriteFile(path, []byte(hostile), 0o600); err != nil {
		t.Fatal(err)
	}
	stdout, stderr, code := app(t, nil, "check", "sqs", path, path)
	if code != 1 || strings.ContainsAny(stdout+stderr, "\x1b\x07\u202e") {
		t.Errorf("exit %d: %q %q", code, stdout, stderr)
	}
}
