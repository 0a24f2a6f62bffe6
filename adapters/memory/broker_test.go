package memory_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/adapters/memory"
	"github.com/spillway-mq/spillway/envelope"
)

func TestCapabilities(t *testing.T) {
	t.Parallel()
	_, process := setup(t, memory.Config{MaxMessageBytes: 100, MaxMetadataBytes: 50})
	got := process.Capabilities()
	want := adapters.Capabilities{
		Broker: "memory", Positions: true, DeliveryCount: true, Keys: true, NullPayload: true,
		RepeatedHeaders: true, MaxMessageBytes: 100, MaxMetadataBytes: 50,
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(adapters.Capabilities{}, "DelayStep")); diff != "" {
		t.Errorf("capabilities (-want +got):\n%s", diff)
	}
	for _, d := range []time.Duration{0, 1, time.Hour} {
		if step, q := got.DelayStep(d), process.Quantize(d); step != 0 || q != d {
			t.Errorf("%v is quantized to %v with a step of %v, want no change", d, q, step)
		}
	}
}

func TestRetryInPlaceIsRefused(t *testing.T) {
	t.Parallel()
	_, process := setup(t, memory.Config{})
	c := consumer
	c.Retry = adapters.RetryInPlace
	if err := process.Ensure(t.Context(), c); !errors.Is(err, adapters.ErrUnsupported) {
		t.Errorf("ensure: %v, want ErrUnsupported", err)
	}
	if _, err := process.Subscribe(t.Context(), c); !errors.Is(err, adapters.ErrUnsupported) {
		t.Errorf("subscribe: %v, want ErrUnsupported", err)
	}
}

func TestNonsenseIsRefused(t *testing.T) {
	t.Parallel()
	_, process := setup(t, memory.Config{})
	ctx := t.Context()
	for name, err := range map[string]error{
		"ensure without topic":   process.Ensure(ctx, adapters.Consumer{Group: "g"}),
		"ensure without group":   process.Ensure(ctx, adapters.Consumer{Topic: "t"}),
		"hand-off to main":       process.Handoff(ctx, adapters.Handoff{Consumer: consumer, Stream: adapters.StreamMain}),
		"hand-off without group": process.Handoff(ctx, adapters.Handoff{Consumer: adapters.Consumer{Topic: "t"}, Stream: adapters.StreamRetry}),
		"publish without topic":  process.Publisher().Publish("", message.NewMessage("1", nil)),
	} {
		if err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
	if _, err := process.Subscribe(ctx, with(0)); err == nil {
		t.Error("concurrency 0 is accepted")
	}
	if _, err := process.Subscribe(ctx, adapters.Consumer{Topic: "orders", Group: "other", Concurrency: 1}); err == nil || !strings.Contains(err.Error(), "Ensure") {
		t.Errorf("subscribe without Ensure: %v, want an error that names Ensure", err)
	}
}

// K5: nil, empty, binary and large payloads arrive as they were sent, on main
// and after hand-offs.
func TestRecordsAreUnchanged(t *testing.T) {
	t.Parallel()
	for name, payload := range map[string][]byte{
		"nil": nil, "empty": {}, "not UTF-8": {0xff, 0, 0xfe}, "large": bytes.Repeat([]byte{7}, 1<<20),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			broker, process := setup(t, memory.Config{})
			sub := subscribe(t, process, consumer)
			want := adapters.Record{ID: "1", Key: []byte("k"), Payload: payload, Headers: []adapters.Header{
				{Key: "b", Value: []byte("1")},
				{Key: "a", Value: []byte("2"), Type: "int32"},
				{Key: "b", Value: []byte{}},
				{Key: "B", Value: nil},
			}}
			if err := broker.Publish("orders", want); err != nil {
				t.Fatal(err)
			}
			d := receive(t, sub)
			check := func(where string, r adapters.Record) {
				t.Helper()
				// Byte by byte, cmp takes a minute for 1 MiB under the race detector.
				whole := cmp.Comparer(func(a, b []byte) bool { return (a == nil) == (b == nil) && bytes.Equal(a, b) })
				if diff := cmp.Diff(want, r, whole, cmpopts.IgnoreFields(adapters.Record{}, "Position")); diff != "" {
					t.Errorf("%s (-want +got):\n%s", where, diff)
				}
			}
			check("main", d.Record)
			for _, s := range []adapters.Stream{adapters.StreamRetry, adapters.StreamSuspect, adapters.StreamParking, adapters.StreamDeadLetter} {
				h := adapters.Handoff{Consumer: consumer, Stream: s, Record: d.Record, Due: time.Now().Add(time.Hour)}
				if err := process.Handoff(t.Context(), h); err != nil {
					t.Fatal(err)
				}
				check(string(s), broker.Records("orders.billing." + string(s))[0])
			}
		})
	}
}

