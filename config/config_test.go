package config_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf16"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/spillway-mq/spillway"
	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/adapters/kafka"
	"github.com/spillway-mq/spillway/adapters/memory"
	"github.com/spillway-mq/spillway/adapters/rabbitmq"
	"github.com/spillway-mq/spillway/adapters/sqs"
	"github.com/spillway-mq/spillway/adapters/sqs/sqsfake"
	"github.com/spillway-mq/spillway/config"
	"github.com/spillway-mq/spillway/failure"
	"github.com/spillway-mq/spillway/poison"
	"github.com/spillway-mq/spillway/policy"
	"github.com/spillway-mq/spillway/triage"
)

// parse reads a file in an environment.
func parse(t *testing.T, file string, environ ...string) (*config.Config, error) {
	t.Helper()
	if environ == nil {
		environ = []string{}
	}
	return config.Loader{Environ: environ}.Parse("spillway.yaml", []byte(file))
}

const everything = `
broker:
  url: memory://?partitions=3
  rabbitmq:
    prefix: shop
    minDelay: 250ms
    maxDelay: 1h
    deliveryLimit: 100
    verifyOnly: true
    wholeLadder: false
    management: http://rabbit:15672
    topic: {exchange: "ex.{topic}", kind: topic, queue: "{group}.{topic}", bindKey: "#", publishKey: new, mandatory: true, existing: false}
    topics:
      orders.eu: {kind: queue, existing: true}
      refunds: {exchange: money}
  kafka:
    clientId: billing-1
    order: none
    start: newest
    groupPerTopic: true
    window: 5000
    windowBytes: 1048576
    commitInterval: 200ms
    revokeGrace: 2s
    sessionTimeout: 20s
    publishTimeout: 5s
    verifyOnly: true
    partitions: 12
    replication: 3
    deadLetterRetention: 720h
    retryRetention: 48h
    tls: {ca: ca.pem, cert: client.pem, key: client.key, serverName: kafka.example.com}
    sasl: {mechanism: SCRAM-SHA-512, user: billing, password: "p@ss-4711"}
  sqs:
    region: sa-east-1
    endpoint: https://vpce-1.sqs.sa-east-1.vpce.amazonaws.com
    account: 012345678901
    prefix: prod-
    queues: {orders: shop-orders, "https://sqs.eu-west-1.amazonaws.com/1/jobs": jobs}
    verifyOnly: true
    maxReceiveCount: 20
    maxMessageBytes: 262144
    relaxedFifo: true
    visibility: 1m
    maxLease: 1h
    pollWait: 5s
    batchSize: 10
    maxDelay: 10m
    requestTimeout: 3s
    closeWait: 20s
group: billing
concurrency: 16
retry: inPlace
closeGrace: 10s
consumerVersion: 1.10
lastResort: /var/lib/spillway
policy:
  attempts: {transient: 20, unknown: 6, permanent: 2, ambiguous: 4}
  backoff: {base: 500ms, factor: 1.5, max: 1h30m, jitter: full}
  parking:
    interval: 1m
    deadline: 72h
    deadlineWithoutReference: 2h
  maxRetryAfter: 30m
  maxAge: 168h
  maxReplays: 3
  classes:
    validation: &strict
      nature: permanent
      attempts: 1
    "our own": *strict
    slow:
      backoff: {base: 10s}
      parking: {interval: 2m}
    nothing:
handlers:
  charge:
    attempts: {transient: 30}
    classes:
      slow: {attempts: 7}
redaction:
  cpf: true
  cnpj: true
  disable: [card, email]
  patterns:
    - name: order
      regexp: 'ORD-(\d+)'
  hideHeaders: [x-session]
  dropHeaders:
    - authorization
names:
  retry: "{topic}-{group}-r"
  parking: "{topic}-{group}-p"
  deadLetter: "{topic}-{group}-d"
  suspect: "{topic}-{group}-s"
metadata:
  messageType: [kind]
  aggregate: [order-id]
  producerVersion: []
  schemaVersion: [schema]
consumers:
  - topic: orders
    owner: team-billing
  - {topic: orders, group: audit, owner: ana@example.com}
inventory:
  url: postgres://u:p@h/spillway
  payloads: keepFor
  keepOpen: 720h
  keepClosed: 24h
  author: ana
triage:
  handful: 3
  share: 0.9
  mixedShare: 0.4
  short: 6h
  manyDays: 3
  manyEpisodes: 5
  silence: 30m
  density: 20
  maxSignatures: 1000
  maxGroups: 9000
`

