package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	wm "github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/spillway-mq/spillway/failure"
	"github.com/spillway-mq/spillway/internal/cputime"
	"github.com/spillway-mq/spillway/policy"
)

const concurrency = 32

// Both stacks call a handler that fails four times, and then give up.
var (
	watermillRetry = wm.Retry{MaxRetries: 3, InitialInterval: 100 * time.Millisecond, Multiplier: 2}
	samePolicy     = policy.Policy{
		Attempts: policy.Attempts{Transient: 4},
		Backoff:  policy.Backoff{Base: 50 * time.Millisecond, Factor: 2, Jitter: policy.JitterNone},
	}
)

// trial is one run of a stack on messages that wait already.
type trial struct {
	messages  int
	failEvery int           // every so many-th message fails, always and at once; 0 for none
	work      time.Duration // how long a handler takes that succeeds
	slots     int           // how many messages the stack handles at once; 0 for concurrency
	size      int           // of a payload, at least; 0 for the shortest
	busy      *[]float64    // gets the microseconds of processor that a message took, if not nil
}

// stack is a subscriber, a Router and middlewares. It publishes the messages of
// the trial, starts the Router, calls handle with them and ended once for each
// that is processed or given up, and returns how to stop.
type stack func(ctx context.Context, t trial, handle message.NoPublishHandlerFunc, ended func()) (stop func() error, err error)

func (t trial) fails(i int) bool { return t.failEvery > 0 && i%t.failEvery == t.failEvery/2 }

func (t trial) healthy() int64 {
	n := 0
	for i := range t.messages {
		if !t.fails(i) {
			n++
		}
	}
	return int64(n)
}

const (
	bodyHealthy = "healthy"
	bodyFailing = "failing"
)

func (t trial) batch() []*message.Message {
	batch := make([]*message.Message, 0, t.messages)
	for i := range t.messages {
		body := bodyHealthy
		if t.fails(i) {
			body = bodyFailing
		}
		payload := make([]byte, max(len(body), t.size))
		copy(payload, body)
		batch = append(batch, message.NewMessage(strconv.Itoa(i), payload))
	}
	return batch
}

// trialTime bounds a run.
const trialTime = 2 * time.Minute

var errOutage = failure.Transient(errors.New("gateway is down"))

// run returns how many healthy messages per second got through. It begins when
// every slot has a message, and counts until the last healthy one is handled.
// Then it waits until the others are given up too, so that they disturb no
// other run.
func (t trial) run(ctx context.Context, start stack) (float64, error) {
	runtime.GC() // what the run before has left is not this one's to pay
	ctx, cancel := context.WithTimeoutCause(ctx, trialTime, fmt.Errorf("a run took more than %s", trialTime))
	defer cancel()

	var waiting, succeeded, given atomic.Int64
	full, open, done, ended := make(chan struct{}), make(chan struct{}), make(chan struct{}), make(chan struct{})
	healthy, slots := t.healthy(), int64(cmp.Or(t.slots, concurrency))
	handle := func(msg *message.Message) error {
		select {
		case <-open:
		default:
			if waiting.Add(1) == slots {
				close(full)
			}
			<-open
		}
		if bytes.HasPrefix(msg.Payload, []byte(bodyFailing)) {
			return errOutage
		}
		if t.work > 0 {
			time.Sleep(t.work)
		}
		if succeeded.Add(1) == healthy {
			close(done)
		}
		return nil
	}
	stop, err := start(ctx, t, handle, func() {
		if given.Add(1) == int64(t.messages) {
			close(ended)
		}
	})
	if err != nil {
		return 0, err
	}
	err = await(ctx, full)
	began, spent := time.Now(), cputime.Spent()
	close(open)
	err = errors.Join(err, await(ctx, done))
	took := time.Since(began)
	if t.busy != nil {
		*t.busy = append(*t.busy, float64((cputime.Spent()-spent).Nanoseconds())/1e3/float64(healthy))
	}
	err = errors.Join(err, await(ctx, ended), stop())
	return float64(healthy) / took.Seconds(), err
}

func await(ctx context.Context, done <-chan struct{}) error {
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// runRouter runs a Router, and returns when its handlers are subscribed.
func runRouter(ctx context.Context, r *message.Router) (stop func() error, err error) {
	ended := make(chan error, 1)
	go func() { ended <- r.Run(context.WithoutCancel(ctx)) }()
	select {
	case <-r.Running():
	case err := <-ended:
		return nil, errors.Join(err, r.Close())
	case <-ctx.Done():
		return nil, errors.Join(context.Cause(ctx), r.Close(), <-ended)
	}
	return func() error { return errors.Join(r.Close(), <-ended) }, nil
}

// addWatermillStack is what Watermill documents for handlers that fail.
func addWatermillStack(r *message.Router, pub message.Publisher, poisonTopic string, ended func()) error {
	poison, err := wm.PoisonQueue(pub, poisonTopic)
	if err != nil {
		return err
	}
	r.AddMiddleware(countEnds(ended), poison, watermillRetry.Middleware)
	return nil
}

const poisonTopic = "bench.poison"

func countEnds(ended func()) message.HandlerMiddleware {
	return func(next message.HandlerFunc) message.HandlerFunc {
		return func(msg *message.Message) ([]*message.Message, error) {
			out, err := next(msg)
			if err == nil {
				ended()
			}
			return out, err
		}
	}
}

func newRouter() *message.Router { return message.NewDefaultRouter(watermill.NopLogger{}) }

// kept adds what share of its throughput a stack keeps when some messages fail.
func (t *table) kept(name, share string, r rates, failing, none, atLeast int) {
	ratio := 100 * r.ratio(failing, none)
	what := fmt.Sprintf("%s: healthy throughput kept with %s failing", name, share)
	const format = "%.1f%% (%.0f of %.0f msg/s)"
	if atLeast == 0 {
		t.note(what, format, ratio, r.median(failing), r.median(none))
		return
	}
	t.check(what, ratio >= float64(atLeast), fmt.Sprintf("at least %d%%", atLeast), format, ratio, r.median(failing), r.median(none))
}
