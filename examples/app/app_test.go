package app_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/adapters/memory"
	"github.com/spillway-mq/spillway/examples/app"
)

// runOn runs the program with -json.
func runOn(t *testing.T, opener adapters.Opener, args ...string) (code int, counts map[string]int, screen string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code = app.Run(t.Context(), app.Broker{Name: "a broken broker", URL: "memory://", Opener: opener},
		append(args, "-json"), strings.NewReader(""), &stdout, &stderr)
	if stdout.Len() > 0 {
		if err := json.Unmarshal(stdout.Bytes(), &counts); err != nil {
			t.Errorf("%v: %s", err, stdout.String())
		}
	}
	return code, counts, stderr.String()
}

// runWith runs the program on a broker on which something goes wrong.
func runWith(t *testing.T, faults []memory.Fault, args ...string) (code int, counts map[string]int, screen string) {
	t.Helper()
	broker := memory.New(memory.Config{})
	broker.Inject(faults...)
	code, counts, screen = runOn(t, broker.Opener(), args...)
	if left := broker.FaultsLeft(); len(left) > 0 {
		t.Errorf("faults that did not happen: %v", left)
	}
	return code, counts, screen
}

// wrongBroker does something else than it is told with the first hand-off to a
// stream.
type wrongBroker struct {
	adapters.Broker
	stream adapters.Stream
	once   sync.Once
	do     func(adapters.Broker, context.Context, adapters.Handoff) error
}

func (w *wrongBroker) Handoff(ctx context.Context, h adapters.Handoff) (err error) {
	if h.Stream == w.stream {
		first := false
		w.once.Do(func() { first, err = true, w.do(w.Broker, ctx, h) })
		if first {
			return err
		}
	}
	return w.Broker.Handoff(ctx, h)
}

// What a counter of the consumer's could not see.
func TestAccountFindsWhatCountersCannot(t *testing.T) {
	t.Parallel()
	forget := func(adapters.Broker, context.Context, adapters.Handoff) error { return nil }
	change := func(b adapters.Broker, ctx context.Context, h adapters.Handoff) error {
		h.Record.Payload = []byte("{}")
		return b.Handoff(ctx, h)
	}
	double := func(b adapters.Broker, ctx context.Context, h adapters.Handoff) error {
		other := h
		other.Stream = adapters.StreamParking
		other.Due = time.Now().Add(time.Hour)
		return errors.Join(b.Handoff(ctx, h), b.Handoff(ctx, other))
	}
	for _, c := range []struct {
		name   string
		stream adapters.Stream
		do     func(adapters.Broker, context.Context, adapters.Handoff) error
		code   int
		lost   int
		want   string
	}{
		{"forgets a dead letter", adapters.StreamDeadLetter, forget, 1, 1, "THE COUNT DOES NOT ADD UP. Lost: 1."},
		{"changes a dead letter", adapters.StreamDeadLetter, change, 1, 0, "THE COUNT DOES NOT ADD UP. Lost: 0. With another body: 1."},
		{"writes a dead letter to two streams", adapters.StreamDeadLetter, double, 0, 0, "In two places, and counted in the first: 1 message."},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				inner := memory.New(memory.Config{}).Opener()
				opener := adapters.Opener{Schemes: inner.Schemes, Open: func(ctx context.Context, p adapters.OpenParams) (adapters.Broker, error) {
					b, err := inner.Open(ctx, p)
					return &wrongBroker{Broker: b, stream: c.stream, do: c.do}, err
				}}
				code, counts, screen := runOn(t, opener, "-n=100")
				if code != c.code || counts["lost"] != c.lost || !strings.Contains(screen, c.want) {
					t.Errorf("exit code %d, %v, want %d and %d lost\n%s", code, counts, c.code, c.lost, screen)
				}
			})
		})
	}
}

func TestLastResortIsReadBack(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	synctest.Test(t, func(t *testing.T) {
		code, counts, screen := runWith(t, []memory.Fault{{
			On: memory.Handoff, Stream: "spillway-example-orders.billing.dlq", Times: 2, // with evidence, and without
			Do: memory.Fail(fmt.Errorf("no: %w", adapters.ErrTooLarge)),
		}}, "-n=20")
		if code != 0 || counts["lastResort"] != 1 || counts["lost"] != 0 {
			t.Errorf("exit code %d, %v\n%s", code, counts, screen)
		}
		if !strings.Contains(screen, "kept in "+tmp) {
			t.Errorf("the screen does not say where:\n%s", screen)
		}
	})
	kept, err := filepath.Glob(filepath.Join(tmp, "*", "*.jsonl"))
	if err != nil || len(kept) != 1 {
		t.Errorf("kept: %v, %v", kept, err)
	}
}

func TestNothingIsLeftInTheTemporaryDirectory(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	synctest.Test(t, func(t *testing.T) {
		if code, counts, screen := runWith(t, nil, "-n=20"); code != 0 {
			t.Errorf("exit code %d, %v\n%s", code, counts, screen)
		}
	})
	left, err := os.ReadDir(tmp)
	if err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// Hand-offs that are not confirmed at first are repeated: the run takes longer,
// and that is all.
func TestAnUnreliableBrokerLosesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var faults []memory.Fault
		for _, stream := range []string{"retry", "parking", "dlq"} {
			faults = append(faults,
				memory.Fault{On: memory.Handoff, Stream: "spillway-example-orders.billing." + stream, Times: 2, Do: memory.Fail(errors.New("no quorum"))},
				memory.Fault{On: memory.Handoff, Stream: "spillway-example-orders.billing." + stream, Do: memory.FailAfter(errors.New("the confirmation got lost"))})
		}
		code, counts, screen := runWith(t, faults, "-n=100")
		if code != 0 || counts["published"] != 100 || counts["lost"] != 0 {
			t.Errorf("exit code %d, %v\n%s", code, counts, screen)
		}
	})
}

func TestABrokerThatRefusesIsAnError(t *testing.T) {
	t.Parallel()
	check := func(t *testing.T, fault memory.Fault) {
		code, counts, screen := runWith(t, []memory.Fault{fault}, "-n=100")
		if code != 1 || counts != nil || !strings.Contains(screen, "disk full") {
			t.Errorf("exit code %d, %v\n%s", code, counts, screen)
		}
	}
	full := memory.Fail(errors.New("disk full"))
	t.Run("publish", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) { check(t, memory.Fault{On: memory.Publish, Skip: 3, Do: full}) })
	})
	t.Run("drain", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) { check(t, memory.Fault{On: memory.Drain, Do: full}) })
	})
	t.Run("subscribe", func(t *testing.T) {
		t.Parallel()
		// Not in a bubble: a Router that cannot subscribe leaves goroutines.
		check(t, memory.Fault{On: memory.Subscribe, Do: full})
	})
}
