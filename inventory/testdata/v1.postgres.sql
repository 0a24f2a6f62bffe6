
CREATE FUNCTION spillway_append_only() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
	RAISE EXCEPTION 'the % is append only', TG_TABLE_NAME;
END $$;

CREATE TABLE audit (
    seq bigint NOT NULL,
    at bigint NOT NULL,
    author text NOT NULL,
    action text NOT NULL,
    target text NOT NULL,
    filter text NOT NULL,
    total bigint NOT NULL,
    details text NOT NULL
);

ALTER TABLE audit ALTER COLUMN seq ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME audit_seq_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE dead_letters (
    seq bigint NOT NULL,
    id text NOT NULL,
    id_hash bigint NOT NULL,
    fingerprint bytea NOT NULL,
    group_id text NOT NULL,
    state text NOT NULL,
    stream text NOT NULL,
    message_hash bigint,
    aggregate_hash bigint,
    key_hash bigint,
    failed_at bigint NOT NULL,
    collected_at bigint NOT NULL,
    purged_at bigint NOT NULL,
    document text NOT NULL,
    raw_key bytea,
    headers text NOT NULL,
    payload bytea
);

ALTER TABLE dead_letters ALTER COLUMN seq ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME dead_letters_seq_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE quarantine (
    seq bigint NOT NULL,
    fingerprint bytea NOT NULL,
    copies bigint DEFAULT 1 NOT NULL,
    stream text NOT NULL,
    cause text NOT NULL,
    collected_at bigint NOT NULL,
    message_id text NOT NULL,
    "position" text NOT NULL,
    raw_key bytea,
    headers text NOT NULL,
    payload bytea
);

ALTER TABLE quarantine ALTER COLUMN seq ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME quarantine_seq_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE spillway_schema (
    version bigint NOT NULL,
    migrated_at bigint NOT NULL
);

CREATE TABLE triage_groups (
    id text NOT NULL,
    class text NOT NULL,
    version text NOT NULL,
    signature_id text NOT NULL,
    signature text NOT NULL,
    total bigint NOT NULL,
    still_open bigint NOT NULL,
    first_failed bigint NOT NULL,
    last_failed bigint NOT NULL,
    collected_at bigint NOT NULL,
    aggregate text NOT NULL
);

CREATE TABLE versions (
    consumer text NOT NULL,
    version text NOT NULL,
    first_seen bigint NOT NULL
);

INSERT INTO audit OVERRIDING SYSTEM VALUE VALUES (1, 1796085786379124496, 'ana', 'collect', 'orders.billing.dlq', '', 5, '');

