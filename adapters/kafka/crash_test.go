package kafka_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/spillway-mq/spillway"
	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/adapters/kafka"
	"github.com/spillway-mq/spillway/envelope"
)

// childVariable makes the test program a consumer.
const childVariable = "SPILLWAY_TEST_KAFKA_CHILD"

// crasher is a consumer that ends its process with one message.
type crasher struct {
	URL, Topic, Group, Killer string
}

// run handles messages, and prints their ids, until its standard input ends.
func (c crasher) run() {
	cfg := kafka.Config{Sarama: testSarama(), GroupPerTopic: true, Partitions: 1}
	sw, err := spillway.Open(context.Background(), c.URL, spillway.Config{
		Group: c.Group, Concurrency: 8, ConsumerVersion: "v1", CloseGrace: time.Second,
		Logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	}, kafka.OpenerWith(cfg))
	if err != nil {
		panic(err)
	}
	router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	if err != nil {
		panic(err)
	}
	sw.Install(router)
	router.AddConsumerHandler("handler", c.Topic, sw.Subscriber(), func(msg *message.Message) error {
		if msg.UUID == c.Killer {
			os.Exit(2)
		}
		fmt.Println(msg.UUID)
		return nil
	})
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = os.Stdin.Read(make([]byte, 1))
		cancel()
	}()
	if err := errors.Join(router.Run(ctx), sw.Close(context.Background())); err != nil {
		panic(err)
	}
}

// Issue 4.7; invariant 8: one message of 10,000 ends its process with os.Exit(2),
// whenever it is handled. It is dead-lettered as consumer_crash; all others are
// processed.
func TestMessageThatEndsItsProcess(t *testing.T) {
	t.Parallel()
	const n, killer = 10_000, "m-05000"
	onBoth(t, kafka.Config{}, func(b *bench) {
		c := b.consumer(8)
		b.publish(c.Topic, n)
		exe, err := os.Executable()
		if err != nil {
			b.Fatal(err)
		}
		raw, err := json.Marshal(crasher{b.rawURL, c.Topic, c.Group, killer})
		if err != nil {
			b.Fatal(err)
		}
		handled := map[string]int{}
		starts := 0
		var dead []adapters.Record
		for ; starts < 12 && len(dead) == 0; starts++ {
			cmd := exec.Command(exe)
			cmd.Env = append(os.Environ(), childVariable+"="+string(raw))
			stdin, err := cmd.StdinPipe()
			if err != nil {
				b.Fatal(err)
			}
			var out, stderr strings.Builder
			cmd.Stdout, cmd.Stderr = &out, &stderr
			if err := cmd.Start(); err != nil {
				b.Fatal(err)
			}
			exited := make(chan error, 1)
			go func() { exited <- cmd.Wait() }()
			running := true
			for deadline := time.After(patience); running; {
				select {
				case err := <-exited:
					var code *exec.ExitError
					if !errors.As(err, &code) || code.ExitCode() != 2 {
						b.Fatalf("the consumer ended with %v\n%s", err, stderr.String())
					}
					running = false
				case <-time.After(500 * time.Millisecond):
					if dead = append(dead, b.Drain(of(adapters.StreamDeadLetter, c))...); len(dead) > 0 {
						_ = stdin.Close()
						if err := <-exited; err != nil {
							b.Fatalf("the consumer closed with %v\n%s", err, stderr.String())
						}
						running = false
					}
				case <-deadline:
					_ = cmd.Process.Kill()
					<-exited
					b.Fatalf("nothing happened\n%s", stderr.String())
				}
			}
			for id := range strings.FieldsSeq(out.String()) {
				handled[id]++
			}
		}
		// What is left, without the killer in it.
		s := b.SubscribeOn(b.Broker, c)
		for len(handled) < n-1 {
			d := b.Next(s)
			handled[d.ID]++
			b.Ack(d)
		}
		twice, most := 0, 0
		for id, times := range handled {
			if times > 1 {
				twice++
			}
			most = max(most, times)
			if id == killer {
				b.Errorf("the killer was handled to its end")
			}
		}
		b.Logf("%d starts; of %d neighbours %d were handled more than once, the most %d times", starts, n-1, twice, most)
		if len(dead) != 1 || dead[0].ID != killer {
			b.Fatalf("dead letters: %q, want the killer alone", idsOf(dead))
		}
		if st := envelope.Parse(dead[0].Headers, time.Now()); st.Reason != "consumer_crash" {
			b.Errorf("the reason is %q, want consumer_crash", st.Reason)
		}
		if starts > 8 {
			b.Errorf("it took %d processes to find it", starts)
		}
	})
}

// Issue 4.7: ten deployments within one long delay and one long handler make no
// suspect.
func TestRollingRestartsCountNothing(t *testing.T) {
	t.Parallel()
	onBoth(t, kafka.Config{RevokeGrace: 50 * time.Millisecond}, func(b *bench) {
		c := b.consumer(2)
		b.publish(c.Topic, 1)
		b.Handoff(adapters.Handoff{
			Consumer: c, Stream: adapters.StreamRetry, Record: adapters.Record{ID: "later", Payload: []byte("x")}, Due: time.Now().Add(time.Hour),
		})
		for i := range 10 {
			s := b.SubscribeOn(b.open(), c)
			if d := b.Next(s); d.Count != 1 || d.Stream != adapters.StreamMain {
				b.Errorf("start %d: delivery %d from %s, want the first from main", i, d.Count, d.Stream)
			}
			b.Close(s)
		}
	})
}

func keyed(topic string, key, i int) *sarama.ProducerMessage {
	return &sarama.ProducerMessage{
		Topic: topic, Key: sarama.StringEncoder(fmt.Sprint(key)), Value: sarama.StringEncoder(bodyOf(i)),
		Headers: []sarama.RecordHeader{{Key: []byte("_watermill_message_uuid"), Value: fmt.Appendf(nil, "%d-%d", key, i)}},
	}
}

func bodyOf(i int) string { return fmt.Sprint("body ", i) }

func keyedOf(topic string, key int, body string) *sarama.ProducerMessage {
	m := keyed(topic, key, 0)
	m.Value = sarama.StringEncoder(body)
	return m
}
