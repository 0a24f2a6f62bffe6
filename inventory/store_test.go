package inventory_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/envelope"
	"github.com/spillway-mq/spillway/inventory"
	"github.com/spillway-mq/spillway/triage"
	"github.com/spillway-mq/spillway/triage/signature"
)

// O35: what was collected comes back as it was.
func TestDeadLetterComesBackAsItWas(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, url string) {
		s := open(t, url)
		part, offset := int32(3), int64(1<<40)
		full := letter("full", "no field \x00\"amount\" \xff", monday)
		full.DeadLetter.Source.Position = envelope.Position{Topic: "orders", Partition: &part, Offset: &offset, Timestamp: monday.Add(-time.Hour)}
		full.DeadLetter.Replay = envelope.ReplayInfo{ID: "r-1", Of: "dl-0", Reason: "fixed", Count: 2}
		full.DeadLetter.Producer = envelope.ProducerInfo{Version: "3", SchemaVersion: "v2"}
		full.DeadLetter.FailedMessage.DroppedHeaders = []string{"authorization"}
		binary := letter("binary", "boom", monday)
		binary.DeadLetter.FailedMessage.Payload = []byte{0, 1, 0xfe}
		binary.DeadLetter.FailedMessage.Key = []byte{0xff}
		null := letter("null", "boom", monday)
		null.DeadLetter.FailedMessage.Payload, null.DeadLetter.FailedMessage.Key, null.DeadLetter.FailedMessage.Headers = nil, nil, nil
		empty := letter("empty", "boom", monday)
		empty.DeadLetter.FailedMessage.Payload, empty.DeadLetter.FailedMessage.Key = []byte{}, []byte{}
		items := []inventory.Item{full, binary, null, empty}
		if got := add(t, s, items...); got.New != len(items) {
			t.Fatalf("added %+v", got)
		}
		for _, it := range items {
			want := it.DeadLetter
			e, err := s.DeadLetter(t.Context(), want.ID)
			if err != nil {
				t.Fatal(err)
			}
			want.Failure.Message = strings.ToValidUTF8(want.Failure.Message, "\uFFFD")
			if diff := cmp.Diff(want, e.DeadLetter); diff != "" {
				t.Errorf("%s (-want +got):\n%s", want.ID, diff)
			}
			if e.State != inventory.MessageOpen || !e.FailedAt.Equal(monday) || e.Stream != it.Stream || e.CollectedAt.IsZero() {
				t.Errorf("%s: %+v", want.ID, e)
			}
		}
		if _, err := s.DeadLetter(t.Context(), "none"); !errors.Is(err, inventory.ErrNotFound) {
			t.Errorf("got %v", err)
		}
	})
}

// The same record twice counts once, in one batch and in two. O36: two dead
// letters that share an id do not collapse.
func TestDuplicatesCountOnceAndOthersNever(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, url string) {
		s := open(t, url)
		a, other := letter("a", "boom", monday), letter("a", "boom", monday)
		other.DeadLetter.FailedMessage.Payload = []byte("another")
		third := letter("a", "boom", monday)
		third.DeadLetter.Source.Broker = "kafka"
		want := func(step string, got, want inventory.Added) {
			t.Helper()
			if got != want {
				t.Errorf("%s: %+v, want %+v", step, got, want)
			}
		}
		want("twice in a batch", add(t, s, a, a), inventory.Added{New: 1, Duplicates: 1})
		again := a // handed off once more, by a later attempt
		again.DeadLetter.Failure.FailedAt = monday.Add(time.Minute)
		want("again", add(t, s, again), inventory.Added{Duplicates: 1})
		want("others", add(t, s, other, a, third, other), inventory.Added{New: 2, Duplicates: 2})
		want("all again", add(t, s, a, other, third), inventory.Added{Duplicates: 3})
		if g := groups(t, s); len(g) != 1 || g[0].Total != 3 || g[0].Open != 3 {
			t.Errorf("groups %+v", g)
		}
		all, err := s.DeadLetters(t.Context(), inventory.Filter{})
		if err != nil || len(all) != 3 {
			t.Fatalf("%d dead letters, %v", len(all), err)
		}
		for _, e := range all {
			if id := e.DeadLetter.ID; id != "a" && !strings.HasPrefix(id, "a~") {
				t.Errorf("id %q", id)
			}
		}
		if found, err := s.Find(t.Context(), "m-a", 0); err != nil || len(found) != 3 {
			t.Errorf("found %d, %v", len(found), err)
		}
	})
}

