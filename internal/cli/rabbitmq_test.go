package cli_test

import (
	"context"
	"errors"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/adapters/rabbitmq"
	"github.com/spillway-mq/spillway/config"
	"github.com/spillway-mq/spillway/internal/brokertest"
)

// virtualHost returns the URL of a virtual host that nobody else uses.
func virtualHost(t *testing.T) *url.URL {
	t.Helper()
	u, err := url.Parse(brokertest.URL(t, "SPILLWAY_TEST_RABBITMQ"))
	if err != nil {
		t.Fatal(err)
	}
	ctl := brokertest.Command(t, "SPILLWAY_TEST_RABBITMQCTL")
	run := func(args ...string) {
		t.Helper()
		if out, err := exec.Command(ctl[0], append(ctl[1:], args...)...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
	}
	vhost := "cli-" + strings.ToLower(time.Now().UTC().Format("150405.000000000"))
	run("add_vhost", vhost)
	t.Cleanup(func() { run("delete_vhost", vhost) })
	run("set_permissions", "--vhost", vhost, u.User.Username(), ".*", ".*", ".*")
	u.Path = "/" + vhost
	return u
}

// What a person sees of a real broker.
func TestCheckRabbitMQ(t *testing.T) {
	t.Parallel()
	u := virtualHost(t)
	broker, err := rabbitmq.Opener().Open(t.Context(), adapters.OpenParams{URL: u})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := broker.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	billing := adapters.Consumer{Topic: "orders", Group: "billing", Concurrency: 1}
	audit := adapters.Consumer{Topic: "refunds", Group: "audit", Concurrency: 1}

	var got strings.Builder
	stage := func(title, args string) {
		t.Helper()
		stdout, stderr, code := app(t, []string{"SPILLWAY_BROKER_URL=" + u.String()}, strings.Fields(args)...)
		got.WriteString("# " + title + "\n$ spillway " + args + "\n" + stdout)
		for line := range strings.Lines(stderr) {
			got.WriteString("! " + line)
		}
		got.WriteString("exit " + string(rune('0'+code)) + "\n\n")
	}
	const command = "check rabbitmq --config testdata/rabbitmq.yaml"

	stage("Before the first start.", command)
	for _, c := range []adapters.Consumer{billing, audit} {
		if err := broker.Ensure(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	stage("After it.", command)

	for _, h := range []adapters.Handoff{
		{Stream: adapters.StreamDeadLetter},
		{Stream: adapters.StreamDeadLetter},
		{Stream: adapters.StreamParking, Due: time.Now().Add(time.Hour)},
		{Stream: adapters.StreamRetry, Due: time.Now().Add(time.Hour)},
	} {
		h.Consumer, h.Record = billing, adapters.Record{ID: "m"}
		if err := broker.Handoff(t.Context(), h); err != nil {
			t.Fatal(err)
		}
	}
	stage("Some days later.", command)

	conn, err := amqp.Dial(u.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ch.QueueDelete("refunds.audit.dlq", false, false, false); err != nil {
		t.Fatal(err)
	}
	if _, err := ch.QueueDelete("refunds_audit", false, false, false); err != nil {
		t.Fatal(err)
	}
	if _, err := ch.QueueDeclare("refunds_audit", true, false, false, false, amqp.Table{"x-queue-type": "quorum"}); err != nil {
		t.Fatal(err)
	}
	stage("After somebody tidied up.", command)
	stage("The same for machines.", command+" --output json")

	const file = "testdata/rabbitmq.golden"
	if *update {
		if err := os.WriteFile(file, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	wanted, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(wanted), got.String()); diff != "" {
		t.Errorf("(-want +got; -update writes it anew):\n%s", diff)
	}
}

// Exchange and queue of somebody else, and a prefix: all of it from the file.
func TestCheckRabbitMQWithItsSection(t *testing.T) {
	t.Parallel()
	u := virtualHost(t)
	conn, err := amqp.Dial(u.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	_, queueErr := ch.QueueDeclare("billing-in", true, false, false, false, amqp.Table{"x-queue-type": "quorum"})
	if err := errors.Join(ch.ExchangeDeclare("sales", "topic", true, false, false, false, nil), queueErr, ch.QueueBind("billing-in", "order.*", "sales", false, nil)); err != nil {
		t.Fatal(err)
	}

	environ := []string{"SPILLWAY_BROKER_URL=" + u.String()}
	const file = "testdata/rabbitmq-existing.yaml"
	run := func(wantCode int, environ []string, wants ...string) {
		t.Helper()
		stdout, stderr, code := app(t, environ, "check", "rabbitmq", "--config", file)
		if code != wantCode {
			t.Errorf("exit %d\n%s%s", code, stdout, stderr)
		}
		for _, want := range wants {
			if !strings.Contains(stdout, want) {
				t.Errorf("%q is missing in:\n%s", want, stdout)
			}
		}
	}
	run(1, environ, "stream shop.return", "stream orders.billing.dlq", "rabbitmq-net-unknown: group billing of orders, stream billing-in")

	cfg, err := config.Loader{Environ: environ}.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	broker, err := cfg.OpenBroker(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = broker.Close(context.Background()) })
	if err := broker.Ensure(t.Context(), adapters.Consumer{Topic: "orders", Group: "billing", Concurrency: 1}); err != nil {
		t.Fatal(err)
	}
	run(0, environ, "0 errors, 0 warnings")

	// An application that may declare nothing starts with the same file.
	cfg, err = config.Loader{Environ: append(environ, "SPILLWAY_BROKER_RABBITMQ_WHOLE_LADDER=false", "SPILLWAY_BROKER_RABBITMQ_VERIFY_ONLY=true")}.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	verifying, err := cfg.OpenBroker(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = verifying.Close(context.Background()) })
	for group, want := range map[string]bool{"billing": true, "audit": false} {
		if err := verifying.Ensure(t.Context(), adapters.Consumer{Topic: "orders", Group: group, Concurrency: 1}); (err == nil) != want {
			t.Errorf("group %s: %v", group, err)
		}
	}
}
