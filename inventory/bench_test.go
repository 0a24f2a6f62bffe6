package inventory_test

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/spillway-mq/spillway/inventory"
)

func BenchmarkAdd(b *testing.B) {
	s, err := inventory.Open(b.Context(), filepath.Join(b.TempDir(), "i.db"))
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	const size = 1000
	n := 0
	for b.Loop() {
		items := letters(fmt.Sprintf("bench-%x-", n), "order 4711 of customer 12: dial tcp 10.2.3.4:5432: connection refused", size, monday)
		n++
		if _, err := s.Add(b.Context(), inventory.Batch{Items: items}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(n*size)/b.Elapsed().Seconds(), "msg/s")
}
