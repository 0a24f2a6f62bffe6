package envelope_test

import (
	"encoding/json"
	"testing"

	"github.com/spillway-mq/spillway/envelope"
)

func BenchmarkParse(b *testing.B) {
	user := []envelope.Header{header("content-type", "application/json"), header("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")}
	retry := fullState()
	retry.DroppedHeaders = nil
	for name, headers := range map[string][]envelope.Header{
		"firstDelivery": user,
		"allFields":     append(headersOf(mustPairs(retry)), user...),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				envelope.Parse(headers, now)
			}
		})
	}
}

func BenchmarkPairs(b *testing.B) {
	s := fullState()
	s.DroppedHeaders = nil
	for name, budget := range map[string]int{"unlimited": 0, "shrunk": 700} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				s.Pairs(budget)
			}
		})
	}
}

func BenchmarkDecodeDeadLetter(b *testing.B) {
	own, err := json.Marshal(fullDeadLetter())
	if err != nil {
		b.Fatal(err)
	}
	flat := []byte(`{"payload":"{\"id\":1}","errorClass":"validation","errorMessage":"bad","consumerVersion":"1.2","traceId":"t","attempts":3,"firstAttemptAt":"2026-03-01T10:00:00Z","deadLetteredAt":"2026-03-01T12:00:00Z"}`)
	for name, text := range map[string][]byte{"own": own, "flat": flat} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := envelope.DecodeDeadLetter(text); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
