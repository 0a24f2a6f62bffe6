package inventory

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"
)

// migration is one step from a version of the schema to the next. A step that
// was released is never changed.
type migration struct {
	common           string // for both
	sqlite, postgres string // after it
}

// migrations[0] leads from nothing to version 1.
var migrations = []migration{version1, version2, version3}

var version1 = migration{
	common: `
-- Ids are looked up by the first 64 bits of their SHA-256: an index of numbers
-- is a third of one of texts, and whoever looks compares the text as well.
CREATE TABLE dead_letters (
	seq            {serial},
	id             TEXT NOT NULL,    -- the dead letter's
	id_hash        BIGINT NOT NULL,
	fingerprint    {bytes} NOT NULL, -- of what two dead letters of one id must share
	group_id       TEXT NOT NULL,
	state          TEXT NOT NULL,
	stream         TEXT NOT NULL,    -- that it was collected from
	message_hash   BIGINT,           -- of the message's id
	aggregate_hash BIGINT,
	key_hash       BIGINT,
	failed_at      BIGINT NOT NULL,  -- all times are nanoseconds since 1970 in UTC
	collected_at   BIGINT NOT NULL,
	purged_at      BIGINT NOT NULL,  -- when payload, key and headers were removed, 0 if not, -1 if never there
	document       TEXT NOT NULL,    -- the dead letter as JSON, without those three
	raw_key        {bytes},
	headers        TEXT NOT NULL,    -- as JSON
	payload        {bytes}
);
CREATE UNIQUE INDEX dead_letters_id ON dead_letters (id_hash);
CREATE INDEX dead_letters_group ON dead_letters (group_id, stream, state, failed_at);
CREATE INDEX dead_letters_message ON dead_letters (message_hash) WHERE message_hash IS NOT NULL;
CREATE INDEX dead_letters_aggregate ON dead_letters (aggregate_hash) WHERE aggregate_hash IS NOT NULL;
CREATE INDEX dead_letters_key ON dead_letters (key_hash) WHERE key_hash IS NOT NULL;

CREATE TABLE triage_groups (
	id           TEXT NOT NULL PRIMARY KEY,
	class        TEXT NOT NULL,
	version      TEXT NOT NULL,   -- of the consumer
	signature_id TEXT NOT NULL,
	signature    TEXT NOT NULL,
	total        BIGINT NOT NULL, -- dead letters
	still_open   BIGINT NOT NULL, -- of them not closed
	first_failed BIGINT NOT NULL,
	last_failed  BIGINT NOT NULL,
	collected_at BIGINT NOT NULL, -- the first of them
	aggregate    TEXT NOT NULL    -- of those not closed: a triage.Aggregate as JSON
);
CREATE INDEX triage_groups_cause ON triage_groups (class, signature_id);

-- When a version of a consumer was first seen to fail.
CREATE TABLE versions (
	consumer   TEXT NOT NULL,
	version    TEXT NOT NULL,
	first_seen BIGINT NOT NULL,
	PRIMARY KEY (consumer, version)
) {clustered};

-- Records that could not be decoded, as they came.
CREATE TABLE quarantine (
	seq          {serial},
	fingerprint  {bytes} NOT NULL,
	copies       BIGINT NOT NULL DEFAULT 1, -- records that are alike in every byte
	stream       TEXT NOT NULL,
	cause        TEXT NOT NULL,
	collected_at BIGINT NOT NULL,
	message_id   TEXT NOT NULL,
	position     TEXT NOT NULL, -- in its stream, as JSON
	raw_key      {bytes},
	headers      TEXT NOT NULL, -- as JSON
	payload      {bytes}
);
CREATE UNIQUE INDEX quarantine_fingerprint ON quarantine (fingerprint);

CREATE TABLE audit (
	seq     {serial},
	at      BIGINT NOT NULL,
	author  TEXT NOT NULL,
	action  TEXT NOT NULL,
	target  TEXT NOT NULL,
	filter  TEXT NOT NULL,
	total   BIGINT NOT NULL,
	details TEXT NOT NULL -- as JSON
);
CREATE INDEX audit_target ON audit (target);
`,
	sqlite: `
CREATE TRIGGER audit_update BEFORE UPDATE ON audit BEGIN SELECT RAISE(ABORT, 'the audit is append only'); END;
CREATE TRIGGER audit_delete BEFORE DELETE ON audit BEGIN SELECT RAISE(ABORT, 'the audit is append only'); END;
`,
	postgres: `
CREATE FUNCTION spillway_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	RAISE EXCEPTION 'the % is append only', TG_TABLE_NAME;
END $$;
CREATE TRIGGER audit_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON audit
	FOR EACH STATEMENT EXECUTE FUNCTION spillway_append_only();
`,
}

