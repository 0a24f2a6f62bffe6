package rabbitmq_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/adapters/adaptertest"
	"github.com/spillway-mq/spillway/adapters/rabbitmq"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	b := setup(t, rabbitmq.Config{})
	adaptertest.Run(t, adaptertest.Harness{
		Parallel: true,
		Start:    b.target,
		// Other tests run beside these, on the same broker and processors.
		Late: time.Second,
		Topic: func(name string) string {
			b.Cleanup(func() { b.dropStreams(name, "billing") })
			return name
		},
	})
}

// target is the broker as processes see it that can be killed, with a producer
// that does not know Spillway. All share one ladder.
func (b *bench) target(t testing.TB) adaptertest.Target {
	client, err := amqp.Dial(b.rawURL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	channel := func() *amqp.Channel {
		ch, err := client.Channel()
		if err == nil {
			err = ch.Confirm(false)
		}
		if err != nil {
			t.Fatal(err)
		}
		return ch
	}
	ch := channel()
	var processes adaptertest.Processes
	return adaptertest.Target{
		URL: b.rawURL,
		Opener: processes.Opener(func(dial adaptertest.Dial) adapters.Opener {
			cfg := b.cfg
			cfg.Dial = dial
			return rabbitmq.OpenerWith(cfg)
		}),
		Kill: processes.Kill,
		Publish: func(topic string, r adapters.Record) error {
			headers := amqp.Table{}
			for _, h := range r.Headers {
				headers[h.Key] = string(h.Value)
			}
			if r.ID != "" {
				headers["_watermill_message_uuid"] = r.ID
			}
			c, err := ch.PublishWithDeferredConfirm(topic, "", false, false, amqp.Publishing{Headers: headers, Body: r.Payload})
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			if ok, err := c.WaitContext(ctx); err != nil || !ok {
				return fmt.Errorf("confirmed %v: %w", ok, err)
			}
			return nil
		},
		Streams: func(topic string) (n int, err error) {
			c := adapters.Consumer{Topic: topic, Group: "billing"}
			// The ladder is everybody's: see TestQueuesAreBounded.
			names := rabbitmq.BayNames(queueOf(adapters.StreamParking, c))
			for _, s := range []adapters.Stream{adapters.StreamMain, adapters.StreamRetry, adapters.StreamDeadLetter, adapters.StreamSuspect} {
				names = append(names, queueOf(s, c))
			}
			ch := channel()
			for _, name := range names {
				if _, err := ch.QueueDeclarePassive(name, true, false, false, false, nil); err == nil {
					n++
				} else {
					ch = channel()
				}
			}
			return n, ch.Close()
		},
	}
}
