package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

// asProgram makes the test binary behave as the program.
const asProgram = "SPILLWAY_QUICKSTART"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
	}
	os.Exit(m.Run())
}

type result struct {
	code           int
	stdout, stderr string
	took           time.Duration
}

func execute(ctx context.Context, stdin string, args ...string) result {
	var stdout, stderr bytes.Buffer
	start := time.Now()
	code := run(ctx, args, strings.NewReader(stdin), &stdout, &stderr)
	return result{code, stdout.String(), stderr.String(), time.Since(start)}
}

// counts reads the object that -json writes.
func counts(t *testing.T, stdout string) map[string]int {
	t.Helper()
	if strings.Count(stdout, "\n") != 1 || !strings.HasSuffix(stdout, "\n") {
		t.Fatalf("stdout is not one line:\n%s", stdout)
	}
	var c map[string]int
	if err := json.Unmarshal([]byte(stdout), &c); err != nil {
		t.Fatalf("stdout is not a JSON object: %v\n%s", err, stdout)
	}
	return c
}

func checkSum(t *testing.T, c map[string]int) {
	t.Helper()
	if sum := c["processed"] + c["parked"] + c["deadLettered"] + c["lastResort"] + c["pending"]; sum != c["published"] || c["lost"] != 0 {
		t.Errorf("the count does not add up: %v", c)
	}
}

// Design, invariant 2: conservation, by id.
func TestEveryOrderIsAccountedFor(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 2, 19, 20, 300, 2000, 5000} {
		for seed := range 3 {
			t.Run(fmt.Sprintf("n=%d,seed=%d", n, seed), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					r := execute(t.Context(), "", "-json", fmt.Sprint("-n=", n), fmt.Sprint("-seed=", seed))
					if r.code != 0 {
						t.Fatalf("exit code %d\n%s", r.code, r.stderr)
					}
					c := counts(t, r.stdout)
					checkSum(t, c)
					if c["published"] != n {
						t.Errorf("published %d, want %d", c["published"], n)
					}
					if n >= 20 && (c["processed"] == 0 || c["retried"] == 0 || c["parked"] == 0 || c["deadLettered"] < 7) {
						t.Errorf("an outcome did not occur: %v", c)
					}
					if r.took > 15*time.Second {
						t.Errorf("took %s", r.took)
					}
				})
			})
		}
	}
}

func TestTheSameSeedEndsTheSame(t *testing.T) {
	t.Parallel()
	outcome := func(seed string) (c map[string]int) {
		synctest.Test(t, func(t *testing.T) {
			r := execute(t.Context(), "", "-json", "-n=700", "-seed="+seed)
			c = counts(t, r.stdout)
			// How often an order meets the outage depends on jitter, and so on its
			// random message id.
			delete(c, "retried")
		})
		return c
	}
	if diff := cmp.Diff(outcome("5"), outcome("5")); diff != "" {
		t.Errorf("(-first +second)\n%s", diff)
	}
}

func TestReportSaysWhatBecameOfTheOrders(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := execute(t.Context(), "")
		if r.code != 0 || r.stderr != "" {
			t.Errorf("exit code %d, stderr %q", r.code, r.stderr)
		}
		for _, want := range []string{
			"2,000 orders, seed 1, on the embedded broker",
			"payment gateway: DOWN",
			"undecodable · json:SyntaxError  undecodable, 1 attempt",
			"undecodable · json:UnmarshalTypeError  undecodable, 1 attempt",
			"serialization · XML_CHARACTER  permanent, 1 attempt",
			"character U+000B at byte 17 is not allowed in XML 1.0",
			"incompatible_schema · schema:9  permanent, 1 attempt",
			"validation · AMOUNT_NOT_POSITIVE  permanent, 1 attempt",
			"reference_not_found  parking deadline, 3 attempts",
			"panic · panic:runtime.errorString  attempts exhausted, 5 attempts",
			"first at orders, partition ",
			"credit-approval/…, such as credit-approval/o-",
			"2,000 published = 1,946 processed + 12 parked + 42 dead letters + 0 in the last resort",
			"Lost: 0.",
		} {
			if !strings.Contains(r.stdout, want) {
				t.Errorf("the report lacks %q", want)
			}
		}
		for line := range strings.Lines(r.stdout) {
			if n := utf8.RuneCountInString(line); n > 101 {
				t.Errorf("a line of %d characters: %s", n, line)
			}
		}
		if strings.Contains(r.stdout, "\x1b") {
			t.Error("escape sequences where there is no terminal")
		}
		if t.Failed() {
			t.Log(r.stdout)
		}
	})
}