func TestNothingIsSharedWithPublishersAndConsumers(t *testing.T) {
	t.Parallel()
	broker, process := setup(t, memory.Config{})
	sub := subscribe(t, process, consumer)
	sent := adapters.Record{Key: []byte("k"), Payload: []byte("payload"), Headers: []adapters.Header{{Key: "h", Value: []byte("v")}}}
	if err := broker.Publish("orders", sent); err != nil {
		t.Fatal(err)
	}
	spoil := func(r adapters.Record) {
		_ = append(r.Key, 'x') // must not run into the payload
		r.Key[0], r.Payload[0], r.Headers[0].Value[0], r.Headers[0].Key = 'X', 'X', 'X', "X"
		if r.Position.Offset != nil {
			*r.Position.Offset, *r.Position.Partition = 99, 99
		}
	}
	spoil(sent)
	for range 3 {
		d := receive(t, sub)
		if string(d.Key) != "k" || string(d.Payload) != "payload" || d.Headers[0].Key != "h" || string(d.Headers[0].Value) != "v" || *d.Position.Offset != 0 || *d.Position.Partition != 0 {
			t.Fatalf("the record has changed: %+v", d.Record)
		}
		spoil(d.Record)
		spoil(broker.Records("orders")[0])
		giveBack(t, d)
	}
}

func TestKeysDecideAboutThePartition(t *testing.T) {
	t.Parallel()
	broker, _ := setup(t, memory.Config{Partitions: 4})
	for i := range 40 {
		if err := broker.Publish("orders", adapters.Record{Key: fmt.Append(nil, "customer-", i%8)}); err != nil {
			t.Fatal(err)
		}
	}
	of, used, next := map[string]int32{}, map[int32]bool{}, map[int32]int64{}
	for _, r := range broker.Records("orders") {
		p := *r.Position.Partition
		if was, ok := of[string(r.Key)]; ok && was != p {
			t.Errorf("key %s is in partitions %d and %d", r.Key, was, p)
		}
		if *r.Position.Offset != next[p] {
			t.Errorf("offset %d in partition %d, want %d", *r.Position.Offset, p, next[p])
		}
		of[string(r.Key)], used[p] = p, true
		next[p]++
	}
	if len(used) < 2 {
		t.Errorf("eight keys use %d of 4 partitions", len(used))
	}
}

func TestRecordsWithoutKeyTakeTurns(t *testing.T) {
	t.Parallel()
	broker, _ := setup(t, memory.Config{Partitions: 3})
	publish(t, broker, "a", "b", "c", "d", "e")
	var got []int32
	for _, r := range broker.Records("orders") {
		got = append(got, *r.Position.Partition)
	}
	if want := []int32{0, 1, 2, 0, 1}; !slices.Equal(got, want) {
		t.Errorf("partitions %v, want %v", got, want)
	}
}

func TestEachPartitionIsInOrder(t *testing.T) {
	t.Parallel()
	broker, process := setup(t, memory.Config{Partitions: 3})
	const n = 90
	for i := range n {
		publish(t, broker, fmt.Sprint(i))
	}
	sub := subscribe(t, process, consumer)
	next := map[int32]int64{}
	for i := range n {
		d := receive(t, sub)
		if p := *d.Position.Partition; *d.Position.Offset != next[p] {
			t.Fatalf("partition %d: offset %d, want %d", p, *d.Position.Offset, next[p])
		}
		if i%7 == 0 && d.Count == 1 {
			giveBack(t, d)
			// It comes again before later ones of its partition: next stays.
			for again := receive(t, sub); ; again = receive(t, sub) {
				p := *again.Position.Partition
				if *again.Position.Offset != next[p] {
					t.Fatalf("partition %d: offset %d, want %d", p, *again.Position.Offset, next[p])
				}
				next[p]++
				ack(t, again)
				if again.ID == d.ID {
					break
				}
			}
			if broker.Depth("orders") == 0 {
				break
			}
			continue
		}
		next[*d.Position.Partition]++
		ack(t, d)
		if broker.Depth("orders") == 0 {
			break
		}
	}
	wantRecords(t, broker, "orders")
}

