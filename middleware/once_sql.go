package middleware

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spillway-mq/spillway/failure"
)

// Dialect is the SQL that a database speaks.
type Dialect string

const (
	DialectSQLite     Dialect = "sqlite"
	DialectPostgreSQL Dialect = "postgresql"
)

// SQLStoreConfig configures [NewSQLStore].
type SQLStoreConfig struct {
	// Dialect is required.
	Dialect Dialect
	// Table defaults to "spillway_once". Letters, digits and underscores; on
	// PostgreSQL a schema may stand in front, with a dot.
	Table string
}

// SQLStore is an [OnceStore] in a database: with it, effects on that database
// happen exactly once per message. [SQLStore.Do] claims the key and calls the
// handler in one transaction, which the handler gets from [TxFrom], and commits
// effects, key and outputs together. An error, a panic or a crash rolls all of
// it back.
//
// Each message that is being handled holds a connection and a transaction. Give
// the *sql.DB as many connections as there are handlers at work, and more if
// handlers also use it directly.
//
// On PostgreSQL a duplicate waits in the database for the handler that runs. On
// SQLite, which has one writer, handlers of one store run one after the other,
// and must not write to the database but in their transaction; for other
// writers of the file set a busy timeout in the data source name.
type SQLStore struct {
	db   *sql.DB
	cfg  SQLStoreConfig
	opts *sql.TxOptions
	slot chan struct{} // of the one writer; nil where there may be many

	claim, finish, read, purge string
}

// settleTimeout bounds commit and rollback, which do not end with the context
// of the message: work that is finished must count, also during shutdown.
const settleTimeout = 30 * time.Second

var (
	plainName     = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	qualifiedName = regexp.MustCompile(`^([A-Za-z_][A-Za-z0-9_]*\.)?[A-Za-z_][A-Za-z0-9_]*$`)
)

// NewSQLStore makes a store on db, whose table must exist before the first
// message: see [SQLStore.Schema] and [SQLStore.EnsureSchema]. It does not
// connect. It fails, naming each field, when cfg makes no sense. The store
// does not close db.
func NewSQLStore(db *sql.DB, cfg SQLStoreConfig) (*SQLStore, error) {
	cfg.Table = cmp.Or(cfg.Table, "spillway_once")
	if err := errors.Join(validateDB(db), cfg.validate()); err != nil {
		return nil, err
	}
	s := &SQLStore{db: db, cfg: cfg}
	switch cfg.Dialect {
	case DialectSQLite:
		s.slot = make(chan struct{}, 1)
	case DialectPostgreSQL:
		// A stricter default of the server would turn each duplicate that had
		// to wait into a serialization failure.
		s.opts = &sql.TxOptions{Isolation: sql.LevelReadCommitted}
	}
	s.claim = s.query(`INSERT INTO {table} (message_key, recorded_at) VALUES (?, ?) ON CONFLICT (message_key) DO NOTHING`)
	s.finish = s.query(`UPDATE {table} SET outputs = ? WHERE message_key = ?`)
	s.read = s.query(`SELECT outputs IS NULL, outputs FROM {table} WHERE message_key = ?`)
	s.purge = s.query(`DELETE FROM {table} WHERE message_key IN (SELECT message_key FROM {table} WHERE recorded_at < ? LIMIT 1000)`)
	return s, nil
}

func validateDB(db *sql.DB) error {
	if db == nil {
		return errors.New("once: the database is nil")
	}
	return nil
}

func (cfg SQLStoreConfig) validate() error {
	switch cfg.Dialect {
	case DialectSQLite:
		if !plainName.MatchString(cfg.Table) {
			return fmt.Errorf("once: Table is %q, not a plain name", cfg.Table)
		}
	case DialectPostgreSQL:
		if !qualifiedName.MatchString(cfg.Table) {
			return fmt.Errorf("once: Table is %q, not a plain name with or without a schema", cfg.Table)
		}
	default:
		return fmt.Errorf("once: Dialect is %q, not sqlite or postgresql", cfg.Dialect)
	}
	return nil
}

