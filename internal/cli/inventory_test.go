package cli_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/adapters/memory"
	"github.com/spillway-mq/spillway/config"
	"github.com/spillway-mq/spillway/envelope"
	"github.com/spillway-mq/spillway/failure"
	"github.com/spillway-mq/spillway/internal/cli"
)

// Scripts with an inventory and a broker of their own, which begin at midnight
// of 2000-01-01. Beside spillway they know
//
//	fail N TOPIC/GROUP@VERSION CLASS TEXT...   N messages are dead-lettered, a second apart; # is their number
//	park N TOPIC/GROUP, retry N TOPIC/GROUP    N messages wait
//	bare N STREAM                              N records in no form that is known
//	wait DURATION
//
// GROUP1 stands for the first group that was listed, and so on.
func TestInventoryScripts(t *testing.T) {
	t.Parallel()
	scripts, err := filepath.Glob("testdata/inventory/*.script")
	if err != nil || len(scripts) < 1 {
		t.Fatalf("%d scripts, %v", len(scripts), err)
	}
	for _, file := range scripts {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".script"), func(t *testing.T) {
			t.Parallel()
			script, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var got strings.Builder
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, dir)
				for line := range strings.Lines(string(script)) {
					switch {
					case strings.HasPrefix(line, "# "):
						got.WriteString(line)
					case strings.HasPrefix(line, "$ "):
						got.WriteString(line)
						got.WriteString(w.run(strings.TrimSpace(line[2:])))
						got.WriteString("\n")
					}
				}
			})
			if *update {
				if err := os.WriteFile(file, []byte(got.String()), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(string(script), got.String()); diff != "" {
				t.Errorf("(-want +got; -update writes it anew):\n%s", diff)
			}
		})
	}
}

// world is the surroundings of a script.
type world struct {
	*testing.T
	dir    string
	broker *memory.Broker
	app    adapters.Broker // as an application sees it
	failed int
	groups []string // their ids, in the order in which they were printed
}

