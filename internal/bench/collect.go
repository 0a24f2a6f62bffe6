package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/adapters/memory"
	"github.com/spillway-mq/spillway/adapters/rabbitmq"
	"github.com/spillway-mq/spillway/envelope"
	"github.com/spillway-mq/spillway/failure"
	"github.com/spillway-mq/spillway/internal/cputime"
	"github.com/spillway-mq/spillway/inventory"
)

// collecting measures how fast dead letters get into an inventory.
type collecting struct {
	name     string
	messages int
	rounds   int
	target   bool
	// open returns the broker with messages dead letters in stream.
	open func(ctx context.Context, stream string, messages int) (adapters.Broker, func() error, error)
}

// collectBatch is how many dead letters are committed together.
const collectBatch = 2000

func (m collecting) measure(ctx context.Context, t *table) {
	dir, err := os.MkdirTemp("", "spillway-bench")
	if err != nil {
		t.fail(m.name+": collect", err)
		return
	}
	defer os.RemoveAll(dir)
	n := 0
	var busy []float64 // microseconds of processor for each message collected
	run := func(take func(ctx context.Context, b adapters.Broker, stream string) (int64, error)) func() (float64, error) {
		return func() (float64, error) {
			n++
			stream := fmt.Sprintf("bench-%d-%d.bench.dlq", os.Getpid(), n)
			broker, end, err := m.open(ctx, stream, m.messages)
			if err != nil {
				return 0, err
			}
			begun := time.Now()
			got, err := take(ctx, broker, stream)
			rate := float64(got) / time.Since(begun).Seconds()
			if err == nil && got != int64(m.messages) {
				err = fmt.Errorf("%d of %d were read", got, m.messages)
			}
			return rate, errors.Join(err, end())
		}
	}
	// One file for all rounds: it grows, as an inventory does.
	store, err := inventory.Open(ctx, filepath.Join(dir, "inventory.db"))
	if err != nil {
		t.fail(m.name+": collect", err)
		return
	}
	all, err := inTurns(m.rounds,
		run(func(ctx context.Context, b adapters.Broker, stream string) (int64, error) {
			before := cputime.Spent()
			defer func() { busy = append(busy, float64((cputime.Spent()-before).Microseconds())/float64(m.messages)) }()
			p, err := store.Collect(ctx, b, inventory.CollectConfig{Streams: []string{stream}, Batch: collectBatch, Author: "bench"})
			return int64(p.Total().New), err
		}),
		run(func(ctx context.Context, b adapters.Broker, stream string) (got int64, err error) {
			err = b.(adapters.BatchDrainer).DrainBatch(ctx, stream, collectBatch, func(_ context.Context, records []adapters.Record) error {
				got += int64(len(records))
				return nil
			})
			return got, err
		}),
	)
	if err = errors.Join(err, store.Close()); err != nil {
		t.fail(m.name+": collect", err)
		return
	}
	what := m.name + ": collect into SQLite"
	format, args := "%.0f msg/s, %.0f µs of processor each; %.0f msg/s when only read", []any{all.median(0), median(busy), all.median(1)}
	if m.target {
		t.check(what, all.median(0) >= 20_000, "at least 20,000", format, args...)
	} else {
		t.note(what, format, args...)
	}
}

