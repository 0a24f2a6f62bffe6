package shop

import (
	"strings"
	"time"

	"github.com/spillway-mq/spillway/failure"
	"github.com/spillway-mq/spillway/policy"
)

// Shop bills the orders that [Shop.Messages] makes. Bill is safe for concurrent
// use after Start.
type Shop struct {
	kinds     []kind
	seed      uint64
	over      time.Duration
	newcomers map[string]time.Duration // customer to time of registration, since start

	start   time.Time
	gateway *gateway
}

// New returns a shop for n orders, which are published over the given time. The
// same n and seed make the same orders.
func New(n int, seed uint64, over time.Duration) *Shop {
	s := &Shop{kinds: mix(n, seed), seed: seed, over: over, newcomers: map[string]time.Duration{}}
	for i, k := range s.kinds {
		if k == customerLate {
			placed := over * time.Duration(i) / time.Duration(n)
			s.newcomers[s.order(i, k).Customer] = placed + time.Duration(300+i*7919%2000)*time.Millisecond
		}
	}
	return s
}

// Start lets the time of the world begin. While orders come in, the gateway
// goes down; it recovers shortly before the last of them.
func (s *Shop) Start() {
	s.start = time.Now()
	s.gateway = newGateway(s.start.Add(s.over*4/10), s.start.Add(s.over*9/10))
}

// Policy is that of a shop whose day takes ten seconds. What a real one would
// change is one line, if any: see package policy for the defaults.
func (s *Shop) Policy() policy.Policy {
	return policy.Policy{
		Backoff: policy.Backoff{Base: 100 * time.Millisecond, Max: 2 * time.Second}, // with the default jitter
		Classes: map[failure.Class]policy.Override{
			// Customers come soon or never. Approvals keep the defaults: parked
			// for a day, looked at every five minutes.
			failure.ClassReferenceNotFound: {Parking: policy.Parking{Interval: 750 * time.Millisecond, Deadline: 3 * time.Second}},
		},
	}
}

// Status is what one would see on the gateway's status page.
func (s *Shop) Status() string {
	if s.gateway.working(time.Now()) {
		return "payment gateway: up"
	}
	return "payment gateway: DOWN"
}

// knows says whether a customer is registered by now.
func (s *Shop) knows(customer string) bool {
	if after, ok := s.newcomers[customer]; ok {
		return time.Since(s.start) >= after
	}
	return strings.HasPrefix(customer, "c-")
}