func TestEveryKey(t *testing.T) {
	t.Parallel()
	got, err := parse(t, everything)
	if err != nil {
		t.Fatal(err)
	}
	if want := "memory://?partitions=3"; string(got.BrokerURL) != want {
		t.Errorf("url %q, want %q", string(got.BrokerURL), want)
	}
	var want spillway.Config
	want.Group = "billing"
	want.Concurrency = 16
	want.Retry = adapters.RetryInPlace
	want.CloseGrace = 10 * time.Second
	want.ConsumerVersion = "1.10" // not the number 1.1
	want.LastResort = "/var/lib/spillway"
	want.Policy = policy.Policy{
		Attempts:      policy.Attempts{Transient: 20, Unknown: 6, Permanent: 2, Ambiguous: 4},
		Backoff:       policy.Backoff{Base: 500 * time.Millisecond, Factor: 1.5, Max: 90 * time.Minute, Jitter: policy.JitterFull},
		Parking:       policy.Parking{Interval: time.Minute, Deadline: 72 * time.Hour, DeadlineWithoutReference: 2 * time.Hour},
		MaxRetryAfter: 30 * time.Minute, MaxAge: 168 * time.Hour, MaxReplays: 3,
		Classes: map[failure.Class]policy.Override{
			"validation": {Nature: failure.NaturePermanent, Attempts: 1},
			"our own":    {Nature: failure.NaturePermanent, Attempts: 1},
			"slow":       {Backoff: policy.Backoff{Base: 10 * time.Second}, Parking: policy.Parking{Interval: 2 * time.Minute}},
			"nothing":    {},
		},
	}
	want.HandlerPolicies = map[string]policy.Policy{"charge": {
		Attempts: policy.Attempts{Transient: 30},
		Classes:  map[failure.Class]policy.Override{"slow": {Attempts: 7}},
	}}
	want.Redaction = poison.Redaction{
		CPF: true, CNPJ: true, Disable: []poison.Rule{poison.RuleCard, poison.RuleEmail},
		Patterns:    []poison.Pattern{{Name: "order", Regexp: `ORD-(\d+)`}},
		HideHeaders: []string{"x-session"}, DropHeaders: []string{"authorization"},
	}
	want.Names = adapters.Names{Retry: "{topic}-{group}-r", Parking: "{topic}-{group}-p", DeadLetter: "{topic}-{group}-d", Suspect: "{topic}-{group}-s"}
	want.Metadata.MessageType = []string{"kind"}
	want.Metadata.Aggregate = []string{"order-id"}
	want.Metadata.ProducerVersion = []string{} // none, which is not the default
	want.Metadata.SchemaVersion = []string{"schema"}
	if diff := cmp.Diff(want, got.Spillway, cmpopts.IgnoreFields(spillway.Config{}, "Hooks", "Logger", "Rules")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	rabbit := rabbitmq.Config{
		Prefix: "shop", MinDelay: 250 * time.Millisecond, MaxDelay: time.Hour, DeliveryLimit: 100, VerifyOnly: true,
		Management: "http://rabbit:15672",
		Topic:      rabbitmq.Topic{Exchange: "ex.{topic}", Kind: "topic", Queue: "{group}.{topic}", BindKey: "#", PublishKey: "new", Mandatory: true},
		Topics: map[string]rabbitmq.Topic{
			"orders.eu": {Kind: rabbitmq.KindQueue, Existing: true},
			"refunds":   {Exchange: "money"},
		},
	}
	if diff := cmp.Diff(rabbit, got.RabbitMQ); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	cluster := kafka.Config{
		ClientID: "billing-1", Order: kafka.OrderNone, Start: kafka.StartNewest, GroupPerTopic: true, Window: 5000, WindowBytes: 1 << 20,
		CommitInterval: 200 * time.Millisecond, RevokeGrace: 2 * time.Second, SessionTimeout: 20 * time.Second, PublishTimeout: 5 * time.Second,
		VerifyOnly: true, Partitions: 12, Replication: 3, DeadLetterRetention: 720 * time.Hour, RetryRetention: 48 * time.Hour,
		TLS:  kafka.TLS{CA: "ca.pem", Cert: "client.pem", Key: "client.key", ServerName: "kafka.example.com"},
		SASL: kafka.SASL{Mechanism: kafka.MechanismSCRAM512, User: "billing", Password: "p@ss-4711"},
	}
	if diff := cmp.Diff(cluster, got.Kafka); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if shown := fmt.Sprintf("%+v %#v", got.Kafka, got.Kafka); strings.Contains(shown, "4711") {
		t.Errorf("the password is shown: %s", shown)
	}
	queues := sqs.Config{
		Region: "sa-east-1", Endpoint: "https://vpce-1.sqs.sa-east-1.vpce.amazonaws.com", Account: "012345678901", Prefix: "prod-",
		Queues:     map[string]string{"orders": "shop-orders", "https://sqs.eu-west-1.amazonaws.com/1/jobs": "jobs"},
		VerifyOnly: true, MaxReceiveCount: 20, MaxMessageBytes: 256 << 10, RelaxedFIFO: true,
		Visibility: time.Minute, MaxLease: time.Hour, PollWait: 5 * time.Second, BatchSize: 10, MaxDelay: 10 * time.Minute,
		RequestTimeout: 3 * time.Second, CloseWait: 20 * time.Second,
	}
	if diff := cmp.Diff(queues, got.SQS); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	consumers := []config.Consumer{
		{Topic: "orders", Group: "billing", Owner: "team-billing"},
		{Topic: "orders", Group: "audit", Owner: "ana@example.com"},
	}
	if diff := cmp.Diff(consumers, got.Consumers); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	inventory := config.Inventory{URL: "postgres://u:p@h/spillway", KeepOpen: 720 * time.Hour, KeepClosed: 24 * time.Hour, Author: "ana"}
	if diff := cmp.Diff(inventory, got.Inventory); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	verdicts := config.Triage{
		Thresholds:    triage.Thresholds{Handful: 3, Share: 0.9, MixedShare: 0.4, Short: 6 * time.Hour, ManyDays: 3, ManyEpisodes: 5, Silence: 30 * time.Minute, Density: 20},
		MaxSignatures: 1000, MaxGroups: 9000,
	}
	if diff := cmp.Diff(verdicts, got.Triage); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if shown := fmt.Sprint(got.Inventory); strings.Contains(shown, "u:p@") {
		t.Errorf("the password is shown: %s", shown)
	}
	if path := config.SecretURL("/var/lib/spillway/i.db"); path.String() != string(path) {
		t.Errorf("a path is shown as %s", path)
	}
}

func TestEnvironmentOverridesTheFile(t *testing.T) {
	t.Parallel()
	got, err := parse(t, everything,
		"SPILLWAY_BROKER_URL=memory://?retain=true",
		"SPILLWAY_GROUP=shipping",
		"SPILLWAY_CONCURRENCY=",
		"SPILLWAY_RETRY=topic",
		"SPILLWAY_POLICY_ATTEMPTS_TRANSIENT=40",
		"SPILLWAY_POLICY_BACKOFF_FACTOR=3",
		"SPILLWAY_POLICY_PARKING_DEADLINE_WITHOUT_REFERENCE=3h",
		"SPILLWAY_REDACTION_CPF=false",
		"SPILLWAY_REDACTION_DISABLE=card, jwt",
		"SPILLWAY_CONFIG=other.yaml",
		"SPILLWAY_SERVICE_HOST=10.0.0.1", // what Kubernetes makes for a service
		"SPILLWAY_PORT=tcp://10.0.0.1:80",
		"SPILLWAY_BROKER_PORT=5672",
		"GROUP=no",
	)
	if err != nil {
		t.Fatal(err)
	}
	s := got.Spillway
	if string(got.BrokerURL) != "memory://?retain=true" || s.Group != "shipping" || s.Concurrency != 16 || s.Retry != adapters.RetryTopic ||
		s.Policy.Attempts.Transient != 40 || s.Policy.Attempts.Unknown != 6 || s.Policy.Backoff.Factor != 3 ||
		s.Policy.Parking.DeadlineWithoutReference != 3*time.Hour || s.Redaction.CPF || !s.Redaction.CNPJ {
		t.Errorf("%+v", got)
	}
	if diff := cmp.Diff([]poison.Rule{poison.RuleCard, poison.RuleJWT}, s.Redaction.Disable); diff != "" {
		t.Error(diff)
	}
	if got.Consumers[0].Group != "shipping" {
		t.Errorf("a consumer without a group has %q", got.Consumers[0].Group)
	}
}

// Each line of a case is a problem, all of them are found at once, and each is
// at its place.
func TestProblems(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		file    string
		environ []string
		want    string
	}{
		"kinds": {
			file: `
group: true
concurrency: many
closeGrace: 20
retry: [topic]
policy:
  attempts: {transient: "20", unknown: 1.5, permanent: 0, ambiguous: 99999999999999999999}
  backoff: {base: 1d, factor: .inf, max: -5m, jitter: ful}
  parking: 5m
  maxAge: 5 m
redaction:
  cpf: yes
  disable: card
  patterns: {name: order}
  hideHeaders: [[x]]
  dropHeaders: [a, ~]
consumers: orders
handlers: [charge]
lastResort: !!str x
`,
			want: `
spillway.yaml:2: group: expected a text, found true: if it is meant as a text, write quotes around it
spillway.yaml:3: concurrency: expected a whole number such as 3, found the text "many"
spillway.yaml:4: closeGrace: expected a duration such as 90s, 5m or 1h30m, found the number 20: a unit is missing: write 20s, 20m or 20h
spillway.yaml:5: retry: expected topic or inPlace, found a list
spillway.yaml:7: policy.attempts.transient: expected a whole number such as 3, found the text "20": leave the quotes out
spillway.yaml:7: policy.attempts.unknown: expected a whole number such as 3, found the number 1.5
spillway.yaml:7: policy.attempts.permanent: expected a whole number such as 3, found the number 0: it must be above zero; leave the key out for the default
spillway.yaml:7: policy.attempts.ambiguous: expected a whole number such as 3, found the number 99999999999999999999: it is out of range
spillway.yaml:8: policy.backoff.base: expected a duration such as 90s, 5m or 1h30m, found the text "1d": there is no unit for days: write 24h for one
spillway.yaml:8: policy.backoff.factor: expected a number such as 1.5, found the number .inf
spillway.yaml:8: policy.backoff.max: expected a duration such as 90s, 5m or 1h30m, found the text "-5m": it must be above zero; leave the key out for the default
spillway.yaml:8: policy.backoff.jitter: expected proportional, full or none, found the text "ful": did you mean full?
spillway.yaml:9: policy.parking: expected a mapping, found the text "5m": its keys are interval, deadline, deadlineWithoutReference
spillway.yaml:10: policy.maxAge: expected a duration such as 90s, 5m or 1h30m, found the text "5 m"
spillway.yaml:12: redaction.cpf: expected true or false, found the text "yes"
spillway.yaml:13: redaction.disable: expected a list of texts, found the text "card": write - before it, on a line of its own
spillway.yaml:14: redaction.patterns: expected a list of mappings, found a mapping: begin each entry with -
spillway.yaml:15: redaction.hideHeaders[0]: expected a text, found a list
spillway.yaml:16: redaction.dropHeaders[1]: the entry is empty
spillway.yaml:17: consumers: expected a list of mappings, found the text "orders": begin each entry with -
spillway.yaml:18: handlers: expected a mapping from names to mappings, found a list
spillway.yaml:19: lastResort: tags (!) are not supported; a text that begins with ! needs quotes
`,
		},
		"keys": {
			file: `
grup: billing
close_grace: 5s
transient: 5
something: 5
group: a
policy:
  backof: {base: 1s}
  parking: {deadlineWithoutReferense: 1h}
group: b
"": x
? [a]
: b
<<: {a: b}
handlers:
  charge: {attempts: {transiet: 3}}
  charge: {}
  "": {}
`,
			want: `
spillway.yaml:2: grup: there is no such key; did you mean group?
spillway.yaml:3: close_grace: there is no such key; did you mean closeGrace?
spillway.yaml:4: transient: there is no such key here; did you mean policy.attempts.transient?
spillway.yaml:5: something: there is no such key; there are broker, group, concurrency, retry, closeGrace, consumerVersion, lastResort, policy, handlers, redaction, names, metadata, consumers, inventory, triage
spillway.yaml:8: policy.backof: there is no such key; did you mean backoff?
spillway.yaml:9: policy.parking.deadlineWithoutReferense: there is no such key; did you mean deadlineWithoutReference?
spillway.yaml:10: group: the key stands here twice, first in line 6
spillway.yaml:11: "": there is no such key; there are broker, group, concurrency, retry, closeGrace, consumerVersion, lastResort, policy, handlers, redaction, names, metadata, consumers, inventory, triage
spillway.yaml:12: a key must be a text, found a list
spillway.yaml:14: merge keys (<<) are not supported
spillway.yaml:16: handlers["charge"].attempts.transiet: there is no such key; did you mean transient?
spillway.yaml:17: handlers.charge: the key stands here twice, first in line 16
spillway.yaml:18: handlers: an entry has no name
`,
		},
		"sense": {
			file: `
policy:
  attempts:
    transient: 10001
  backoff: {factor: 0.5}
  parking:
    interval: 2h
  maxRetryAfter: 200h
  classes:
    my. class:
      backoff:
        base: 6m
handlers:
  charge:
    parking: {deadline: 30m}
    maxReplays: 20000
names:
  retry: "{topic}.retry"
redaction:
  disable: [cards]
  patterns:
    - {name: a, regexp: "("}
    - {regexp: x}
  dropHeaders: [Spillway-attempt]
consumers:
  - {topic: a.b, group: c, owner: x}
  - {topic: a, group: b.c, owner: x}
  - {topic: a, group: b.c, owner: x}
  - {topic: a}
  -
concurrency: 65536
`,
			want: `
spillway.yaml:4: policy.attempts.transient: must be at most 10000, is 10001: there is no unlimited
spillway.yaml:5: policy.backoff.factor: must be at least 1, is 0.5
spillway.yaml:7: policy.parking.interval: must be at most deadlineWithoutReference, which is 1h (not set here), is 2h
spillway.yaml:8: policy.maxRetryAfter: must be at most 168h, is 200h
spillway.yaml:12: policy.classes["my. class"].backoff.base: must be at most max, which is 5m (not set here), is 6m
spillway.yaml:15: handlers["charge"].parking.interval: must be at most deadline, which is 30m, is 2h
spillway.yaml:16: handlers["charge"].maxReplays: must be at most 10000, is 20000: there is no unlimited
spillway.yaml:17: names: the retry template "{topic}.retry" must contain {group} exactly once
spillway.yaml:20: redaction.disable[0]: there is no rule "cards", only ["url" "secret" "authorization" "jwt" "aws_key" "token" "private_key" "email" "card" "header" "cpf" "cnpj"]
spillway.yaml:22: redaction.patterns[0].regexp: error parsing regexp: missing closing ): ` + "`(`" + `
spillway.yaml:23: redaction.patterns[1]: the name is empty
spillway.yaml:24: redaction.dropHeaders[0]: "Spillway-attempt" is Spillway's own
spillway.yaml:28: consumers[2]: group "b.c" of topic "a" is consumers[1] already
spillway.yaml:29: consumers[3]: it needs a group, or the file a top-level one
spillway.yaml:29: consumers[3]: it needs an owner: who answers for its dead letters
spillway.yaml:30: consumers[4]: it needs a topic
spillway.yaml:30: consumers[4]: it needs a group, or the file a top-level one
spillway.yaml:30: consumers[4]: it needs an owner: who answers for its dead letters
spillway.yaml:31: concurrency: must be at most 65535, is 65536
`,
		},
		// Two consumers whose streams would have one name.
		"collision": {
			file: `
consumers:
  - {topic: a.b, group: c, owner: x}
  - {topic: a, group: b.c, owner: x}
`,
			want: `
spillway.yaml:4: consumers[1]: stream "a.b.c.retry" would be both the retry stream of group "c" on topic "a.b" and the retry stream of group "b.c" on topic "a": change a group, or the templates
`,
		},
		// An interval that cannot be read is not blamed for being longer than the
		// deadline: that would be the default's fault.
		"no consequences": {
			file: `
policy:
  parking: {interval: 10, deadline: 1m, deadlineWithoutReference: 1m}
`,
			want: `
spillway.yaml:3: policy.parking.interval: expected a duration such as 90s, 5m or 1h30m, found the number 10: a unit is missing: write 10s, 10m or 10h
`,
		},
		"environment": {
			file: "group: a\npolicy:\n  backoff:\n    max: 1m\n",
			environ: []string{
				"SPILLWAY_CONCURRENCY=many",
				"SPILLWAY_CLOSE_GRACE=20",
				"SPILLWAY_POLICY_ATTEMPT_TRANSIENT=20",
				"SPILLWAY_POLICY_BACKOFF_BASE=2m",
				"SPILLWAY_POLICY_BACKOFF_JITTER=ful",
				"SPILLWAY_REDACTION_DISABLE=card,,email",
			},
			want: `
SPILLWAY_CLOSE_GRACE: closeGrace: expected a duration such as 90s, 5m or 1h30m, found "20": a unit is missing: write 20s, 20m or 20h
SPILLWAY_CONCURRENCY: concurrency: expected a whole number such as 3, found "many"
SPILLWAY_POLICY_ATTEMPT_TRANSIENT: there is no such variable; did you mean SPILLWAY_POLICY_ATTEMPTS_TRANSIENT?
SPILLWAY_POLICY_BACKOFF_BASE: policy.backoff.base: must be at most max, which is 1m, is 2m
SPILLWAY_POLICY_BACKOFF_JITTER: policy.backoff.jitter: expected proportional, full or none, found "ful": did you mean full?
SPILLWAY_REDACTION_DISABLE: redaction.disable: expected a list of texts, found "card,,email": an entry between two commas is empty
`,
		},
		"tabs": {
			file: "policy:\n\tattempts:\n\t\ttransient: 5\n",
			want: `
spillway.yaml:2: the line is indented with a tab, which YAML does not allow: use spaces
spillway.yaml:3: the line is indented with a tab, which YAML does not allow: use spaces
`,
		},
		"syntax": {
			file: "group: a\nconcurrency: [1\nretry: topic\n",
			want: `
spillway.yaml:2: this is no valid YAML: did not find expected ',' or ']'
`,
		},
		"a list":         {file: "- a\n", want: "\nspillway.yaml:1: expected a mapping, found a list: its keys are broker, group, concurrency, retry, closeGrace, consumerVersion, lastResort, policy, handlers, redaction, names, metadata, consumers, inventory, triage\n"},
		"two documents":  {file: "group: a\n---\ngroup: b\n", want: "\nspillway.yaml: there is more than one document: leave out what follows the line ---\n"},
		"unknown anchor": {file: "group: a\nretry: *hunter2\n", want: "\nspillway.yaml:2: this is no valid YAML: what begins with * refers to an anchor, and there is none of that name; a text that begins with * needs quotes\n"},
		"broker":         {file: "broker: {url: \"memry://\"}", want: "\nspillway.yaml:1: broker.url: must begin with one of memory://, amqp://, amqps://, kafka://, kafkas://, sqs://; did you mean memory://?\n"},
		"sections of brokers": {
			file: `
broker:
  kafka: {acks: 1}
  rabbitmq:
    prefix: [shop]
    verifyonly: true
    deliveryLimit: 0
    minDelay: 50ms
    management: http://u:hunter2@rabbit:15672
    verifyOnly: true
    wholeLadder: true
    topic: {kind: topics, exchange: "{topic}.{group}"}
    topics:
      jobs of "ana": {kind: queue, queue: "{group}"}
`,
			environ: []string{"SPILLWAY_BROKER_RABBITMQ_PREFIX=" + strings.Repeat("p", 250)},
			want: `
spillway.yaml:3: broker.kafka.acks: there is no such key; there are clientId, order, start, groupPerTopic, window, windowBytes, commitInterval, revokeGrace, sessionTimeout, publishTimeout, verifyOnly, partitions, replication, deadLetterRetention, retryRetention, tls, sasl
spillway.yaml:5: broker.rabbitmq.prefix: expected a text, found a list
spillway.yaml:6: broker.rabbitmq.verifyonly: there is no such key; did you mean verifyOnly?
spillway.yaml:7: broker.rabbitmq.deliveryLimit: expected a whole number such as 3, found the number 0: it must be above zero; leave the key out for the default
spillway.yaml:8: broker.rabbitmq.minDelay: must be at least 125ms, is 50ms
spillway.yaml:9: broker.rabbitmq.management: must name no user: that of the broker's URL is used
spillway.yaml:11: broker.rabbitmq.wholeLadder: declares and VerifyOnly does not: choose one
spillway.yaml:12: broker.rabbitmq.topic.kind: expected fanout, direct, topic, headers or queue, found the text "topics": did you mean topic?
spillway.yaml:12: broker.rabbitmq.topic.exchange: must not contain {group}: publishers know no group
spillway.yaml:14: broker.rabbitmq.topics["jobs of \"ana\""].queue: must not contain {group} with Kind "queue": publishers know no group
SPILLWAY_BROKER_RABBITMQ_PREFIX: broker.rabbitmq.prefix: makes names that cannot be: the queue name "pppppppppppppppppppppppppppppppppppppppp"… has 264 bytes, and AMQP allows 255
`,
		},
		"section of Kafka": {
			file: `
broker:
  kafka:
    order: keys
    window: 20000
    windowBytes: 0
    commitInterval: 1ms
    revokeGrace: 3s
    sessionTimeout: 500ms
    deadLetterRetention: 1m
    retryRetention: 1h
    replication: 40000
    tls:
      ca: [ca.pem]
      cert: client.pem
    sasl:
      mechanism: SCRAM-SHA-265
      password: ${PASSWORD}
`,
			want: `
spillway.yaml:4: broker.kafka.order: expected key, none or partition, found the text "keys": did you mean key?
spillway.yaml:5: broker.kafka.window: is 20000: must be from 1 to 16384
spillway.yaml:6: broker.kafka.windowBytes: expected a whole number such as 3, found the number 0: it must be above zero; leave the key out for the default
spillway.yaml:7: broker.kafka.commitInterval: is 1ms: must be from 10 ms to 1 minute
spillway.yaml:8: broker.kafka.revokeGrace: is 3s: must be positive, and at most 2s
spillway.yaml:9: broker.kafka.sessionTimeout: is 500ms: must be from 1 second to 30 minutes
spillway.yaml:10: broker.kafka.deadLetterRetention: is 1m0s: must be at least an hour
spillway.yaml:11: broker.kafka.retryRetention: is 1h0m0s: must be at least twice the longest tier, 2 hours
spillway.yaml:12: broker.kafka.replication: is 40000: must be from 0 to 32767
spillway.yaml:14: broker.kafka.tls.ca: expected a text, found a list
spillway.yaml:15: broker.kafka.tls.cert: is set alone: Cert and Key belong together
spillway.yaml:17: broker.kafka.sasl.mechanism: expected PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512, found the text "SCRAM-SHA-265": did you mean SCRAM-SHA-256?
spillway.yaml:18: broker.kafka.sasl.password: holds ${, but nothing is expanded in this file: set SPILLWAY_BROKER_KAFKA_SASL_PASSWORD, or name a file by passwordFile
`,
		},
		"section of SQS": {
			file: `
broker:
  sqs:
    accessKeyId: AKIAIOSFODNN7EXAMPLE
    endpoint: https://key:hunter2@host/
    account: 1234
    prefix: prod/
    queues:
      orders: orders dlq
      jobs:
      "": x
    maxReceiveCount: 3
    visibility: 1s
    pollWait: 30s
    batchSize: 11
    relaxedFIFO: true
`,
			environ: []string{"SPILLWAY_BROKER_SQS_CLOSE_WAIT=2h", "SPILLWAY_BROKER_SQS_REGION=EU (Ireland)"},
			want: `
spillway.yaml:4: broker.sqs.accessKeyId: there is no such key; there are region, endpoint, account, prefix, queues, verifyOnly, maxReceiveCount, maxMessageBytes, relaxedFifo, visibility, maxLease, pollWait, batchSize, maxDelay, requestTimeout, closeWait
spillway.yaml:5: broker.sqs.endpoint: must have the form https://host, with nothing else: credentials are found by the AWS SDK
spillway.yaml:6: broker.sqs.account: must have 12 digits
spillway.yaml:7: broker.sqs.prefix: must have at most 40 letters, digits, hyphens and underscores
spillway.yaml:9: broker.sqs.queues["orders"]: is no name: queue name "orders dlq": SQS allows 1 to 80 letters, digits, hyphens and underscores, and .fifo at the end
spillway.yaml:10: broker.sqs.queues["jobs"]: the entry is empty
spillway.yaml:11: broker.sqs.queues: an entry has no name
spillway.yaml:12: broker.sqs.maxReceiveCount: must be between 5 and 1000, is 3: the chain must get to act first
spillway.yaml:13: broker.sqs.visibility: must be between 2s and 12h0m0s, is 1s
spillway.yaml:14: broker.sqs.pollWait: must be between 1s and 20s, is 30s
spillway.yaml:15: broker.sqs.batchSize: must be between 1 and 10, is 11
spillway.yaml:16: broker.sqs.relaxedFIFO: there is no such key; did you mean relaxedFifo?
SPILLWAY_BROKER_SQS_CLOSE_WAIT: broker.sqs.closeWait: must be between 0s and 1h0m0s, is 2h0m0s
SPILLWAY_BROKER_SQS_REGION: broker.sqs.region: must be the name of one, such as eu-west-1
`,
		},
		"inventory": {file: "inventory: {url: \"mysql://u:hunter2@h/d\", payloads: keep, keepOpen: 24h}", want: "\nspillway.yaml:1: inventory.url: must be the path of a file, or begin with postgres:// or sqlite://\n" +
			"spillway.yaml:1: inventory.keepOpen: has no effect while inventory.payloads is keep: leave one of them out\n"},
		"triage": {file: "triage: {share: 1.5, mixedShare: 2, manyDays: 1, silence: 5s, density: 0.5, maxGroups: 0}", want: "\n" +
			"spillway.yaml:1: triage.maxGroups: expected a whole number such as 3, found the number 0: it must be above zero; leave the key out for the default\n" +
			"spillway.yaml:1: triage.share: 1.5, want more than 0 and at most 1\nspillway.yaml:1: triage.mixedShare: 2, want more than 0 and at most Share\n" +
			"spillway.yaml:1: triage.manyDays: 1, want 2 or more\nspillway.yaml:1: triage.silence: 5s, want 1m0s or more\n" +
			"spillway.yaml:1: triage.density: 0.5, want 1 or more\n"},
		"inventory expansion": {file: "inventory: {url: \"postgres://u:${P}@h/d\"}", want: "\nspillway.yaml:1: inventory.url: it holds ${, but nothing is expanded in this file: set the whole URL in SPILLWAY_INVENTORY_URL\n"},
		"expansion":           {file: "broker: {url: \"memory://${PASSWORD}@x\"}", want: "\nspillway.yaml:1: broker.url: it holds ${, but nothing is expanded in this file: set the whole URL in SPILLWAY_BROKER_URL\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := parse(t, tc.file, tc.environ...)
			if err == nil {
				t.Fatal("no problem was found")
			}
			if diff := cmp.Diff(strings.TrimSpace(tc.want), err.Error()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			var p config.Problem
			if !errors.As(err, &p) || p.Text == "" {
				t.Errorf("no Problem in %#v", err)
			}
		})
	}
}