// Version 2 has decisions.
var version2 = migration{
	common: `
ALTER TABLE dead_letters ADD COLUMN closed_at BIGINT NOT NULL DEFAULT 0;
ALTER TABLE dead_letters ADD COLUMN closed_by BIGINT NOT NULL DEFAULT 0; -- the decision
CREATE INDEX dead_letters_to_purge ON dead_letters (closed_at) WHERE state = 'closed' AND purged_at = 0;

CREATE TABLE decisions (
	seq          {serial},
	at           BIGINT NOT NULL,
	author       TEXT NOT NULL,
	action       TEXT NOT NULL,
	group_id     TEXT NOT NULL,
	class        TEXT NOT NULL,
	signature_id TEXT NOT NULL,
	signature    TEXT NOT NULL,
	consumers    TEXT NOT NULL,
	version      TEXT NOT NULL,   -- of the consumer
	reason       TEXT NOT NULL,
	fixed_in     TEXT NOT NULL,
	note         TEXT NOT NULL,
	affected     BIGINT NOT NULL, -- dead letters
	first_seen   BIGINT NOT NULL, -- of their first attempts
	last_seen    BIGINT NOT NULL,
	muted_until  BIGINT NOT NULL,
	takes_back   BIGINT NOT NULL  -- the decision that a reopening takes back, or 0
);
CREATE INDEX decisions_group ON decisions (group_id);
CREATE INDEX decisions_cause ON decisions (class, signature_id);
CREATE INDEX decisions_takes_back ON decisions (takes_back) WHERE takes_back <> 0;

-- What a decision has closed: a triage.Aggregate as JSON.
CREATE TABLE closed_aggregates (
	decision  BIGINT NOT NULL PRIMARY KEY,
	group_id  TEXT NOT NULL,
	aggregate TEXT NOT NULL
);
`,
	sqlite: `
CREATE TRIGGER decisions_update BEFORE UPDATE ON decisions BEGIN SELECT RAISE(ABORT, 'decisions are append only'); END;
CREATE TRIGGER decisions_delete BEFORE DELETE ON decisions BEGIN SELECT RAISE(ABORT, 'decisions are append only'); END;
`,
	postgres: `
CREATE TRIGGER decisions_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON decisions
	FOR EACH STATEMENT EXECUTE FUNCTION spillway_append_only();
`,
}

