package sqs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/spillway-mq/spillway/adapters"
)

// queue is what is known of one.
type queue struct {
	name, url, arn string
	limit          int               // of a message, in bytes, as far as is known
	delay          time.Duration     // of messages that are sent without one
	attributes     map[string]string // nil: we may not read them
}

func (q *queue) fifo() bool { return isFIFO(q.name) }

// queues finds, creates and checks queues, and remembers them. Safe for
// concurrent use.
type queues struct {
	cfg    Config
	naming naming
	client *sqs.Client
	logger *slog.Logger

	mu     sync.Mutex
	known  map[string]*queue
	owners map[string]string // streams by queue
	groups map[string]string // groups by topic
}

const (
	retention    = 14 * 24 * time.Hour // of what waits for people
	ownRetention = 10 * 24 * time.Hour // of what may yet become a dead letter
)

// claim checks the names of c's queues, and that no other stream of this process
// has one of them.
func (qs *queues) claim(c adapters.Consumer) error {
	if c.Topic == "" || c.Group == "" {
		return fmt.Errorf("topic %q and group %q must both have a name", c.Topic, c.Group)
	}
	var errs []error
	main := qs.naming.queueOf(c.Topic)
	if isFIFO(main) && c.Retry != adapters.RetryInPlace && !qs.cfg.RelaxedFIFO && !qs.naming.names.IsDeadLetter(c.Topic) {
		errs = append(errs, fmt.Errorf("queue %q is FIFO, and SQS delays no single message of those: retry in place (Retry %q), or set Config.RelaxedFIFO (?relaxedFifo=true) to let messages wait for their retry in a standard queue, where others overtake them: %w",
			main, adapters.RetryInPlace, adapters.ErrUnsupported))
	}
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if group, ok := qs.groups[c.Topic]; ok && group != c.Group {
		errs = append(errs, fmt.Errorf("names: queue %q has the group %q, and cannot have %q too: what one group reads from a queue is gone for the other; give each a queue of its own, for example with SNS", main, group, c.Group))
	}
	for _, s := range []adapters.Stream{adapters.StreamMain, adapters.StreamRetry, adapters.StreamParking, adapters.StreamDeadLetter, adapters.StreamSuspect} {
		stream := qs.naming.names.Of(s, c)
		name := qs.naming.queueOf(stream)
		if err := checkName(name); err != nil {
			errs = append(errs, err)
			continue
		}
		if isFIFO(name) && s != adapters.StreamMain && s != adapters.StreamDeadLetter {
			errs = append(errs, fmt.Errorf("queue %q of the %s stream would be FIFO, which delays no single message: change its name", name, s))
		}
		if other, ok := qs.owners[name]; ok && other != stream {
			errs = append(errs, fmt.Errorf("names: queue %q would be both %q and %q: change a topic, a group, the names, or Config.Queues", name, other, stream))
			continue
		}
		qs.owners[name] = stream
	}
	if len(errs) == 0 {
		qs.groups[c.Topic] = c.Group
	}
	return errors.Join(errs...)
}

// ensure declares or checks all queues of c, whatever is remembered.
func (qs *queues) ensure(ctx context.Context, c adapters.Consumer) error {
	if err := qs.claim(c); err != nil {
		return err
	}
	name := func(s adapters.Stream) string { return qs.naming.queueOf(qs.naming.names.Of(s, c)) }
	dead, err := qs.declare(ctx, name(adapters.StreamDeadLetter), qs.lasting(retention))
	if err != nil {
		return err
	}
	if policy := dead.attributes[string(types.QueueAttributeNameRedrivePolicy)]; policy != "" {
		qs.logger.Warn("the dead letter queue has a redrive policy: whoever looks at its messages moves them", "queue", dead.name, "redrive_policy", policy)
	}
	for _, s := range []adapters.Stream{adapters.StreamRetry, adapters.StreamSuspect} {
		want := qs.lasting(ownRetention)
		if !dead.fifo() { // these are standard, and a dead letter queue must be of its source's kind
			want[string(types.QueueAttributeNameRedrivePolicy)] = qs.redrivePolicy(dead, qs.cfg.MaxReceiveCount)
		}
		if _, err := qs.declare(ctx, name(s), want); err != nil {
			return err
		}
	}
	parking, err := qs.declare(ctx, name(adapters.StreamParking), qs.lasting(retention))
	if err != nil {
		return err
	}
	if policy := parking.attributes[string(types.QueueAttributeNameRedrivePolicy)]; policy != "" {
		return &QueueError{
			Queue: parking.name, Attribute: "RedrivePolicy", Have: policy, Want: "none",
			Hint: "remove it: it would move what waits here, and is no failure",
		}
	}
	return qs.ensureMain(ctx, c, dead)
}

