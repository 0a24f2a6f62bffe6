package signals_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/failure"
	"github.com/spillway-mq/spillway/middleware"
	"github.com/spillway-mq/spillway/policy"
	"github.com/spillway-mq/spillway/signals"
)

// A message is processed, and one becomes a dead letter. The chain calls the
// hooks; here the example does.
func Example() {
	sig, err := signals.New(signals.Config{})
	if err != nil {
		log.Fatal(err)
	}
	registry := prometheus.NewRegistry() // or prometheus.MustRegister(sig)
	registry.MustRegister(sig)

	hooks := sig.Hooks() // spillway.Config{Hooks: sig.Hooks()}
	ctx := context.Background()
	for _, order := range []struct {
		id  string
		err error
	}{
		{"order-1", nil},
		{"order-2", errors.New("no items")},
	} {
		info := middleware.MessageInfo{
			Consumer:  adapters.Consumer{Topic: "orders", Group: "billing"},
			Stream:    adapters.StreamMain,
			Handler:   "charge",
			MessageID: order.id,
			Attempt:   1,
		}
		outcome := middleware.OutcomeInfo{MessageInfo: info, Outcome: middleware.OutcomeProcessed}
		if order.err != nil {
			outcome.Outcome = middleware.OutcomeDeadLettered
			outcome.Failure = failure.Failure{Nature: failure.NaturePermanent, Class: failure.ClassValidation, Err: order.err}
			outcome.Reason = policy.ReasonPermanent
		}
		hooks.OnStart(ctx, &middleware.StartInfo{MessageInfo: info, At: time.Now()})
		hooks.OnAttempt(ctx, &middleware.AttemptInfo{MessageInfo: info, Duration: 20 * time.Millisecond, Err: order.err})
		hooks.OnOutcome(ctx, &outcome)
	}

	families, err := registry.Gather()
	if err != nil {
		log.Fatal(err)
	}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if m.GetCounter().GetValue() == 0 {
				continue
			}
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
			}
			fmt.Println(family.GetName(), m.GetCounter().GetValue())
			fmt.Println(" ", strings.Join(labels, " "))
		}
	}
	// Output:
	// spillway_attempts_total 2
	//   consumer="billing" handler="charge" topic="orders"
	// spillway_dead_letters_total 1
	//   consumer="billing" reason="permanent" topic="orders"
	// spillway_outcomes_total 1
	//   class="" consumer="billing" handler="charge" outcome="processed" replay="false" topic="orders"
	// spillway_outcomes_total 1
	//   class="validation" consumer="billing" handler="charge" outcome="dead_lettered" replay="false" topic="orders"
}
