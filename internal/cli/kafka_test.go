package cli_test

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/config"
	"github.com/spillway-mq/spillway/internal/brokertest"
)

// An operator reaches a cluster behind TLS and a password by the file that the
// application has, and sees how many dead letters there are before and while they
// are collected.
func TestKafkaBehindTLSByAFile(t *testing.T) {
	t.Parallel()
	brokertest.URL(t, "SPILLWAY_TEST_KAFKA") // waits for others' tests
	u, err := url.Parse(brokertest.URL(t, "SPILLWAY_TEST_KAFKA_TLS"))
	if err != nil {
		t.Fatal(err)
	}
	certificates := strings.Join(brokertest.Command(t, "SPILLWAY_TEST_KAFKA_CERTS"), " ")
	password, _ := u.User.Password()
	folder := t.TempDir()
	topic := "cli-" + strings.ToLower(time.Now().UTC().Format("150405.000000000"))
	file := filepath.Join(folder, "spillway.yaml")
	text := fmt.Sprintf(`
broker:
  url: kafkas://%s
  kafka:
    groupPerTopic: true
    partitions: 2
    tls: {ca: %q}
    sasl: {mechanism: SCRAM-SHA-512, user: %s, passwordFile: %q}
group: billing
consumers:
  - {topic: %s, owner: team-billing}
inventory: {url: %q}
`, u.Host, filepath.Join(certificates, "ca.pem"), u.User.Username(), filepath.Join(folder, "password"), topic, filepath.Join(folder, "i.db"))
	for name, content := range map[string]string{"spillway.yaml": text, "password": password + "\n"} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run := func(wantCode int, environ []string, args ...string) string {
		t.Helper()
		stdout, stderr, code := app(t, environ, append(args, "--config", file)...)
		if code != wantCode {
			t.Errorf("%s: exit %d, want %d\n%s%s", args, code, wantCode, stdout, stderr)
		}
		if strings.Contains(stdout+stderr, password) {
			t.Errorf("%s prints the password:\n%s%s", args, stdout, stderr)
		}
		return stdout + stderr
	}
	contains := func(got string, wants ...string) {
		t.Helper()
		for _, want := range wants {
			if !strings.Contains(got, want) {
				t.Errorf("%q is missing in:\n%s", want, got)
			}
		}
	}

	contains(run(1, nil, "check", "kafka"), "kafka-topic-missing")
	cfg, err := config.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	broker, err := cfg.OpenBroker(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := broker.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	billing := adapters.Consumer{Topic: topic, Group: "billing", Concurrency: 1}
	if err := broker.Ensure(t.Context(), billing); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		r := adapters.Record{ID: fmt.Sprintf("order-%d", i), Payload: []byte("{}")}
		if err := broker.Handoff(t.Context(), adapters.Handoff{Consumer: billing, Stream: adapters.StreamDeadLetter, Record: r}); err != nil {
			t.Fatal(err)
		}
	}
	parked := adapters.Handoff{Consumer: billing, Stream: adapters.StreamParking, Record: adapters.Record{ID: "order-9", Payload: []byte("{}")}, Due: time.Now().Add(time.Hour)}
	if err := broker.Handoff(t.Context(), parked); err != nil {
		t.Fatal(err)
	}

	dlq := topic + ".billing.dlq"
	contains(run(1, nil, "check", "kafka"), "3 dead letters are not collected", "1 message is parked", "kafka-nobody-reads")
	contains(run(0, nil, "collect", "--dry-run"), "TO COLLECT", dlq+"  3\n")
	contains(run(0, nil, "where", "order-9"), "parking")
	contains(run(0, nil, "collect"), dlq+"  3")
	contains(run(0, nil, "collect", "--dry-run"), dlq+"  0\n")
	contains(run(0, nil, "where", "order-1"), "dead letter")

	wrong := []string{"SPILLWAY_BROKER_KAFKA_SASL_PASSWORD=wr0ng-s3cret"}
	refused := run(1, wrong, "collect", "--dry-run")
	contains(refused, `does not accept user "`+u.User.Username()+`" with this password by SCRAM-SHA-512`)
	if strings.Contains(refused, "wr0ng") {
		t.Errorf("the password is printed:\n%s", refused)
	}
	// A variable comes before the file: this certificate has signed nothing.
	stranger := []string{"SPILLWAY_BROKER_KAFKA_TLS_CA=" + filepath.Join(certificates, "client.pem")}
	contains(run(1, stranger, "collect", "--dry-run"), "name its PEM file by TLS.CA (broker.kafka.tls.ca)")
}
