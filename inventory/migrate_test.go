package inventory_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/spillway-mq/spillway/inventory"
)

// tables are those of the present version.
var tables = []string{"audit", "closed_aggregates", "dead_letters", "decisions", "new_signatures", "overrides", "quarantine", "spillway_schema", "successors", "triage_groups", "versions"}

// columns returns the names of columns of all tables.
func columns(t *testing.T, url string) (names []string) {
	t.Helper()
	db := raw(t, url)
	for _, table := range tables {
		rows, err := db.Query("SELECT * FROM " + table + " LIMIT 0")
		if err != nil {
			t.Fatal(err)
		}
		cols, err := rows.Columns()
		rows.Close()
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range cols {
			names = append(names, table+"."+c)
		}
	}
	return names
}

// restore fills an empty database from a dump in testdata.
func restore(t *testing.T, url, dump string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", dump))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(url, "postgres") {
		// As that version made it: readable by its owner only.
		if err := os.WriteFile(url, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run(t, url, string(text))
}

// Every version that was released is brought forward. A dump of each stays in
// testdata, and is never made anew.
func TestInventoriesOfEarlierVersions(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, url string) {
		kind := "sqlite"
		if strings.HasPrefix(url, "postgres") {
			kind = "postgres"
		}
		for _, version := range []string{"v1"} {
			restore(t, url, version+"."+kind+".sql")
			s := open(t, url)
			totals, err := s.Totals(t.Context())
			if want := (inventory.Totals{DeadLetters: 5, Open: 5, Groups: 3, Quarantined: 1}); err != nil || totals != want {
				t.Errorf("%s: %+v, %v", version, totals, err)
			}
			e, err := s.DeadLetter(t.Context(), "a1")
			if diff := cmp.Diff(letters("a", `no field "amount"`, 3, monday)[1].DeadLetter, e.DeadLetter); err != nil || diff != "" {
				t.Errorf("%s: %v (-want +got):\n%s", version, err, diff)
			}
			if got := add(t, s, letters("a", `no field "amount"`, 3, monday)...); got.Duplicates != 3 {
				t.Errorf("%s: what is there is not known again: %+v", version, got)
			}
			if got := add(t, s, letter("new", `no field "amount"`, monday)); got.New != 1 {
				t.Errorf("%s: %+v", version, got)
			}
			if lines, err := s.Audit(t.Context(), "", 0); err != nil || len(lines) != 1 {
				t.Errorf("%s: %+v, %v", version, lines, err)
			}
			fresh := filepath.Join(t.TempDir(), "fresh.db")
			open(t, fresh)
			if diff := cmp.Diff(columns(t, fresh), columns(t, url)); diff != "" {
				t.Errorf("%s: a fresh inventory has other columns (-fresh +migrated):\n%s", version, diff)
			}
		}
	})
}

func TestInventoryOfALaterVersionIsRefused(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, url string) {
		open(t, url)
		run(t, url, "INSERT INTO spillway_schema (version, migrated_at) VALUES (99, 0)")
		if _, err := inventory.Open(t.Context(), url); !errors.Is(err, inventory.ErrNewer) || !strings.Contains(err.Error(), "99") {
			t.Errorf("got %v", err)
		}
	})
}

// Instances that start together make one inventory.
func TestInstancesThatStartTogether(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, url string) {
		var wg sync.WaitGroup
		for i := range 4 {
			wg.Go(func() {
				s, err := inventory.Open(t.Context(), url)
				if err != nil {
					t.Error(err)
					return
				}
				defer s.Close()
				if _, err := s.Add(t.Context(), inventory.Batch{Items: letters(fmt.Sprint(i), "boom", 3, monday)}); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if g := groups(t, open(t, url)); len(g) != 1 || g[0].Total != 12 {
			t.Errorf("%+v", g)
		}
	})
}
