package storm_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/internal/brokertest"
	"github.com/spillway-mq/spillway/internal/storm"
)

// The storm's processes are this binary, started again.
func TestMain(m *testing.M) {
	storm.RunPart()
	os.Exit(m.Run())
}

// run runs a storm and fails with its report if a promise was broken.
func run(t *testing.T, cfg storm.Config) *storm.Report {
	t.Helper()
	cfg.Dir, cfg.Log = t.TempDir(), t.Output()
	r, err := storm.Run(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Print(t.Output()); err != nil {
		t.Fatal(err)
	}
	if !r.OK() {
		t.Errorf("%d violations, and held by the broker: %v; see the report", len(r.Violations), r.Held)
	}
	// A storm that moved nothing would pass, too.
	if r.Confirmed != r.Config.Messages {
		t.Errorf("%d messages confirmed, want %d", r.Confirmed, r.Config.Messages)
	}
	if acting := r.States["billing"]; acting["processed"] == 0 || acting["dlq"]+acting["last resort"] == 0 {
		t.Errorf("the acting group came to %v: want messages processed, and messages given up", acting)
	}
	if r.HandedOff == 0 || len(r.Faults) == 0 {
		t.Errorf("%d hand-offs and %d kinds of faults: that was no storm", r.HandedOff, len(r.Faults))
	}
	return r
}

func TestMemorySurvivesAStorm(t *testing.T) {
	t.Parallel()
	run(t, storm.Config{Broker: "memory", Seed: 3, Duration: 4 * time.Second, Messages: 800})
}

func TestRabbitMQSurvivesAStorm(t *testing.T) {
	t.Parallel()
	// It hits a broker of its own; the variable says whether there are brokers.
	brokertest.URL(t, "SPILLWAY_TEST_RABBITMQ")
	r := run(t, storm.Config{
		Broker: "rabbitmq", Seed: 3, Duration: 15 * time.Second, Messages: 1500, Consumers: 2,
		Only: []string{"kill -9", "some connections cut", "nothing reaches the broker", "alarm", "deleted"},
	})
	if r.Killed == 0 {
		t.Error("no process was killed")
	}
}

func TestKafkaSurvivesAStorm(t *testing.T) {
	t.Parallel()
	brokertest.URL(t, "SPILLWAY_TEST_KAFKA")
	r := run(t, storm.Config{
		Broker: "kafka", Seed: 3, Duration: 15 * time.Second, Messages: 1500, Consumers: 2,
		Only: []string{"kill -9", "some connections cut", "nothing reaches the broker", "join and leave", "deleted"},
	})
	if r.Killed == 0 {
		t.Error("no process was killed")
	}
}

func TestSQSSurvivesAStorm(t *testing.T) {
	t.Parallel()
	// It hits a server of its own; the variable says whether there are brokers.
	brokertest.URL(t, "SPILLWAY_TEST_SQS")
	r := run(t, storm.Config{
		Broker: "sqs", Seed: 4, Duration: 15 * time.Second, Messages: 1000, Consumers: 2, Flow: 60,
		Only: []string{"kill -9", "some connections cut", "nothing reaches the broker", "console"},
	})
	if r.Killed == 0 {
		t.Error("no process was killed")
	}
}

// The whole storm must be able to fail, and not just its checker.
func TestStormNamesWhatABadBrokerDoes(t *testing.T) {
	t.Parallel()
	for broker, want := range map[string]storm.Problem{
		"loses":          storm.Lost,
		"hurries":        storm.Early,
		"tells everyone": storm.Foreign,
		"garbles":        storm.Changed,
		"doubles":        storm.Unexplained,
	} {
		t.Run(broker, func(t *testing.T) {
			t.Parallel()
			r, err := storm.Run(t.Context(), storm.Config{
				Broker: broker, Seed: 5, Duration: time.Second, Messages: 200, Dir: t.TempDir(),
				// One fault that makes no doubt: with many, a copy has an excuse.
				Only: []string{"slow hand-off"},
			})
			if err != nil {
				t.Fatal(err)
			}
			for _, v := range r.Violations {
				if v.Problem == want {
					if len(v.Steps) == 0 {
						t.Errorf("%s %s has no steps", v.Problem, v.ID)
					}
					return
				}
			}
			t.Errorf("the broker that %s caused no violation %q: %+v", broker, want, r.Violations)
		})
	}
}

func TestStormFindsWhatWentToTheLastResort(t *testing.T) {
	t.Parallel()
	r := run(t, storm.Config{Broker: "refuses", Seed: 5, Duration: 2 * time.Second, Messages: 600, Only: []string{"slow hand-off"}})
	if r.States["billing"]["last resort"] == 0 {
		t.Errorf("nothing in the last resort: %v", r.States)
	}
}

func TestRunRefusesAFaultThatNobodyKnows(t *testing.T) {
	t.Parallel()
	_, err := storm.Run(t.Context(), storm.Config{Dir: t.TempDir(), Duration: time.Second, Only: []string{"earthquake"}})
	if err == nil || !strings.Contains(err.Error(), "no fault") {
		t.Errorf("the error is %v", err)
	}
	if _, err := storm.Run(t.Context(), storm.Config{Broker: "pigeons", Dir: t.TempDir()}); err == nil || !strings.Contains(err.Error(), "memory") {
		t.Errorf("the error is %v, want one that names the brokers", err)
	}
}
