package sqs

import (
	"context"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/envelope"
)

// How often the suspect queue is looked at without a reason: less and less.
const (
	suspectPollMin = 5 * time.Second
	suspectPollMax = time.Minute
)

// handSuspects takes messages from the suspect queue, one at a time and in one
// subscription of the process at a time. SQS counts a receive when it answers,
// so that one is taken only when it is alone in the process's handlers.
func (s *subscription) handSuspects() {
	shared := s.b.suspectsOf(s.c)
	select {
	case shared.token <- struct{}{}:
		defer func() { <-shared.token }()
	case <-s.stop:
		return
	}
	pause := suspectPollMin
	for {
		more, err := s.handSuspect()
		if err != nil {
			s.pause(s.b.names.Of(adapters.StreamSuspect, s.c), err)
		}
		if more {
			pause = suspectPollMin
			continue
		}
		t := time.NewTimer(pause)
		select {
		case <-t.C:
			pause = min(2*pause, suspectPollMax)
		case <-shared.wake:
			t.Stop()
			pause = suspectPollMin
		case <-s.stop:
			t.Stop()
			return
		}
	}
}

// handSuspect hands out one suspect, if there is one, waits until it is settled,
// and reports whether there was.
func (s *subscription) handSuspect() (handed bool, err error) {
	name := s.b.names.Of(adapters.StreamSuspect, s.c)
	if waiting, err := s.waiting(name); err != nil || !waiting {
		return false, err
	}
	end, ok := s.b.alone(s.stop)
	if !ok {
		return false, nil
	}
	defer end()
	got, err := s.receive(name, 1, time.Second)
	if err != nil || len(got) == 0 { // another process was faster
		return false, err
	}
	settled := make(chan struct{})
	x := &settler{s: s, held: got[0], stream: name, leave: func() {}, free: func() { close(settled) }}
	if !s.deliver(adapters.StreamSuspect, name, got[0], x) {
		s.release(got[0], name)
		return false, nil
	}
	select {
	case <-settled:
	case <-s.stop:
	}
	return true, nil
}

// waiting reports whether a queue seems to have messages.
func (s *subscription) waiting(stream string) (bool, error) {
	ctx, cancel := context.WithTimeout(context.Background(), s.b.cfg.RequestTimeout)
	defer cancel()
	q, err := s.queue(ctx, stream)
	if err != nil {
		return false, err
	}
	n, err := s.b.depth(ctx, q)
	if isDenied(err) { // then only a receive tells
		return true, nil
	}
	return n.visible > 0, err
}

// depth is how many messages a queue has, approximately.
type depth struct{ visible, delayed, inFlight int }

func (b *broker) depth(ctx context.Context, q *queue) (depth, error) {
	out, err := b.client.GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{
		QueueUrl: &q.url, AttributeNames: []types.QueueAttributeName{
			types.QueueAttributeNameApproximateNumberOfMessages,
			types.QueueAttributeNameApproximateNumberOfMessagesDelayed,
			types.QueueAttributeNameApproximateNumberOfMessagesNotVisible,
		},
	})
	if err != nil {
		if isGone(err) {
			b.queues.forget()
		}
		return depth{}, err
	}
	return depth{
		visible:  number(out.Attributes, types.QueueAttributeNameApproximateNumberOfMessages),
		delayed:  number(out.Attributes, types.QueueAttributeNameApproximateNumberOfMessagesDelayed),
		inFlight: number(out.Attributes, types.QueueAttributeNameApproximateNumberOfMessagesNotVisible),
	}, nil
}

// again is the hand-off that writes a record of ours once more, as it is.
func again(c adapters.Consumer, to adapters.Stream, r adapters.Record) adapters.Handoff {
	h := adapters.Handoff{Consumer: c, Stream: to, Record: r}
	for _, header := range r.Headers {
		if envelope.IsOwn(header.Key) {
			h.State = append(h.State, envelope.Pair{Key: header.Key, Value: string(header.Value)})
		}
	}
	return h
}