// dead makes the n-th dead letter: one of five causes.
func dead(stream string, n int) (adapters.Record, envelope.State) {
	id := strconv.Itoa(n)
	causes := []struct {
		class failure.Class
		text  string
	}{
		{failure.ClassValidation, "order " + id + ": no field \"amount\" in the request of customer " + id},
		{failure.ClassDependencyTimeout, "dial tcp 10.42.7." + strconv.Itoa(n%250) + ":5432: i/o timeout"},
		{failure.ClassDependencyUnavailable, "payment gateway: unexpected status 503"},
		{failure.ClassReferenceNotFound, "customer " + id + " not found"},
		{failure.ClassUndecodable, "invalid character 'x' looking for beginning of value at offset " + id},
	}
	cause := causes[n%len(causes)]
	at := time.Now().Add(-time.Duration(n) * time.Second)
	s := envelope.State{
		Broker: "memory", Attempt: 5, ConsumerGroup: "bench", Handler: "charge", ConsumerVersion: "1.8.2",
		Source: envelope.Position{Topic: "orders"}, Class: cause.class, Nature: failure.NaturePermanent, Message: cause.text, Reason: "permanent",
		MessageType: "OrderPlaced", Aggregate: "order-" + id, TraceID: "4bf92f3577b34da6a3ce929d0e0e" + id,
		FirstAttemptAt: at.Add(-time.Minute), DeadLetteredAt: at,
	}
	r := adapters.Record{
		ID: stream + id, Payload: []byte(`{"order":` + id + `,"customer":"c-` + id + `","lines":[{"sku":"A-1","quantity":2},{"sku":"B-7","quantity":1}]}`),
		Headers: []adapters.Header{{Key: "tenant", Value: []byte("acme")}},
	}
	s.DeadLetterID = envelope.DeadLetterID(s, r.ID, r.Payload)
	return r, s
}

// deadInMemory is collecting's open for the embedded broker.
func deadInMemory(ctx context.Context, stream string, messages int) (adapters.Broker, func() error, error) {
	b := memory.New(memory.Config{})
	for i := range messages {
		r, s := dead(stream, i)
		pairs, _ := s.Pairs(0)
		for _, p := range pairs {
			r.Headers = append(r.Headers, adapters.Header{Key: p.Key, Value: []byte(p.Value)})
		}
		if err := b.Publish(stream, r); err != nil {
			return nil, nil, err
		}
	}
	process, err := b.Opener().Open(ctx, adapters.OpenParams{})
	return process, func() error { return b.Close(context.WithoutCancel(ctx)) }, err
}

// dead is collecting's open for RabbitMQ.
func (r *onRabbitMQ) dead(ctx context.Context, stream string, messages int) (adapters.Broker, func() error, error) {
	u, err := url.Parse(r.url)
	if err != nil {
		return nil, nil, err
	}
	conn, err := amqp.Dial(r.url)
	if err != nil {
		return nil, nil, err
	}
	end := stops{conn.Close}
	fail := func(err error) (adapters.Broker, func() error, error) {
		return nil, nil, errors.Join(err, end.all())
	}
	ch, err := conn.Channel()
	if err != nil {
		return fail(err)
	}
	if _, err := ch.QueueDeclare(stream, true, false, false, false, amqp.Table{amqp.QueueTypeArg: amqp.QueueTypeQuorum}); err != nil {
		return fail(err)
	}
	end = append(end, func() error { return r.drop(stream) })
	if err := ch.Confirm(false); err != nil {
		return fail(err)
	}
	confirms := ch.NotifyPublish(make(chan amqp.Confirmation, messages))
	for i := range messages {
		rec, s := dead(stream, i)
		s.Broker = "rabbitmq"
		pairs, _ := s.Pairs(0)
		headers := amqp.Table{"tenant": "acme"}
		for _, p := range pairs {
			headers[p.Key] = p.Value
		}
		err := ch.PublishWithContext(ctx, "", stream, false, false, amqp.Publishing{
			MessageId: rec.ID, Headers: headers, Body: rec.Payload, DeliveryMode: amqp.Persistent,
		})
		if err != nil {
			return fail(err)
		}
		if i >= 1000 { // the broker keeps pace
			<-confirms
		}
	}
	for range min(messages, 1000) {
		<-confirms
	}
	broker, err := rabbitmq.Opener().Open(ctx, adapters.OpenParams{URL: u})
	if err != nil {
		return fail(err)
	}
	end = append(end, func() error { return broker.Close(context.WithoutCancel(ctx)) })
	return broker, end.all, nil
}