// No password of a URL appears in any error, wherever it was put, nor in a
// printed configuration.
func TestSecretsStaySecret(t *testing.T) {
	t.Parallel()
	const secret = "hunter2"
	for _, file := range []string{
		"broker: {url: 'pulsar://u:hunter2@h/'}",
		"broker: {url: 'hunter2:x'}",
		"broker: {url: 'amqp://u:hunter2%zz@h/'}",
		"broker: {url: ' amqp://u:hunter2@h/'}",
		"broker: {url: [ 'amqp://u:hunter2@h/' ]}",
		"broker: {url: {amqp: 'hunter2'}}",
		"broker: 'amqp://u:hunter2@h/'",
		"broker: {url: *hunter2}",
		"broker: {url: 'memory://u:hunter2${X}@h/'}",
		"broker: {rabbitmq: {management: 'http://u:hunter2@h:1'}}",
		"broker: {rabbitmq: {management: 'h:hunter2'}}",
		"broker: {kafka: {sasl: {password: 'hunter2${X}'}}}",
		"broker: {kafka: {sasl: {password: [hunter2]}}}",
		"broker: {kafka: {sasl: {password: *hunter2}}}",
		"broker: {kafka: {sasl: {password: !!str hunter2}}}",
		"broker: {kafka: {sasl: 'hunter2'}}",
		"broker: {rabbitmq: {minDelay: 'amqp://u:hunter2@h/'}}",
		"broker: {sqs: {endpoint: 'https://key:hunter2@h/'}}",
		"broker: {sqs: {endpoint: 'hunter2'}}",
		"broker: {sqs: {account: 'hunter2'}}",
		"broker: {sqs: {region: 'https://key:hunter2@h/'}}",
		"broker: {sqs: {prefix: 'https://key:hunter2@h/'}}",
		"broker: {sqs: {secretAccessKey: 'hunter2'}}",
		"concurrency: 'amqp://u:hunter2@h/'",
		"closeGrace: amqp://u:hunter2@h/",
		"'amqp://u:hunter2@h/': x",
		"redaction: {disable: ['amqp://u:hunter2@h/']}",
		"amqp://u:hunter2@h/",
		"retry: amqp://u:hunter2@h/",
	} {
		_, err := parse(t, file)
		if err == nil {
			t.Errorf("%s: no problem was found", file)
		} else if strings.Contains(err.Error(), secret) {
			t.Errorf("%s: %v", file, err)
		}
		if !strings.Contains(file, "u:hunter2@") {
			continue // the word alone does not look like a secret
		}
		_, err = parse(t, "", "SPILLWAY_CONCURRENCY="+file)
		if err == nil || strings.Contains(err.Error(), secret) {
			t.Errorf("%s in the environment: %v", file, err)
		}
	}

	c, err := parse(t, "", "SPILLWAY_BROKER_URL=memory://u:hunter2@h/?password=hunter2")
	if err != nil {
		t.Fatal(err)
	}
	asJSON, err := json.Marshal(c.BrokerURL)
	if err != nil {
		t.Fatal(err)
	}
	c.Spillway.Logger = slog.New(slog.DiscardHandler)
	_, openErr := c.Open(t.Context())
	_, brokerErr := c.OpenBroker(t.Context())
	if openErr == nil || brokerErr == nil {
		t.Errorf("a memory URL with a host was opened: %v, %v", openErr, brokerErr)
	}
	for _, shown := range []string{
		fmt.Sprint(c.BrokerURL), fmt.Sprintf("%+v", c), fmt.Sprintf("%#v", *c), string(asJSON), c.BrokerURL.LogValue().String(),
		fmt.Sprint(openErr), fmt.Sprint(brokerErr),
	} {
		if strings.Contains(shown, secret) {
			t.Errorf("shows the password: %s", shown)
		}
	}
	if got, want := c.BrokerURL.String(), "memory://u:xxxxx@h/"; got != want && !strings.HasPrefix(got, "memory://u:") {
		t.Errorf("printed as %q, want about %q", got, want)
	}
}

func TestFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	utf16le := func(s string) string {
		b := []byte{0xff, 0xfe}
		for _, u := range utf16.Encode([]rune(s)) {
			b = append(b, byte(u), byte(u>>8))
		}
		return string(b)
	}
	load := config.Loader{Environ: []string{}}.Load

	for name, text := range map[string]string{
		"bom":      "\ufeffgroup: billing\n",
		"utf-16":   utf16le("group: billing\n"),
		"crlf":     "group: billing\r\nconcurrency: 3\r\n",
		"document": "---\ngroup: billing\n...\n",
		"json":     `{"group": "billing", "policy": {"maxAge": "5h"}}`,
		"nulls":    "group: billing\npolicy:\nhandlers:\n  a:\nconsumers: ~\nredaction: {disable: }\n",
	} {
		if c, err := load(write(name, text)); err != nil || c.Spillway.Group != "billing" {
			t.Errorf("%s: %+v, %v", name, c, err)
		}
	}

	// Nothing but comments is what Example prints; nothing at all is an accident.
	if _, err := load(write("comments", "# group: billing\n")); err != nil {
		t.Errorf("comments: %v", err)
	}
	if _, err := load(""); err != nil {
		t.Errorf("no file: %v", err)
	}
	for path, want := range map[string]string{
		write("empty", ""):             "the file is empty: `spillway config example` prints one to start from",
		write("blank", "\n \n"):        "the file is empty",
		filepath.Join(dir, "gone"):     filepath.Join(dir, "gone"),
		dir:                            "is a directory: name a file in it",
		write("binary", "\x00\x01abc"): "this is no valid YAML: control characters are not allowed",
		write("latin1", "group: \xe9"): "this is no valid YAML: ",
		write("big", strings.Repeat("#\n", config.MaxFileBytes)): "this is no configuration",
	} {
		if _, err := load(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", filepath.Base(path), err, want)
		}
	}
	if _, err := load(filepath.Join(dir, "gone")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing file is not os.ErrNotExist: %v", err)
	}
}

