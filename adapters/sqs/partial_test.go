package sqs_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/adapters/sqs/sqsfake"
)

// A batch whose deletion fails in part, by whoever's fault, or whose answer says
// nothing of some: those alone are deleted once more. What cannot be deleted comes
// again, and the drain says so: nothing is lost, and nothing is twice unexplained.
func TestDrainRepeatsWhatWasNotDeletedOfABatch(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		faults  []sqsfake.Effect
		deletes []int  // entries of each request
		twice   string // the records that come again, and only with an error
	}{
		"throttled":               {[]sqsfake.Effect{sqsfake.FailEntries("RequestThrottled", 1, 3)}, []int{5, 2}, ""},
		"fault of the service":    {[]sqsfake.Effect{sqsfake.FailEntries("InternalError", 0)}, []int{5, 1}, ""},
		"not mentioned":           {[]sqsfake.Effect{sqsfake.LoseEntries(2, 4)}, []int{5, 2}, ""},
		"all of them":             {[]sqsfake.Effect{sqsfake.FailEntries("InternalError", 0, 1, 2, 3, 4)}, []int{5, 5}, ""},
		"again and again":         {[]sqsfake.Effect{sqsfake.LoseEntries(0, 1), sqsfake.FailEntries("InternalError", 1), sqsfake.LoseEntries(0)}, []int{5, 2, 1}, "1"},
		"the handle is of no use": {[]sqsfake.Effect{sqsfake.FailEntries("ReceiptHandleIsInvalid", 2)}, []int{5}, "2"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := setup(t)
				b.Ensure(orders)
				for i := range 5 {
					b.Handoff(adapters.Handoff{Consumer: orders, Stream: adapters.StreamDeadLetter, Record: adapters.Record{ID: fmt.Sprint(i), Payload: []byte("x")}})
				}
				for _, do := range tc.faults {
					b.fake.Inject(sqsfake.Fault{Action: "DeleteMessageBatch", Do: do})
				}
				seen := map[string]int{}
				drain := func() error {
					return b.Broker.(adapters.BatchDrainer).DrainBatch(t.Context(), "orders.billing.dlq", 5, func(_ context.Context, batch []adapters.Record) error {
						for _, r := range batch {
							seen[r.ID]++
						}
						return nil
					})
				}
				err := drain()
				if (err != nil) != (tc.twice != "") {
					t.Errorf("drain: %v", err)
				}
				var deletes []int
				for _, c := range b.fake.Calls("DeleteMessageBatch") {
					deletes = append(deletes, strings.Count(string(c.Input), `"Id"`))
				}
				if diff := cmp.Diff(tc.deletes, deletes); diff != "" {
					t.Errorf("entries of the requests (-want +got):\n%s", diff)
				}
				b.fake.ClearFaults()
				time.Sleep(time.Minute)
				if err := drain(); err != nil {
					t.Errorf("second drain: %v", err)
				}
				var twice []string
				for id, n := range seen {
					if n > 1 {
						twice = append(twice, id)
					}
				}
				slices.Sort(twice)
				if len(seen) != 5 || strings.Join(twice, " ") != tc.twice {
					t.Errorf("%d of 5 were seen, and twice %q, want %q", len(seen), twice, tc.twice)
				}
				if left := b.fake.Messages("orders_billing_dlq"); len(left) > 0 {
					t.Errorf("left: %v", left)
				}
			})
		})
	}
}

// A batch that is longer than one request is deleted by several; one that fails
// as a whole keeps its own messages, and no others.
func TestDrainKeepsTheBatchThatCouldNotBeDeleted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		b.Ensure(orders)
		for i := range 25 {
			b.Handoff(adapters.Handoff{Consumer: orders, Stream: adapters.StreamDeadLetter, Record: adapters.Record{ID: fmt.Sprint(i), Payload: []byte("x")}})
		}
		b.fake.Inject(sqsfake.Fault{Action: "DeleteMessageBatch", Do: sqsfake.Fail("AccessDenied")})
		n := 0
		err := b.Broker.(adapters.BatchDrainer).DrainBatch(t.Context(), "orders.billing.dlq", 25, func(_ context.Context, batch []adapters.Record) error {
			n += len(batch)
			return nil
		})
		if err == nil || n != 25 {
			t.Errorf("%d records, %v; want 25 and the error", n, err)
		}
		failed := 0
		for _, c := range b.fake.Calls("DeleteMessageBatch") {
			if c.Code != "" {
				var in struct{ Entries []json.RawMessage }
				if err := json.Unmarshal(c.Input, &in); err != nil {
					t.Fatal(err)
				}
				failed = len(in.Entries)
			}
		}
		left := b.fake.Messages("orders_billing_dlq")
		if len(left) != failed || failed == 0 {
			t.Errorf("%d are left, want the %d of the request that failed", len(left), failed)
		}
		for _, m := range left {
			if m.InFlight {
				t.Errorf("%s is still hidden", m.ID)
			}
		}
	})
}