// query puts in the table and the placeholders of the dialect.
func (s *SQLStore) query(q string) string {
	q = strings.ReplaceAll(q, "{table}", s.cfg.Table)
	if s.cfg.Dialect == DialectPostgreSQL {
		for n := 1; strings.Contains(q, "?"); n++ {
			q = strings.Replace(q, "?", fmt.Sprintf("$%d", n), 1)
		}
	}
	return q
}

// Schema returns the statements that make the table and its index, for those
// who keep them among their migrations. They do nothing where both exist.
//
// A row is a key whose handler has succeeded. recorded_at is when the handler
// began, in Unix milliseconds. outputs is null only if the handler has ended
// the transaction by itself.
func (s *SQLStore) Schema() string {
	blob := "BLOB"
	if s.cfg.Dialect == DialectPostgreSQL {
		blob = "BYTEA"
	}
	_, name, ok := strings.Cut(s.cfg.Table, ".")
	if !ok {
		name = s.cfg.Table
	}
	return strings.NewReplacer("{table}", s.cfg.Table, "{name}", name, "{blob}", blob).Replace(
		`CREATE TABLE IF NOT EXISTS {table} (
	message_key TEXT   NOT NULL PRIMARY KEY,
	recorded_at BIGINT NOT NULL,
	outputs     {blob}
);
CREATE INDEX IF NOT EXISTS {name}_recorded_at ON {table} (recorded_at);
`)
}

// EnsureSchema makes the table and its index where they don't exist. Several
// processes may do so at the same time.
func (s *SQLStore) EnsureSchema(ctx context.Context) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("once: ensure schema: %w", err)
	}
	defer tx.Rollback()
	var statements []string
	if s.cfg.Dialect == DialectPostgreSQL {
		// IF NOT EXISTS does not keep two sessions from creating the same table;
		// the number stands for "spillway once" among advisory locks.
		statements = append(statements, "SELECT pg_advisory_xact_lock(7305803119)")
	}
	for q := range strings.SplitSeq(s.Schema(), ";\n") {
		if q = strings.TrimSpace(q); q != "" {
			statements = append(statements, q)
		}
	}
	for _, q := range statements {
		if _, err := tx.ExecContext(ctx, q); err != nil {
			return fmt.Errorf("once: ensure schema: %w", err)
		}
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("once: ensure schema: %w", err)
	}
	return nil
}

// Purge forgets keys that were recorded longer ago than olderThan, and returns
// how many. A message with such a key would be handled again, so olderThan must
// be longer than messages can be on their way: retries, parking, and how long
// dead letters stay before they are replayed. It must be positive. Purge
// deletes in small steps; when it fails, it has deleted as many as it says.
func (s *SQLStore) Purge(ctx context.Context, olderThan time.Duration) (int64, error) {
	if olderThan <= 0 {
		return 0, fmt.Errorf("once: purge keys older than %v: must be positive", olderThan)
	}
	before := time.Now().Add(-olderThan).UnixMilli()
	var purged int64
	for {
		n, err := s.purgeSome(ctx, before)
		purged += n
		if err != nil {
			return purged, fmt.Errorf("once: purge: %w", err)
		}
		if n == 0 {
			return purged, nil
		}
	}
}