// Version 3 has groups that become others: the rules of signatures change, and
// people overrule them.
var version3 = migration{
	common: `
-- What became of groups whose dead letters were signed anew, also over several
-- steps.
CREATE TABLE successors (
	old_group        TEXT NOT NULL,
	group_id         TEXT NOT NULL,
	class            TEXT NOT NULL,
	old_signature_id TEXT NOT NULL,
	signature_id     TEXT NOT NULL,
	merged           BIGINT NOT NULL, -- 1 if others are in the group, too
	PRIMARY KEY (old_group, group_id)
);
CREATE INDEX successors_group ON successors (group_id);

-- Signatures that a person overrules. They are known by a text, which is signed
-- by the rules in force.
CREATE TABLE overrides (
	seq        {serial},
	at         BIGINT NOT NULL,
	author     TEXT NOT NULL,
	class      TEXT NOT NULL,
	text       TEXT NOT NULL,  -- an error text of the signature
	into_text  TEXT NOT NULL,  -- one of the signature that it counts as, or empty
	field      TEXT NOT NULL,  -- that tells its dead letters apart, or empty
	note       TEXT NOT NULL,
	removed_at BIGINT NOT NULL -- or 0
);

-- A mute ends with a time, with so many dead letters, or with a rate.
ALTER TABLE decisions ADD COLUMN muted_total BIGINT NOT NULL DEFAULT 0; -- that the group has had then, or 0
ALTER TABLE decisions ADD COLUMN muted_rate BIGINT NOT NULL DEFAULT 0;  -- failures in an hour, or 0

-- How many signatures of a consumer were new in an hour.
CREATE TABLE new_signatures (
	consumer TEXT NOT NULL PRIMARY KEY,
	hour     BIGINT NOT NULL, -- since 1970
	n        BIGINT NOT NULL
) {clustered};
`,
	// What one decision has closed may be in several groups now.
	sqlite: `
ALTER TABLE closed_aggregates RENAME TO closed_aggregates_2;
CREATE TABLE closed_aggregates (
	decision  BIGINT NOT NULL,
	group_id  TEXT NOT NULL,
	aggregate TEXT NOT NULL,
	PRIMARY KEY (decision, group_id)
);
INSERT INTO closed_aggregates (decision, group_id, aggregate) SELECT decision, group_id, aggregate FROM closed_aggregates_2;
DROP TABLE closed_aggregates_2;
`,
	postgres: `
ALTER TABLE closed_aggregates DROP CONSTRAINT closed_aggregates_pkey;
ALTER TABLE closed_aggregates ADD PRIMARY KEY (decision, group_id);
`,
}

// migrate brings the database to the present version, or fails and changes
// nothing. Of several instances that start together one does it.
func (s *Store) migrate(ctx context.Context) error {
	version, err := s.version(ctx)
	if err == nil && version == len(migrations) {
		return nil // without a right to change the schema, too
	}
	return s.inTx(ctx, func(tx *tx) error {
		if lock := s.dialect.lock; lock != "" {
			if _, err := tx.ExecContext(ctx, lock); err != nil {
				return err
			}
		}
		_, err := tx.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS spillway_schema (version BIGINT NOT NULL PRIMARY KEY, migrated_at BIGINT NOT NULL)`)
		if err != nil {
			return err
		}
		var version int
		if err := tx.row(ctx, `SELECT COALESCE(MAX(version), 0) FROM spillway_schema`).Scan(&version); err != nil {
			return err
		}
		if version > len(migrations) {
			return fmt.Errorf("%w: its schema has version %d, this program knows up to %d", ErrNewer, version, len(migrations))
		}
		for ; version < len(migrations); version++ {
			m := migrations[version]
			for _, text := range []string{m.common, m.of(s.dialect)} {
				if text = s.dialect.types.Replace(text); strings.TrimSpace(text) == "" {
					continue
				}
				if _, err := tx.ExecContext(ctx, text); err != nil {
					return fmt.Errorf("migrate to version %d: %w", version+1, err)
				}
			}
			if _, err := tx.exec(ctx, `INSERT INTO spillway_schema (version, migrated_at) VALUES (?, ?)`, version+1, nanos(time.Now())); err != nil {
				return err
			}
		}
		return nil
	})
}

func (m migration) of(d dialect) string {
	if d.name == sqlite.name {
		return m.sqlite
	}
	return m.postgres
}

// version is that of the schema. An error may mean that there is none yet.
func (s *Store) version(ctx context.Context) (version int, err error) {
	err = s.row(ctx, `SELECT MAX(version) FROM spillway_schema`).Scan(&version)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, nil
	}
	return version, err
}
