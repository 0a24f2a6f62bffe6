package main

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	sqsapi "github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/adapters/sqs/sqsfake"
)

// TestSuccessPathOfSQSInVirtualTime: on a service that takes its time and of
// which there is enough, what counts is how many requests are on their way. That
// does not depend on the machine.
func TestSuccessPathOfSQSInVirtualTime(t *testing.T) {
	t.Parallel()
	rate := func(stack func(*onSQS) stack) (perSecond float64) {
		synctest.Test(t, func(t *testing.T) {
			fake := sqsfake.New(sqsfake.Config{})
			defer fake.Close()
			q := &onSQS{url: "sqs://fake?region=us-east-1", web: &http.Client{Transport: slow{fake}}}
			q.client = sqsapi.NewFromConfig(q.config(), endpoint("fake"))
			var err error
			if perSecond, err = (trial{messages: 1000}).run(t.Context(), stack(q)); err != nil {
				t.Fatal(err)
			}
		})
		return perSecond
	}
	bare := rate(func(q *onSQS) stack {
		return func(ctx context.Context, t trial, handle message.NoPublishHandlerFunc, ended func()) (func() error, error) {
			return q.bare(ctx, t, "fake", handle, ended)
		}
	})
	ours := rate(func(q *onSQS) stack { return q.spillway })
	t.Logf("Spillway %.0f, the bare router %.0f msg/s", ours, bare)
	if ours < bare {
		t.Errorf("%.2f of the bare router's rate, want at least 1", ours/bare)
	}
}

// TestCollectOfSQSCostsAFifthOfARequest: ten dead letters are received with one
// request and deleted with one, whatever the machine.
func TestCollectOfSQSCostsAFifthOfARequest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		fake := sqsfake.New(sqsfake.Config{})
		defer fake.Close()
		q := &onSQS{url: "sqs://fake?region=us-east-1", web: &http.Client{Transport: slow{fake}}}
		q.client = sqsapi.NewFromConfig(q.config(), endpoint("fake"))
		reading := &counter{next: q.web}
		const stream, letters = "bench-1.bench.dlq", 1000
		b, end, err := q.dead(t.Context(), stream, letters, reading)
		if err != nil {
			t.Fatal(err)
		}
		got := 0
		err = b.(adapters.BatchDrainer).DrainBatch(t.Context(), stream, 200, func(_ context.Context, batch []adapters.Record) error {
			got += len(batch)
			return nil
		})
		if err := errors.Join(err, end()); err != nil || got != letters {
			t.Fatalf("%d read: %v", got, err)
		}
		if reading.n != letters/5 {
			t.Errorf("%d requests for %d dead letters, want %d", reading.n, letters, letters/5)
		}
	})
}

// slow is a service whose answers take 30 ms.
type slow struct{ fake *sqsfake.Server }

func (s slow) RoundTrip(r *http.Request) (*http.Response, error) {
	time.Sleep(30 * time.Millisecond) // of a bubble
	return s.fake.RoundTrip(r)
}