func newWorld(t *testing.T, dir string) *world {
	w := &world{T: t, dir: dir, broker: memory.New(memory.Config{})}
	var err error
	if w.app, err = w.broker.Opener().Open(t.Context(), adapters.OpenParams{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.broker.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return w
}

// run runs a line, and returns what it printed.
func (w *world) run(line string) string {
	w.Helper()
	words := fields(groupName.ReplaceAllStringFunc(line, func(name string) string {
		if n := w.number(name[len("GROUP"):]); n <= len(w.groups) {
			return w.groups[n-1]
		}
		w.Fatalf("no %s was listed", name)
		return ""
	}))
	switch words[0] {
	case "wait":
		d, err := time.ParseDuration(words[1])
		if err != nil {
			w.Fatal(err)
		}
		time.Sleep(d)
	case "fail":
		w.fail(words[1:])
	case "bare":
		for i := range w.number(words[1]) {
			if err := w.broker.Publish(words[2], adapters.Record{ID: fmt.Sprint("bare-", i), Payload: []byte("?")}); err != nil {
				w.Fatal(err)
			}
		}
	case "park", "retry":
		for i := range w.number(words[1]) {
			w.handOff(words[0], words[2], i)
		}
	default:
		var environ []string
		for words[0] != "spillway" {
			environ, words = append(environ, words[0]), words[1:]
		}
		// The first of a name counts.
		environ = append(environ, "SPILLWAY_CONFIG=testdata/inventory.yaml", "SPILLWAY_INVENTORY_URL="+filepath.Join(w.dir, "inventory.db"))
		var out, errOut bytes.Buffer
		code := cli.App{
			Environ: environ, Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errOut,
			Brokers: []config.Broker{{Name: "memory", Opener: w.broker.Opener()}},
		}.Run(w.Context(), words[1:])
		text := out.String()
		for line := range strings.Lines(errOut.String()) {
			text += "! " + line
		}
		if code != 0 {
			text += fmt.Sprintf("exit %d\n", code)
		}
		// A wait for a lock of the database is time, too.
		return w.named(fraction.ReplaceAllString(strings.ReplaceAll(text, w.dir, "DIR"), "Z"))
	}
	return ""
}

var (
	groupName = regexp.MustCompile(`GROUP\d+`)
	groupID   = regexp.MustCompile(`\bg[a-z2-7]{12}\b(  )?`)
	signed    = regexp.MustCompile(`\bs1:[a-z2-7]{16}\b`)
	fraction  = regexp.MustCompile(`\.\d+Z`)
)

// named puts names in the place of groups' ids and signatures, which depend on
// how texts are signed. In a column they are as long as what they stand for.
func (w *world) named(text string) string {
	text = signed.ReplaceAllString(text, "s1:................")
	return groupID.ReplaceAllStringFunc(text, func(id string) string {
		id, column := strings.CutSuffix(id, "  ")
		i := slices.Index(w.groups, id)
		if i < 0 {
			i = len(w.groups)
			w.groups = append(w.groups, id)
		}
		if column {
			return fmt.Sprintf("%-15s", fmt.Sprint("GROUP", i+1))
		}
		return fmt.Sprint("GROUP", i+1)
	})
}

func (w *world) number(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		w.Fatal(err)
	}
	return n
}

func (w *world) consumer(s string) adapters.Consumer {
	topic, group, _ := strings.Cut(s, "/")
	c := adapters.Consumer{Topic: topic, Group: group, Concurrency: 1}
	if err := w.app.Ensure(w.Context(), c); err != nil {
		w.Fatal(err)
	}
	return c
}

func (w *world) fail(words []string) {
	name, version, _ := strings.Cut(words[1], "@")
	c := w.consumer(name)
	for range w.number(words[0]) {
		w.failed++
		n := strconv.Itoa(w.failed)
		s := envelope.State{
			Broker: "memory", Attempt: 3, ConsumerGroup: c.Group, Handler: "charge", ConsumerVersion: version, Source: envelope.Position{Topic: c.Topic},
			Class: failure.Class(words[2]), Nature: failure.NaturePermanent, Message: strings.ReplaceAll(strings.Join(words[3:], " "), "#", n),
			Reason: "permanent", MessageType: "OrderPlaced", Aggregate: "order-" + n, TraceID: "trace-" + n,
			FirstAttemptAt: time.Now(), DeadLetteredAt: time.Now(),
		}
		id := "m-" + n
		s.DeadLetterID = envelope.DeadLetterID(s, id, []byte(id))
		w.write(adapters.Handoff{Consumer: c, Stream: adapters.StreamDeadLetter, Record: adapters.Record{ID: id, Key: []byte("key-" + n), Payload: []byte(id)}}, s)
		time.Sleep(time.Second)
	}
}

func (w *world) handOff(what, consumer string, i int) {
	c := w.consumer(consumer)
	s := envelope.State{
		Broker: "memory", Attempt: 4, ConsumerGroup: c.Group, ConsumerVersion: "1.9.0", Source: envelope.Position{Topic: c.Topic},
		Class: failure.ClassReferenceNotFound, Nature: failure.NatureAmbiguous, Message: "no customer 7", FirstAttemptAt: time.Now().Add(-time.Minute),
		DueAt: time.Now().Add(5 * time.Minute), Aggregate: "order-" + what,
	}
	h := adapters.Handoff{Consumer: c, Stream: adapters.StreamRetry, Record: adapters.Record{ID: fmt.Sprint(what, "-", i), Payload: []byte("{}")}, Due: s.DueAt}
	if what == "park" {
		h.Stream, s.ParkedAt, s.Reference = adapters.StreamParking, time.Now(), "customer:7"
	}
	w.write(h, s)
}

func (w *world) write(h adapters.Handoff, s envelope.State) {
	h.State, _ = s.Pairs(0)
	if err := w.app.Handoff(w.Context(), h); err != nil {
		w.Fatal(err)
	}
}