func (s *SQLStore) purgeSome(ctx context.Context, before int64) (int64, error) {
	release, err := s.acquire(ctx)
	if err != nil {
		return 0, err
	}
	defer release()
	res, err := s.db.ExecContext(ctx, s.purge, before)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

// acquire waits for the turn of the one writer, where there is only one.
func (s *SQLStore) acquire(ctx context.Context) (release func(), err error) {
	if s.slot == nil {
		return func() {}, nil
	}
	select {
	case s.slot <- struct{}{}:
		return func() { <-s.slot }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Do implements [OnceStore]. The context of fn carries the transaction. An
// error before fn was called is marked as transient; one of the commit is left
// to the classifier, because a deferred constraint of the user's tables may be
// behind it.
//
// The end of ctx stops the wait for a connection, and for a duplicate, but does
// not undo what fn has finished: commit and rollback may take 30 s more.
func (s *SQLStore) Do(ctx context.Context, key string, fn func(context.Context) ([]byte, error)) ([]byte, bool, error) {
	release, err := s.acquire(ctx)
	if err != nil {
		return nil, false, notRun("wait for another handler", err)
	}
	defer release()
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return nil, false, notRun("connect", err)
	}
	defer conn.Close() // gives it back to the pool

	// The transaction has a context of its own, which ends with ctx only until
	// the handler is called.
	txCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	detach := context.AfterFunc(ctx, cancel)
	defer detach()
	tx, err := conn.BeginTx(txCtx, s.opts)
	if err != nil {
		return nil, false, notRun("begin", err)
	}
	settle := func(how func() error) error {
		defer time.AfterFunc(settleTimeout, cancel).Stop()
		return how()
	}
	// Does nothing after a commit. If it fails, the connection is gone, and the
	// database rolls back by itself.
	defer settle(tx.Rollback)

	mine, err := s.claimKey(ctx, tx, key)
	if err != nil {
		return nil, false, notRun("claim", err)
	}
	if !mine {
		outputs, err := s.outputsOf(ctx, tx, key)
		return outputs, err == nil, err
	}
	if !detach() {
		return nil, false, notRun("claim", ctx.Err())
	}

	result, err := s.call(ctx, tx, fn)
	if err != nil {
		return nil, false, err
	}
	err = settle(func() error {
		if result == nil {
			result = []byte{} // null would mean that nobody got this far
		}
		if _, err := tx.ExecContext(txCtx, s.finish, result, key); err != nil {
			if errors.Is(err, sql.ErrTxDone) {
				return errTxEnded
			}
			return fmt.Errorf("keep outputs: %w", err)
		}
		if err := tx.Commit(); err != nil {
			return fmt.Errorf("commit: %w", err)
		}
		return nil
	})
	return result, false, err
}

var errTxEnded = errors.New("the handler has committed or rolled back the transaction of TxFrom, which is not its to end")

func notRun(what string, err error) error {
	return failure.Transient(fmt.Errorf("%s: %w", what, err))
}

// claimKey reports whether the key is new. It waits while another transaction
// that claimed it is open.
func (s *SQLStore) claimKey(ctx context.Context, tx *sql.Tx, key string) (bool, error) {
	res, err := tx.ExecContext(ctx, s.claim, key, time.Now().UnixMilli())
	if err != nil {
		return false, err
	}
	n, err := res.RowsAffected()
	return n == 1, err
}

func (s *SQLStore) outputsOf(ctx context.Context, tx *sql.Tx, key string) ([]byte, error) {
	// An empty value is not null, but drivers may return nil for it.
	var unknown bool
	var outputs []byte
	if err := tx.QueryRowContext(ctx, s.read, key).Scan(&unknown, &outputs); err != nil {
		return nil, notRun("read outputs", err) // sql.ErrNoRows: purged just now
	}
	if unknown {
		return nil, failure.Permanent(errors.New("the effects of this message are committed, but its outputs are unknown: "+errTxEnded.Error()), failure.Code("ONCE_OUTPUTS_UNKNOWN"))
	}
	return outputs, nil
}

func (s *SQLStore) call(ctx context.Context, tx *sql.Tx, fn func(context.Context) ([]byte, error)) ([]byte, error) {
	var open openTx
	open.tx.Store(tx)
	defer open.tx.Store(nil)
	return fn(context.WithValue(ctx, txKey{}, &open))
}

type txKey struct{}

// openTx is emptied when the handler has returned, because contexts are kept
// longer than that: in outputs, for one.
type openTx struct{ tx atomic.Pointer[sql.Tx] }

// TxFrom returns the transaction in which [SQLStore] commits the effects of the
// handler that ctx, the context of its message, belongs to. The handler must
// neither commit it nor roll it back; to undo, it returns an error. There is
// none outside of a handler under [Once] with a SQLStore, and after it has
// returned.
func TxFrom(ctx context.Context) (*sql.Tx, bool) {
	open, ok := ctx.Value(txKey{}).(*openTx)
	if !ok {
		return nil, false
	}
	tx := open.tx.Load()
	return tx, tx != nil
}