func (qs *queues) lasting(d time.Duration) map[string]string {
	return map[string]string{
		string(types.QueueAttributeNameMessageRetentionPeriod): strconv.Itoa(int(d / time.Second)),
		string(types.QueueAttributeNameVisibilityTimeout):      strconv.Itoa(int(seconds(qs.cfg.Visibility))),
		string(types.QueueAttributeNameMaximumMessageSize):     strconv.Itoa(maxMessageBytes),
	}
}

func (qs *queues) redrivePolicy(dead *queue, count int) string {
	text, _ := json.Marshal(redrivePolicy{dead.arn, json.Number(strconv.Itoa(count))}) // cannot fail
	return string(text)
}

// mainCount is the maxReceiveCount of c's main queue. Where messages are retried
// in place each attempt is a receive, so that SQS must count further than any
// policy.
func (qs *queues) mainCount(c adapters.Consumer) int {
	if c.Retry == adapters.RetryInPlace {
		return max(qs.cfg.MaxReceiveCount, inPlaceCount)
	}
	return qs.cfg.MaxReceiveCount
}

const inPlaceCount = 50

type redrivePolicy struct {
	Target string      `json:"deadLetterTargetArn"`
	Count  json.Number `json:"maxReceiveCount"`
}

// ensureMain declares the queue of c's topic, or gives it the net that it lacks.
func (qs *queues) ensureMain(ctx context.Context, c adapters.Consumer, dead *queue) error {
	if qs.naming.names.IsDeadLetter(c.Topic) {
		_, err := qs.declare(ctx, qs.naming.queueOf(c.Topic), qs.lasting(retention))
		return err
	}
	want := qs.mainAttributes()
	want[string(types.QueueAttributeNameRedrivePolicy)] = qs.redrivePolicy(dead, qs.mainCount(c))
	main, err := qs.declareTopic(ctx, c.Topic, want)
	if err != nil {
		return err
	}
	have := main.attributes[string(types.QueueAttributeNameRedrivePolicy)]
	if have == "" {
		return qs.addNet(ctx, main, dead, qs.mainCount(c))
	}
	var policy redrivePolicy
	if err := json.Unmarshal([]byte(have), &policy); err == nil && policy.Target != dead.arn {
		return &QueueError{
			Queue: main.name, Attribute: "RedrivePolicy", Have: "for " + policy.Target, Want: "for " + dead.arn,
			Hint: fmt.Sprintf("a queue has one group; if %s is the dead letter queue of this one, say so with Config.Queues[%q], else remove the policy",
				policy.Target[strings.LastIndexByte(policy.Target, ':')+1:], qs.naming.names.Of(adapters.StreamDeadLetter, c)),
		}
	}
	least := 5
	if c.Retry == adapters.RetryInPlace {
		least = inPlaceCount
	}
	if n, err := policy.Count.Int64(); err == nil && int(n) < least {
		qs.logger.Warn("SQS dead-letters messages of this queue before Spillway does, and without a reason: raise maxReceiveCount",
			"queue", main.name, "max_receive_count", n, "want", qs.mainCount(c))
	}
	return nil
}

func (qs *queues) mainAttributes() map[string]string {
	return map[string]string{
		string(types.QueueAttributeNameVisibilityTimeout):  strconv.Itoa(int(seconds(qs.cfg.Visibility))),
		string(types.QueueAttributeNameMaximumMessageSize): strconv.Itoa(qs.cfg.MaxMessageBytes),
	}
}

// addNet sets a redrive policy on a queue without one.
func (qs *queues) addNet(ctx context.Context, main, dead *queue, count int) error {
	var err error
	if !qs.cfg.VerifyOnly && main.attributes != nil && main.fifo() == dead.fifo() {
		policy := qs.redrivePolicy(dead, count)
		_, err = qs.client.SetQueueAttributes(ctx, &sqs.SetQueueAttributesInput{
			QueueUrl: &main.url, Attributes: map[string]string{string(types.QueueAttributeNameRedrivePolicy): policy},
		})
		if err == nil {
			return nil
		}
		if !isDenied(err) {
			return fmt.Errorf("queue %q: set its redrive policy: %w", main.name, err)
		}
	}
	qs.logger.Warn("the queue has no redrive policy, or does not tell: what Spillway cannot deal with would go round in it",
		"queue", main.name, "error", err)
	return nil
}

// declareTopic declares a topic's queue; the URL of one is taken as it is.
func (qs *queues) declareTopic(ctx context.Context, topic string, want map[string]string) (*queue, error) {
	if isURL(topic) {
		return qs.look(ctx, qs.naming.queueOf(topic), topic)
	}
	return qs.declare(ctx, qs.naming.queueOf(topic), want)
}

