package inventory

import (
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	driver "modernc.org/sqlite"
	lib "modernc.org/sqlite/lib"
)

// dialect is in what the two databases differ.
type dialect struct {
	name string
	// types are put in the place of names in braces in a migration.
	types *strings.Replacer
	// lock keeps other migrations out until the end of the transaction.
	lock      string
	forUpdate string // ends a query whose rows are changed next
	numbered  bool   // parameters are $1 and not ?
	// insert inserts a dead letter, unless its id is there. With returning it
	// returns the hash of the id if it was not; otherwise nobody else inserts
	// meanwhile, so what is new has a higher seq.
	insert    string
	returning bool
}

var (
	sqlite = dialect{
		name: "sqlite",
		// OR FAIL spares a journal of each statement, which is only of use to those
		// who go on after an error; the transaction is rolled back instead.
		insert: strings.Replace(intoDeadLetters, "INSERT", "INSERT OR FAIL", 1),
		types:  strings.NewReplacer("{serial}", "INTEGER PRIMARY KEY AUTOINCREMENT", "{bytes}", "BLOB", "{clustered}", "WITHOUT ROWID"),
	}
	postgres = dialect{
		name:      "postgres",
		insert:    intoDeadLetters + " RETURNING id_hash",
		returning: true,
		types:     strings.NewReplacer("{serial}", "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY", "{bytes}", "BYTEA", "{clustered}", ""),
		lock:      "SELECT pg_advisory_xact_lock(7735260194)",
		forUpdate: " FOR UPDATE",
		numbered:  true,
	}
)

// rebind puts numbered parameters in the place of question marks. No query of
// ours has one in a text.
func (d dialect) rebind(query string) string {
	if !d.numbered {
		return query
	}
	var b strings.Builder
	for n := 1; ; n++ {
		head, tail, ok := strings.Cut(query, "?")
		b.WriteString(head)
		if !ok {
			return b.String()
		}
		b.WriteByte('$')
		b.WriteString(strconv.Itoa(n))
		query = tail
	}
}

// lostRace reports whether the same transaction can succeed if it is repeated.
// SQLite waits instead: its transactions begin with the lock for writing.
func (d dialect) lostRace(err error) bool {
	e, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (e.Code == "40001" || e.Code == "40P01")
}

// refuses reports whether the database will never take what it was given, as
// against not now.
func (d dialect) refuses(err error) bool {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		// Data exceptions, integrity, and limits such as the size of a field.
		return slices.ContainsFunc([]string{"22", "23", "54"}, func(class string) bool { return strings.HasPrefix(e.Code, class) })
	}
	if e, ok := errors.AsType[*driver.Error](err); ok {
		// The lowest byte is the code, the rest details.
		return slices.Contains([]int{lib.SQLITE_TOOBIG, lib.SQLITE_CONSTRAINT, lib.SQLITE_MISMATCH}, e.Code()&0xff)
	}
	return false
}