INSERT INTO dead_letters OVERRIDING SYSTEM VALUE VALUES (1, 'a0', 5625442194607170974, '\x422913a1d7b6cb6da4bc3b665843ad68d3d8675302452047b09b8700976cc906', 'gnm47eefh2uu7', 'open', 'orders.billing.dlq', -4860519675359134422, 122494696054262221, -966376839844458849, 1793610000000000000, 1796085786333308237, 0, '{"deadLetterId":"a0","failedMessage":{"id":"m-a0","type":"OrderPlaced","aggregate":"order-a0"},"failure":{"class":"validation","nature":"permanent","code":"INVALID_SCHEMA","message":"no field \"amount\"","reason":"permanent","attempts":1,"firstAttemptAt":"2026-11-02T08:59:00.000000000Z","failedAt":"2026-11-02T09:00:00.000000000Z"},"source":{"broker":"rabbitmq","topic":"orders"},"consumer":{"group":"billing","handler":"charge","version":"1.8.2"},"traceId":"trace-a0"}', '\x6b2d6130', '[{"key":"x-tenant","value":"acme"},{"key":"x-tenant","valueBase64":"/wA="},{"key":"n","value":"7","type":"int"}]', '\x7b226e223a317d');
INSERT INTO dead_letters OVERRIDING SYSTEM VALUE VALUES (2, 'a1', -765627950858751136, '\x4fe4b0bf57f223e0cccf1361c7a94cd3b99ca3e487cd0d4e87e0d25d55461fb0', 'gnm47eefh2uu7', 'open', 'orders.billing.dlq', 269430715509881514, -9147747675430853304, 2401587069382589078, 1793610001000000000, 1796085786333308237, 0, '{"deadLetterId":"a1","failedMessage":{"id":"m-a1","type":"OrderPlaced","aggregate":"order-a1"},"failure":{"class":"validation","nature":"permanent","code":"INVALID_SCHEMA","message":"no field \"amount\"","reason":"permanent","attempts":1,"firstAttemptAt":"2026-11-02T08:59:01.000000000Z","failedAt":"2026-11-02T09:00:01.000000000Z"},"source":{"broker":"rabbitmq","topic":"orders"},"consumer":{"group":"billing","handler":"charge","version":"1.8.2"},"traceId":"trace-a1"}', '\x6b2d6131', '[{"key":"x-tenant","value":"acme"},{"key":"x-tenant","valueBase64":"/wA="},{"key":"n","value":"7","type":"int"}]', '\x7b226e223a317d');
INSERT INTO dead_letters OVERRIDING SYSTEM VALUE VALUES (3, 'a2', 3186932571232563205, '\x22ca83f5be85d53468e799b55085f4e6617dd6f0c9d22711eb849ae9dabac8de', 'gnm47eefh2uu7', 'open', 'orders.billing.dlq', -409476594877509220, -3250848766655546212, -763518114388273700, 1793610002000000000, 1796085786333308237, 0, '{"deadLetterId":"a2","failedMessage":{"id":"m-a2","type":"OrderPlaced","aggregate":"order-a2"},"failure":{"class":"validation","nature":"permanent","code":"INVALID_SCHEMA","message":"no field \"amount\"","reason":"permanent","attempts":1,"firstAttemptAt":"2026-11-02T08:59:02.000000000Z","failedAt":"2026-11-02T09:00:02.000000000Z"},"source":{"broker":"rabbitmq","topic":"orders"},"consumer":{"group":"billing","handler":"charge","version":"1.8.2"},"traceId":"trace-a2"}', '\x6b2d6132', '[{"key":"x-tenant","value":"acme"},{"key":"x-tenant","valueBase64":"/wA="},{"key":"n","value":"7","type":"int"}]', '\x7b226e223a317d');
INSERT INTO dead_letters OVERRIDING SYSTEM VALUE VALUES (4, 'b', 4477677635727087946, '\xc3fdcf804e3a687d136604d7ae9adf157b22018a4bafffd75d48572b33dc6fd7', 'gyebjiojafbw5', 'open', 'orders.billing.dlq', 7523432149837458237, 1913408492402797150, -123853722284075205, 1793610000000000000, 1796085786344277738, 0, '{"deadLetterId":"b","failedMessage":{"id":"m-b","type":"OrderPlaced","aggregate":"order-b"},"failure":{"class":"validation","nature":"permanent","code":"INVALID_SCHEMA","message":"dial tcp 10.0.0.1:5432: connection refused","reason":"permanent","attempts":1,"firstAttemptAt":"2026-11-02T08:59:00.000000000Z","failedAt":"2026-11-02T09:00:00.000000000Z"},"source":{"broker":"rabbitmq","topic":"orders"},"consumer":{"group":"billing","handler":"charge","version":"1.8.2"},"traceId":"trace-b"}', '\x6b2d62', '[{"key":"x-tenant","value":"acme"},{"key":"x-tenant","valueBase64":"/wA="},{"key":"n","value":"7","type":"int"}]', '\x7b226e223a317d');
INSERT INTO dead_letters OVERRIDING SYSTEM VALUE VALUES (5, 'next', -4124794052647043298, '\x6470d8cfb06c8e5980b26142e7cbfa5831a2c325c81ad35219bd4be84bfc9798', 'g3wu2f3dggij6', 'open', 'orders.billing.dlq', -6462207162489032107, 5902893740465810410, 262956032877393912, 1794214800000000000, 1796085786344277738, 0, '{"deadLetterId":"next","failedMessage":{"id":"m-next","type":"OrderPlaced","aggregate":"order-next"},"failure":{"class":"validation","nature":"permanent","code":"INVALID_SCHEMA","message":"no field \"amount\"","reason":"permanent","attempts":1,"firstAttemptAt":"2026-11-09T08:59:00.000000000Z","failedAt":"2026-11-09T09:00:00.000000000Z"},"source":{"broker":"rabbitmq","topic":"orders"},"consumer":{"group":"billing","handler":"charge","version":"1.9.0"},"traceId":"trace-next"}', '\x6b2d6e657874', '[{"key":"x-tenant","value":"acme"},{"key":"x-tenant","valueBase64":"/wA="},{"key":"n","value":"7","type":"int"}]', '\x7b226e223a317d');

INSERT INTO quarantine OVERRIDING SYSTEM VALUE VALUES (1, '\x61cc1dba066abfade67fe76360dbf8cc2d2e8848a51abcdfbdaa34b3fa033c93', 1, 'orders.billing.dlq', 'no form that is known', 1796085786353428917, 'q', '{"Topic":"","Partition":null,"Offset":null,"Timestamp":"0001-01-01T00:00:00Z"}', NULL, '', '\x3f');

INSERT INTO spillway_schema VALUES (1, 1796085786327952207);