func TestOpen(t *testing.T) {
	t.Parallel()
	c, err := parse(t, "broker: {url: 'memory://'}\ngroup: billing\n")
	if err != nil {
		t.Fatal(err)
	}
	c.Spillway.Logger = slog.New(slog.DiscardHandler)
	sw, err := c.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := sw.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	if err := sw.Publisher().Publish("orders", message.NewMessage("1", nil)); err != nil {
		t.Error(err)
	}
	broker, err := c.OpenBroker(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got := broker.Capabilities().Broker; got != "memory" || c.BrokerName() != got {
		t.Errorf("opened %q for %q", got, c.BrokerName())
	}
	if err := broker.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestOpenNeedsABroker(t *testing.T) {
	t.Parallel()
	c, err := parse(t, "group: billing\n")
	if err != nil {
		t.Fatal(err)
	}
	want := "config: no broker is named: set SPILLWAY_BROKER_URL, or broker.url in spillway.yaml"
	if _, err := c.Open(t.Context()); err == nil || err.Error() != want {
		t.Errorf("Open: %v", err)
	}
	if _, err := c.OpenBroker(t.Context()); err == nil || err.Error() != want {
		t.Errorf("OpenBroker: %v", err)
	}
	if got := c.BrokerName(); got != "" {
		t.Errorf("BrokerName %q", got)
	}
}

// A broker of somebody else is as good as one of ours.
func TestLoaderWithOtherBrokers(t *testing.T) {
	t.Parallel()
	opener := memory.New(memory.Config{}).Opener()
	opener.Schemes = []string{"other"}
	l := config.Loader{Environ: []string{"SPILLWAY_BROKER_URL=other://"}, Brokers: []config.Broker{{Name: "other", Opener: opener}}}
	c, err := l.Load("")
	if err != nil {
		t.Fatal(err)
	}
	if c.BrokerName() != "other" {
		t.Errorf("BrokerName %q", c.BrokerName())
	}
	c.Spillway.Logger = slog.New(slog.DiscardHandler)
	sw, err := c.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := sw.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// The section of a broker reaches it, and only it.
func TestSectionsOfBrokersReachThem(t *testing.T) {
	t.Parallel()
	const file = "broker: {rabbitmq: {topics: {orders: {kind: queue}}}}"
	c, err := parse(t, file, "SPILLWAY_BROKER_URL=amqp://u:hunter2@127.0.0.1:1/", "SPILLWAY_BROKER_RABBITMQ_VERIFY_ONLY=true")
	if err != nil {
		t.Fatal(err)
	}
	dialled := errors.New("dialled with the section")
	c.RabbitMQ.Dial = func(context.Context, string, string) (net.Conn, error) { return nil, dialled }
	if _, err := c.OpenBroker(t.Context()); !errors.Is(err, dialled) {
		t.Errorf("OpenBroker: %v", err)
	}
	c.Spillway.Group = "billing"
	if _, err := c.Open(t.Context()); !errors.Is(err, dialled) {
		t.Errorf("Open: %v", err)
	}
	if !c.RabbitMQ.VerifyOnly || c.RabbitMQ.Topics["orders"].Kind != rabbitmq.KindQueue {
		t.Errorf("%+v", c.RabbitMQ)
	}

	// Moving to another broker is one line, with the section left where it is.
	c, err = parse(t, file, "SPILLWAY_BROKER_URL=memory://")
	if err != nil {
		t.Fatal(err)
	}
	broker, err := c.OpenBroker(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := broker.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// The section of SQS reaches it; what the URL says comes before.
func TestSectionOfSQSReachesIt(t *testing.T) {
	t.Parallel()
	fake := sqsfake.New(sqsfake.Config{Region: "sa-east-1"})
	defer fake.Close()
	c, err := parse(t, "broker: {url: 'sqs://key:secret@?visibility=45s', sqs: {region: sa-east-1, prefix: prod-, visibility: 20s, maxReceiveCount: 7}}",
		"SPILLWAY_BROKER_SQS_QUEUES=orders.billing.dlq:orders-dead, orders.billing.retry:again")
	if err != nil {
		t.Fatal(err)
	}
	c.SQS.HTTPClient = fake.Client()
	broker, err := c.OpenBroker(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := broker.Ensure(t.Context(), adapters.Consumer{Topic: "orders", Group: "billing", Concurrency: 1}); err != nil {
		t.Fatal(err)
	}
	want := []string{"again", "orders-dead", "prod-orders", "prod-orders_billing_parking", "prod-orders_billing_suspect"}
	if diff := cmp.Diff(want, fake.Queues()); diff != "" {
		t.Errorf("queues (-want +got):\n%s", diff)
	}
	for _, call := range fake.Calls("CreateQueue") {
		if !strings.Contains(string(call.Input), `"VisibilityTimeout":"45"`) {
			t.Errorf("%s", call.Input)
		}
	}
	if err := broker.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// Each broker of the table has its own name and its own schemes.
func TestBrokers(t *testing.T) {
	t.Parallel()
	taken := map[string]bool{}
	for _, b := range config.Brokers() {
		for _, s := range append([]string{"name " + b.Name}, b.Opener.Schemes...) {
			if taken[s] {
				t.Errorf("%s: %s is taken", b.Name, s)
			}
			taken[s] = true
		}
		if b.Name == "" || len(b.Opener.Schemes) == 0 || b.Opener.Open == nil {
			t.Errorf("%+v is incomplete", b)
		}
	}
}

// A file that is something else takes no time, and is not printed in full.
func TestManyProblems(t *testing.T) {
	t.Parallel()
	for name, file := range map[string]string{
		"keys":     manyLines(func(i int) string { return fmt.Sprintf("key%d: x\n", i) }),
		"handlers": "handlers:\n" + manyLines(func(i int) string { return fmt.Sprintf(" h%d: {maxAges: 1h}\n", i) }),
		"texts":    "redaction:\n disable:\n" + manyLines(func(int) string { return " - []\n" }),
		"entries":  "consumers:\n" + manyLines(func(int) string { return " - x\n" }),
		"tabs":     manyLines(func(int) string { return "\ta: b\n" }),
	} {
		_, err := parse(t, file)
		if n := strings.Count(fmt.Sprint(err), "\n") + 1; n < 50 || n > 150 {
			t.Errorf("%s: %d lines", name, n)
		}
	}
}

func manyLines(line func(i int) string) string {
	var b strings.Builder
	for i := range 5_000 {
		b.WriteString(line(i))
	}
	return b.String()
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(everything), "SPILLWAY_GROUP=a")
	f.Add([]byte(config.Example()), "")
	f.Add([]byte("a: &a [*a]\nhandlers: &h {x: *h}"), "SPILLWAY_POLICY_ATTEMPTS_TRANSIENT=-1")
	f.Add([]byte("consumers: [~, ~, {topic: a}]\n? {}\n: x"), "SPILLWAY_REDACTION_DISABLE=,")
	f.Add([]byte("policy: {classes: {\"\\\"]. [\": {backoff: {base: 1h}}}}"), "SPILLWAY_POLICY_BACKOFF_MAX=1ns")
	f.Add([]byte("\xff\xfeg\x00"), "=")
	f.Fuzz(func(t *testing.T, file []byte, env string) {
		c, err := config.Loader{Environ: []string{env}}.Parse("f", file)
		var problems config.Problems
		switch {
		case err == nil && c == nil:
			t.Error("neither a configuration nor an error")
		case err == nil:
			// What is accepted here can be opened.
			c.BrokerURL, c.Spillway.LastResort, c.Spillway.Retry = "memory://", "", adapters.RetryTopic
			c.Spillway.Logger = slog.New(slog.DiscardHandler)
			sw, err := c.Open(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := sw.Close(t.Context()); err != nil {
				t.Error(err)
			}
		case !errors.As(err, &problems) || len(problems) == 0:
			t.Errorf("%T instead of problems: %v", err, err)
		case strings.Count(err.Error(), "\n") != len(problems)-1:
			t.Errorf("a problem takes more than one line: %q", err)
		}
	})
}