func TestGroupsAreKeptWithEveryBatch(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, url string) {
		s := open(t, url)
		add(t, s, letters("a", "boom", 300, monday.Add(time.Hour))...)
		late := letter("late", "boom", monday)
		late.DeadLetter.Source.Topic, late.DeadLetter.Failure.Code = "refunds", "OTHER"
		next := letter("next", "boom", monday.Add(48*time.Hour))
		next.DeadLetter.Consumer.Version = "1.9.0"
		foreign := letter("foreign", "boom", monday)
		foreign.DeadLetter.Consumer.Group = "audit"
		add(t, s, late, next, foreign)
		g := groups(t, s)
		if len(g) != 2 {
			t.Fatalf("groups %+v", g)
		}
		first := g[0]
		if first.Total != 302 || first.Open != 302 || first.Version != "1.8.2" || first.Class != "validation" ||
			!first.FirstFailed.Equal(monday) || !first.LastFailed.Equal(monday.Add(time.Hour+299*time.Second)) {
			t.Errorf("group %+v", first)
		}
		// In two batches as in one: the aggregate is that of a file with all of them.
		want := triage.NewAggregate(triage.EntryOf(late.DeadLetter), signature.Of("boom"))
		for _, it := range append(letters("a", "boom", 300, monday.Add(time.Hour)), late, foreign) {
			want.Add(triage.EntryOf(it.DeadLetter))
		}
		wantJSON, _ := json.Marshal(want)
		gotJSON, err := json.Marshal(first.Aggregate)
		if diff := cmp.Diff(string(wantJSON), string(gotJSON)); err != nil || diff != "" {
			t.Errorf("aggregate (-want +got):\n%s", diff)
		}
		byPrefix, err := s.Group(t.Context(), first.ID[:6])
		if err != nil || byPrefix.ID != first.ID {
			t.Errorf("by prefix: %+v, %v", byPrefix, err)
		}
		if _, err := s.Group(t.Context(), "zzzz"); !errors.Is(err, inventory.ErrNotFound) {
			t.Errorf("got %v", err)
		}
		if _, err := s.Group(t.Context(), first.ID[:3]); !errors.Is(err, inventory.ErrAmbiguous) {
			t.Errorf("got %v", err)
		}
		totals, err := s.Totals(t.Context())
		if want := (inventory.Totals{DeadLetters: 303, Open: 303, Groups: 2}); err != nil || totals != want {
			t.Errorf("totals %+v, %v", totals, err)
		}
	})
}

// O27: the latest failure is on top, and all are kept.
// O21: what is beyond the signatures that may be new in an hour is counted in a
// group that says so, in one batch and over several, and nothing is dropped.
func TestTooManyNewSignatures(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, url string) {
		s := open(t, url)
		word := func(i int) string { return "no " + strings.Repeat(string(rune('a'+i%26)), 3+i/26) }
		batch := func(from, to int, change func(*inventory.Item)) inventory.Added {
			t.Helper()
			b := inventory.Batch{NewSignatures: 10}
			for i := from; i < to; i++ {
				it := letter(fmt.Sprint(i), word(i), monday)
				change(&it)
				b.Items = append(b.Items, it)
			}
			added, err := s.Add(t.Context(), b)
			if err != nil {
				t.Fatal(err)
			}
			return added
		}
		same := func(*inventory.Item) {}
		for i, step := range []struct {
			from, to int
			change   func(*inventory.Item)
			want     inventory.Added
		}{
			{0, 8, same, inventory.Added{New: 8}},
			{8, 30, same, inventory.Added{New: 22, Overflowed: 20}},
			{0, 30, same, inventory.Added{Duplicates: 30}},
			// A further version of a signature that is known is no new one.
			{0, 12, func(it *inventory.Item) { it.DeadLetter.ID += "v"; it.DeadLetter.Consumer.Version = "1.9.0" }, inventory.Added{New: 12, Overflowed: 2}},
			// And each consumer has its own.
			{30, 35, func(it *inventory.Item) { it.DeadLetter.Consumer.Group = "audit" }, inventory.Added{New: 5}},
		} {
			if got := batch(step.from, step.to, step.change); got != step.want {
				t.Errorf("step %d: %+v, want %+v", i, got, step.want)
			}
		}
		g := named(t, s, "(overflow)")
		if len(groups(t, s)) != 10+1+10+1+5 || g.Total+groups(t, s)[1].Total != 22 {
			t.Errorf("%d groups, %+v", len(groups(t, s)), g)
		}
		// Under the id that a pass over a file gives it, and decided like any.
		if id := triage.GroupID(triage.Key{Class: g.Class, Version: g.Version, SignatureID: "s1:(overflow)"}); id != g.ID {
			t.Errorf("id %s, want %s", g.ID, id)
		}
		closeGroup(t, s, inventory.Decision{Group: g.ID, Reason: inventory.ReasonTestData})
	})
}

