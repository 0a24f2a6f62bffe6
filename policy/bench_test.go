package policy_test

import (
	"testing"

	"github.com/spillway-mq/spillway/failure"
	. "github.com/spillway-mq/spillway/policy"
)

var (
	decision Decision
	drawn    float64
)

func BenchmarkDecide(b *testing.B) {
	class := Policy{Classes: map[failure.Class]Override{"test": {Attempts: 20}}}
	for name, bm := range map[string]struct {
		policy  Policy
		failure failure.Failure
		history History
	}{
		"retry":       {Policy{}, of(transient), History{Attempts: 5}},
		"class":       {class, of(transient), History{Attempts: 5}},
		"park":        {Policy{}, of(ambiguous), History{Attempts: 3}},
		"dead-letter": {Policy{}, of(permanent), History{Attempts: 1}},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				decision = Decide(bm.policy, bm.failure, bm.history, now, 0.5)
			}
		})
	}
}

func BenchmarkDraw(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		drawn = Draw("0190a5c8-7f3e-7c31-9d5a-0c8f6c2d1e4b", 5)
	}
}
