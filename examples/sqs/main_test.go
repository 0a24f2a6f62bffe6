package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/adapters/sqs"
	"github.com/spillway-mq/spillway/internal/brokertest"
)

// onBroker gives the program the broker of the tests.
func onBroker(t *testing.T) (rawURL string) {
	t.Helper()
	rawURL = brokertest.URL(t, "SPILLWAY_TEST_SQS")
	rawURL += "&maxDelay=2s&pollWait=2s"
	t.Setenv("SPILLWAY_BROKER_URL", rawURL)
	return rawURL
}

// execute runs the program with -json, and checks that its count adds up.
func execute(ctx context.Context, t *testing.T, want int, args ...string) (counts map[string]int, screen string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code := run(ctx, append(args, "-json"), strings.NewReader(""), &stdout, &stderr)
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

// The runs share the streams of the example, so they come one after the other.
func TestEveryMessageIsAccountedFor(t *testing.T) {
	rawURL := onBroker(t)

	t.Run("interrupted", func(t *testing.T) {
		// While orders wait for the gateway: delayed, where nothing can read them.
		ctx, cancel := context.WithTimeout(t.Context(), 1200*time.Millisecond)
		defer cancel()
		execute(ctx, t, 130, "-n=150")
	})

	for _, name := range []string{"first run", "second run"} {
		t.Run(name, func(t *testing.T) {
			counts, screen := execute(t.Context(), t, 0, "-n=60")
			if counts["published"] != 60 || counts["processed"] == 0 || counts["retried"] == 0 || counts["parked"] == 0 || counts["deadLettered"] == 0 {
				t.Errorf("an outcome did not occur: %v", counts)
			}
			if name == "second run" && counts["others"] != 0 {
				t.Errorf("the first run left something behind: %v", counts)
			}
			if !strings.Contains(screen, "on SQS") {
				t.Errorf("the screen does not say where:\n%s", screen)
			}
		})
	}

	t.Run("after a run that was killed", func(t *testing.T) {
		u, err := url.Parse(rawURL)
		if err != nil {
			t.Fatal(err)
		}
		b, err := sqs.Opener().Open(t.Context(), adapters.OpenParams{URL: u})
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
		counts, screen := execute(t.Context(), t, 0, "-n=20")
		if counts["published"] != 20 || counts["others"] != 2 || !strings.Contains(screen, "taken out: 2 messages of other runs") {
			t.Errorf("%v\n%s", counts, screen)
		}
	})

	t.Run("webhooks", func(t *testing.T) {
		counts, _ := execute(t.Context(), t, 0, "-input=../quickstart/testdata/webhooks.jsonl")
		if counts["published"] != 14 || counts["parked"] != 2 || counts["deadLettered"] != 7 {
			t.Errorf("%v", counts)
		}
	})
}

func TestABrokerThatIsNotThereIsAnError(t *testing.T) {
	t.Setenv("SPILLWAY_BROKER_URL", "sqs://guest:hunter2@127.0.0.1:1?region=elasticmq")
	var stdout, stderr bytes.Buffer
	if code := run(t.Context(), []string{"-n=1"}, strings.NewReader(""), &stdout, &stderr); code != 1 {
		t.Errorf("exit code %d", code)
	}
	if strings.Contains(stderr.String(), "hunter2") || !strings.Contains(stderr.String(), "127.0.0.1:1") {
		t.Errorf("stderr: %s", stderr.String())
	}
}

func TestAWrongURLIsRefused(t *testing.T) {
	t.Setenv("SPILLWAY_BROKER_URL", "http://guest:hunter2@127.0.0.1/")
	var stdout, stderr bytes.Buffer
	if code := run(t.Context(), nil, strings.NewReader(""), &stdout, &stderr); code != 2 {
		t.Errorf("exit code %d", code)
	}
	if strings.Contains(stderr.String(), "hunter2") || !strings.Contains(stderr.String(), "sqs://") {
		t.Errorf("stderr: %s", stderr.String())
	}
}
