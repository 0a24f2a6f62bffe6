package kafka_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/adapters/kafka"
)

// forgetful is a cluster that forgets the positions of groups without members
// soon, as others do after a week.
func forgetful(t *testing.T) string {
	_, rawURL := fakeCluster(t, map[string]string{"offset.retention.ms": "1500", "offsets.retention.check.interval.ms": "50"})
	return rawURL
}

// A collector that comes more often than positions expire collects nothing twice,
// also where nothing new comes: Kafka counts from the last commit.
func TestPositionsOfDrainsLastAsLongAsThereAreDrains(t *testing.T) {
	t.Parallel()
	b := setup(t, forgetful(t), kafka.Config{})
	c := b.consumer(1)
	b.Handoff(adapters.Handoff{Consumer: c, Stream: adapters.StreamDeadLetter, Record: adapters.Record{ID: "dead", Payload: []byte("x")}})
	drain := func() []string {
		b.Broker = b.open() // as each run of the command does
		return idsOf(b.Drain(of(adapters.StreamDeadLetter, c)))
	}
	if got := drain(); len(got) != 1 {
		t.Fatalf("drained %q, want the one", got)
	}
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for range 8 {
		<-tick.C
		if again := drain(); len(again) > 0 {
			t.Fatalf("drained %q again", again)
		}
	}
}

// While a consumer runs its positions do not expire, in none of its groups and
// however quiet its streams are. So nobody has to commit them anew.
func TestPositionsOfARunningConsumerDoNotExpire(t *testing.T) {
	t.Parallel()
	b := setup(t, forgetful(t), kafka.Config{})
	c := b.consumer(4)
	b.publish(c.Topic, 1)
	for _, stream := range []adapters.Stream{adapters.StreamRetry, adapters.StreamParking, adapters.StreamSuspect} {
		b.Handoff(adapters.Handoff{Consumer: c, Stream: stream, Record: adapters.Record{ID: string(stream), Payload: []byte("x")}})
	}
	s := b.SubscribeOn(b.Broker, c)
	for range 4 {
		b.Ack(b.Next(s))
	}
	b.Quiet(s, 4*time.Second)
	b.Close(s)
	b.Quiet(b.SubscribeOn(b.open(), c), time.Second)
}

// The check says when positions are forgotten before messages are.
func TestCheckHowLongPositionsLast(t *testing.T) {
	t.Parallel()
	for minutes, want := range map[string]bool{"10080": true, "20160": false} {
		_, rawURL := fakeCluster(t, map[string]string{"offsets.retention.minutes": minutes})
		b := setup(t, rawURL, kafka.Config{})
		c := b.consumer(1)
		findings, err := b.Broker.(adapters.Checker).Check(t.Context(), []adapters.Consumer{c})
		if err != nil {
			t.Fatal(err)
		}
		got := slices.ContainsFunc(findings, func(f adapters.Finding) bool {
			return f.Rule == "kafka-offsets-retention" && f.Severity == adapters.SeverityWarning &&
				strings.Contains(f.Message, "336h0m0s") && strings.Contains(f.Fix, "20160")
		})
		if got != want {
			t.Errorf("with %s minutes it warns: %t, want %t: %+v", minutes, got, want, findings)
		}
	}
}