// declare returns a queue, created if need be.
func (qs *queues) declare(ctx context.Context, name string, want map[string]string) (*queue, error) {
	out, err := qs.urlOf(ctx, name)
	switch {
	case err == nil:
		return qs.look(ctx, name, aws.ToString(out.QueueUrl))
	case !isGone(err):
		return nil, fmt.Errorf("queue %q: %w", name, err)
	case qs.cfg.VerifyOnly:
		return nil, &QueueError{Queue: name, Hint: "create it, for example by a run without VerifyOnly, or name the right one in Config.Queues"}
	}
	want = maps.Clone(want)
	if isFIFO(name) {
		want[string(types.QueueAttributeNameFifoQueue)] = "true"
	}
	made, err := qs.client.CreateQueue(ctx, &sqs.CreateQueueInput{QueueName: &name, Attributes: want})
	if err == nil {
		return qs.look(ctx, name, aws.ToString(made.QueueUrl))
	}
	if _, ok := errors.AsType[*types.QueueNameExists](err); ok { // another process was faster
		if out, err := qs.urlOf(ctx, name); err == nil {
			return qs.look(ctx, name, aws.ToString(out.QueueUrl))
		}
	}
	return nil, fmt.Errorf("create queue %q: %w", name, err)
}

// urlOf asks for the URL of a queue.
func (qs *queues) urlOf(ctx context.Context, name string) (*sqs.GetQueueUrlOutput, error) {
	in := &sqs.GetQueueUrlInput{QueueName: &name}
	if qs.cfg.Account != "" {
		in.QueueOwnerAWSAccountId = &qs.cfg.Account
	}
	return qs.client.GetQueueUrl(ctx, in)
}

// look reads what a queue is like, and remembers it.
func (qs *queues) look(ctx context.Context, name, url string) (*queue, error) {
	q := &queue{name: name, url: url, arn: arnOf(qs.client.Options().Region, url), limit: maxMessageBytes}
	out, err := qs.client.GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{
		QueueUrl: &url, AttributeNames: []types.QueueAttributeName{types.QueueAttributeNameAll},
	})
	switch {
	case isDenied(err): // then SQS says what it refuses
	case err != nil:
		return nil, fmt.Errorf("queue %q: read its attributes: %w", name, err)
	default:
		q.attributes = out.Attributes
		if arn := out.Attributes[string(types.QueueAttributeNameQueueArn)]; arn != "" {
			q.arn = arn
		}
		if n, err := strconv.Atoi(out.Attributes[string(types.QueueAttributeNameMaximumMessageSize)]); err == nil {
			q.limit = n
		}
		if n, err := strconv.Atoi(out.Attributes[string(types.QueueAttributeNameDelaySeconds)]); err == nil {
			q.delay = time.Duration(n) * time.Second
		}
	}
	qs.mu.Lock()
	qs.known[name] = q
	qs.mu.Unlock()
	return q, nil
}

// arnOf makes the ARN of a queue of its URL, which ends in account and name.
func arnOf(region, url string) string {
	parts := strings.Split(url, "/")
	if len(parts) < 2 {
		return ""
	}
	return fmt.Sprintf("arn:aws:sqs:%s:%s:%s", region, parts[len(parts)-2], parts[len(parts)-1])
}

func (qs *queues) remembered(name string) *queue {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	return qs.known[name]
}

// own returns a queue of c, all of which are declared if need be.
func (qs *queues) own(ctx context.Context, c adapters.Consumer, s adapters.Stream) (*queue, error) {
	name := qs.naming.queueOf(qs.naming.names.Of(s, c))
	if q := qs.remembered(name); q != nil {
		return q, nil
	}
	if err := qs.ensure(ctx, c); err != nil {
		return nil, err
	}
	return qs.remembered(name), nil
}

// topic returns the queue that a topic is published to.
func (qs *queues) topic(ctx context.Context, topic string) (*queue, error) {
	name := qs.naming.queueOf(topic)
	if err := checkName(name); err != nil {
		return nil, err
	}
	if q := qs.remembered(name); q != nil {
		return q, nil
	}
	return qs.declareTopic(ctx, topic, qs.mainAttributes())
}

// existing returns a queue that is there.
func (qs *queues) existing(ctx context.Context, stream string) (*queue, error) {
	name := qs.naming.queueOf(stream)
	out, err := qs.urlOf(ctx, name)
	if isGone(err) {
		return nil, &QueueError{Queue: name, Hint: "it is created when its consumer starts"}
	}
	if err != nil {
		return nil, fmt.Errorf("queue %q: %w", name, err)
	}
	return &queue{name: name, url: aws.ToString(out.QueueUrl)}, nil
}

// isParking reports whether stream has the form of a parking stream's name.
func (n naming) isParking(stream string) bool {
	t := n.names.Parking
	head, tail := t[:strings.IndexByte(t, '{')], t[strings.LastIndexByte(t, '}')+1:]
	return len(stream) > len(head)+len(tail) && strings.HasPrefix(stream, head) && strings.HasSuffix(stream, tail)
}

// forget makes the next use of a queue look for it anew: it was gone.
func (qs *queues) forget() {
	qs.mu.Lock()
	clear(qs.known)
	qs.mu.Unlock()
}
