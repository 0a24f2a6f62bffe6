package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net/url"
	"os"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/spillway-mq/spillway"
	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/examples/app/auditlog"
	"github.com/spillway-mq/spillway/examples/app/shop"
	"github.com/spillway-mq/spillway/middleware"
	"github.com/spillway-mq/spillway/policy"
)

// Broker is what the examples differ in.
type Broker struct {
	// Name as people say it, such as "the embedded broker".
	Name string
	// URL and Opener are what spillway.Open gets.
	URL    string
	Opener adapters.Opener
	// Fresh says that the broker is empty at first. Messages can then have ids
	// that repeat from run to run, and with them, because the jitter is drawn from
	// the id, everything else does too.
	Fresh bool
	// Main names the stream that holds a topic's messages for a group until they
	// are handled. Nil means that it is the topic.
	Main func(topic, group string) string
}

// notFresh begins the topics on a broker that others may use. A program that
// handles whatever it finds must not find a real order.
const notFresh = "spillway-example-"

// limit ends a run that does not end by itself, such as on a broker that went
// away. What is still on its way then is counted as such.
const limit = 2 * time.Minute

// Run is the program. It ends when every message is at rest or ctx has ended,
// and returns the exit code.
func Run(ctx context.Context, broker Broker, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	opts, err := parseOptions(args, stdout)
	switch {
	case errors.Is(err, errHelp):
		return 0
	case err != nil:
		fmt.Fprintln(stderr, err)
		return 2
	}
	job, err := newJob(opts, stdin)
	if err != nil {
		fmt.Fprintln(stderr, err)
		return 2
	}

	if !broker.Fresh {
		job.topic = notFresh + job.topic
	}

	screen := stdout
	if opts.json {
		screen = stderr // so that stdout holds the object and nothing else
	}
	r := &run{broker: broker, job: job, logger: slog.New(slog.DiscardHandler), ledger: newLedger(job.count)}
	if opts.verbose {
		r.logger = slog.New(slog.NewTextHandler(stderr, nil))
	}
	r.display = newDisplay(screen, opts.verbose, job, broker.Name)
	a, err := r.run(ctx)
	if err != nil {
		fmt.Fprintln(stderr, err)
		return 1
	}
	interrupted := ctx.Err() != nil
	r.display.report(report{
		account: a, job: job, took: r.took, interrupted: interrupted, lastResort: r.lastResort,
		p50: r.ledger.quantile(0.5), p99: r.ledger.quantile(0.99),
		handledOthers: r.ledger.others(),
	})
	if opts.json {
		if err := writeJSON(stdout, a); err != nil {
			fmt.Fprintln(stderr, err)
			return 1
		}
	}
	switch {
	case !a.addsUp(), a.pending > 0 && !interrupted:
		return 1
	case interrupted:
		return 130
	}
	return 0
}

// job is what there is to do: messages, and a handler for them.
type job struct {
	title       string // what the messages are: "2,000 orders, seed 1"
	topic       string
	group       string
	handlerName string
	handler     message.NoPublishHandlerFunc
	policy      policy.Policy
	concurrency int
	messages    iter.Seq[*message.Message]
	count       int
	over        time.Duration // the time in which they are published
	start       func()        // of the world around the handler; may be nil
	status      func() string // of that world; may be nil
}

func newJob(o options, stdin io.Reader) (job, error) {
	if o.input == "" {
		over := publishedOver(o.n)
		s := shop.New(o.n, o.seed, over)
		return job{
			title: fmt.Sprintf("%s, seed %d", plural(o.n, "order"), o.seed),
			topic: "orders", group: "billing", handlerName: "bill", handler: s.Bill, policy: s.Policy(), concurrency: 8,
			messages: s.Messages(), count: o.n, over: over, start: s.Start, status: s.Status,
		}, nil
	}
	lines, err := readInput(o.input, stdin)
	if err != nil {
		return job{}, err
	}
	p := &auditlog.Projector{}
	return job{
		title: fmt.Sprintf("%s of %s", plural(len(lines), "webhook"), inputName(o.input)),
		topic: "webhooks", group: "auditlog", handlerName: "project", handler: p.Project, policy: auditlog.Policy(),
		concurrency: 1, // in order, as far as nothing has to be tried again
		messages:    messages(lines), count: len(lines), over: publishedOver(len(lines)),
	}, nil
}