func TestLatestFailureIsTheExample(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, url string) {
		s := open(t, url)
		add(t, s, letter("b", "boom", monday.Add(time.Hour)))
		add(t, s, letter("a", "boom", monday))
		all, err := s.DeadLetters(t.Context(), inventory.Filter{Group: groups(t, s)[0].ID})
		if err != nil || len(all) != 2 || all[0].DeadLetter.ID != "b" || groups(t, s)[0].Aggregate.Sample.ID != "b" {
			t.Errorf("%+v, %v", all, err)
		}
	})
}

// Nothing that a producer can write stops the inventory. O46: everything has a
// group.
func TestHostileTexts(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, url string) {
		s := open(t, url)
		var items []inventory.Item
		for i, text := range []string{"", "\x00", "\xff\xfe", strings.Repeat("\u4e16", 5000), "'; DROP TABLE audit; --", "?"} {
			it := letter(fmt.Sprintf("%d%s", i, text), text, monday)
			d := &it.DeadLetter
			d.FailedMessage.ID, d.FailedMessage.Type, d.FailedMessage.Aggregate, d.FailedMessage.Key = text, text, text, []byte(text)
			d.Consumer = envelope.ConsumerInfo{Group: text, Handler: text, Version: text}
			d.Source.Topic, d.TraceID, it.Stream = text, text, text
			items = append(items, it)
		}
		items[0].DeadLetter.Failure.FailedAt = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)
		items[1].DeadLetter.Failure.FailedAt, items[1].DeadLetter.Failure.FirstAttemptAt = time.Time{}, time.Time{}
		items[2].DeadLetter.Failure.FirstAttemptAt = time.Date(1, 1, 2, 0, 0, 0, 0, time.UTC)
		if got := add(t, s, items...); got.New != len(items) {
			t.Fatalf("added %+v", got)
		}
		if got := add(t, s, items...); got.Duplicates != len(items) {
			t.Fatalf("again: %+v", got)
		}
		all, err := s.DeadLetters(t.Context(), inventory.Filter{})
		if err != nil || len(all) != len(items) {
			t.Fatalf("%d, %v", len(all), err)
		}
		for _, e := range all {
			// A clock that is ahead would have it fail after every decision.
			if e.FailedAt.After(time.Now()) || e.FailedAt.IsZero() || e.Group == "" {
				t.Errorf("%+v", e)
			}
			// Texts that are repaired may become alike, and then both are found.
			if id := e.DeadLetter.FailedMessage.Aggregate; id != "" {
				if found, err := s.Find(t.Context(), id, 0); err != nil || len(found) == 0 {
					t.Errorf("found %d by %q, %v", len(found), id, err)
				}
			}
		}
	})
}

func TestQuarantineKeepsWhatItGot(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, url string) {
		s := open(t, url)
		part, offset := int32(0), int64(7)
		at := adapters.Record{ID: "x", Key: []byte{1}, Payload: []byte{0xff}, Headers: []adapters.Header{{Key: "a\xff", Value: []byte("b")}},
			Position: envelope.Position{Topic: "dlq", Partition: &part, Offset: &offset, Timestamp: monday}}
		bare := adapters.Record{Payload: []byte("?")}
		batch := inventory.Batch{Quarantine: []inventory.Quarantined{{Stream: "dlq", Cause: "no form that is known", Record: at}, {Stream: "dlq", Cause: "c", Record: bare}}}
		for i, want := range []int{2, 1} { // the bare one may be another
			if added, err := s.Add(t.Context(), batch); err != nil || added.Quarantined != want {
				t.Fatalf("%d: %+v, %v", i, added, err)
			}
		}
		all, err := s.Quarantine(t.Context(), 0)
		if err != nil || len(all) != 2 {
			t.Fatalf("%+v, %v", all, err)
		}
		if all[0].Copies != 2 || all[1].Copies != 1 || all[1].Cause != "no form that is known" || all[1].Stream != "dlq" {
			t.Errorf("%+v", all)
		}
		if diff := cmp.Diff(at, all[1].Record); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if n, err := s.Quarantined(t.Context()); err != nil || n != 3 {
			t.Errorf("%d, %v", n, err)
		}
	})
}