func TestLogGoesToStderrOnDemand(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := execute(t.Context(), "", "-v", "-n=20")
		if !strings.Contains(r.stderr, "message dead-lettered") || strings.Contains(r.stdout, "message dead-lettered") {
			t.Errorf("stdout:\n%s\nstderr:\n%s", r.stdout, r.stderr)
		}
	})
}

func TestWebhooksFailForReasonsOfTheirOwn(t *testing.T) {
	t.Parallel()
	want := map[string]map[string]int{
		"testdata/webhooks.jsonl": {"published": 14, "processed": 5, "retried": 3, "parked": 2, "deadLettered": 7, "lastResort": 0, "lost": 0},
		// Real ones, which do not belong to this repository; checked where they
		// lie beside it.
		"../../../shared/data/github-webhooks/events.jsonl": {"published": 140, "processed": 69, "retried": 58, "parked": 46, "deadLettered": 25, "lastResort": 0, "lost": 0},
	}
	checked := 0
	for name, want := range want {
		if _, err := os.Stat(name); errors.Is(err, os.ErrNotExist) && !strings.HasPrefix(name, "testdata") {
			continue
		}
		checked++
		synctest.Test(t, func(t *testing.T) {
			r := execute(t.Context(), "", "-json", "-input="+name)
			if r.code != 0 {
				t.Fatalf("exit code %d\n%s", r.code, r.stderr)
			}
			if diff := cmp.Diff(want, counts(t, r.stdout)); diff != "" {
				t.Errorf("%s (-want +got)\n%s%s", name, diff, r.stderr)
			}
		})
	}
	if checked == 0 {
		t.Error("nothing was checked")
	}
}

func TestInputFromStdin(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		long := `{"type":"ping","payload":{"sender":{"login":"ada"},"zen":"` + strings.Repeat("x", 9<<20) + `"}}`
		r := execute(t.Context(), "\r\n"+long+"\r\n\n", "-json", "-input=-")
		if c := counts(t, r.stdout); r.code != 0 || c["processed"] != 1 || c["published"] != 1 {
			t.Errorf("exit code %d, %v\n%s", r.code, c, r.stderr)
		}
	})
}

func TestWrongInputIsRefusedByLine(t *testing.T) {
	t.Parallel()
	good := `{"type":"ping","payload":{}}` + "\n"
	for _, c := range []struct {
		name, input string
		want        []string
	}{
		{"not JSON", good + "hello\n", []string{"stdin, line 2: it is not JSON", "nothing was published"}},
		{"cut off", good + "\n" + good[:10], []string{"stdin, line 3: it is not JSON: unexpected end"}},
		{"two values", `{"type":"ping","payload":{}} {}`, []string{"line 1: it is not JSON"}},
		{"not an object", "[1]\n", []string{"line 1: it must be a JSON object, is a JSON array"}},
		{"null", "null\n", []string{`line 1: "type" is missing or empty`}},
		{"no type", `{"payload":{}}`, []string{`line 1: "type" is missing or empty`}},
		{"type is a number", `{"type":1,"payload":{}}`, []string{`line 1: "type" must be a text, is a JSON number`}},
		{"no payload", `{"type":"ping"}`, []string{`line 1: "payload" is missing`}},
		{"several", "1\n2\n3\n4\n5\n6\n", []string{"line 1: ", "line 5: "}},
		{"empty", "\n \n", []string{"stdin has no messages"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := execute(t.Context(), c.input, "-input", "-")
			if r.code != 2 || r.stdout != "" {
				t.Errorf("exit code %d, stdout %q", r.code, r.stdout)
			}
			for _, want := range c.want {
				if !strings.Contains(r.stderr, want) {
					t.Errorf("stderr lacks %q:\n%s", want, r.stderr)
				}
			}
			if strings.Contains(r.stderr, "line 6") {
				t.Errorf("more complaints than anybody reads:\n%s", r.stderr)
			}
		})
	}
}

func TestWrongArgumentsAreRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"-n=0"}, "choose a number of orders from 1 to 200000"},
		{[]string{"-n=-1"}, "choose a number of orders"},
		{[]string{"-n=200001"}, "choose a number of orders"},
		{[]string{"-n=many"}, "see -h"},
		{[]string{"-seed=-1"}, "see -h"},
		{[]string{"-frobnicate"}, "see -h"},
		{[]string{"500"}, `unexpected argument "500": flags come first`},
		{[]string{"-input="}, "-input is empty"},
		{[]string{"-input=x", "-n=5"}, "leave one out"},
		{[]string{"-input=x", "-seed=5"}, "leave one out"},
		{[]string{"-input=testdata/absent.jsonl"}, "-input wants a file of JSON lines"},
		{[]string{"-input=testdata"}, "is a directory"},
	} {
		t.Run(strings.Join(c.args, " "), func(t *testing.T) {
			t.Parallel()
			r := execute(t.Context(), "", c.args...)
			if r.code != 2 || r.stdout != "" || !strings.Contains(r.stderr, c.want) {
				t.Errorf("exit code %d, stdout %q, stderr %q, want %q", r.code, r.stdout, r.stderr, c.want)
			}
		})
	}
}

func TestHelpIsNoError(t *testing.T) {
	t.Parallel()
	if r := execute(t.Context(), "", "-h"); r.code != 0 || r.stderr != "" || !strings.Contains(r.stdout, "-input file") {
		t.Errorf("%+v", r)
	}
}

// Invariant 7: shutdown is not failure. Whenever it comes, what was not
// finished is still on its way, and nothing else changes.
func TestInterruptLosesNothing(t *testing.T) {
	t.Parallel()
	for _, after := range []time.Duration{0, 1, 50 * time.Millisecond, 333 * time.Millisecond, 2100 * time.Millisecond, 4 * time.Second, 6 * time.Second} {
		t.Run(after.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), after)
				defer cancel()
				r := execute(ctx, "", "-json", "-n=600")
				if r.code != 130 {
					t.Fatalf("exit code %d\n%s", r.code, r.stderr)
				}
				c := counts(t, r.stdout)
				checkSum(t, c)
				if !strings.Contains(r.stderr, "Interrupted: ") {
					t.Errorf("the report does not say that it was interrupted:\n%s", r.stderr)
				}
				if r.took > after+time.Second {
					t.Errorf("ended after %s", r.took)
				}
			})
		})
	}
}

// The real thing: a process, and a signal.
func TestSignalEndsWithTheTable(t *testing.T) {
	t.Parallel()
	exe, err := filepath.Abs(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), exe, "-n=2000")
	cmd.Env = append(os.Environ(), asProgram+"=1")
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	signalled := false
	for in := bufio.NewScanner(stdout); in.Scan(); {
		fmt.Fprintln(&text, in.Text())
		if !signalled && strings.HasPrefix(in.Text(), "  1.") { // a second has passed
			signalled = true
			if err := cmd.Process.Signal(os.Interrupt); err != nil {
				t.Error(err)
			}
		}
	}
	err = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 130 {
		t.Errorf("exit code %d (%v)", code, err)
	}
	for _, want := range []string{"Interrupted: ", "processed", "Lost: 0."} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the output lacks %q", want)
		}
	}
	if t.Failed() {
		t.Log(text.String())
	}
}