// publishedOver leaves time to watch, whatever the number of messages.
func publishedOver(n int) time.Duration {
	return min(time.Duration(n)*10*time.Millisecond, 5*time.Second)
}

// run is one run of a job.
type run struct {
	broker  Broker
	job     job
	logger  *slog.Logger
	ledger  *ledger
	display *display

	lastResort string // directory
	took       time.Duration
}

func (r *run) run(ctx context.Context) (*account, error) {
	var err error
	if r.lastResort, err = os.MkdirTemp("", "spillway-last-resort-"); err != nil {
		return nil, err
	}
	defer os.Remove(r.lastResort) // which fails, as it should, if there is something in it

	start := time.Now()
	if err := r.consume(ctx); err != nil {
		if ctx.Err() != nil && r.ledger.tally().published == 0 {
			return &account{}, nil // interrupted while connecting
		}
		return nil, err
	}
	r.took = time.Since(start)

	// Like an operator's tool would, the account opens the broker by itself.
	ctx = context.WithoutCancel(ctx)
	u, err := url.Parse(r.broker.URL)
	if err != nil {
		return nil, errors.New("the broker URL cannot be parsed")
	}
	broker, err := r.broker.Opener.Open(ctx, adapters.OpenParams{URL: u, Logger: r.logger})
	if err != nil {
		return nil, err
	}
	main := r.job.topic
	if r.broker.Main != nil {
		main = r.broker.Main(r.job.topic, r.job.group)
	}
	a, err := settle(ctx, broker, adapters.Consumer{Topic: r.job.topic, Group: r.job.group}, main, r.lastResort, r.ledger)
	return a, errors.Join(err, broker.Close(ctx))
}

// consume is how a program uses Spillway: Open, Install, Subscriber, Close.
func (r *run) consume(ctx context.Context) error {
	sw, err := spillway.Open(ctx, r.broker.URL, spillway.Config{
		Group:           r.job.group,
		Policy:          r.job.policy,
		Concurrency:     r.job.concurrency,
		ConsumerVersion: "example-1.0.0",
		LastResort:      r.lastResort,
		Hooks:           middleware.Hooks{OnOutcome: r.ledger.outcome},
		Logger:          r.logger,
	}, r.broker.Opener)
	if err != nil {
		return err
	}
	router := message.NewDefaultRouter(watermill.NewSlogLogger(r.logger))
	sw.Install(router)
	router.AddConsumerHandler(r.job.handlerName, r.job.topic, sw.Subscriber(), r.job.handler)

	running := make(chan error, 1)
	go func() { running <- router.Run(context.WithoutCancel(ctx)) }()
	select {
	case <-router.Running():
		err = errors.Join(r.untilAtRest(ctx, sw.Publisher()), router.Close(), <-running)
	case err = <-running: // it could not subscribe
	}
	return errors.Join(err, sw.Close(context.WithoutCancel(ctx)))
}

// untilAtRest publishes, and shows what happens until nothing does any more.
func (r *run) untilAtRest(ctx context.Context, pub message.Publisher) error {
	ctx, stop := context.WithTimeout(ctx, limit)
	defer stop()
	if r.job.start != nil {
		r.job.start()
	}
	published := make(chan error, 1)
	go func() { published <- r.publish(ctx, pub) }()

	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for publishing := true; ; {
		r.display.update(r.ledger.tally())
		select {
		case err := <-published:
			if err != nil {
				return err
			}
			publishing = false
		case <-tick.C:
		case <-ctx.Done():
			if publishing {
				return <-published
			}
			return nil
		}
		if !publishing && r.ledger.tally().moving == 0 {
			return nil
		}
	}
}

// publish spreads the messages evenly over the job's time.
func (r *run) publish(ctx context.Context, pub message.Publisher) error {
	start, i := time.Now(), 0
	for msg := range r.job.messages {
		if early := time.Until(start.Add(r.job.over * time.Duration(i) / time.Duration(r.job.count))); early > time.Millisecond {
			select {
			case <-time.After(early):
			case <-ctx.Done():
			}
		}
		if ctx.Err() != nil {
			return nil
		}
		if r.broker.Fresh {
			msg.UUID = fmt.Sprintf("%s-%06d", r.job.topic, i+1)
		}
		r.ledger.publishing(msg)
		if err := pub.Publish(r.job.topic, msg); err != nil {
			r.ledger.refused(msg.UUID)
			return fmt.Errorf("publish to %s: %w", r.job.topic, err)
		}
		i++
	}
	return nil
}