// O14: the audit only grows, whoever writes to the database.
func TestAuditOnlyGrows(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, url string) {
		s := open(t, url)
		for _, target := range []string{"a", "b", "a"} {
			if err := s.Record(t.Context(), inventory.AuditEntry{Author: "ana", Action: "collect", Target: target, Filter: "stream=" + target, Total: 3, Details: `{}`}); err != nil {
				t.Fatal(err)
			}
		}
		db := raw(t, url)
		for _, statement := range []string{"UPDATE audit SET author = 'eve'", "DELETE FROM audit"} {
			if _, err := db.Exec(statement); err == nil || !strings.Contains(err.Error(), "append only") {
				t.Errorf("%s: %v", statement, err)
			}
		}
		lines, err := s.Audit(t.Context(), "a", 0)
		if err != nil || len(lines) != 2 || lines[0].Seq < lines[1].Seq || lines[0].Author != "ana" || lines[0].Filter != "stream=a" || lines[0].At.IsZero() {
			t.Errorf("%+v, %v", lines, err)
		}
		if lines, err := s.Audit(t.Context(), "", 2); err != nil || len(lines) != 2 {
			t.Errorf("%+v, %v", lines, err)
		}
	})
}

// Several instances write to one inventory, some of it twice.
func TestSeveralInstancesAtOnce(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, url string) {
		const instances, batches, size = 4, 6, 50
		var wg sync.WaitGroup
		for i := range instances {
			s := open(t, url)
			wg.Go(func() {
				for b := range batches {
					// Each batch is written by two instances.
					items := letters(fmt.Sprintf("%d-%d-", i/2, b), fmt.Sprintf("boom %c", 'a'+b%3), size, monday)
					if _, err := s.Add(t.Context(), inventory.Batch{Items: items}); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		total := int64(0)
		for _, g := range groups(t, open(t, url)) {
			total += g.Total
		}
		if total != instances/2*batches*size {
			t.Errorf("%d dead letters", total)
		}
	})
}

// O48: payloads are for the owner of the file only.
func TestFileIsForItsOwnerOnly(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("rights are another matter there")
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "a b%3F.db")
	s := open(t, path)
	add(t, s, letter("a", "boom", monday))
	n := 0
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		n++
		info, err := d.Info()
		if info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v", path, info.Mode())
		}
		return err
	})
	if err != nil || n != 3 { // with -wal and -shm
		t.Errorf("%d files, %v", n, err)
	}
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	if _, err := inventory.Open(t.Context(), path); err == nil || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("got %v", err)
	}
	if _, err := inventory.Open(t.Context(), filepath.Join(dir, "none", "x.db")); err == nil || !strings.Contains(err.Error(), "there is no folder") {
		t.Errorf("got %v", err)
	}
	if !inventory.Exists(path) || inventory.Exists(path+"x") {
		t.Error("Exists is wrong")
	}
}

func TestNoPasswordInErrors(t *testing.T) {
	t.Parallel()
	for _, url := range []string{
		"postgres://user:hunter2@127.0.0.1:1/db?sslmode=disable&password=hunter2",
		"postgres://user:hunter2@127.0.0.1:notaport/db", "postgresql://user:hunter2%zz@h/db", "postgres://h/db?sslmode=hunter2&password=hunter2",
	} {
		_, err := inventory.Open(t.Context(), url)
		if err == nil || strings.Contains(err.Error(), "hunter2@") || strings.Contains(err.Error(), "password=hunter2") || strings.Contains(err.Error(), "hunter2%") {
			t.Errorf("%v", err)
		}
	}
}

// A purged payload is not left in the file. See sqliteSource.
func TestDeletedBytesAreOverwritten(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "i.db")
	s := open(t, path)
	it := letter("a", "boom", monday)
	it.DeadLetter.FailedMessage.Payload = bytes.Repeat([]byte("SECRET-PAYLOAD "), 1000)
	add(t, s, it)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	has := func() bool {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return bytes.Contains(data, []byte("SECRET-PAYLOAD"))
	}
	if !has() {
		t.Fatal("the payload is not in the file at all")
	}
	s = open(t, path)
	if _, err := s.Sweep(t.Context(), inventory.Retention{Open: time.Nanosecond}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if has() {
		t.Error("the payload is still in the file")
	}
}

