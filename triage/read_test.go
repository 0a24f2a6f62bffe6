package triage_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spillway-mq/spillway/triage"
)

func read(t *testing.T, r io.Reader, limits triage.Limits) *triage.Pass {
	t.Helper()
	pass, err := triage.Read(t.Context(), r, limits)
	if err != nil {
		t.Fatal(err)
	}
	return pass
}

func flat(text string) string {
	b, _ := json.Marshal(map[string]string{"errorClass": "validation", "errorMessage": text, "consumerVersion": "1.0", "deadLetteredAt": "2026-11-01T00:00:00Z"})
	return string(b)
}

// O26: two thousand failures were three errors.
func TestThousandsOfFailuresAreThreeErrors(t *testing.T) {
	t.Parallel()
	var in strings.Builder
	for i := range 2000 {
		fmt.Fprintln(&in, flat([]string{fmt.Sprintf("order %d is missing", i), fmt.Sprintf("stock of %q is out", fmt.Sprint(i)), "no route"}[i%3]))
	}
	pass := read(t, strings.NewReader(in.String()), triage.Limits{})
	if pass.Messages != 2000 || len(pass.Groups) != 3 {
		t.Errorf("%d messages in %d groups", pass.Messages, len(pass.Groups))
	}
	if r := triage.NewReport(pass.Groups, triage.Options{Now: now}); r.Window == nil {
		t.Error("no window is stated")
	}
}

