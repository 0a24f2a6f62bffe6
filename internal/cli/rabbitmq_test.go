package cli_test

import (
	"context"
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
	"github.com/spillway-mq/spillway/internal/brokertest"
)

// What a person sees of a real broker, in a virtual host that nobody else uses.
func TestCheckRabbitMQ(t *testing.T) {
	t.Parallel()
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