// O26: 2,000 failures of three causes are three lines.
func TestTwoThousandFailuresAreThreeGroups(t *testing.T) {
	t.Parallel()
	s := open(t, filepath.Join(t.TempDir(), "i.db"))
	causes := []string{"order %d: no field \"amount\"", "dial tcp 10.0.0.%d:5432: connection refused", "customer %d not found"}
	var items []inventory.Item
	for i := range 2000 {
		items = append(items, letter(fmt.Sprint(i), fmt.Sprintf(causes[i%3], i%200), ago(time.Duration(i)*time.Second)))
	}
	add(t, s, items...)
	report, err := s.Triage(t.Context(), inventory.TriageOptions{})
	if err != nil || len(report.Groups) != 3 || report.Messages != 2000 || report.Report.Groups[0].Count != 667 {
		t.Errorf("%d groups, %d messages, %v", len(report.Report.Groups), report.Messages, err)
	}
	// The same as one pass over a file.
	at := time.Now()
	kept := map[triage.Key]*triage.Aggregate{}
	var all []*triage.Aggregate
	for _, it := range items {
		e := triage.EntryOf(it.DeadLetter)
		sig := signature.Of(e.Text)
		if kept[e.Key(sig)] == nil {
			kept[e.Key(sig)] = triage.NewAggregate(e, sig)
			all = append(all, kept[e.Key(sig)])
		}
		kept[e.Key(sig)].Add(e)
	}
	want, err := json.Marshal(triage.NewReport(all, triage.Options{Now: at}))
	if err != nil {
		t.Fatal(err)
	}
	report, err = s.Triage(t.Context(), inventory.TriageOptions{Now: at})
	if err != nil {
		t.Fatal(err)
	}
	got, err := json.Marshal(report.Report)
	if diff := cmp.Diff(string(want), string(got)); err != nil || diff != "" {
		t.Errorf("%v (-file +inventory):\n%s", err, diff)
	}
}

// An id that is made up to meet the one that a twin would get stops nothing.
func TestIDsThatAreMadeUp(t *testing.T) {
	t.Parallel()
	s := open(t, filepath.Join(t.TempDir(), "i.db"))
	twin := letter("a", "boom", monday)
	twin.DeadLetter.FailedMessage.Payload = []byte("another")
	add(t, s, letter("a", "boom", monday), twin)
	all, err := s.DeadLetters(t.Context(), inventory.Filter{})
	if err != nil || len(all) != 2 {
		t.Fatalf("%d, %v", len(all), err)
	}
	taken := all[0].DeadLetter.ID + all[1].DeadLetter.ID[len("a"):] // a~...
	other := open(t, filepath.Join(t.TempDir(), "other.db"))
	for range 2 {
		if got := add(t, other, letter(taken, "made up", monday), letter("a", "boom", monday), twin); got.New+got.Duplicates != 3 {
			t.Errorf("%+v", got)
		}
	}
	if all, err := other.DeadLetters(t.Context(), inventory.Filter{}); err != nil || len(all) != 3 {
		t.Errorf("%d, %v", len(all), err)
	}
}

// Whatever headers a record has, they come back.
func FuzzHeaders(f *testing.F) {
	f.Add("header", []byte("value"), "int", "other", []byte(nil))
	f.Add("\xff", []byte{0xfe, 0}, "", "", []byte{})
	f.Fuzz(func(t *testing.T, key string, value []byte, kind, other string, more []byte) {
		want := []adapters.Header{{Key: key, Value: value, Type: strings.ToValidUTF8(kind, "?")}, {Key: other, Value: more}}
		text, err := inventory.EncodeHeaders(want)
		if err != nil {
			t.Fatal(err)
		}
		got, err := inventory.DecodeHeaders(string(text))
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%v (-want +got):\n%s", err, diff)
		}
		_, _ = inventory.DecodeHeaders(key) // a garbled one is an error, and no panic
	})
}

// A database may order texts as a dictionary does, where DEL counts for nothing.
func TestGroupByPrefixInADictionary(t *testing.T) {
	t.Parallel()
	rawURL := postgresURL(t)
	s := open(t, rawURL)
	add(t, s, letter("a", "boom", ago(time.Hour)))
	g := groups(t, s)[0]
	run(t, rawURL, `ALTER TABLE triage_groups ALTER COLUMN id TYPE TEXT COLLATE "en-x-icu"`)
	for _, prefix := range []string{g.ID[:4], g.ID[:len(g.ID)-1], g.ID} {
		if got, err := s.Group(t.Context(), prefix); err != nil || got.ID != g.ID {
			t.Errorf("%s: %s, %v", prefix, got.ID, err)
		}
	}
	for _, prefix := range []string{"gäää", g.ID + "a", "%%%%", "____"} {
		if _, err := s.Group(t.Context(), prefix); !errors.Is(err, inventory.ErrNotFound) {
			t.Errorf("%s: %v, want none", prefix, err)
		}
	}
}