func TestReturnedRecordComesBeforeLaterOnes(t *testing.T) {
	t.Parallel()
	broker, process := setup(t, memory.Config{})
	publish(t, broker, "a", "b", "c", "d")
	sub := subscribe(t, process, with(3))
	a, b := receiveID(t, sub, "a", 1), receiveID(t, sub, "b", 1)
	c := receiveID(t, sub, "c", 1)
	giveBack(t, b)
	b = receiveID(t, sub, "b", 2)
	ack(t, a)
	receiveID(t, sub, "d", 1)
	ack(t, b)
	ack(t, c)
	wantRecords(t, broker, "orders", "d")
}

// K12: what one group fails on, another group sees once.
func TestGroupsAreIndependent(t *testing.T) {
	t.Parallel()
	broker, process := setup(t, memory.Config{})
	mailing := adapters.Consumer{Topic: "orders", Group: "mailing", Concurrency: 1}
	ensure(t, process, mailing)
	publish(t, broker, "a")
	d := receiveID(t, subscribe(t, process, consumer), "a", 1)
	if err := process.Handoff(t.Context(), adapters.Handoff{Consumer: consumer, Stream: adapters.StreamRetry, Record: d.Record}); err != nil {
		t.Fatal(err)
	}
	ack(t, d)
	wantRecords(t, broker, "orders", "a") // mailing is not done with it
	sub := subscribe(t, process, mailing)
	ack(t, receiveID(t, sub, "a", 1))
	receiveNothing(t, sub)
	wantRecords(t, broker, "orders")
	wantRecords(t, broker, "orders.billing.retry", "a")
	if got, want := broker.Groups("orders"), []string{"billing", "mailing"}; !slices.Equal(got, want) {
		t.Errorf("groups %q, want %q", got, want)
	}
}

