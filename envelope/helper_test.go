package envelope_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spillway-mq/spillway/envelope"
	"github.com/spillway-mq/spillway/failure"
)

var update = flag.Bool("update", false, "write the golden files")

// now is late enough that no time of fullState lies ahead of it.
var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// fullState has every field set to a value that is written unchanged.
func fullState() envelope.State {
	return envelope.State{
		Broker:         "kafka",
		Attempt:        4,
		FirstAttemptAt: time.Date(2026, 3, 1, 11, 0, 0, 120_000_000, time.UTC),
		DueAt:          time.Date(2026, 3, 1, 12, 0, 30, 7, time.UTC),
		Hops:           2,
		Source: envelope.Position{
			Topic:     "orders",
			Partition: new(int32(0)),
			Offset:    new(int64(812_334)),
			Timestamp: time.Date(2026, 3, 1, 10, 59, 59, 999_000_000, time.UTC),
		},
		ConsumerGroup:   "billing",
		Handler:         "bill-order",
		ConsumerVersion: "v1.8.2",
		Class:           failure.ClassDependencyUnavailable,
		Nature:          failure.NatureTransient,
		Code:            "http:503",
		Message:         "charge 12.50 €:\n\tgateway says no",
		Truncated:       true,
		Reference:       "customer/42",
		ParkedAt:        time.Date(2026, 3, 1, 11, 5, 0, 0, time.UTC),
		ParkChecks:      3,
		TraceID:         "4bf92f3577b34da6a3ce929d0e0e4736",
		MessageType:     "order.placed",
		Aggregate:       "order/9001",
		ProducerVersion: "shop-7",
		SchemaVersion:   "3",
		Reason:          "attempts_exhausted",
		DeadLetteredAt:  time.Date(2026, 3, 1, 11, 59, 0, 0, time.UTC),
		DeadLetterID:    "abc234",
		DroppedHeaders:  []string{"authorization", `odd, "name"`},
		ReplayID:        "r-1",
		ReplayOf:        "xyz567",
		ReplayReason:    "gateway fixed",
		ReplayCount:     1,
	}
}

func headersOf(pairs []envelope.Pair) []envelope.Header {
	var headers []envelope.Header
	for _, p := range pairs {
		headers = append(headers, envelope.Header{Key: p.Key, Value: []byte(p.Value)})
	}
	return headers
}

func header(key, value string) envelope.Header {
	return envelope.Header{Key: key, Value: []byte(value)}
}

// exactBytes tells nil from empty, and is quick on long payloads.
var exactBytes = cmp.Comparer(func(a, b []byte) bool { return (a == nil) == (b == nil) && bytes.Equal(a, b) })

func sizeOf(pairs []envelope.Pair) int {
	n := 0
	for _, p := range pairs {
		n += len(p.Key) + len(p.Value)
	}
	return n
}

func format(pairs []envelope.Pair) string {
	var b strings.Builder
	for _, p := range pairs {
		fmt.Fprintf(&b, "%s: %q\n", p.Key, p.Value)
	}
	return b.String()
}

// golden compares got with a frozen file.
func golden(t *testing.T, file, got string) {
	t.Helper()
	path := filepath.Join("testdata", file)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s is frozen, and differs (-want +got):\n%s", path, diff)
	}
}
