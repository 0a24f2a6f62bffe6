package storm_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/internal/storm"
)

func TestLedgersAreReadWhileTheyAreWritten(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l, err := storm.OpenLedger(dir, "billing-0.1")
	if err != nil {
		t.Fatal(err)
	}
	first := storm.Event{At: 1, Kind: storm.Delivered, ID: "a", Group: "billing", Number: 7, Stream: adapters.StreamRetry, Count: 2, Attempt: 3, Checks: 4, Due: 5, Digest: "d", Owner: "o", Note: "n"}
	second := storm.Event{At: 2, Kind: storm.Disturbed, Scope: "billing", Broker: true, Note: "kill"}
	r := storm.NewReader(dir)
	next := func() (events []storm.Event) {
		t.Helper()
		if err := r.Next(func(e storm.Event) { events = append(events, e) }); err != nil {
			t.Fatal(err)
		}
		return events
	}
	l.Write(first)
	first.Process, second.Process = "billing-0.1", "billing-0.1"
	if diff := cmp.Diff([]storm.Event{first}, next()); diff != "" {
		t.Errorf("first read (-want +got):\n%s", diff)
	}
	l.Write(second)
	if diff := cmp.Diff([]storm.Event{second}, next()); diff != "" {
		t.Errorf("second read (-want +got):\n%s", diff)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if got := next(); got != nil {
		t.Errorf("third read: %v, want nothing", got)
	}
	if _, err := storm.OpenLedger(dir, "billing-0.1"); err == nil {
		t.Error("a second life could write into the ledger of the first")
	}
}

func TestATornLineIsLeftOutAtTheEndAndAnErrorInTheMiddle(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "billing-0.0.ledger")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	read := func() (n int, err error) {
		err = storm.NewReader(dir).Next(func(storm.Event) { n++ })
		return n, err
	}
	write("{\"t\":1,\"k\":\"acknowledged\"}\n{\"t\":2,\"k\":\"ackno")
	if n, err := read(); n != 1 || err != nil {
		t.Errorf("torn at the end: %d events and %v, want 1 and no error", n, err)
	}
	write("{\"t\":1,\"k\":\"ackno\n{\"t\":2,\"k\":\"acknowledged\"}\n")
	if _, err := read(); err == nil {
		t.Error("torn in the middle: no error")
	}
}
