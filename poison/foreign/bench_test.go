package foreign_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/poison/foreign"
)

// Collecting decodes every record.
func BenchmarkDecode(b *testing.B) {
	fixtures(b, func(file string, r adapters.Record, from foreign.From) {
		b.Run(strings.TrimSuffix(filepath.Base(file), ".json"), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				foreign.Decode(r, from)
			}
		})
	})
}
