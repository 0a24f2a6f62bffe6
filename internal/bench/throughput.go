package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	wm "github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/spillway-mq/spillway"
	"github.com/spillway-mq/spillway/adapters/memory"
	"github.com/spillway-mq/spillway/failure"
)

const concurrency = 32

// healthyThroughput measures how fast messages that succeed get through while
// some others fail, with Spillway and with Watermill's own stack on the same
// broker.
func healthyThroughput(messages, rounds int) []row {
	stacks := []struct {
		name    string
		install func(*message.Router, *spillway.Spillway)
	}{
		{"Spillway", func(r *message.Router, sw *spillway.Spillway) { sw.Install(r) }},
		{"Watermill PoisonQueue + Retry(3, 100 ms, x2)", watermillStack},
	}
	rates := make([]struct{ none, one []float64 }, len(stacks))
	for range rounds {
		for i, s := range stacks {
			rates[i].none = append(rates[i].none, run(messages, 0, s.install))
			n := messages
			if i > 0 { // a stack that blocks is measured on fewer messages
				n = messages / 8
			}
			rates[i].one = append(rates[i].one, run(n, 100, s.install))
		}
	}
	var rows []row
	for i, s := range stacks {
		var ratios []float64
		for j := range rounds {
			ratios = append(ratios, rates[i].one[j]/rates[i].none[j])
		}
		ratio := 100 * median(ratios)
		rows = append(rows,
			row{what: fmt.Sprintf("%s: none failing, memory, concurrency %d", s.name, concurrency), measured: fmt.Sprintf("%.0f msg/s", median(rates[i].none))},
			row{what: fmt.Sprintf("%s: 1%% failing", s.name), measured: fmt.Sprintf("%.0f msg/s", median(rates[i].one))},
		)
		r := row{what: fmt.Sprintf("%s: healthy throughput kept with 1%% failing", s.name), measured: fmt.Sprintf("%.1f%%", ratio)}
		if i == 0 {
			r.target, r.ok = "at least 95%", ratio >= 95
		}
		rows = append(rows, r)
	}
	return rows
}

func watermillStack(r *message.Router, sw *spillway.Spillway) {
	poison, err := wm.PoisonQueue(sw.Publisher(), "poison")
	must(err)
	sw.Middleware() // not used: its place is taken by what it is measured against
	r.AddMiddleware(poison, wm.Retry{MaxRetries: 3, InitialInterval: 100 * time.Millisecond, Multiplier: 2}.Middleware)
}

// run publishes messages, of which every failEvery-th fails (none for 0), and
// returns the healthy ones per second.
func run(messages, failEvery int, install func(*message.Router, *spillway.Spillway)) float64 {
	broker := memory.New(memory.Config{})
	silent := slog.New(slog.DiscardHandler)
	sw, err := spillway.Open(context.Background(), "memory://", spillway.Config{Group: "bench", Concurrency: concurrency, Logger: silent, ConsumerVersion: "bench"}, broker.Opener())
	must(err)
	pub := sw.Publisher()
	batch := make([]*message.Message, 0, messages)
	healthy := int64(0)
	for i := range messages {
		body := "healthy"
		if failEvery > 0 && i%failEvery == failEvery/2 {
			body = "failing"
		} else {
			healthy++
		}
		batch = append(batch, message.NewMessage(strconv.Itoa(i), []byte(body)))
	}
	must(pub.Publish("orders", batch...))

	router := message.NewDefaultRouter(watermill.NopLogger{})
	install(router, sw)
	var done atomic.Int64
	finished := make(chan struct{})
	boom := failure.Transient(errors.New("gateway is down"))
	router.AddConsumerHandler("charge", "orders", sw.Subscriber(), func(msg *message.Message) error {
		if string(msg.Payload) == "failing" {
			return boom
		}
		if done.Add(1) == healthy {
			close(finished)
		}
		return nil
	})
	ended := make(chan error, 1)
	start := time.Now()
	go func() { ended <- router.Run(context.Background()) }()
	<-finished
	elapsed := time.Since(start)
	must(errors.Join(router.Close(), <-ended, sw.Close(context.Background())))
	return float64(healthy) / elapsed.Seconds()
}
