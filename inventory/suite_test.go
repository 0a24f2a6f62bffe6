package inventory_test

import (
	"crypto/rand"
	"database/sql"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/envelope"
	"github.com/spillway-mq/spillway/failure"
	"github.com/spillway-mq/spillway/internal/brokertest"
	"github.com/spillway-mq/spillway/inventory"
)

// onBoth runs a test on both databases, each time on an empty one. The test of
// one that is not there skips, or fails where it was asked for.
func onBoth(t *testing.T, test func(t *testing.T, url string)) {
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		test(t, filepath.Join(t.TempDir(), "inventory.db"))
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		test(t, postgresURL(t))
	})
}

// postgresURL makes a schema of its own for a test.
func postgresURL(t *testing.T) string {
	t.Helper()
	base := brokertest.URL(t, "SPILLWAY_TEST_POSTGRES")
	u, err := url.Parse(base)
	if err != nil {
		t.Fatal(err)
	}
	schema := "t_" + strings.ToLower(rand.Text())
	run(t, base, "CREATE SCHEMA "+schema)
	t.Cleanup(func() { run(t, base, "DROP SCHEMA "+schema+" CASCADE") })
	q := u.Query()
	q.Set("search_path", schema)
	u.RawQuery = q.Encode()
	return u.String()
}

// raw opens a database behind the inventory's back.
func raw(t *testing.T, rawURL string) *sql.DB {
	t.Helper()
	driver, source := "sqlite", "file:"+rawURL+"?_pragma=busy_timeout(10000)"
	if strings.HasPrefix(rawURL, "postgres") {
		driver, source = "pgx", rawURL
	}
	db, err := sql.Open(driver, source)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func run(t *testing.T, rawURL, statement string) {
	t.Helper()
	if _, err := raw(t, rawURL).Exec(statement); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

func open(t *testing.T, rawURL string) *inventory.Store {
	t.Helper()
	s, err := inventory.Open(t.Context(), rawURL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func add(t *testing.T, s *inventory.Store, items ...inventory.Item) inventory.Added {
	t.Helper()
	added, err := s.Add(t.Context(), inventory.Batch{Items: items})
	if err != nil {
		t.Fatal(err)
	}
	return added
}

// monday is when things fail in tests.
var monday = time.Date(2026, 11, 2, 9, 0, 0, 0, time.UTC)

// letter makes a dead letter of a billing consumer.
func letter(id, text string, failed time.Time) inventory.Item {
	return inventory.Item{Stream: "orders.billing.dlq", DeadLetter: envelope.DeadLetter{
		ID: id,
		FailedMessage: envelope.FailedMessage{
			ID: "m-" + id, Type: "OrderPlaced", Aggregate: "order-" + id, Key: []byte("k-" + id), Payload: []byte(`{"n":1}`),
			Headers: []envelope.Header{{Key: "x-tenant", Value: []byte("acme")}, {Key: "x-tenant", Value: []byte{0xff, 0}}, {Key: "n", Value: []byte("7"), Type: "int"}},
		},
		Failure: envelope.FailureInfo{
			Class: failure.ClassValidation, Nature: failure.NaturePermanent, Code: "INVALID_SCHEMA", Message: text, Reason: "permanent",
			Attempts: 1, FirstAttemptAt: failed.Add(-time.Minute), FailedAt: failed,
		},
		Source:   envelope.SourceInfo{Broker: "rabbitmq", Position: envelope.Position{Topic: "orders"}},
		Consumer: envelope.ConsumerInfo{Group: "billing", Handler: "charge", Version: "1.8.2"},
		TraceID:  "trace-" + id,
	}}
}

// letters makes n of them, a second apart.
func letters(prefix, text string, n int, failed time.Time) (items []inventory.Item) {
	for i := range n {
		items = append(items, letter(fmt.Sprintf("%s%d", prefix, i), text, failed.Add(time.Duration(i)*time.Second)))
	}
	return items
}

func groups(t *testing.T, s *inventory.Store) []inventory.Group {
	t.Helper()
	g, err := s.Groups(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// The rights that docs/inventory.md asks for are enough for all that an
// operator does.
func TestRightsAsDocumented(t *testing.T) {
	t.Parallel()
	owner := postgresURL(t)
	open(t, owner) // makes the tables
	page, err := os.ReadFile("../docs/inventory.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "```sql\n")
	grants, _, ok := strings.Cut(rest, "```")
	if !ok {
		t.Fatal("docs/inventory.md has no rights in SQL")
	}
	u, err := url.Parse(owner)
	if err != nil {
		t.Fatal(err)
	}
	role, schema := "r_"+strings.ToLower(rand.Text()), u.Query().Get("search_path")
	run(t, owner, "CREATE ROLE "+role+" LOGIN PASSWORD 'pw'")
	t.Cleanup(func() { run(t, owner, "DROP OWNED BY "+role+"; DROP ROLE "+role) })
	run(t, owner, strings.NewReplacer("SCHEMA inventory", "SCHEMA "+schema, "inventory.", schema+".", "TO operator", "TO "+role).Replace(grants))

	u.User = url.UserPassword(role, "pw")
	s := open(t, u.String())
	add(t, s, letters("a", "boom", 3, ago(time.Hour))...)
	if _, err := s.Add(t.Context(), inventory.Batch{Items: letters("b", "boom", 3, ago(100*24*time.Hour)), Quarantine: []inventory.Quarantined{{Stream: "dlq"}}, LeaveOut: true}); err != nil {
		t.Error(err)
	}
	add(t, s, letters("b", "boom", 3, ago(100*24*time.Hour))...)
	g := groups(t, s)[0].ID
	closeGroup(t, s, inventory.Decision{Group: g, Reason: inventory.ReasonTestData})
	add(t, s, letter("late", "boom", ago(time.Hour)))
	if _, err := s.Reopen(t.Context(), inventory.Decision{Group: g, Author: "ana"}); err != nil {
		t.Error(err)
	}
	if _, err := s.SplitGroup(t.Context(), inventory.Decision{Group: g, Author: "ana"}, "topic"); err != nil {
		t.Error(err)
	}
	if _, err := s.Restore(t.Context(), inventory.Decision{Group: g, Author: "ana"}); err != nil {
		t.Error(err)
	}
	if _, err := s.Sweep(t.Context(), inventory.Retention{}); err != nil {
		t.Error(err)
	}
	if _, err := s.Triage(t.Context(), inventory.TriageOptions{}); err != nil {
		t.Error(err)
	}
	for _, statement := range []string{"DELETE FROM dead_letters", "UPDATE audit SET author = ''", "DROP TABLE audit"} {
		if _, err := raw(t, u.String()).Exec(statement); err == nil || !strings.Contains(err.Error(), "permission denied") && !strings.Contains(err.Error(), "must be owner") {
			t.Errorf("%s: %v", statement, err)
		}
	}
}
