package middleware_test

import (
	"bufio"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/go-cmp/cmp"
	_ "modernc.org/sqlite"

	"github.com/spillway-mq/spillway/failure"
	"github.com/spillway-mq/spillway/middleware"
)

func openSQLite(t *testing.T, path string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func newSQLStore(t *testing.T, db *sql.DB) *middleware.SQLStore {
	t.Helper()
	store, err := middleware.NewSQLStore(db, middleware.SQLStoreConfig{Dialect: middleware.DialectSQLite})
	if err != nil {
		t.Fatal(err)
	}
	if err := store.EnsureSchema(t.Context()); err != nil {
		t.Fatal(err)
	}
	return store
}

// sqliteStore makes a store on a new database with a table for effects.
func sqliteStore(t *testing.T) (*sql.DB, *middleware.SQLStore) {
	t.Helper()
	db := openSQLite(t, filepath.Join(t.TempDir(), "once.db"))
	if _, err := db.ExecContext(t.Context(), `CREATE TABLE effects (id TEXT)`); err != nil {
		t.Fatal(err)
	}
	return db, newSQLStore(t, db)
}

// writeEffect writes one row in the transaction of the message.
func writeEffect(msg *message.Message) error {
	tx, ok := middleware.TxFrom(msg.Context())
	if !ok {
		return errors.New("no transaction")
	}
	_, err := tx.ExecContext(msg.Context(), `INSERT INTO effects (id) VALUES (?)`, msg.UUID)
	return err
}

func rowCount(t *testing.T, db *sql.DB, table string) (n int) {
	t.Helper()
	if err := db.QueryRowContext(context.Background(), `SELECT count(*) FROM `+table).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func wantCounts(t *testing.T, db *sql.DB, effects, keys int) {
	t.Helper()
	if e, k := rowCount(t, db, "effects"), rowCount(t, db, "spillway_once"); e != effects || k != keys {
		t.Errorf("%d effects and %d keys, want %d and %d", e, k, effects, keys)
	}
}

func TestSQLStoreCommitsEffectsWithTheKey(t *testing.T) {
	t.Parallel()
	db, store := sqliteStore(t)
	failed := errors.New("failed")
	var fail func() error
	h := middleware.Once(store, nil)(func(msg *message.Message) ([]*message.Message, error) {
		if err := writeEffect(msg); err != nil {
			return nil, err
		}
		return nil, fail()
	})
	msg := message.NewMessage("m-1", nil)

	fail = func() error { return failed }
	if _, err := h(msg); err != failed {
		t.Errorf("got %v, want the handler's own error", err)
	}
	wantCounts(t, db, 0, 0)

	fail = func() error { panic(failed) }
	func() {
		defer func() { _ = recover() }()
		h(msg)
		t.Error("the panic did not pass")
	}()
	wantCounts(t, db, 0, 0)

	fail = func() error { return nil }
	for range 3 {
		if _, err := h(msg); err != nil {
			t.Fatal(err)
		}
		wantCounts(t, db, 1, 1)
	}
}

func TestSQLStoreCancelledHandler(t *testing.T) {
	t.Parallel()
	db, store := sqliteStore(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	h := middleware.Once(store, nil)(func(msg *message.Message) ([]*message.Message, error) {
		if err := writeEffect(msg); err != nil {
			return nil, err
		}
		cancel()
		<-msg.Context().Done()
		return nil, msg.Context().Err()
	})
	if _, err := h(message.NewMessageWithContext(ctx, "m-1", nil)); err != context.Canceled {
		t.Errorf("got %v", err)
	}
	wantCounts(t, db, 0, 0)
}

// Work that has finished counts, also when shutdown has begun meanwhile.
func TestSQLStoreFinishedWorkCounts(t *testing.T) {
	t.Parallel()
	db, store := sqliteStore(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	h := middleware.Once(store, nil)(func(msg *message.Message) ([]*message.Message, error) {
		err := writeEffect(msg)
		cancel()
		return nil, err
	})
	if _, err := h(message.NewMessageWithContext(ctx, "m-1", nil)); err != nil {
		t.Error(err)
	}
	wantCounts(t, db, 1, 1)
}

func TestSQLStoreManyMessagesManyCopies(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "once.db")
	db := openSQLite(t, path)
	if _, err := db.ExecContext(t.Context(), `CREATE TABLE effects (id TEXT)`); err != nil {
		t.Fatal(err)
	}
	// Two stores, with connections of their own, stand for two processes.
	stores := []*middleware.SQLStore{newSQLStore(t, db), newSQLStore(t, openSQLite(t, path))}
	const messages, copies = 20, 4
	var wg sync.WaitGroup
	for n := range messages * copies {
		h := middleware.Once(stores[n%2], nil)(func(msg *message.Message) ([]*message.Message, error) { return nil, writeEffect(msg) })
		wg.Go(func() {
			if _, err := h(message.NewMessage(fmt.Sprint("m-", n/copies), nil)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	wantCounts(t, db, messages, messages)
	var distinct int
	if err := db.QueryRowContext(t.Context(), `SELECT count(DISTINCT id) FROM effects`).Scan(&distinct); err != nil {
		t.Fatal(err)
	}
	if distinct != messages {
		t.Errorf("%d messages had effects, want %d", distinct, messages)
	}
}

// One connection is enough for one handler, and a waiting duplicate holds none.
func TestSQLStoreOneConnection(t *testing.T) {
	t.Parallel()
	db, store := sqliteStore(t)
	db.SetMaxOpenConns(1)
	h := middleware.Once(store, nil)(func(msg *message.Message) ([]*message.Message, error) { return nil, writeEffect(msg) })
	var wg sync.WaitGroup
	for range 5 {
		wg.Go(func() {
			if _, err := h(message.NewMessage("m-1", nil)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	wantCounts(t, db, 1, 1)
}

// The process is killed between the effect and the commit, and after the
// commit before the message is acknowledged.
func TestSQLStoreSurvivesKill(t *testing.T) {
	const stage, database = "SPILLWAY_TEST_ONCE_STAGE", "SPILLWAY_TEST_ONCE_DB"
	if at := os.Getenv(stage); at != "" { // the child
		store := newSQLStore(t, openSQLite(t, os.Getenv(database)))
		die := func() {
			fmt.Println("now")
			select {}
		}
		_, err := middleware.Once(store, nil)(func(msg *message.Message) ([]*message.Message, error) {
			err := writeEffect(msg)
			if at == "before commit" {
				die()
			}
			return []*message.Message{message.NewMessage("of the first run", nil)}, err
		})(message.NewMessage("m-1", nil))
		if err != nil {
			t.Fatal(err)
		}
		die()
	}

	t.Parallel()
	for at, want := range map[string]struct {
		effects int
		output  string
	}{
		"before commit": {0, "of the second run"},
		"before ack":    {1, "of the first run"},
	} {
		t.Run(at, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "once.db")
			db := openSQLite(t, path)
			if _, err := db.ExecContext(t.Context(), `CREATE TABLE effects (id TEXT)`); err != nil {
				t.Fatal(err)
			}
			child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestSQLStoreSurvivesKill$")
			child.Env = append(os.Environ(), stage+"="+at, database+"="+path)
			out, err := child.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := child.Start(); err != nil {
				t.Fatal(err)
			}
			line, err := bufio.NewReader(out).ReadString('\n')
			if err := child.Process.Kill(); err != nil {
				t.Error(err)
			}
			_ = child.Wait() // says that it was killed
			if line != "now\n" {
				t.Fatalf("the child said %q, %v", line, err)
			}
			store := newSQLStore(t, db)
			wantCounts(t, db, want.effects, want.effects)

			got, err := middleware.Once(store, nil)(func(msg *message.Message) ([]*message.Message, error) {
				return []*message.Message{message.NewMessage("of the second run", nil)}, writeEffect(msg)
			})(message.NewMessage("m-1", nil))
			if err != nil || len(got) != 1 || got[0].UUID != want.output {
				t.Errorf("got %v and %v, want the output %s", got, err, want.output)
			}
			wantCounts(t, db, 1, 1)
		})
	}
}

func TestTxFromEndsWithTheHandler(t *testing.T) {
	t.Parallel()
	_, store := sqliteStore(t)
	var kept context.Context
	h := middleware.Once(store, nil)(func(msg *message.Message) ([]*message.Message, error) {
		kept = msg.Context()
		if _, ok := middleware.TxFrom(kept); !ok {
			t.Error("no transaction in the handler")
		}
		return nil, nil
	})
	if _, err := h(message.NewMessage("m-1", nil)); err != nil {
		t.Fatal(err)
	}
	for _, ctx := range []context.Context{kept, t.Context()} {
		if tx, ok := middleware.TxFrom(ctx); ok || tx != nil {
			t.Errorf("transaction %v outside of the handler", tx)
		}
	}
}

// A handler that commits the transaction itself has effects, but its outputs
// are lost. This must not pass for success, neither at once nor later.
func TestSQLStoreHandlerEndsTheTransaction(t *testing.T) {
	t.Parallel()
	_, store := sqliteStore(t)
	h := middleware.Once(store, nil)(func(msg *message.Message) ([]*message.Message, error) {
		tx, _ := middleware.TxFrom(msg.Context())
		return []*message.Message{message.NewMessage("lost", nil)}, tx.Commit()
	})
	for n, wantNature := range []failure.Nature{failure.NatureUnknown, failure.NaturePermanent} {
		_, err := h(message.NewMessage("m-1", nil))
		if err == nil || !strings.Contains(err.Error(), "TxFrom") {
			t.Errorf("delivery %d: got %v, want an error that says what is wrong", n+1, err)
		}
		wantClassified(t, err, wantNature, "unknown")
	}
}

func TestSQLStoreErrorsBeforeTheHandlerAreTransient(t *testing.T) {
	t.Parallel()
	h := func(store middleware.OnceStore) error {
		_, err := middleware.Once(store, nil)(func(*message.Message) ([]*message.Message, error) {
			t.Error("the handler was called")
			return nil, nil
		})(message.NewMessage("m-1", nil))
		return err
	}
	db := openSQLite(t, filepath.Join(t.TempDir(), "empty.db"))
	noTable, err := middleware.NewSQLStore(db, middleware.SQLStoreConfig{Dialect: middleware.DialectSQLite})
	if err != nil {
		t.Fatal(err)
	}
	err = h(noTable)
	if err == nil || !strings.Contains(err.Error(), "spillway_once") {
		t.Errorf("got %v", err)
	}
	wantClassified(t, err, "transient", "unknown")

	closedDB, closed := sqliteStore(t)
	closedDB.Close()
	err = h(closed)
	wantClassified(t, err, "transient", "unknown")
}

// A constraint that is checked at commit is the handler's failure.
func TestSQLStoreCommitFails(t *testing.T) {
	t.Parallel()
	db, store := sqliteStore(t)
	if _, err := db.ExecContext(t.Context(), `CREATE TABLE parents (id TEXT PRIMARY KEY); CREATE TABLE children (parent TEXT REFERENCES parents (id) DEFERRABLE INITIALLY DEFERRED)`); err != nil {
		t.Fatal(err)
	}
	calls := 0
	h := middleware.Once(store, nil)(func(msg *message.Message) ([]*message.Message, error) {
		calls++
		tx, _ := middleware.TxFrom(msg.Context())
		if _, err := tx.ExecContext(msg.Context(), `PRAGMA defer_foreign_keys`); err != nil {
			return nil, err
		}
		_, err := tx.ExecContext(msg.Context(), `INSERT INTO children (parent) VALUES ('nobody')`)
		return nil, err
	})
	db.SetMaxOpenConns(1) // so that the pragma holds for the handler
	if _, err := db.ExecContext(t.Context(), `PRAGMA foreign_keys = on`); err != nil {
		t.Fatal(err)
	}
	for n := range 2 {
		if _, err := h(message.NewMessage("m-1", nil)); err == nil || !strings.Contains(err.Error(), "once: commit: ") {
			t.Errorf("got %v, want an error of the commit", err)
		}
		if calls != n+1 {
			t.Errorf("%d calls after %d deliveries", calls, n+1)
		}
	}
	wantCounts(t, db, 0, 0)
}

func TestSQLStorePurge(t *testing.T) {
	t.Parallel()
	db, store := sqliteStore(t)
	h := middleware.Once(store, nil)(func(msg *message.Message) ([]*message.Message, error) { return nil, writeEffect(msg) })
	for _, id := range []string{"old", "new"} {
		if _, err := h(message.NewMessage(id, nil)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := db.ExecContext(t.Context(), `UPDATE spillway_once SET recorded_at = ? WHERE message_key = '/old'`, time.Now().Add(-time.Hour).UnixMilli()); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []time.Duration{0, -time.Hour} {
		if n, err := store.Purge(t.Context(), bad); err == nil || n != 0 {
			t.Errorf("Purge(%v) gave %d, %v", bad, n, err)
		}
	}
	for _, want := range []int64{1, 0} {
		if n, err := store.Purge(t.Context(), 59*time.Minute); err != nil || n != want {
			t.Errorf("purged %d, %v, want %d", n, err, want)
		}
	}
	for _, id := range []string{"old", "new"} {
		if _, err := h(message.NewMessage(id, nil)); err != nil {
			t.Fatal(err)
		}
	}
	wantCounts(t, db, 3, 2) // old ran again, new did not

	// More than one step.
	if _, err := db.ExecContext(t.Context(), `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i < 2500) INSERT INTO spillway_once (message_key, recorded_at) SELECT i, 0 FROM n`); err != nil {
		t.Fatal(err)
	}
	if n, err := store.Purge(t.Context(), time.Hour); err != nil || n != 2500 {
		t.Errorf("purged %d, %v, want 2500", n, err)
	}
}

func TestSQLStoreEnsureSchemaConcurrently(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "once.db")
	first := openSQLite(t, path)
	if err := first.PingContext(t.Context()); err != nil { // sets WAL, which cannot be set twice at once
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 4 {
		db := openSQLite(t, path)
		wg.Go(func() {
			store, err := middleware.NewSQLStore(db, middleware.SQLStoreConfig{Dialect: middleware.DialectSQLite})
			if err == nil {
				err = store.EnsureSchema(t.Context())
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

func TestNewSQLStoreRefusesNonsense(t *testing.T) {
	t.Parallel()
	db := openSQLite(t, filepath.Join(t.TempDir(), "x.db"))
	for _, cfg := range []middleware.SQLStoreConfig{
		{},
		{Dialect: "mysql"},
		{Dialect: middleware.DialectSQLite, Table: "a; DROP TABLE b"},
		{Dialect: middleware.DialectSQLite, Table: "a.b"},
		{Dialect: middleware.DialectPostgreSQL, Table: "a.b.c"},
		{Dialect: middleware.DialectPostgreSQL, Table: "1"},
	} {
		if _, err := middleware.NewSQLStore(db, cfg); err == nil {
			t.Errorf("%+v was accepted", cfg)
		}
	}
	_, err := middleware.NewSQLStore(nil, middleware.SQLStoreConfig{})
	if err == nil || !strings.Contains(err.Error(), "database") || !strings.Contains(err.Error(), "Dialect") {
		t.Errorf("got %v, want both problems named", err)
	}
}

// What is sent to PostgreSQL, word by word: the statements and their order.
func TestSQLStoreStatementsForPostgreSQL(t *testing.T) {
	t.Parallel()
	spy := &spyDriver{}
	db := sql.OpenDB(spy)
	defer db.Close()
	store, err := middleware.NewSQLStore(db, middleware.SQLStoreConfig{Dialect: middleware.DialectPostgreSQL, Table: "app.once"})
	if err != nil {
		t.Fatal(err)
	}
	if err := store.EnsureSchema(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, affected := range []int64{1, 0} {
		spy.affected = affected
		if _, _, err := store.Do(t.Context(), "k", func(context.Context) ([]byte, error) { return nil, nil }); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := store.Purge(t.Context(), time.Hour); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"BEGIN Default",
		"SELECT pg_advisory_xact_lock(7305803119)",
		"CREATE TABLE IF NOT EXISTS app.once (\n\tmessage_key TEXT   NOT NULL PRIMARY KEY,\n\trecorded_at BIGINT NOT NULL,\n\toutputs     BYTEA\n)",
		"CREATE INDEX IF NOT EXISTS once_recorded_at ON app.once (recorded_at)",
		"COMMIT",
		// A new key.
		"BEGIN Read Committed",
		"INSERT INTO app.once (message_key, recorded_at) VALUES ($1, $2) ON CONFLICT (message_key) DO NOTHING",
		"UPDATE app.once SET outputs = $1 WHERE message_key = $2",
		"COMMIT",
		// A key that is done.
		"BEGIN Read Committed",
		"INSERT INTO app.once (message_key, recorded_at) VALUES ($1, $2) ON CONFLICT (message_key) DO NOTHING",
		"SELECT outputs IS NULL, outputs FROM app.once WHERE message_key = $1",
		"ROLLBACK",
		"DELETE FROM app.once WHERE message_key IN (SELECT message_key FROM app.once WHERE recorded_at < $1 LIMIT 1000)",
	}
	if diff := cmp.Diff(want, spy.log); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// spyDriver is a database that writes down what it is asked.
type spyDriver struct {
	log      []string
	affected int64
}

func (d *spyDriver) Connect(context.Context) (driver.Conn, error) { return spyConn{d}, nil }
func (d *spyDriver) Driver() driver.Driver                        { return nil }

type spyConn struct{ *spyDriver }

func (c spyConn) Prepare(string) (driver.Stmt, error) { return nil, errors.New("not prepared") }
func (c spyConn) Close() error                        { return nil }
func (c spyConn) Begin() (driver.Tx, error)           { return nil, errors.New("not begun") }

func (c spyConn) BeginTx(_ context.Context, opts driver.TxOptions) (driver.Tx, error) {
	c.log = append(c.log, "BEGIN "+sql.IsolationLevel(opts.Isolation).String())
	return c, nil
}

func (c spyConn) Commit() error   { c.log = append(c.log, "COMMIT"); return nil }
func (c spyConn) Rollback() error { c.log = append(c.log, "ROLLBACK"); return nil }

func (c spyConn) ExecContext(_ context.Context, q string, _ []driver.NamedValue) (driver.Result, error) {
	c.log = append(c.log, q)
	return driver.RowsAffected(c.affected), nil
}

func (c spyConn) QueryContext(_ context.Context, q string, _ []driver.NamedValue) (driver.Rows, error) {
	c.log = append(c.log, q)
	return &spyRows{}, nil
}

// spyRows is one row: there are outputs, of no bytes.
type spyRows struct{ done bool }

func (r *spyRows) Columns() []string { return []string{"unknown", "outputs"} }
func (r *spyRows) Close() error      { return nil }
func (r *spyRows) Next(row []driver.Value) error {
	if r.done {
		return io.EOF
	}
	r.done = true
	row[0], row[1] = false, []byte{}
	return nil
}