// K26: a stream keeps what was written before its first reader came.
func TestNewGroupStartsAtTheOldest(t *testing.T) {
	t.Parallel()
	broker := memory.New(memory.Config{})
	process := open(t, broker)
	publish(t, broker, "a", "b")
	if err := process.Handoff(t.Context(), adapters.Handoff{Consumer: consumer, Stream: adapters.StreamRetry, Record: adapters.Record{ID: "r"}}); err != nil {
		t.Fatal(err)
	}
	ensure(t, process, consumer)
	sub := subscribe(t, process, with(5))
	var got []string
	for range 3 {
		d := receive(t, sub)
		got = append(got, d.ID)
		ack(t, d)
	}
	slices.Sort(got)
	if want := []string{"a", "b", "r"}; !slices.Equal(got, want) {
		t.Errorf("received %q, want %q", got, want)
	}

	publish(t, broker, "c", "d")
	ack(t, receive(t, sub)) // c is gone before the second group comes
	late := adapters.Consumer{Topic: "orders", Group: "late", Concurrency: 5}
	ensure(t, process, late)
	other := subscribe(t, process, late)
	ack(t, receiveID(t, other, "d", 1))
	receiveNothing(t, other)
	if err := broker.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestRetainKeepsTopicsButNotOwnStreams(t *testing.T) {
	t.Parallel()
	broker, process := setup(t, memory.Config{Retain: true})
	publish(t, broker, "a", "b")
	sub := subscribe(t, process, consumer)
	d := receive(t, sub)
	if err := process.Handoff(t.Context(), adapters.Handoff{Consumer: consumer, Stream: adapters.StreamRetry, Record: d.Record}); err != nil {
		t.Fatal(err)
	}
	ack(t, d)
	ack(t, receive(t, sub))
	ack(t, receive(t, sub))
	wantRecords(t, broker, "orders", "a", "b")
	wantRecords(t, broker, "orders.billing.retry")
	if lag := broker.Lag("orders", "billing"); lag != 0 {
		t.Errorf("lag %d, want 0", lag)
	}
	late := adapters.Consumer{Topic: "orders", Group: "late", Concurrency: 1}
	ensure(t, process, late)
	receiveID(t, subscribe(t, process, late), "a", 1)
}

func TestSubscriptionsOfAGroupCompete(t *testing.T) {
	t.Parallel()
	broker, process := setup(t, memory.Config{})
	second := open(t, broker)
	ensure(t, second, consumer)
	one, two := subscribe(t, process, consumer), subscribe(t, second, consumer)
	publish(t, broker, "a", "b", "c")
	a, b := receiveID(t, one, "a", 1), receiveID(t, two, "b", 1)
	ack(t, b)
	ack(t, receiveID(t, two, "c", 1))
	ack(t, a)
	receiveNothing(t, one)
	receiveNothing(t, two)
	// A trickle is shared as well.
	served := map[adapters.Subscription]int{}
	for i := range 10 {
		publish(t, broker, fmt.Sprint(i))
		for _, sub := range []adapters.Subscription{one, two} {
			select {
			case d := <-sub.Deliveries():
				served[sub]++
				ack(t, d)
			default:
			}
		}
	}
	if served[one] == 0 || served[two] == 0 || served[one]+served[two] != 10 {
		t.Errorf("of 10 records %d and %d were served", served[one], served[two])
	}
}

func TestConcurrencyBoundsWhatIsUnsettled(t *testing.T) {
	t.Parallel()
	broker, process := setup(t, memory.Config{})
	publish(t, broker, "a", "b", "c", "d")
	sub := subscribe(t, process, with(2))
	a, b := receive(t, sub), receive(t, sub)
	receiveNothing(t, sub)
	if got := broker.InFlight("orders", "billing"); got != 2 {
		t.Errorf("%d in flight, want 2", got)
	}
	ack(t, a)
	receiveID(t, sub, "c", 1)
	receiveNothing(t, sub)
	giveBack(t, b)
	receiveID(t, sub, "b", 2)
	receiveNothing(t, sub)
	if got := broker.Lag("orders", "billing"); got != 3 {
		t.Errorf("lag %d, want 3", got)
	}
}

func TestSuspectsAreServedOneAtATimePerGroup(t *testing.T) {
	t.Parallel()
	broker, process := setup(t, memory.Config{})
	for _, id := range []string{"s1", "s2"} {
		h := adapters.Handoff{Consumer: consumer, Stream: adapters.StreamSuspect, Record: adapters.Record{ID: id}}
		if err := process.Handoff(t.Context(), h); err != nil {
			t.Fatal(err)
		}
	}
	publish(t, broker, "a", "b")
	one, two := subscribe(t, process, consumer), subscribe(t, process, consumer)
	// The suspect comes in addition to Concurrency, to one subscription only.
	s1, a := receiveID(t, one, "s1", 1), receiveID(t, one, "a", 1)
	if s1.Stream != adapters.StreamSuspect || a.Stream != adapters.StreamMain {
		t.Errorf("from %s and %s", s1.Stream, a.Stream)
	}
	receiveNothing(t, one)
	receiveID(t, two, "b", 1)
	receiveNothing(t, two)
	giveBack(t, s1)
	select {
	case d := <-one.Deliveries():
		s1 = d
	case d := <-two.Deliveries():
		s1 = d
	default:
		t.Fatal("the returned suspect does not come back")
	}
	if s1.ID != "s1" || s1.Count != 2 {
		t.Fatalf("received %s with count %d, want s1 with 2", s1.ID, s1.Count)
	}
	receiveNothing(t, one)
	receiveNothing(t, two)
	ack(t, s1)
	wantRecords(t, broker, "orders.billing.suspect", "s2")
	if got := broker.InFlight("orders.billing.suspect", "billing"); got != 1 {
		t.Errorf("%d suspects in flight, want 1", got)
	}
}

func TestMainAndRetryTakeTurns(t *testing.T) {
	t.Parallel()
	broker, process := setup(t, memory.Config{})
	for i := range 20 {
		publish(t, broker, fmt.Sprint("main-", i))
		h := adapters.Handoff{Consumer: consumer, Stream: adapters.StreamRetry, Record: adapters.Record{ID: fmt.Sprint("retry-", i)}}
		if err := process.Handoff(t.Context(), h); err != nil {
			t.Fatal(err)
		}
	}
	sub := subscribe(t, process, consumer)
	from := map[adapters.Stream]int{}
	for range 20 {
		d := receive(t, sub)
		from[d.Stream]++
		ack(t, d)
	}
	if from[adapters.StreamMain] != 10 || from[adapters.StreamRetry] != 10 {
		t.Errorf("served %v, want 10 each", from)
	}
}

func TestStopGivesBackUncounted(t *testing.T) {
	t.Parallel()
	broker, process := setup(t, memory.Config{})
	publish(t, broker, "a", "b", "c")
	sub := subscribe(t, process, with(3))
	a := receiveID(t, sub, "a", 1)
	if err := sub.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	receiveClosed(t, sub)
	if got := broker.InFlight("orders", "billing"); got != 1 {
		t.Errorf("%d in flight after Stop, want 1", got)
	}
	publish(t, broker, "d")
	next := subscribe(t, process, with(5))
	receiveID(t, next, "b", 1)
	receiveID(t, next, "c", 1)
	receiveID(t, next, "d", 1)
	ack(t, a) // received before Stop: can still be settled
	if err := sub.Stop(t.Context()); err != nil {
		t.Errorf("second Stop: %v", err)
	}
	wantRecords(t, broker, "orders", "b", "c", "d")
}

func TestCloseGivesBackWhatWasReceived(t *testing.T) {
	t.Parallel()
	broker, process := setup(t, memory.Config{})
	publish(t, broker, "a", "b", "c")
	sub := subscribe(t, process, with(3))
	a, b := receiveID(t, sub, "a", 1), receiveID(t, sub, "b", 1)
	ack(t, b)
	if err := sub.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := a.Settler.Ack(t.Context(), a); !errors.Is(err, adapters.ErrClosed) {
			t.Errorf("ack after close: %v, want ErrClosed", err)
		}
		if err := a.Settler.Return(t.Context(), a); !errors.Is(err, adapters.ErrClosed) {
			t.Errorf("return after close: %v, want ErrClosed", err)
		}
	}
	if err := b.Settler.Ack(t.Context(), b); err != nil {
		t.Errorf("second ack of what was acknowledged: %v", err)
	}
	if err := sub.Close(t.Context()); err != nil {
		t.Errorf("second close: %v", err)
	}
	next := subscribe(t, process, with(3))
	receiveID(t, next, "a", 2) // it was received
	receiveID(t, next, "c", 1) // it was not
	wantRecords(t, broker, "orders", "a", "c")
}

