package main

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	sqsapi "github.com/aws/aws-sdk-go-v2/service/sqs"

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

// slow is a service whose answers take 30 ms.
type slow struct{ fake *sqsfake.Server }

func (s slow) RoundTrip(r *http.Request) (*http.Response, error) {
	time.Sleep(30 * time.Millisecond) // of a bubble
	return s.fake.RoundTrip(r)
}