INSERT INTO triage_groups VALUES ('gnm47eefh2uu7', 'validation', '1.8.2', 's1:udrxtl6erh4u6hug', 'no field "amount"', 3, 3, 1793610000000000000, 1793610002000000000, 1796085786333308237, '{"class":"validation","consumerVersion":"1.8.2","signatureId":"s1:udrxtl6erh4u6hug","signature":"no field \"amount\"","count":3,"firstSeen":"2026-11-02T08:59:00Z","lastSeen":"2026-11-02T08:59:02Z","lastFailed":"2026-11-02T09:00:02Z","timeline":[[1793609940000,1793609942000,3]],"codes":[{"name":"INVALID_SCHEMA","count":3}],"consumers":[{"name":"billing","count":3}],"topics":[{"name":"orders","count":3}],"aggregates":[{"name":"order-a0","count":1},{"name":"order-a1","count":1},{"name":"order-a2","count":1}],"sample":{"deadLetterId":"a2","message":"no field \"amount\"","code":"INVALID_SCHEMA","topic":"orders","aggregate":"order-a2","traceId":"trace-a2","failedAt":"2026-11-02T09:00:02Z"}}');
INSERT INTO triage_groups VALUES ('g3wu2f3dggij6', 'validation', '1.9.0', 's1:udrxtl6erh4u6hug', 'no field "amount"', 1, 1, 1794214800000000000, 1794214800000000000, 1796085786344277738, '{"class":"validation","consumerVersion":"1.9.0","signatureId":"s1:udrxtl6erh4u6hug","signature":"no field \"amount\"","count":1,"firstSeen":"2026-11-09T08:59:00Z","lastSeen":"2026-11-09T08:59:00Z","lastFailed":"2026-11-09T09:00:00Z","timeline":[[1794214740000,1794214740000,1]],"codes":[{"name":"INVALID_SCHEMA","count":1}],"consumers":[{"name":"billing","count":1}],"topics":[{"name":"orders","count":1}],"aggregates":[{"name":"order-next","count":1}],"sample":{"deadLetterId":"next","message":"no field \"amount\"","code":"INVALID_SCHEMA","topic":"orders","aggregate":"order-next","traceId":"trace-next","failedAt":"2026-11-09T09:00:00Z"}}');
INSERT INTO triage_groups VALUES ('gyebjiojafbw5', 'validation', '1.8.2', 's1:qb5wicoe7esownfb', 'dial tcp 10.0.0.1:5432: connection refused', 1, 1, 1793610000000000000, 1793610000000000000, 1796085786344277738, '{"class":"validation","consumerVersion":"1.8.2","signatureId":"s1:qb5wicoe7esownfb","signature":"dial tcp 10.0.0.1:5432: connection refused","count":1,"firstSeen":"2026-11-02T08:59:00Z","lastSeen":"2026-11-02T08:59:00Z","lastFailed":"2026-11-02T09:00:00Z","timeline":[[1793609940000,1793609940000,1]],"codes":[{"name":"INVALID_SCHEMA","count":1}],"consumers":[{"name":"billing","count":1}],"topics":[{"name":"orders","count":1}],"aggregates":[{"name":"order-b","count":1}],"sample":{"deadLetterId":"b","message":"dial tcp 10.0.0.1:5432: connection refused","code":"INVALID_SCHEMA","topic":"orders","aggregate":"order-b","traceId":"trace-b","failedAt":"2026-11-02T09:00:00Z"}}');

INSERT INTO versions VALUES ('billing', '1.8.2', 1793610000000000000);
INSERT INTO versions VALUES ('billing', '1.9.0', 1794214800000000000);

SELECT pg_catalog.setval('audit_seq_seq', 1, true);

SELECT pg_catalog.setval('dead_letters_seq_seq', 5, true);

SELECT pg_catalog.setval('quarantine_seq_seq', 1, true);

ALTER TABLE ONLY audit
    ADD CONSTRAINT audit_pkey PRIMARY KEY (seq);

ALTER TABLE ONLY dead_letters
    ADD CONSTRAINT dead_letters_pkey PRIMARY KEY (seq);

ALTER TABLE ONLY quarantine
    ADD CONSTRAINT quarantine_pkey PRIMARY KEY (seq);

ALTER TABLE ONLY spillway_schema
    ADD CONSTRAINT spillway_schema_pkey PRIMARY KEY (version);

ALTER TABLE ONLY triage_groups
    ADD CONSTRAINT triage_groups_pkey PRIMARY KEY (id);

ALTER TABLE ONLY versions
    ADD CONSTRAINT versions_pkey PRIMARY KEY (consumer, version);

CREATE INDEX audit_target ON audit USING btree (target);

CREATE INDEX dead_letters_aggregate ON dead_letters USING btree (aggregate_hash) WHERE (aggregate_hash IS NOT NULL);

CREATE INDEX dead_letters_group ON dead_letters USING btree (group_id, stream, state, failed_at);

CREATE UNIQUE INDEX dead_letters_id ON dead_letters USING btree (id_hash);

CREATE INDEX dead_letters_key ON dead_letters USING btree (key_hash) WHERE (key_hash IS NOT NULL);

CREATE INDEX dead_letters_message ON dead_letters USING btree (message_hash) WHERE (message_hash IS NOT NULL);

CREATE UNIQUE INDEX quarantine_fingerprint ON quarantine USING btree (fingerprint);

CREATE INDEX triage_groups_cause ON triage_groups USING btree (class, signature_id);

CREATE TRIGGER audit_append_only BEFORE DELETE OR UPDATE OR TRUNCATE ON audit FOR EACH STATEMENT EXECUTE FUNCTION spillway_append_only();