func TestSettlingTwiceIsIgnored(t *testing.T) {
	t.Parallel()
	broker, process := setup(t, memory.Config{})
	publish(t, broker, "a", "b")
	sub := subscribe(t, process, consumer)
	a := receive(t, sub)
	ack(t, a)
	ack(t, a)
	giveBack(t, a)
	b := receiveID(t, sub, "b", 1)
	giveBack(t, b)
	ack(t, b) // belongs to the first delivery, which was returned
	giveBack(t, b)
	receiveID(t, sub, "b", 2)
	wantRecords(t, broker, "orders", "b")
}

func TestSettlingWithAnEndedContextDoesNothing(t *testing.T) {
	t.Parallel()
	broker, process := setup(t, memory.Config{})
	publish(t, broker, "a")
	a := receive(t, subscribe(t, process, consumer))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := a.Settler.Ack(ended, a); !errors.Is(err, context.Canceled) {
		t.Errorf("ack: %v, want context.Canceled", err)
	}
	if err := process.Handoff(ended, adapters.Handoff{Consumer: consumer, Stream: adapters.StreamRetry}); !errors.Is(err, context.Canceled) {
		t.Errorf("hand-off: %v, want context.Canceled", err)
	}
	wantRecords(t, broker, "orders", "a")
	wantRecords(t, broker, "orders.billing.retry")
	ack(t, a)
	wantRecords(t, broker, "orders")
}

