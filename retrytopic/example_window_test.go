package retrytopic_test

import (
	"fmt"
	"time"

	"github.com/spillway-mq/spillway/retrytopic"
)

// A reader of a retry topic holds what it has read until it is due, and commits
// how far it is although the first message still waits.
func ExampleWindow() {
	tier := retrytopic.DefaultTiers().Of(3 * time.Second)
	fmt.Println("a message that waits 3 seconds is in orders.billing.retry." + retrytopic.Name(tier))

	start := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	waiting := retrytopic.NewWindow[string](10_000, 16<<20)
	finished := retrytopic.NewOffsets(7)
	for i, delay := range []time.Duration{4 * time.Second, 2500 * time.Millisecond} {
		offset := int64(7 + i)
		finished.Read(offset)
		waiting.Push(retrytopic.Item[string]{Due: start.Add(delay), Seq: offset, Value: fmt.Sprint("offset ", offset)})
	}
	if i, ok := waiting.Pop(start.Add(3 * time.Second)); ok {
		fmt.Println(i.Value, "is due")
		finished.Finish(i.Seq)
	}
	fmt.Println("position", finished.Mark(), "with", finished.Above(), "finished above it")

	// Output:
	// a message that waits 3 seconds is in orders.billing.retry.4s
	// offset 8 is due
	// position 7 with 1 finished above it
}
