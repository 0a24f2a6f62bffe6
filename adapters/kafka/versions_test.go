package kafka_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/spillway-mq/spillway/adapters/adaptertest"
	"github.com/spillway-mq/spillway/adapters/kafka"
)

// The oldest Kafka that is said to do does all that the newest does.
func TestConformanceOnTheOldestVersion(t *testing.T) {
	t.Parallel()
	conformance(t, func(t testing.TB) adaptertest.Target {
		return target(t, fake(t, kfake.MaxVersions(kversion.V2_4_0())), kafka.Config{CommitInterval: commitInterval})
	})
}

// An older one is refused at start, with what it lacks and from where on that is.
func TestOlderVersionsAreRefused(t *testing.T) {
	t.Parallel()
	without := kversion.V2_8_0()
	without.SetMaxKeyVersion(22, -1) // InitProducerId
	for _, tc := range []struct {
		name     string
		versions *kversion.Versions
		cfg      kafka.Config
		want     []string // what is lacking
	}{
		{"2.4", kversion.V2_4_0(), kafka.Config{}, nil},
		{"4.1", kversion.V4_1_0(), kafka.Config{}, nil},
		{"2.3", kversion.V2_3_0(), kafka.Config{}, []string{
			"the cluster is not Kafka 2.4 or newer: request CreateTopics ends at version 3, and version 4 is needed, which Kafka has from 2.4 on, for topics with",
		}},
		{"2.3, creating nothing", kversion.V2_3_0(), kafka.Config{VerifyOnly: true}, nil},
		{"0.10.2", kversion.V0_10_2(), kafka.Config{}, []string{
			"request Produce ends at version 2, and version 3 is needed, which Kafka has from 0.11 on, for headers",
			"request InitProducerId is missing, and version 0 is needed, which Kafka has from 0.11 on, for idempotent hand-offs",
			"request CreateTopics ends at version 1",
		}},
		{"something like Kafka", without, kafka.Config{}, []string{"request InitProducerId is missing"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			u, err := parseURL(fake(t, kfake.MaxVersions(tc.versions)))
			if err != nil {
				t.Fatal(err)
			}
			_, err = open(t, u, tc.cfg)
			if len(tc.want) == 0 {
				if err != nil {
					t.Error(err)
				}
				return
			}
			var lack *kafka.VersionError
			if !errors.As(err, &lack) {
				t.Fatalf("the error is %v", err)
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("the error is %v, want it to say: %s", err, want)
				}
			}
		})
	}
}