// K3: what Spillway wrote at an earlier hop does not accumulate.
func TestHandoffReplacesStateAndDropsHeaders(t *testing.T) {
	t.Parallel()
	broker, process := setup(t, memory.Config{})
	h := adapters.Handoff{
		Consumer: consumer,
		Stream:   adapters.StreamDeadLetter,
		Record: adapters.Record{ID: "1", Native: 42, Headers: []adapters.Header{
			{Key: "kept", Value: []byte("1")},
			{Key: "spillway-attempt", Value: []byte("7")},
			{Key: "Authorization", Value: []byte("secret")},
			{Key: "Spillway-Attempt", Value: []byte("forged")},
			{Key: "kept", Value: []byte("2"), Type: "int64"},
			{Key: "spillway", Value: []byte("a user's")},
		}},
		State:       []envelope.Pair{{Key: "spillway-hops", Value: "1"}, {Key: "spillway-attempt", Value: "2"}},
		DropHeaders: []string{"authorization"},
	}
	want := adapters.Record{ID: "1", Headers: []adapters.Header{
		{Key: "kept", Value: []byte("1")},
		{Key: "kept", Value: []byte("2"), Type: "int64"},
		{Key: "spillway", Value: []byte("a user's")},
		{Key: "spillway-hops", Value: []byte("1")},
		{Key: "spillway-attempt", Value: []byte("2")},
	}}
	for range 3 {
		if err := process.Handoff(t.Context(), h); err != nil {
			t.Fatal(err)
		}
		records := broker.Records("orders.billing.dlq")
		h.Record = records[len(records)-1]
		if diff := cmp.Diff(want, h.Record, cmpopts.IgnoreFields(adapters.Record{}, "Position")); diff != "" {
			t.Fatalf("dead letter (-want +got):\n%s", diff)
		}
	}
}

func TestNamesComeFromTheTemplates(t *testing.T) {
	t.Parallel()
	broker := memory.New(memory.Config{})
	process, err := broker.Opener().Open(t.Context(), adapters.OpenParams{Names: adapters.Names{DeadLetter: "dead/{group}/{topic}"}})
	if err != nil {
		t.Fatal(err)
	}
	ensure(t, process, consumer)
	want := []string{"dead/billing/orders", "orders", "orders.billing.parking", "orders.billing.retry", "orders.billing.suspect"}
	if got := broker.Streams(); !slices.Equal(got, want) {
		t.Errorf("streams %q, want %q", got, want)
	}
	if _, err := broker.Opener().Open(t.Context(), adapters.OpenParams{Names: adapters.Names{Retry: "retry"}}); err == nil {
		t.Error("a template without topic and group is accepted")
	}
}

func TestCollidingNamesAreRefusedAcrossProcesses(t *testing.T) {
	t.Parallel()
	broker := memory.New(memory.Config{})
	ensure(t, open(t, broker), adapters.Consumer{Topic: "a.b", Group: "c"})
	ensure(t, open(t, broker), adapters.Consumer{Topic: "a.b", Group: "c"}) // the same consumer again
	err := open(t, broker).Ensure(t.Context(), adapters.Consumer{Topic: "a", Group: "b.c"})
	if err == nil || !strings.Contains(err.Error(), "a.b.c.retry") {
		t.Errorf("ensure: %v, want an error that names the stream", err)
	}
}

