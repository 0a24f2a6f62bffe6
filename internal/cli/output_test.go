package cli_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode"

	"github.com/spillway-mq/spillway/internal/cli"
)

// hostile is a text that would colour, title and mislead a terminal: escape
// sequences of both lengths, and marks that turn the direction of what follows.
const hostile = "a\x1b[31mb\x1b]0;t\x07\u009b2Jc\u202egnp.exe\u2066d\u2028e\x7f"

// What others wrote never acts on a terminal, in any form of output, nor in
// errors.
func TestNothingFromOutsideActsOnATerminal(t *testing.T) {
	t.Parallel()
	line, err := json.Marshal(map[string]any{
		"payload": hostile, "errorClass": hostile, "errorMessage": hostile, "consumerVersion": hostile,
		"deadLetteredAt": "2026-11-01T00:00:00Z",
	})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "dead.jsonl")
	if err := os.WriteFile(file, append(line, '\n'), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"triage", "--input", file, "--explain"},
		{"triage", "--input", file, "--output", "json"},
		{"triage", "--input", file, "--output", "jsonl"},
		{"triage", "--input", file + hostile},
		{"triage", "--config", hostile},
		{"triage", "--output", hostile},
		{hostile},
	} {
		var out, errOut bytes.Buffer
		cli.App{Stdout: &out, Stderr: &errOut}.Run(t.Context(), args)
		if out.Len()+errOut.Len() == 0 {
			t.Errorf("%q: nothing was printed", args)
		}
		for _, r := range out.String() + errOut.String() {
			if r != '\n' && (unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || r == '\u2028') {
				t.Errorf("%q: %U is in the output", args, r)
				break
			}
		}
		if args[len(args)-1] != "jsonl" {
			continue
		}
		var g struct{ Class string }
		if err := json.Unmarshal(out.Bytes(), &g); err != nil {
			t.Fatal(err)
		}
		if want := strings.ReplaceAll(hostile, "\x00", "\ufffd"); g.Class != want {
			t.Errorf("class %q, want %q", g.Class, want)
		}
	}
}
