BEGIN TRANSACTION;
CREATE TABLE audit (
	seq     INTEGER PRIMARY KEY AUTOINCREMENT,
	at      BIGINT NOT NULL,
	author  TEXT NOT NULL,
	action  TEXT NOT NULL,
	target  TEXT NOT NULL,
	filter  TEXT NOT NULL,
	total   BIGINT NOT NULL,
	details TEXT NOT NULL -- as JSON
);
INSERT INTO "audit" VALUES(1,1796085779320080405,'ana','collect','orders.billing.dlq','',5,'');
CREATE TABLE dead_letters (
	seq            INTEGER PRIMARY KEY AUTOINCREMENT,
	id             TEXT NOT NULL,    -- the dead letter's
	id_hash        BIGINT NOT NULL,
	fingerprint    BLOB NOT NULL, -- of what two dead letters of one id must share
	group_id       TEXT NOT NULL,
	state          TEXT NOT NULL,
	stream         TEXT NOT NULL,    -- that it was collected from
	message_hash   BIGINT,           -- of the message's id
	aggregate_hash BIGINT,
	key_hash       BIGINT,
	failed_at      BIGINT NOT NULL,  -- all times are nanoseconds since 1970 in UTC
	collected_at   BIGINT NOT NULL,
	purged_at      BIGINT NOT NULL,  -- when payload, key and headers were removed, or 0
	document       TEXT NOT NULL,    -- the dead letter as JSON, without those three
	raw_key        BLOB,
	headers        TEXT NOT NULL,    -- as JSON
	payload        BLOB
);
INSERT INTO "dead_letters" VALUES(1,'a0',5625442194607170974,X'422913A1D7B6CB6DA4BC3B665843AD68D3D8675302452047B09B8700976CC906','gnm47eefh2uu7','open','orders.billing.dlq',-4860519675359134422,122494696054262221,-966376839844458849,1793610000000000000,1796085779277552270,0,'{"deadLetterId":"a0","failedMessage":{"id":"m-a0","type":"OrderPlaced","aggregate":"order-a0"},"failure":{"class":"validation","nature":"permanent","code":"INVALID_SCHEMA","message":"no field \"amount\"","reason":"permanent","attempts":1,"firstAttemptAt":"2026-11-02T08:59:00.000000000Z","failedAt":"2026-11-02T09:00:00.000000000Z"},"source":{"broker":"rabbitmq","topic":"orders"},"consumer":{"group":"billing","handler":"charge","version":"1.8.2"},"traceId":"trace-a0"}',X'6B2D6130','[{"key":"x-tenant","value":"acme"},{"key":"x-tenant","valueBase64":"/wA="},{"key":"n","value":"7","type":"int"}]',X'7B226E223A317D');
INSERT INTO "dead_letters" VALUES(2,'a1',-765627950858751136,X'4FE4B0BF57F223E0CCCF1361C7A94CD3B99CA3E487CD0D4E87E0D25D55461FB0','gnm47eefh2uu7','open','orders.billing.dlq',269430715509881514,-9147747675430853304,2401587069382589078,1793610001000000000,1796085779277552270,0,'{"deadLetterId":"a1","failedMessage":{"id":"m-a1","type":"OrderPlaced","aggregate":"order-a1"},"failure":{"class":"validation","nature":"permanent","code":"INVALID_SCHEMA","message":"no field \"amount\"","reason":"permanent","attempts":1,"firstAttemptAt":"2026-11-02T08:59:01.000000000Z","failedAt":"2026-11-02T09:00:01.000000000Z"},"source":{"broker":"rabbitmq","topic":"orders"},"consumer":{"group":"billing","handler":"charge","version":"1.8.2"},"traceId":"trace-a1"}',X'6B2D6131','[{"key":"x-tenant","value":"acme"},{"key":"x-tenant","valueBase64":"/wA="},{"key":"n","value":"7","type":"int"}]',X'7B226E223A317D');
INSERT INTO "dead_letters" VALUES(3,'a2',3186932571232563205,X'22CA83F5BE85D53468E799B55085F4E6617DD6F0C9D22711EB849AE9DABAC8DE','gnm47eefh2uu7','open','orders.billing.dlq',-409476594877509220,-3250848766655546212,-763518114388273700,1793610002000000000,1796085779277552270,0,'{"deadLetterId":"a2","failedMessage":{"id":"m-a2","type":"OrderPlaced","aggregate":"order-a2"},"failure":{"class":"validation","nature":"permanent","code":"INVALID_SCHEMA","message":"no field \"amount\"","reason":"permanent","attempts":1,"firstAttemptAt":"2026-11-02T08:59:02.000000000Z","failedAt":"2026-11-02T09:00:02.000000000Z"},"source":{"broker":"rabbitmq","topic":"orders"},"consumer":{"group":"billing","handler":"charge","version":"1.8.2"},"traceId":"trace-a2"}',X'6B2D6132','[{"key":"x-tenant","value":"acme"},{"key":"x-tenant","valueBase64":"/wA="},{"key":"n","value":"7","type":"int"}]',X'7B226E223A317D');
INSERT INTO "dead_letters" VALUES(4,'b',4477677635727087946,X'C3FDCF804E3A687D136604D7AE9ADF157B22018A4BAFFFD75D48572B33DC6FD7','gyebjiojafbw5','open','orders.billing.dlq',7523432149837458237,1913408492402797150,-123853722284075205,1793610000000000000,1796085779297221117,0,'{"deadLetterId":"b","failedMessage":{"id":"m-b","type":"OrderPlaced","aggregate":"order-b"},"failure":{"class":"validation","nature":"permanent","code":"INVALID_SCHEMA","message":"dial tcp 10.0.0.1:5432: connection refused","reason":"permanent","attempts":1,"firstAttemptAt":"2026-11-02T08:59:00.000000000Z","failedAt":"2026-11-02T09:00:00.000000000Z"},"source":{"broker":"rabbitmq","topic":"orders"},"consumer":{"group":"billing","handler":"charge","version":"1.8.2"},"traceId":"trace-b"}',X'6B2D62','[{"key":"x-tenant","value":"acme"},{"key":"x-tenant","valueBase64":"/wA="},{"key":"n","value":"7","type":"int"}]',X'7B226E223A317D');
INSERT INTO "dead_letters" VALUES(5,'next',-4124794052647043298,X'6470D8CFB06C8E5980B26142E7CBFA5831A2C325C81AD35219BD4BE84BFC9798','g3wu2f3dggij6','open','orders.billing.dlq',-6462207162489032107,5902893740465810410,262956032877393912,1794214800000000000,1796085779297221117,0,'{"deadLetterId":"next","failedMessage":{"id":"m-next","type":"OrderPlaced","aggregate":"order-next"},"failure":{"class":"validation","nature":"permanent","code":"INVALID_SCHEMA","message":"no field \"amount\"","reason":"permanent","attempts":1,"firstAttemptAt":"2026-11-09T08:59:00.000000000Z","failedAt":"2026-11-09T09:00:00.000000000Z"},"source":{"broker":"rabbitmq","topic":"orders"},"consumer":{"group":"billing","handler":"charge","version":"1.9.0"},"traceId":"trace-next"}',X'6B2D6E657874','[{"key":"x-tenant","value":"acme"},{"key":"x-tenant","valueBase64":"/wA="},{"key":"n","value":"7","type":"int"}]',X'7B226E223A317D');
CREATE TABLE quarantine (
	seq          INTEGER PRIMARY KEY AUTOINCREMENT,
	fingerprint  BLOB NOT NULL,
	copies       BIGINT NOT NULL DEFAULT 1, -- records that are alike in every byte
	stream       TEXT NOT NULL,
	cause        TEXT NOT NULL,
	collected_at BIGINT NOT NULL,
	message_id   TEXT NOT NULL,
	position     TEXT NOT NULL, -- in its stream, as JSON
	raw_key      BLOB,
	headers      TEXT NOT NULL, -- as JSON
	payload      BLOB
);
INSERT INTO "quarantine" VALUES(1,X'61CC1DBA066ABFADE67FE76360DBF8CC2D2E8848A51ABCDFBDAA34B3FA033C93',1,'orders.billing.dlq','no form that is known',1796085779314301626,'q','{"Topic":"","Partition":null,"Offset":null,"Timestamp":"0001-01-01T00:00:00Z"}',NULL,'',X'3F');
CREATE TABLE spillway_schema (version BIGINT NOT NULL PRIMARY KEY, migrated_at BIGINT NOT NULL);
INSERT INTO "spillway_schema" VALUES(1,1796085779260714123);
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
INSERT INTO "triage_groups" VALUES('gnm47eefh2uu7','validation','1.8.2','s1:udrxtl6erh4u6hug','no field "amount"',3,3,1793610000000000000,1793610002000000000,1796085779277552270,'{"class":"validation","consumerVersion":"1.8.2","signatureId":"s1:udrxtl6erh4u6hug","signature":"no field \"amount\"","count":3,"firstSeen":"2026-11-02T08:59:00Z","lastSeen":"2026-11-02T08:59:02Z","lastFailed":"2026-11-02T09:00:02Z","timeline":[[1793609940000,1793609942000,3]],"codes":[{"name":"INVALID_SCHEMA","count":3}],"consumers":[{"name":"billing","count":3}],"topics":[{"name":"orders","count":3}],"aggregates":[{"name":"order-a0","count":1},{"name":"order-a1","count":1},{"name":"order-a2","count":1}],"sample":{"deadLetterId":"a2","message":"no field \"amount\"","code":"INVALID_SCHEMA","topic":"orders","aggregate":"order-a2","traceId":"trace-a2","failedAt":"2026-11-02T09:00:02Z"}}');
INSERT INTO "triage_groups" VALUES('g3wu2f3dggij6','validation','1.9.0','s1:udrxtl6erh4u6hug','no field "amount"',1,1,1794214800000000000,1794214800000000000,1796085779297221117,'{"class":"validation","consumerVersion":"1.9.0","signatureId":"s1:udrxtl6erh4u6hug","signature":"no field \"amount\"","count":1,"firstSeen":"2026-11-09T08:59:00Z","lastSeen":"2026-11-09T08:59:00Z","lastFailed":"2026-11-09T09:00:00Z","timeline":[[1794214740000,1794214740000,1]],"codes":[{"name":"INVALID_SCHEMA","count":1}],"consumers":[{"name":"billing","count":1}],"topics":[{"name":"orders","count":1}],"aggregates":[{"name":"order-next","count":1}],"sample":{"deadLetterId":"next","message":"no field \"amount\"","code":"INVALID_SCHEMA","topic":"orders","aggregate":"order-next","traceId":"trace-next","failedAt":"2026-11-09T09:00:00Z"}}');
INSERT INTO "triage_groups" VALUES('gyebjiojafbw5','validation','1.8.2','s1:qb5wicoe7esownfb','dial tcp 10.0.0.1:5432: connection refused',1,1,1793610000000000000,1793610000000000000,1796085779297221117,'{"class":"validation","consumerVersion":"1.8.2","signatureId":"s1:qb5wicoe7esownfb","signature":"dial tcp 10.0.0.1:5432: connection refused","count":1,"firstSeen":"2026-11-02T08:59:00Z","lastSeen":"2026-11-02T08:59:00Z","lastFailed":"2026-11-02T09:00:00Z","timeline":[[1793609940000,1793609940000,1]],"codes":[{"name":"INVALID_SCHEMA","count":1}],"consumers":[{"name":"billing","count":1}],"topics":[{"name":"orders","count":1}],"aggregates":[{"name":"order-b","count":1}],"sample":{"deadLetterId":"b","message":"dial tcp 10.0.0.1:5432: connection refused","code":"INVALID_SCHEMA","topic":"orders","aggregate":"order-b","traceId":"trace-b","failedAt":"2026-11-02T09:00:00Z"}}');
CREATE TABLE versions (
	consumer   TEXT NOT NULL,
	version    TEXT NOT NULL,
	first_seen BIGINT NOT NULL,
	PRIMARY KEY (consumer, version)
) WITHOUT ROWID;
INSERT INTO "versions" VALUES('billing','1.8.2',1793610000000000000);
INSERT INTO "versions" VALUES('billing','1.9.0',1794214800000000000);
CREATE UNIQUE INDEX dead_letters_id ON dead_letters (id_hash);
CREATE INDEX dead_letters_group ON dead_letters (group_id, stream, state, failed_at);
CREATE INDEX dead_letters_message ON dead_letters (message_hash) WHERE message_hash IS NOT NULL;
CREATE INDEX dead_letters_aggregate ON dead_letters (aggregate_hash) WHERE aggregate_hash IS NOT NULL;
CREATE INDEX dead_letters_key ON dead_letters (key_hash) WHERE key_hash IS NOT NULL;
CREATE INDEX triage_groups_cause ON triage_groups (class, signature_id);
CREATE UNIQUE INDEX quarantine_fingerprint ON quarantine (fingerprint);
CREATE INDEX audit_target ON audit (target);
CREATE TRIGGER audit_update BEFORE UPDATE ON audit BEGIN SELECT RAISE(ABORT, 'the audit is append only'); END;
CREATE TRIGGER audit_delete BEFORE DELETE ON audit BEGIN SELECT RAISE(ABORT, 'the audit is append only'); END;
COMMIT;
