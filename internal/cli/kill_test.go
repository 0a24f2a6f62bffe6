package cli_test

import (
	"context"
	cryptorand "crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/adapters/rabbitmq"
	"github.com/spillway-mq/spillway/envelope"
	"github.com/spillway-mq/spillway/internal/brokertest"
	"github.com/spillway-mq/spillway/internal/cli"
	"github.com/spillway-mq/spillway/inventory"
)

// envChild makes the test binary the command itself, so that it can be killed.
const envChild = "SPILLWAY_CLI_TEST_CHILD"

func TestMain(m *testing.M) {
	if args := os.Getenv(envChild); args != "" {
		os.Exit(cli.Run(context.Background(), strings.Fields(args), os.Stdin, os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// Collecting is killed again and again, in the middle of batches, and in the
// end every dead letter is there once. Both databases.
func TestCollectSurvivesKill(t *testing.T) {
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		collectSurvivesKill(t, filepath.Join(t.TempDir(), "i.db"))
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		u, err := url.Parse(brokertest.URL(t, "SPILLWAY_TEST_POSTGRES"))
		if err != nil {
			t.Fatal(err)
		}
		q := u.Query()
		q.Set("search_path", schema(t, u.String()))
		u.RawQuery = q.Encode()
		collectSurvivesKill(t, u.String())
	})
}

func collectSurvivesKill(t *testing.T, store string) {
	rawURL := brokertest.URL(t, "SPILLWAY_TEST_RABBITMQ")
	u, err := url.Parse(rawURL)
	if err != nil {
		t.Fatal(err)
	}
	broker, err := rabbitmq.Opener().Open(t.Context(), adapters.OpenParams{URL: u})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = broker.Close(context.Background()) })
	c := adapters.Consumer{Topic: "kill-" + strings.ToLower(rand()), Group: "g", Concurrency: 1}
	if err := broker.Ensure(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	stream := adapters.Names{}.Of(adapters.StreamDeadLetter, c)
	t.Cleanup(func() { dropStreams(t, rawURL, c) })

	const n = 2000
	fill(t, rawURL, stream, n)

	environ := append(os.Environ(), "SPILLWAY_BROKER_URL="+rawURL, "SPILLWAY_INVENTORY_URL="+store, "SPILLWAY_INVENTORY_AUTHOR=ana", "SPILLWAY_CONFIG=",
		envChild+"=collect --batch 20 --stream "+stream)
	command := func() *exec.Cmd {
		cmd := exec.Command(os.Args[0])
		cmd.Env, cmd.Stderr = environ, t.Output()
		return cmd
	}
	kills := 0
	s := openWhenMade(t, command, store)
	for {
		cmd := command()
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- cmd.Wait() }()
		// Killed once it has committed something, wherever it is then.
		before, killed := total(t, s), false
		for ended := false; !ended; {
			if killed || kills == 5 {
				if err := <-done; err != nil && !killed {
					t.Fatalf("collect: %v", err)
				}
				break
			}
			select {
			case err := <-done:
				ended = true
				if err != nil {
					t.Fatalf("collect: %v", err)
				}
			default:
				if total(t, s) > before {
					killed = true
					kills++
					_ = cmd.Process.Kill()
				}
			}
		}
		if !killed {
			break
		}
	}
	if kills < 3 {
		t.Errorf("only %d kills", kills)
	}
	if got := total(t, s); got != n {
		t.Errorf("%d dead letters, want %d", got, n)
	}
	for i := range n {
		if found, err := s.Find(t.Context(), fmt.Sprint("m", i), 0); err != nil || len(found) != 1 {
			t.Fatalf("m%d is there %d times, %v", i, len(found), err)
		}
	}
	if left, err := broker.(adapters.Counter).Count(t.Context(), stream); err != nil || left != 0 {
		t.Errorf("%d left, %v", left, err)
	}
	t.Logf("%d kills", kills)
}

// openWhenMade has the inventory made by a first run, which is killed at once.
func openWhenMade(t *testing.T, command func() *exec.Cmd, store string) *inventory.Store {
	t.Helper()
	s, err := inventory.Open(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	cmd := command()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Process.Kill()
	var exit *exec.ExitError
	if err := cmd.Wait(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return s
}

func total(t *testing.T, s *inventory.Store) int64 {
	t.Helper()
	totals, err := s.Totals(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return totals.DeadLetters
}

// fill dead-letters n messages.
func fill(t *testing.T, rawURL, stream string, n int) {
	t.Helper()
	conn, err := amqp.Dial(rawURL)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	if err := ch.Confirm(false); err != nil {
		t.Fatal(err)
	}
	confirms := ch.NotifyPublish(make(chan amqp.Confirmation, n))
	for i := range n {
		id := fmt.Sprint("m", i)
		s := envelope.State{
			Broker: "rabbitmq", ConsumerGroup: "g", ConsumerVersion: "1.8.2", Source: envelope.Position{Topic: "orders"},
			Class: "validation", Message: fmt.Sprintf("no item %d", i), Reason: "permanent", DeadLetteredAt: time.Now(),
		}
		s.DeadLetterID = envelope.DeadLetterID(s, id, []byte(id))
		pairs, _ := s.Pairs(0)
		headers := amqp.Table{}
		for _, p := range pairs {
			headers[p.Key] = p.Value
		}
		err := ch.PublishWithContext(t.Context(), "", stream, true, false, amqp.Publishing{MessageId: id, Headers: headers, Body: []byte(id), DeliveryMode: amqp.Persistent})
		if err != nil {
			t.Fatal(err)
		}
	}
	for range n {
		if c := <-confirms; !c.Ack {
			t.Fatal("the broker refused a dead letter")
		}
	}
}

func dropStreams(t *testing.T, rawURL string, c adapters.Consumer) {
	t.Helper()
	conn, err := amqp.Dial(rawURL)
	if err != nil {
		t.Error(err)
		return
	}
	defer conn.Close()
	for _, s := range []adapters.Stream{adapters.StreamRetry, adapters.StreamParking, adapters.StreamDeadLetter, adapters.StreamSuspect} {
		ch, err := conn.Channel()
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = ch.QueueDelete(adapters.Names{}.Of(s, c), false, false, false) // on a channel of its own: what is not there closes it
	}
	ch, err := conn.Channel()
	if err != nil {
		t.Error(err)
		return
	}
	if _, err := ch.QueueDelete(c.Topic+"_"+c.Group, false, false, false); err != nil {
		t.Error(err)
	}
}

func rand() string { return cryptorand.Text()[:10] }

// schema makes a schema of a PostgreSQL for one test.
func schema(t *testing.T, rawURL string) string {
	t.Helper()
	db, err := sql.Open("pgx", rawURL)
	if err != nil {
		t.Fatal(err)
	}
	name := "cli_" + strings.ToLower(rand())
	if _, err := db.Exec("CREATE SCHEMA " + name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		defer db.Close()
		if _, err := db.Exec("DROP SCHEMA " + name + " CASCADE"); err != nil {
			t.Error(err)
		}
	})
	return name
}
