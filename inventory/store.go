package inventory

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // driver "pgx"
	_ "modernc.org/sqlite"             // driver "sqlite"
)

// Errors of a [Store]. What else it returns comes from the database.
var (
	// ErrNotFound means that no group, dead letter or decision has this id.
	ErrNotFound = errors.New("not found")
	// ErrAmbiguous means that several ids begin like this.
	ErrAmbiguous = errors.New("ambiguous")
	// ErrNewer means that a later version of Spillway has migrated the database.
	ErrNewer = errors.New("the inventory was made by a later version of spillway")
	// ErrRefused means that a decision is none that can be recorded.
	ErrRefused = errors.New("refused")
)

// Store is an inventory. Close it when done.
type Store struct {
	db      *sql.DB
	dialect dialect
	// adds is for what only adds. In SQLite its connection leaves alone what it
	// frees, of which there is nothing to hide; that saves a quarter of the time.
	adds   *sql.DB
	insert *sql.Stmt // of many dead letters, on adds
	rules  rules
}

// Open opens the inventory at rawURL, makes it if there is none, and brings it
// to the present version.
//
// postgres:// and postgresql:// name a PostgreSQL of version 12 or later, with
// a database or schema of its own. Anything else is the path of a file, also
// as sqlite:///PATH; its folder must exist. The file is readable by its owner
// only, and one that others may read is refused.
//
// Errors never contain the URL's password.
func Open(ctx context.Context, rawURL string) (*Store, error) {
	s, err := open(ctx, rawURL)
	if err != nil {
		return nil, fmt.Errorf("inventory: open %s: %w", shown(rawURL), err)
	}
	return s, nil
}

func open(ctx context.Context, rawURL string) (_ *Store, err error) {
	s := &Store{rules: currentRules}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	path, isFile := filePath(rawURL)
	if !isFile {
		s.dialect = postgres
		if s.db, err = sql.Open("pgx", rawURL); err != nil {
			return nil, err
		}
		s.adds = s.db
	} else {
		s.dialect = sqlite
		if err := prepareFile(path); err != nil {
			return nil, err
		}
		if s.db, err = sql.Open("sqlite", sqliteSource(path, "secure_delete(ON)")); err != nil {
			return nil, err
		}
		if s.adds, err = sql.Open("sqlite", sqliteSource(path, "secure_delete(OFF)")); err != nil {
			return nil, err
		}
	}
	for _, db := range []*sql.DB{s.db, s.adds} {
		// Writers of SQLite wait for each other anyway, and PostgreSQL is shared.
		db.SetMaxOpenConns(4)
		db.SetMaxIdleConns(4)
	}
	if err := s.migrate(ctx); err != nil {
		return nil, err
	}
	s.insert, err = s.adds.PrepareContext(ctx, s.dialect.rebind(many(s.dialect.insert, rowsOfOne)))
	return s, err
}

// Exists reports whether there is an inventory at rawURL, so that nobody makes
// an empty one by a slip. A PostgreSQL is taken to exist.
func Exists(rawURL string) bool {
	path, ok := filePath(rawURL)
	if !ok {
		return true
	}
	_, err := os.Stat(path)
	return err == nil
}

// Close releases the database.
func (s *Store) Close() error {
	var errs []error
	if s.insert != nil {
		errs = append(errs, s.insert.Close())
	}
	if s.adds != nil && s.adds != s.db {
		errs = append(errs, s.adds.Close())
	}
	if s.db != nil {
		errs = append(errs, s.db.Close())
	}
	return errors.Join(errs...)
}

// filePath returns the path of a SQLite file, and false for a PostgreSQL.
func filePath(rawURL string) (string, bool) {
	switch scheme, rest, _ := strings.Cut(rawURL, "://"); scheme {
	case "postgres", "postgresql":
		return "", false
	case "sqlite":
		return rest, true
	}
	return rawURL, true
}

func shown(rawURL string) string {
	if path, ok := filePath(rawURL); ok {
		return path
	}
	u, err := url.Parse(rawURL)
	if err != nil {
		return "postgres://(not a URL)"
	}
	u.RawQuery, u.Fragment = "", ""
	return u.Redacted()
}

// prepareFile makes the file, so that it never has other rights than 0600:
// SQLite gives those of the file to the files beside it.
func prepareFile(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("there is no folder %s: make it, readable by its owner only", filepath.Dir(path))
	}
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return errors.New("it is no file")
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 && os.PathSeparator == '/' {
		return fmt.Errorf("its rights are %04o, and it holds payloads: chmod 600 first", mode)
	}
	return nil
}

// sqliteSource says how a file is opened. What was committed must survive a
// loss of power, because its record is acknowledged next: hence FULL. With
// secure_delete, what is deleted is overwritten, because a purge is for privacy.
func sqliteSource(path, more string) string {
	options := url.Values{"_txlock": {"immediate"}, "_pragma": {
		"busy_timeout(30000)", "journal_mode(WAL)", "synchronous(FULL)", more,
		"cache_size(-65536)", "wal_autocheckpoint(4000)", "temp_store(MEMORY)",
	}}
	escaped := (&url.URL{Path: path}).EscapedPath()
	return "file:" + escaped + "?" + options.Encode()
}

// inTx runs do in a transaction, again if the database says that it lost a race
// with another one.
func (s *Store) inTx(ctx context.Context, do func(tx *tx) error) error {
	return s.inTxOf(ctx, s.db, do)
}

func (s *Store) inTxOf(ctx context.Context, db *sql.DB, do func(tx *tx) error) error {
	const most = 5
	for try := 1; ; try++ {
		err := s.once(ctx, db, do)
		if err == nil || try == most || !s.dialect.lostRace(err) {
			return err
		}
	}
}

func (s *Store) once(ctx context.Context, db *sql.DB, do func(tx *tx) error) error {
	t, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = t.Rollback() }() // does nothing after Commit
	if err := do(&tx{t, s}); err != nil {
		return err
	}
	return t.Commit()
}

// tx is a transaction whose queries have question marks in either dialect.
type tx struct {
	*sql.Tx
	s *Store
}

func (t *tx) exec(ctx context.Context, query string, args ...any) (int64, error) {
	r, err := t.ExecContext(ctx, t.s.dialect.rebind(query), args...)
	if err != nil {
		return 0, err
	}
	return r.RowsAffected()
}

func (t *tx) query(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	return t.QueryContext(ctx, t.s.dialect.rebind(query), args...)
}

func (t *tx) row(ctx context.Context, query string, args ...any) *sql.Row {
	return t.QueryRowContext(ctx, t.s.dialect.rebind(query), args...)
}

func (s *Store) query(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	return s.db.QueryContext(ctx, s.dialect.rebind(query), args...)
}

func (s *Store) row(ctx context.Context, query string, args ...any) *sql.Row {
	return s.db.QueryRowContext(ctx, s.dialect.rebind(query), args...)
}

// each calls do for every row.
func each(rows *sql.Rows, err error, do func(scan func(...any) error) error) error {
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := do(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}

// nanos is how times are stored: nanoseconds since 1970 in UTC, 0 for none.
// What does not fit is moved to the nearest time that does.
func nanos(t time.Time) int64 {
	switch {
	case t.IsZero():
		return 0
	case t.Before(earliest):
		return 1
	case t.After(latest):
		return latest.UnixNano()
	}
	return t.UnixNano()
}

var (
	earliest = time.Unix(0, 1)
	latest   = time.Date(2262, 1, 1, 0, 0, 0, 0, time.UTC)
)

func timeOf(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.Unix(0, n).UTC()
}
