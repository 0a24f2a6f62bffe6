// Package exampletest is the one test of the examples on real brokers.
package exampletest

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/config"
	"github.com/spillway-mq/spillway/examples/app/configured"
	"github.com/spillway-mq/spillway/internal/brokertest"
)

// Example is a program on a real broker.
type Example struct {
	File     []byte // its spillway.yaml
	Variable string // has the broker's URL: SPILLWAY_TEST_KAFKA
	Query    string // goes behind that URL: "&maxDelay=2s"
	Broker   string // as the screen calls it: "Kafka"
	Nowhere  string // a URL with the password hunter2 at which no broker listens, on 127.0.0.1:1
}

// Run tests it. The runs share the streams of the example, so they come one
// after the other.
func Run(t *testing.T, e Example) {
	t.Run("every message is accounted for", func(t *testing.T) {
		t.Setenv("SPILLWAY_BROKER_URL", brokertest.URL(t, e.Variable)+e.Query)
		t.Run("interrupted", e.interrupted)
		t.Run("first run", func(t *testing.T) { e.whole(t) })
		t.Run("second run", func(t *testing.T) {
			if counts := e.whole(t); counts["others"] != 0 {
				t.Errorf("the first run left something behind: %v", counts)
			}
		})
		t.Run("after a run that was killed", e.afterAKill)
		t.Run("webhooks", e.webhooks)
	})
	t.Run("a broker that is not there is an error", func(t *testing.T) {
		e.refused(t, e.Nowhere, 1, "127.0.0.1:1")
	})
	t.Run("a URL of no broker is refused", func(t *testing.T) {
		e.refused(t, "http://guest:hunter2@127.0.0.1/", 2, strings.SplitAfter(e.Nowhere, "://")[0])
	})
}

// interrupted ends while orders wait for the gateway, where nothing can read
// them.
func (e Example) interrupted(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 1200*time.Millisecond)
	defer cancel()
	e.execute(ctx, t, 130, "-n=150")
}

func (e Example) whole(t *testing.T) (counts map[string]int) {
	t.Helper()
	counts, screen := e.execute(t.Context(), t, 0, "-n=60")
	if counts["published"] != 60 || counts["processed"] == 0 || counts["retried"] == 0 || counts["parked"] == 0 || counts["deadLettered"] == 0 {
		t.Errorf("an outcome did not occur: %v", counts)
	}
	if !strings.Contains(screen, "on "+e.Broker) {
		t.Errorf("the screen does not say where:\n%s", screen)
	}
	return counts
}

// afterAKill finds what a run left that had no time for its account.
func (e Example) afterAKill(t *testing.T) {
	cfg, err := config.Loader{}.Parse("spillway.yaml", e.File)
	if err != nil {
		t.Fatal(err)
	}
	b, err := cfg.OpenBroker(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c := adapters.Consumer{Topic: "spillway-example-orders", Group: "billing"}
	for _, s := range []adapters.Stream{adapters.StreamDeadLetter, adapters.StreamParking} {
		if err := b.Handoff(t.Context(), adapters.Handoff{
			Consumer: c, Stream: s, Record: adapters.Record{ID: "of-another-run"}, Due: time.Now().Add(time.Hour),
		}); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	counts, screen := e.execute(t.Context(), t, 0, "-n=20")
	if counts["published"] != 20 || counts["others"] != 2 || !strings.Contains(screen, "taken out: 2 messages of other runs") {
		t.Errorf("%v\n%s", counts, screen)
	}
}

func (e Example) webhooks(t *testing.T) {
	counts, _ := e.execute(t.Context(), t, 0, "-input=../quickstart/testdata/webhooks.jsonl")
	if counts["published"] != 14 || counts["parked"] != 2 || counts["deadLettered"] != 7 {
		t.Errorf("%v", counts)
	}
}

// execute runs the program with -json, and checks that its count adds up.
func (e Example) execute(ctx context.Context, t *testing.T, want int, args ...string) (counts map[string]int, screen string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code := configured.Run(ctx, e.File, append(args, "-json"), strings.NewReader(""), &stdout, &stderr)
	if code != want {
		t.Fatalf("exit code %d, want %d\n%s", code, want, stderr.String())
	}
	if err := json.Unmarshal(stdout.Bytes(), &counts); err != nil {
		t.Fatalf("%v: %s", err, stdout.String())
	}
	sum := counts["processed"] + counts["parked"] + counts["deadLettered"] + counts["lastResort"] + counts["pending"]
	if counts["lost"] != 0 || sum != counts["published"] {
		t.Errorf("the count does not add up: %v\n%s", counts, stderr.String())
	}
	return counts, stderr.String()
}

// refused runs it on a URL that cannot serve, and finds a hint on the screen
// and no password.
func (e Example) refused(t *testing.T, broker string, want int, hint string) {
	t.Helper()
	t.Setenv("SPILLWAY_BROKER_URL", broker)
	var stdout, stderr bytes.Buffer
	if code := configured.Run(t.Context(), e.File, []string{"-n=1"}, strings.NewReader(""), &stdout, &stderr); code != want {
		t.Errorf("exit code %d, want %d", code, want)
	}
	if strings.Contains(stderr.String(), "hunter2") || !strings.Contains(stderr.String(), hint) {
		t.Errorf("stderr: %s", stderr.String())
	}
}