func TestLinesOfAllKinds(t *testing.T) {
	t.Parallel()
	own := `{"deadLetterId":"%s","failedMessage":{},"failure":{"class":"panic","message":"boom"},"consumer":{"group":"g","version":"2"}}`
	in := "\ufeff" + flat("a 1") + "\r\n\r\n  " + flat("a 2") + "  \nnot json\n\n{\"x\":1}\n" +
		fmt.Sprintf(own, "one") + "\n" + fmt.Sprintf(own, "two") + "\n" + fmt.Sprintf(own, "one") + "\n" +
		`{"failedMessage":"p","failure":{"message":"b","failedAt":"2026-01-01T00:00:00Z"},"source":"stock"}`
	for name, r := range map[string]io.Reader{
		"at once":   strings.NewReader(in),
		"by byte":   iotest.OneByteReader(strings.NewReader(in)),
		"by half":   iotest.HalfReader(strings.NewReader(in)),
		"with data": iotest.DataErrReader(strings.NewReader(in)),
	} {
		pass := read(t, r, triage.Limits{})
		var bad []int64
		for _, b := range pass.BadLines {
			bad = append(bad, b.Number)
		}
		got := []any{pass.Messages, pass.Undecodable, pass.Duplicates, len(pass.Groups), pass.Bytes, bad}
		if diff := cmp.Diff([]any{int64(6), int64(1), int64(1), 4, int64(len(in)), []int64{4}}, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// O18: an object in no form that is known is a message of class unknown. What is
// no object is none: a list may hold many.
func TestUnknownLinesAreOneGroup(t *testing.T) {
	t.Parallel()
	var in strings.Builder
	for i := range 5000 {
		fmt.Fprintf(&in, `{"order":%d,"customer":{"name":"c%d"},"reason":"returned %d"}`+"\n", i, i%17, i)
	}
	in.WriteString(`{"order":7,"error":{"message":"no customer 7"}}` + "\n" + `{"order":8,"ErrorMessage":"no customer 8"}` + "\n[{}]\n5\nnull\n\"x\"\n{\n" +
		`{"errorMessage":"x","deadLetteredAt":"yesterday"}` + "\n")
	pass := read(t, strings.NewReader(in.String()), triage.Limits{})
	groups := map[string]int64{}
	for _, g := range pass.Groups {
		groups[g.Class+": "+g.Signature] = g.Count
	}
	want := map[string]int64{"unknown: no evidence of a failure": 5000, "unknown: no customer <n>": 2}
	if diff := cmp.Diff(want, groups); diff != "" || pass.Undecodable != 6 {
		t.Errorf("%d undecodable (-want +got):\n%s", pass.Undecodable, diff)
	}
}

// The limits hold over all workers, and what is found does not depend on how
// many there are, though every part of it has a bound of its own.
func TestReportDoesNotDependOnTheNumberOfWorkers(t *testing.T) {
	var in bytes.Buffer
	for i := range 100_000 { // of another signature each
		var word []byte
		for k := i; len(word) < 6; k /= 20 {
			word = append(word, "bcdfghjklmnpqrstvwxz"[k%20])
		}
		at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(i*7919%100_000) * 5 * time.Minute)
		fmt.Fprintf(&in, `{"deadLetterId":"%d","failedMessage":{"aggregate":"order-%d"},"failure":{"class":"c%d","code":"e%d","message":"no %s in order %x","firstAttemptAt":%q},"source":{"topic":"t%d"},"consumer":{"group":"g%d","version":"%d"}}`+"\n",
			i%99_000, i%3000, i%3, i%40, word, i*31, at.Format(time.RFC3339), i%50, i%7, i%5)
		if i%10_000 == 0 {
			in.WriteString("no JSON\n")
		}
	}
	limits := triage.Limits{Signatures: 300, Groups: 1000}
	var first string
	for _, n := range []int{1, 2, 8} {
		before := runtime.GOMAXPROCS(n)
		pass := read(t, bytes.NewReader(in.Bytes()), limits)
		runtime.GOMAXPROCS(before)
		report := triage.NewReport(pass.Groups, triage.Options{Now: now})
		text, err := json.Marshal([]any{report, pass.Messages, pass.Undecodable, pass.Duplicates, pass.Overflowed, fmt.Sprint(pass.BadLines)})
		if err != nil {
			t.Fatal(err)
		}
		signatures := map[string]bool{}
		for _, g := range pass.Groups {
			signatures[g.SignatureID] = true
		}
		// And one for (overflow), of which there is one of each class and version.
		if len(signatures) > limits.Groups+1 || len(pass.Groups) > limits.Groups+3*5+1 || pass.Messages != 99_000 {
			t.Errorf("%d workers: %d signatures in %d groups, %d messages", n, len(signatures), len(pass.Groups), pass.Messages)
		}
		if first == "" {
			first = string(text)
		}
		if first != string(text) {
			t.Fatalf("%d workers find something else than one", n)
		}
	}
}

func TestReportDoesNotDependOnChance(t *testing.T) {
	t.Parallel()
	var in bytes.Buffer
	for i := range 10_000 {
		fmt.Fprintf(&in, `{"deadLetterId":"%d","failedMessage":{"aggregate":"order-%d","payload":"%s"},"failure":{"class":"c%d","code":"%d","message":"word%c order %d","firstAttemptAt":"2026-%02d-01T00:00:00Z"},"consumer":{"group":"g","version":"%d"}}`+"\n",
			i, i, strings.Repeat("x", 100), i%3, i%20, 'a'+i%26, i, 1+i%12, i%5)
	}
	var first string
	for range 3 {
		pass := read(t, bytes.NewReader(in.Bytes()), triage.Limits{Signatures: 20})
		text, err := json.Marshal(triage.NewReport(pass.Groups, triage.Options{Now: now}))
		if err != nil {
			t.Fatal(err)
		}
		if first == "" {
			first = string(text)
		}
		if first != string(text) {
			t.Fatal(cmp.Diff(first, string(text)))
		}
	}
}

// A text that no rule sees through must not make a group of every message.
func TestMemoryIsBoundedWhateverTheTexts(t *testing.T) {
	t.Parallel()
	words := func(i int) string {
		var b strings.Builder
		for ; i > 0; i /= 20 {
			b.WriteByte("bcdfghjklmnpqrstvwxz"[i%20])
		}
		return b.String()
	}
	r, w := io.Pipe()
	const n = 20_000
	go func() {
		for i := range n {
			class := "c"
			if i > n/2 { // and then classes are made up, too
				class = words(i)
			}
			fmt.Fprintf(w, `{"errorClass":"%s","errorMessage":"word %s %s","payload":1}`+"\n", class, words(i), strings.Repeat("é", 100))
		}
		w.Close()
	}()
	pass := read(t, r, triage.Limits{Signatures: 100, Groups: 300})
	var sum int64
	for _, g := range pass.Groups {
		sum += g.Count
	}
	if sum != n || pass.Messages != n || len(pass.Groups) > 4*600 || pass.Overflowed < n/2 {
		t.Errorf("%d of %d messages in %d groups, %d overflowed", sum, pass.Messages, len(pass.Groups), pass.Overflowed)
	}
}

func TestIDsAreRememberedUpToALimit(t *testing.T) {
	t.Parallel()
	var in strings.Builder
	for range 2 {
		for i := range 10_000 {
			fmt.Fprintf(&in, `{"deadLetterId":"%d","failedMessage":{},"failure":{"message":"x"}}`+"\n", i)
		}
	}
	if p := read(t, strings.NewReader(in.String()), triage.Limits{}); p.Messages != 10_000 || p.Duplicates != 10_000 {
		t.Errorf("%d messages, %d duplicates", p.Messages, p.Duplicates)
	}
	// Beyond the limit a message counts rather than being lost.
	p := read(t, strings.NewReader(in.String()), triage.Limits{IDs: 640})
	if p.Messages+p.Duplicates != 20_000 || p.Duplicates == 0 || p.Duplicates > 640 {
		t.Errorf("%d messages, %d duplicates", p.Messages, p.Duplicates)
	}
}

func TestLineThatIsTooLong(t *testing.T) {
	t.Parallel()
	long := func() io.Reader { return io.LimitReader(zeros{}, triage.MaxLine*2) }
	in := io.MultiReader(strings.NewReader(flat("a")+"\n"), long(), strings.NewReader("\n"+flat("a")+"\nbad\n"), long())
	pass := read(t, in, triage.Limits{})
	if pass.Messages != 2 || pass.Undecodable != 3 || pass.BadLines[0].Number != 2 || pass.BadLines[1].Number != 4 || pass.BadLines[2].Number != 5 {
		t.Errorf("%d messages, bad lines %v", pass.Messages, pass.BadLines)
	}
}

var manyZeros = strings.Repeat("0", 1<<20)

// zeros is an endless line.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	return copy(p, manyZeros), nil
}

func TestReadEndsWithErrorsAndContext(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	if _, err := triage.Read(t.Context(), io.MultiReader(strings.NewReader(flat("a")), iotest.ErrReader(broken)), triage.Limits{}); !errors.Is(err, broken) {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := triage.Read(ctx, zeros{}, triage.Limits{}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// What lies across two blocks is one line.
func TestBlocksEndBetweenLines(t *testing.T) {
	t.Parallel()
	var in strings.Builder
	in.WriteString("\ufeff")
	for i := range 5_000 {
		in.WriteString(flat(fmt.Sprintf("order %d is missing because of %s", i, strings.Repeat("x", i%977))) + "\n")
	}
	for name, r := range map[string]io.Reader{"files": strings.NewReader(in.String()), "pipes": iotest.HalfReader(strings.NewReader(in.String()))} {
		if p := read(t, r, triage.Limits{Signatures: 2000}); p.Messages != 5_000 || p.Undecodable != 0 {
			t.Errorf("%s: %d messages, %d undecodable: %v", name, p.Messages, p.Undecodable, p.BadLines)
		}
	}
}
