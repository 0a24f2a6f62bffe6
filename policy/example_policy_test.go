package policy_test

import (
	"errors"
	"fmt"
	"time"

	"github.com/spillway-mq/spillway/failure"
	"github.com/spillway-mq/spillway/policy"
)

// The zero policy is the default policy; printed, it is its own documentation.
func ExamplePolicy_String() {
	fmt.Print(policy.Policy{})
	// Output:
	// transient: 12 attempts, gives up after about 23m30s
	//   after attempt 1       2s (1s to 3s)
	//   after attempt 2       4s (2s to 6s)
	//   after attempt 3       8s (4s to 12s)
	//   after attempt 4       16s (8s to 24s)
	//   after attempt 5       32s (16s to 48s)
	//   after attempt 6       1m4s (32s to 1m36s)
	//   after attempt 7       2m8s (1m4s to 3m12s)
	//   after attempt 8       4m16s (2m8s to 6m24s)
	//   after attempt 9-11    5m (2m30s to 7m30s)
	// unknown: 5 attempts, gives up after about 30s
	//   after attempt 1       2s (1s to 3s)
	//   after attempt 2       4s (2s to 6s)
	//   after attempt 3       8s (4s to 12s)
	//   after attempt 4       16s (8s to 24s)
	// permanent: 1 attempt, gives up at once
	// ambiguous: 3 attempts in about 6s, then parked: looked at every 5m, gives up after 24h, or after 1h without a reference
	//   after attempt 1       2s (1s to 3s)
	//   after attempt 2       4s (2s to 6s)
	// retry-after: heeded up to 1h, and up to half as long again for jitter
	// age: no limit
	// replays: dead-lettered at the first failure after 10 replays
}

// A handler that talks to a slow partner, and differs in little else from the
// rest of its consumer.
func ExamplePolicy_Merge() {
	consumer := policy.Policy{
		Attempts: policy.Attempts{Transient: 6},
		Classes:  map[failure.Class]policy.Override{failure.ClassUnauthorized: {Attempts: 2}},
	}
	handler := consumer.Merge(policy.Policy{
		Backoff: policy.Backoff{Base: 30 * time.Second},
	})
	fmt.Println("consumer gives up after about", consumer.GivesUpAfter(failure.NatureTransient))
	fmt.Println("handler gives up after about ", handler.GivesUpAfter(failure.NatureTransient))
	fmt.Println("unauthorized attempts:", handler.Classes[failure.ClassUnauthorized].Attempts)
	// Output:
	// consumer gives up after about 1m2s
	// handler gives up after about  17m0s
	// unauthorized attempts: 2
}

// All problems are named at once.
func ExamplePolicy_Validate() {
	err := policy.Policy{
		Attempts: policy.Attempts{Transient: 1_000_000},
		Classes: map[failure.Class]policy.Override{
			failure.ClassValidation: {Backoff: policy.Backoff{Factor: 0.5}},
		},
	}.Validate()
	fmt.Println(err)
	// Output:
	// policy: attempts.transient must be at most 10000, is 1000000: there is no unlimited
	// policy: classes["validation"].backoff.factor must be at least 1, is 0.5
}

// A decision needs no broker, no clock and no luck: what becomes of an order
// whose customer is not known yet?
func ExampleDecide() {
	f := failure.Failure{
		Nature:    failure.NatureAmbiguous,
		Class:     failure.ClassReferenceNotFound,
		Reference: "customer/42",
		Err:       errors.New("no such customer"),
	}
	noon := time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)
	for attempt := 1; attempt <= 3; attempt++ {
		h := policy.History{Attempts: attempt, FirstAttemptAt: noon}
		switch d := policy.Decide(policy.Policy{}, f, h, noon, 0.5).(type) {
		case policy.Retry:
			fmt.Printf("attempt %d: retry in %s\n", attempt, d.Due.Sub(noon))
		case policy.Park:
			fmt.Printf("attempt %d: look again in %s, for %s\n", attempt, d.Due.Sub(noon), d.Deadline.Sub(noon))
		}
	}
	// Output:
	// attempt 1: retry in 2s
	// attempt 2: retry in 4s
	// attempt 3: look again in 5m0s, for 24h0m0s
}

// Copies of one message draw alike; other messages, and other attempts, do not.
func ExampleDraw() {
	fmt.Printf("%.3f %.3f\n", policy.Draw("order-1", 1), policy.Draw("order-1", 1))
	fmt.Printf("%.3f\n", policy.Draw("order-2", 1))
	fmt.Printf("%.3f\n", policy.Draw("order-1", 2))
	// Output:
	// 0.915 0.915
	// 0.817
	// 0.043
}

// The same arithmetic paces any other repeated effort.
func ExampleBackoff_Delay() {
	b := policy.Backoff{Base: 100 * time.Millisecond, Max: 30 * time.Second, Jitter: policy.JitterNone}
	fmt.Println(b.Delay(0, 0), b.Delay(1, 0), b.Delay(8, 0), b.Delay(1_000_000, 0))
	// Output: 100ms 200ms 25.6s 30s
}