// K4 and O19 need limits to run into.
func TestSizeLimits(t *testing.T) {
	t.Parallel()
	header := func(n int) []adapters.Header { return []adapters.Header{{Key: "k", Value: make([]byte, n-1)}} }
	for _, test := range []struct {
		name       string
		cfg        memory.Config
		record     adapters.Record
		topic, own bool // accepted there
	}{
		{"no limit", memory.Config{}, adapters.Record{Payload: make([]byte, 1<<20), Headers: header(1 << 20)}, true, true},
		{"at the limit", memory.Config{MaxMessageBytes: 100}, adapters.Record{Payload: make([]byte, 90), Headers: header(10)}, true, true},
		{"above the limit", memory.Config{MaxMessageBytes: 100}, adapters.Record{Payload: make([]byte, 91), Headers: header(10)}, false, true},
		{"at the default head-room", memory.Config{MaxMessageBytes: 100}, adapters.Record{Payload: make([]byte, 100+64<<10)}, false, true},
		{"above the default head-room", memory.Config{MaxMessageBytes: 100}, adapters.Record{Payload: make([]byte, 101+64<<10)}, false, false},
		{"above a small head-room", memory.Config{MaxMessageBytes: 100, HeadRoom: 5}, adapters.Record{Payload: make([]byte, 106)}, false, false},
		{"no head-room", memory.Config{MaxMessageBytes: 100, HeadRoom: memory.NoHeadRoom}, adapters.Record{Payload: make([]byte, 101)}, false, false},
		{"metadata at the limit", memory.Config{MaxMetadataBytes: 20}, adapters.Record{Headers: header(20)}, true, true},
		{"metadata above the limit", memory.Config{MaxMetadataBytes: 20}, adapters.Record{Headers: header(21)}, false, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			broker, process := setup(t, test.cfg)
			check := func(where string, err error, accepted bool, stream string) {
				t.Helper()
				if accepted != (err == nil) || (err != nil && !errors.Is(err, adapters.ErrTooLarge)) {
					t.Errorf("%s: %v, accepted should be %v", where, err, accepted)
				}
				if got := broker.Depth(stream) == 1; got != accepted {
					t.Errorf("%s: written is %v, want %v", where, got, accepted)
				}
			}
			check("topic", broker.Publish("orders", test.record), test.topic, "orders")
			for _, s := range []adapters.Stream{adapters.StreamRetry, adapters.StreamSuspect, adapters.StreamDeadLetter} {
				err := process.Handoff(t.Context(), adapters.Handoff{Consumer: consumer, Stream: s, Record: test.record})
				check(string(s), err, test.own, "orders.billing."+string(s))
			}
		})
	}
}

