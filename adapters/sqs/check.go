package sqs

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/adapters/sqs/redrive"
)

// The rules of Check beside those of package redrive. Their names are frozen;
// docs/sqs.md explains them.
const (
	ruleConsumer    = "sqs-consumer"
	ruleMissing     = "sqs-queue-missing"
	ruleDenied      = "sqs-permission"
	ruleSuspects    = "sqs-suspects"
	ruleDeadLetters = "sqs-dead-letters"
	ruleParked      = "sqs-parked"
)

// streamsOf lists the streams of a consumer.
var streamsOf = []adapters.Stream{
	adapters.StreamMain, adapters.StreamRetry, adapters.StreamParking, adapters.StreamDeadLetter, adapters.StreamSuspect,
}

// Check reads the attributes of the consumers' queues, and what package redrive
// finds in them. It needs GetQueueUrl and GetQueueAttributes.
func (b *broker) Check(ctx context.Context, consumers []adapters.Consumer) ([]adapters.Finding, error) {
	in := &inspection{b: b, owners: map[string]owner{}}
	for _, c := range consumers {
		if err := in.consumer(ctx, c); err != nil {
			return nil, fmt.Errorf("sqs: check group %q on topic %q: %w", c.Group, c.Topic, err)
		}
	}
	in.application.Mode = redrive.ModeCopy
	in.application.Heartbeat = b.cfg.Visibility / 3
	in.application.Batch = b.cfg.BatchSize
	in.application.Poll = b.cfg.PollWait
	report := redrive.Check(in.exports, redrive.Options{Partial: true, Live: true, Application: in.application})
	for _, f := range report.Findings {
		f.Consumer = in.owners[f.Stream].consumer
		in.findings = append(in.findings, f)
	}
	return in.findings, nil
}

// inspection is one run of Check.
type inspection struct {
	b           *broker
	findings    []adapters.Finding
	exports     []redrive.Export
	application redrive.Application
	owners      map[string]owner // by queue
}

type owner struct {
	consumer adapters.Consumer
	stream   adapters.Stream
}

func (in *inspection) add(s adapters.Severity, rule string, o owner, queue, message, fix string) {
	in.findings = append(in.findings, adapters.Finding{
		Rule: rule, Severity: s, Consumer: o.consumer, Stream: queue, Message: message, Fix: fix,
	})
}

func (in *inspection) consumer(ctx context.Context, c adapters.Consumer) error {
	if err := in.b.queues.claim(c); err != nil {
		in.add(adapters.SeverityError, ruleConsumer, owner{consumer: c}, "", strings.ReplaceAll(err.Error(), "\n", "; "), "change the consumer in the configuration")
		return nil
	}
	for _, s := range streamsOf {
		if err := in.queue(ctx, owner{c, s}); err != nil {
			return err
		}
	}
	return nil
}

func (in *inspection) queue(ctx context.Context, o owner) error {
	stream := in.b.names.Of(o.stream, o.consumer)
	name := in.b.queues.naming.queueOf(stream)
	q := &queue{name: name, url: stream}
	if !isURL(stream) {
		var err error
		q, err = in.b.queues.existing(ctx, stream)
		var missing *QueueError
		switch {
		case errors.As(err, &missing):
			in.add(adapters.SeverityError, ruleMissing, o, name, fmt.Sprintf("the %s queue does not exist", o.stream),
				"it is created when its consumer starts, unless VerifyOnly is set; check region, account and names")
			return nil
		case isDenied(err):
			in.denied(o, name, err)
			return nil
		case err != nil:
			return err
		}
	}
	out, err := in.b.client.GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{
		QueueUrl: &q.url, AttributeNames: []types.QueueAttributeName{types.QueueAttributeNameAll},
	})
	switch {
	case isDenied(err):
		in.denied(o, name, err)
		return nil
	case err != nil:
		return fmt.Errorf("queue %q: %w", name, err)
	}
	if _, seen := in.owners[name]; !seen {
		in.owners[name] = o
		in.exports = append(in.exports, redrive.Export{URL: q.url, Attributes: out.Attributes})
		if in.application.Roles == nil {
			in.application.Roles, in.application.Topics = map[string]adapters.Stream{}, map[string]string{}
		}
		in.application.Roles[name], in.application.Topics[stream] = o.stream, name
	}
	in.contents(o, name, out.Attributes)
	return nil
}

func (in *inspection) denied(o owner, name string, err error) {
	in.add(adapters.SeverityWarning, ruleDenied, o, name, "the credentials do not allow to look at the queue: "+err.Error(),
		"allow sqs:GetQueueUrl and sqs:GetQueueAttributes")
}

// contents tells of messages that wait for somebody.
func (in *inspection) contents(o owner, name string, attributes map[string]string) {
	n := number(attributes, types.QueueAttributeNameApproximateNumberOfMessages)
	hidden := number(attributes, types.QueueAttributeNameApproximateNumberOfMessagesNotVisible)
	delayed := number(attributes, types.QueueAttributeNameApproximateNumberOfMessagesDelayed)
	switch all := n + hidden + delayed; {
	case all == 0:
	case o.stream == adapters.StreamDeadLetter:
		in.add(adapters.SeverityInfo, ruleDeadLetters, o, name, deadLetters(all, attributes), "collect them before then: spillway collect")
	case o.stream == adapters.StreamSuspect:
		in.add(adapters.SeverityWarning, ruleSuspects, o, name, fmt.Sprintf("about %d messages are handled one at a time, because they may have ended their consumer", all),
			"look for crashes and restarts of the consumer")
	case o.stream == adapters.StreamParking:
		in.add(adapters.SeverityInfo, ruleParked, o, name, fmt.Sprintf("about %d messages wait for something outside", all), "")
	}
}

// deadLetters says how many wait, and for how long; a server that does not tell
// its retention is not said to keep nothing.
func deadLetters(n int, attributes map[string]string) string {
	text := fmt.Sprintf("about %d dead letters", n)
	if n == 1 {
		text = "about 1 dead letter"
	}
	if keeps := number(attributes, types.QueueAttributeNameMessageRetentionPeriod); keeps > 0 {
		text += fmt.Sprintf("; the queue keeps each for %s", time.Duration(keeps)*time.Second)
	}
	return text
}