func TestPublisherWritesMessages(t *testing.T) {
	t.Parallel()
	broker, process := setup(t, memory.Config{Partitions: 8})
	m := message.NewMessage("id-1", []byte("payload"))
	for _, k := range []string{"z", "a", "m", memory.KeyMetadata} {
		m.Metadata.Set(k, "v-"+k)
	}
	before := time.Now()
	for _, p := range []message.Publisher{process.Publisher(), broker.Publisher()} {
		if err := p.Publish("orders", m, message.NewMessage("", nil)); err != nil {
			t.Fatal(err)
		}
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
		if err := p.Publish("orders", m); err != nil {
			t.Errorf("publish after the publisher's Close: %v", err)
		}
	}
	records := broker.Records("orders")
	if len(records) != 6 {
		t.Fatalf("%d records, want 6", len(records))
	}
	want := adapters.Record{ID: "id-1", Key: []byte("v-partition-key"), Payload: []byte("payload"), Headers: []adapters.Header{
		{Key: "a", Value: []byte("v-a")}, {Key: "m", Value: []byte("v-m")},
		{Key: memory.KeyMetadata, Value: []byte("v-partition-key")}, {Key: "z", Value: []byte("v-z")},
	}}
	if diff := cmp.Diff(want, records[0], cmpopts.IgnoreFields(adapters.Record{}, "Position")); diff != "" {
		t.Errorf("record (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(adapters.Record{}, records[1], cmpopts.IgnoreFields(adapters.Record{}, "Position")); diff != "" {
		t.Errorf("empty message (-want +got):\n%s", diff)
	}
	if at := records[0].Position.Timestamp; at.Before(before.Round(0)) || at.After(time.Now()) {
		t.Errorf("timestamp %v is not the time of the write", at)
	}
	if got := records[0].Position.Topic; got != "orders" {
		t.Errorf("position topic %q, want orders", got)
	}
}

func TestPublishStopsAtTheFirstError(t *testing.T) {
	t.Parallel()
	broker, process := setup(t, memory.Config{MaxMessageBytes: 5})
	err := process.Publisher().Publish("orders",
		message.NewMessage("a", nil), message.NewMessage("b", []byte("too large")), message.NewMessage("c", nil))
	if !errors.Is(err, adapters.ErrTooLarge) {
		t.Errorf("publish: %v, want ErrTooLarge", err)
	}
	wantRecords(t, broker, "orders", "a")
}

func TestClosingAViewKeepsTheData(t *testing.T) {
	t.Parallel()
	broker, process := setup(t, memory.Config{})
	publish(t, broker, "a")
	sub := subscribe(t, process, consumer)
	a := receiveID(t, sub, "a", 1)
	if err := process.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	receiveClosed(t, sub)
	wantClosed(t, process)
	if err := a.Settler.Ack(t.Context(), a); !errors.Is(err, adapters.ErrClosed) {
		t.Errorf("ack: %v, want ErrClosed", err)
	}
	publish(t, broker, "b")
	other := subscribe(t, open(t, broker), with(2))
	receiveID(t, other, "a", 2)
	receiveID(t, other, "b", 1)
}

func TestClosingTheBrokerEndsEverything(t *testing.T) {
	t.Parallel()
	broker, process := setup(t, memory.Config{})
	publish(t, broker, "a")
	sub := subscribe(t, process, consumer)
	for range 2 {
		if err := broker.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	receiveClosed(t, sub)
	wantClosed(t, process)
	if err := broker.Publish("orders", adapters.Record{}); !errors.Is(err, adapters.ErrClosed) {
		t.Errorf("publish: %v, want ErrClosed", err)
	}
	if _, err := broker.Opener().Open(t.Context(), adapters.OpenParams{}); !errors.Is(err, adapters.ErrClosed) {
		t.Errorf("open: %v, want ErrClosed", err)
	}
	wantRecords(t, broker, "orders", "a") // can still be looked at
}

func wantClosed(t *testing.T, process adapters.Broker) {
	t.Helper()
	ctx := t.Context()
	_, subscribed := process.Subscribe(ctx, consumer)
	for op, err := range map[string]error{
		"ensure":    process.Ensure(ctx, consumer),
		"subscribe": subscribed,
		"hand-off":  process.Handoff(ctx, adapters.Handoff{Consumer: consumer, Stream: adapters.StreamRetry}),
		"publish":   process.Publisher().Publish("orders", message.NewMessage("x", nil)),
		"drain":     process.Drain(ctx, "orders", func(context.Context, adapters.Record) error { return nil }),
	} {
		if !errors.Is(err, adapters.ErrClosed) {
			t.Errorf("%s: %v, want ErrClosed", op, err)
		}
	}
	if err := process.Close(ctx); err != nil {
		t.Errorf("close: %v", err)
	}
}

func TestOpenerMakesPrivateBrokers(t *testing.T) {
	t.Parallel()
	u, err := url.Parse("memory://?partitions=2")
	if err != nil {
		t.Fatal(err)
	}
	var processes []adapters.Broker
	for range 2 {
		process, err := memory.Opener().Open(t.Context(), adapters.OpenParams{URL: u})
		if err != nil {
			t.Fatal(err)
		}
		ensure(t, process, consumer)
		processes = append(processes, process)
	}
	if err := processes[0].Publisher().Publish("orders", message.NewMessage("a", nil), message.NewMessage("b", nil)); err != nil {
		t.Fatal(err)
	}
	receiveNothing(t, subscribe(t, processes[1], consumer))
	sub := subscribe(t, processes[0], with(2))
	receiveID(t, sub, "a", 1)
	if p := *receiveID(t, sub, "b", 1).Position.Partition; p != 1 {
		t.Errorf("b is in partition %d, want 1", p)
	}
	for _, process := range processes {
		if err := process.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	wantClosed(t, processes[0])
}

func TestNewRefusesNonsense(t *testing.T) {
	t.Parallel()
	for _, cfg := range []memory.Config{
		{Partitions: -1}, {Partitions: memory.MaxPartitions + 1}, {MaxMessageBytes: -1}, {MaxMetadataBytes: -1}, {HeadRoom: -2},
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("New(%+v) does not panic", cfg)
				}
			}()
			memory.New(cfg)
		}()
	}
}

func TestDeadLettersCanBeConsumedAsATopic(t *testing.T) {
	t.Parallel()
	broker, process := setup(t, memory.Config{})
	if err := process.Handoff(t.Context(), adapters.Handoff{Consumer: consumer, Stream: adapters.StreamDeadLetter, Record: adapters.Record{ID: "a"}}); err != nil {
		t.Fatal(err)
	}
	triage := adapters.Consumer{Topic: "orders.billing.dlq", Group: "triage", Concurrency: 1}
	ensure(t, process, triage)
	d := receiveID(t, subscribe(t, process, triage), "a", 1)
	if d.Stream != adapters.StreamMain {
		t.Errorf("stream %s, want main", d.Stream)
	}
	ack(t, d)
	wantRecords(t, broker, "orders.billing.dlq")
}
