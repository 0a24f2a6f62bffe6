package sqsfake_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/spillway-mq/spillway/adapters/sqs/sqsfake"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestTypedErrors: each code becomes the type that the SDK has for it.
func TestTypedErrors(t *testing.T) {
	t.Parallel()
	want := map[string]error{
		"BatchEntryIdsNotDistinct":     &types.BatchEntryIdsNotDistinct{},
		"BatchRequestTooLong":          &types.BatchRequestTooLong{},
		"EmptyBatchRequest":            &types.EmptyBatchRequest{},
		"InvalidAddress":               &types.InvalidAddress{},
		"InvalidAttributeName":         &types.InvalidAttributeName{},
		"InvalidAttributeValue":        &types.InvalidAttributeValue{},
		"InvalidBatchEntryId":          &types.InvalidBatchEntryId{},
		"InvalidMessageContents":       &types.InvalidMessageContents{},
		"InvalidSecurity":              &types.InvalidSecurity{},
		"MessageNotInflight":           &types.MessageNotInflight{},
		"OverLimit":                    &types.OverLimit{},
		"PurgeQueueInProgress":         &types.PurgeQueueInProgress{},
		"QueueDeletedRecently":         &types.QueueDeletedRecently{},
		"QueueDoesNotExist":            &types.QueueDoesNotExist{},
		"QueueNameExists":              &types.QueueNameExists{},
		"ReceiptHandleIsInvalid":       &types.ReceiptHandleIsInvalid{},
		"RequestThrottled":             &types.RequestThrottled{},
		"ResourceNotFoundException":    &types.ResourceNotFoundException{},
		"TooManyEntriesInBatchRequest": &types.TooManyEntriesInBatchRequest{},
		"UnsupportedOperation":         &types.UnsupportedOperation{},
	}
	bubble(t, func(t *testing.T, s *site) {
		for name, typed := range want {
			s.fake.Inject(sqsfake.Fault{Action: "SendMessage", Do: sqsfake.Fail(name)})
			err := s.send("https://sqs/123456789012/q", body("x"))
			var found bool
			for e := err; e != nil && !found; e = errors.Unwrap(e) {
				found = fmt.Sprintf("%T", e) == fmt.Sprintf("%T", typed)
			}
			if !found {
				t.Errorf("%s becomes %v, want a %T", name, err, typed)
			}
		}
		s.fake.Inject(sqsfake.Fault{Do: sqsfake.Fail("AccessDenied")})
		if got := code(s.send("https://sqs/123456789012/q", body("x"))); got != "AccessDenied" {
			t.Errorf("a code without a type: %s", got)
		}
	})
}

// TestFaults: each effect, and what the queue has of it.
func TestFaults(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		do     sqsfake.Effect
		fails  bool
		stored int
		takes  time.Duration
	}{
		{name: "fail", do: sqsfake.Fail("RequestThrottled"), fails: true},
		{name: "fail after", do: sqsfake.FailAfter("InternalError"), fails: true, stored: 1},
		{name: "refuse", do: sqsfake.Refuse(), fails: true},
		{name: "drop", do: sqsfake.Drop(), fails: true, stored: 1},
		{name: "delay", do: sqsfake.Delay(3 * time.Second), stored: 1, takes: 3 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T, s *site) {
				q, err := s.create("q")
				if err != nil {
					t.Fatal(err)
				}
				other := s.queue()
				s.fake.Inject(sqsfake.Fault{Action: "SendMessage", Queue: "q", Skip: 1, Do: tt.do})
				for _, u := range []string{other, q} {
					if err := s.send(u, body("x")); err != nil {
						t.Fatalf("hits too early: %v", err)
					}
				}
				began := time.Now()
				err = s.send(q, body("y"))
				if (err != nil) != tt.fails {
					t.Errorf("error: %v", err)
				}
				if got := time.Since(began); got != tt.takes {
					t.Errorf("takes %v, want %v", got, tt.takes)
				}
				if got := len(s.fake.Messages("q")); got != 1+tt.stored {
					t.Errorf("%d messages are stored, want %d", got, 1+tt.stored)
				}
				if err := s.send(q, body("z")); err != nil {
					t.Errorf("hits twice: %v", err)
				}
				if left := s.fake.FaultsLeft(); len(left) > 0 {
					t.Errorf("left: %v", left)
				}
			})
		})
	}
}

// TestPartialFaults: of a batch some entries fail, by the sender's fault or not,
// or are not mentioned; the others are carried out.
func TestPartialFaults(t *testing.T) {
	t.Parallel()
	type result struct {
		Done, Failed []string // ids
		SenderFault  bool
	}
	for _, tt := range []struct {
		do   sqsfake.Effect
		want result
	}{
		{sqsfake.FailEntries("InternalError", 0, 2, 9), result{[]string{"b"}, []string{"a", "c"}, false}},
		{sqsfake.FailEntries("InvalidParameterValue", 1), result{[]string{"a", "c"}, []string{"b"}, true}},
		{sqsfake.FailEntries("AccessDenied", 0, 1, 2), result{nil, []string{"a", "b", "c"}, true}},
		{sqsfake.LoseEntries(2), result{[]string{"a", "b"}, nil, false}},
		{sqsfake.LoseEntries(0, 1, 2), result{nil, nil, false}},
	} {
		for _, action := range []string{"SendMessageBatch", "ChangeMessageVisibilityBatch", "DeleteMessageBatch"} {
			t.Run(action, func(t *testing.T) {
				t.Parallel()
				bubble(t, func(t *testing.T, s *site) {
					q := s.queue()
					name := s.fake.Queues()[0]
					var ids = []string{"a", "b", "c"}
					handles := map[string]string{}
					if action != "SendMessageBatch" {
						for _, id := range ids {
							if err := s.send(q, body(id)); err != nil {
								t.Fatal(err)
							}
						}
						got, err := s.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{QueueUrl: &q, MaxNumberOfMessages: 10})
						if err != nil || len(got.Messages) != 3 {
							t.Fatalf("%d messages, %v", len(got.Messages), err)
						}
						for _, m := range got.Messages {
							handles[*m.Body] = *m.ReceiptHandle
						}
					}
					s.fake.Inject(sqsfake.Fault{Action: action, Do: tt.do})
					var got result
					add := func(id *string) { got.Done = append(got.Done, *id) }
					failed := func(all []types.BatchResultErrorEntry, err error) {
						if err != nil {
							t.Fatal(err)
						}
						for _, f := range all {
							got.Failed, got.SenderFault = append(got.Failed, *f.Id), f.SenderFault
						}
					}
					var affected []string
					switch action {
					case "SendMessageBatch":
						in := &sqs.SendMessageBatchInput{QueueUrl: &q}
						for _, id := range ids {
							in.Entries = append(in.Entries, types.SendMessageBatchRequestEntry{Id: &id, MessageBody: &id})
						}
						out, err := s.SendMessageBatch(t.Context(), in)
						failed(out.Failed, err)
						for _, e := range out.Successful {
							add(e.Id)
						}
						for _, m := range s.fake.Messages(name) {
							affected = append(affected, m.Body)
						}
					case "ChangeMessageVisibilityBatch":
						in := &sqs.ChangeMessageVisibilityBatchInput{QueueUrl: &q}
						for _, id := range ids {
							in.Entries = append(in.Entries, types.ChangeMessageVisibilityBatchRequestEntry{Id: &id, ReceiptHandle: aws.String(handles[id])})
						}
						out, err := s.ChangeMessageVisibilityBatch(t.Context(), in)
						failed(out.Failed, err)
						for _, e := range out.Successful {
							add(e.Id)
						}
						for _, m := range s.fake.Messages(name) {
							if !m.InFlight {
								affected = append(affected, m.Body)
							}
						}
					default:
						in := &sqs.DeleteMessageBatchInput{QueueUrl: &q}
						for _, id := range ids {
							in.Entries = append(in.Entries, types.DeleteMessageBatchRequestEntry{Id: &id, ReceiptHandle: aws.String(handles[id])})
						}
						out, err := s.DeleteMessageBatch(t.Context(), in)
						failed(out.Failed, err)
						for _, e := range out.Successful {
							add(e.Id)
						}
						left := s.fake.Messages(name)
						for _, id := range ids {
							if !slices.ContainsFunc(left, func(m sqsfake.Message) bool { return m.Body == id }) {
								affected = append(affected, id)
							}
						}
					}
					if diff := cmp.Diff(tt.want, got); diff != "" {
						t.Errorf("answer (-want +got):\n%s", diff)
					}
					if diff := cmp.Diff(tt.want.Done, affected); diff != "" {
						t.Errorf("carried out (-want +got):\n%s", diff)
					}
				})
			})
		}
	}
}

// TestSlowActionIsCarriedOutForAClientThatIsGone: as with a real service.
func TestSlowActionIsCarriedOutForAClientThatIsGone(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, s *site) {
		q, err := s.create("q")
		if err != nil {
			t.Fatal(err)
		}
		s.fake.Inject(sqsfake.Fault{Action: "SendMessage", Do: sqsfake.Delay(2 * time.Second)})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = s.SendMessage(ctx, &sqs.SendMessageInput{QueueUrl: &q, MessageBody: aws.String("x")})
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error: %v", err)
		}
		if n := len(s.fake.Messages("q")); n != 0 {
			t.Errorf("%d messages before the action", n)
		}
		time.Sleep(2 * time.Second) // of the bubble
		if n := len(s.fake.Messages("q")); n != 1 {
			t.Errorf("%d messages after the action", n)
		}
	})
}

// TestInjectRefusesWhatCannotHappen: a mistake in a test is found at once.
func TestInjectRefusesWhatCannotHappen(t *testing.T) {
	t.Parallel()
	for _, f := range []sqsfake.Fault{
		{Action: "SendMesage", Do: sqsfake.Refuse()},
		{Action: "SendMessage"},
		{Skip: -1, Do: sqsfake.Refuse()},
		{Action: "SendMessage", Do: sqsfake.LoseEntries(0)},
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("accepted: %+v", f)
				}
			}()
			sqsfake.New(sqsfake.Config{}).Inject(f)
		}()
	}
}

// TestCalls: what was asked, when, and what came out.
func TestCalls(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, s *site) {
		q, err := s.create("q")
		if err != nil {
			t.Fatal(err)
		}
		m := s.one(q, body("x"))
		if err := s.hide(q, m.ReceiptHandle, 0); err != nil {
			t.Fatal(err)
		}
		_ = s.delete(q, aws.String("none"))
		want := map[string]int{"CreateQueue": 1, "SendMessage": 1, "ReceiveMessage": 1, "ChangeMessageVisibility": 1, "DeleteMessage": 1}
		if diff := cmp.Diff(want, s.fake.Count()); diff != "" {
			t.Error(diff)
		}
		// S8: zero is sent.
		call := s.fake.Calls("ChangeMessageVisibility")[0]
		var in map[string]any
		if err := json.Unmarshal(call.Input, &in); err != nil || in["VisibilityTimeout"] != 0.0 {
			t.Errorf("input %s: %v", call.Input, err)
		}
		if call.Queue != "q" || call.Began.IsZero() || call.Ended != call.Began || call.Code != "" {
			t.Errorf("call: %+v", call)
		}
		if got := s.fake.Calls("DeleteMessage")[0].Code; got != badHandle {
			t.Errorf("code: %s", got)
		}
		if got := len(s.fake.Calls("")); got != 5 {
			t.Errorf("%d calls in all", got)
		}
		if diff := cmp.Diff([]string{"q"}, s.fake.Queues()); diff != "" {
			t.Error(diff)
		}
	})
}

// TestLongPollReturnsAtTheInstant: of a send, of the end of a delay, of the end
// of a visibility, of its own end.
func TestLongPollReturnsAtTheInstant(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, s *site) {
		q := s.queue("VisibilityTimeout", "7")
		began := time.Now()
		at := func(what string, want time.Duration) {
			t.Helper()
			if got := time.Since(began); got != want {
				t.Errorf("%s after %v, want %v", what, got, want)
			}
		}
		if s.receive(q, 4) != nil {
			t.Error("received something from an empty queue")
		}
		at("the end of the poll", 4*time.Second)
		done := make(chan *types.Message)
		go func() { done <- s.receive(q, 20) }()
		synctest.Wait()
		if err := s.send(q, sqs.SendMessageInput{DelaySeconds: 3}); err != nil {
			t.Fatal(err)
		}
		if <-done == nil {
			t.Error("the delayed message did not come")
		}
		at("the end of the delay", 7*time.Second)
		if s.receive(q, 20) == nil {
			t.Error("the message did not come again")
		}
		at("the end of the visibility", 14*time.Second)
		go func() { done <- s.receive(q, 20) }()
		synctest.Wait()
		if err := s.send(q, body("now")); err != nil {
			t.Fatal(err)
		}
		if m := <-done; m == nil || *m.Body != "now" {
			t.Error("the new message did not come")
		}
		at("the send", 14*time.Second)
	})
}

// TestCancelledLongPollTakesAMessage: it is hidden though nobody has it.
func TestCancelledLongPollTakesAMessage(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, s *site) {
		q := s.queue("VisibilityTimeout", "60")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := s.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{QueueUrl: &q, WaitTimeSeconds: 20}); err == nil {
			t.Error("the poll was not cancelled")
		}
		if err := s.send(q, body("x")); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if s.receive(q, 20) != nil {
			t.Error("received what the cancelled poll took")
		}
		began := time.Now()
		m := s.receive(q, 20)
		for m == nil {
			m = s.receive(q, 20)
		}
		if got := m.Attributes["ApproximateReceiveCount"]; got != "2" {
			t.Errorf("receive count %s, want 2", got)
		}
		if got := time.Since(began); got != 40*time.Second {
			t.Errorf("came after %v more, want 40s", got)
		}
	})
}

// TestRetentionDeletes: S33, S34. On a standard queue a dead letter's clock is
// that of the first send; on a FIFO queue it begins anew; a task makes a new
// message. What is too old is gone, and in no dead letter queue.
func TestRetentionDeletes(t *testing.T) {
	t.Parallel()
	day := 24 * time.Hour
	for _, tt := range []struct {
		name string
		fifo bool
		left []int // messages in source and dead letter queue after 5 days and after 8
	}{
		{name: "standard", left: []int{0, 0, 0, 0}},
		{name: "fifo", fifo: true, left: []int{0, 1, 0, 0}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T, s *site) {
				suffix, pairs, in := "", []string{}, body("x")
				if tt.fifo {
					suffix, pairs, in = ".fifo", []string{"FifoQueue", "true"}, group("g")
				}
				dlq, err := s.create("d"+suffix, append(pairs, "MessageRetentionPeriod", "345600")...)
				if err != nil {
					t.Fatal(err)
				}
				q, err := s.create("q"+suffix, append(pairs, "MessageRetentionPeriod", "345600", "RedrivePolicy", redrive(s.arn(dlq), 1))...)
				if err != nil {
					t.Fatal(err)
				}
				s.one(q, in)
				time.Sleep(3 * day)
				s.receive(q, 0) // moves
				if n := len(s.fake.Messages("d" + suffix)); n != 1 {
					t.Fatalf("%d dead letters, want 1", n)
				}
				var left []int
				for _, d := range []time.Duration{2 * day, 3 * day} {
					time.Sleep(d)
					left = append(left, len(s.fake.Messages("q"+suffix)), len(s.fake.Messages("d"+suffix)))
				}
				if diff := cmp.Diff(tt.left, left); diff != "" {
					t.Error(diff)
				}
			})
		})
	}
}

// TestTwelveHoursFromTheReceive: extensions add up, a new receive begins anew.
func TestTwelveHoursFromTheReceive(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, s *site) {
		q := s.queue("VisibilityTimeout", "43200")
		m := s.one(q, body("x"))
		time.Sleep(11 * time.Hour)
		if err := s.hide(q, m.ReceiptHandle, 3601); code(err) != invalidValue {
			t.Errorf("a second too long: %v", err)
		}
		if err := s.hide(q, m.ReceiptHandle, 3600); err != nil {
			t.Errorf("all that is left: %v", err)
		}
		time.Sleep(time.Hour)
		m = s.must(q)
		if err := s.hide(q, m.ReceiptHandle, 43200); err != nil {
			t.Errorf("after the next receive: %v", err)
		}
	})
}

// TestDeduplicationLastsFiveMinutes: by queue and by group.
func TestDeduplicationLastsFiveMinutes(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, s *site) {
		q, err := s.create("q.fifo", "FifoQueue", "true")
		if err != nil {
			t.Fatal(err)
		}
		byGroup, err := s.create("g.fifo", "FifoQueue", "true", "DeduplicationScope", "messageGroup")
		if err != nil {
			t.Fatal(err)
		}
		in := func(g string) sqs.SendMessageInput {
			return sqs.SendMessageInput{MessageGroupId: &g, MessageDeduplicationId: aws.String("same")}
		}
		first, err := s.sent(q, in("a"))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(5*time.Minute - time.Nanosecond)
		twin, err := s.sent(q, in("b"))
		if err != nil || *twin.MessageId != *first.MessageId || *twin.SequenceNumber != *first.SequenceNumber {
			t.Errorf("the twin: %+v, %v", twin, err)
		}
		time.Sleep(time.Nanosecond)
		later, err := s.sent(q, in("a"))
		if err != nil || *later.MessageId == *first.MessageId || *later.SequenceNumber <= *first.SequenceNumber {
			t.Errorf("five minutes later: %+v, %v", later, err)
		}
		for _, g := range []string{"a", "b", "a"} {
			if err := s.send(byGroup, in(g)); err != nil {
				t.Fatal(err)
			}
		}
		if got := len(s.fake.Messages("q.fifo")); got != 2 {
			t.Errorf("%d messages by queue, want 2", got)
		}
		if got := len(s.fake.Messages("g.fifo")); got != 2 {
			t.Errorf("%d messages by group, want 2", got)
		}
	})
}

// TestAMinuteBetween: purges, and the deletion and creation of one name.
func TestAMinuteBetween(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, s *site) {
		q, err := s.create("q")
		if err != nil {
			t.Fatal(err)
		}
		purge := func() string {
			_, err := s.PurgeQueue(t.Context(), &sqs.PurgeQueueInput{QueueUrl: &q})
			return code(err)
		}
		remake := func() string {
			_, err := s.create("q")
			return code(err)
		}
		if err := s.send(q, body("x")); err != nil {
			t.Fatal(err)
		}
		got := []string{purge(), fmt.Sprint(len(s.fake.Messages("q"))), purge()}
		time.Sleep(time.Minute)
		got = append(got, purge())
		if _, err := s.DeleteQueue(t.Context(), &sqs.DeleteQueueInput{QueueUrl: &q}); err != nil {
			t.Fatal(err)
		}
		got = append(got, remake())
		time.Sleep(time.Minute)
		got = append(got, remake())
		want := []string{"", "0", "AWS.SimpleQueueService.PurgeQueueInProgress", "", "AWS.SimpleQueueService.QueueDeletedRecently", ""}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	})
}

// TestInFlightQuota: short polls say so, long polls bring nothing.
func TestInFlightQuota(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		fake := sqsfake.New(sqsfake.Config{MaxInFlight: 2})
		defer fake.Close()
		s := &site{Client: newClient(fake), t: t, ctx: t.Context(), fake: fake}
		q := s.queue()
		for range 3 {
			if err := s.send(q, body("x")); err != nil {
				t.Fatal(err)
			}
		}
		got := s.receiveAll(sqs.ReceiveMessageInput{QueueUrl: &q, MaxNumberOfMessages: 10})
		if len(got) != 2 {
			t.Fatalf("received %d, want 2", len(got))
		}
		if _, err := s.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{QueueUrl: &q}); code(err) != "OverLimit" {
			t.Errorf("short poll: %v", err)
		}
		if m := s.receive(q, 20); m != nil {
			t.Error("long poll brought a message")
		}
		if err := s.delete(q, got[0].ReceiptHandle); err != nil {
			t.Fatal(err)
		}
		if s.receive(q, 0) == nil {
			t.Error("nothing after a place was free")
		}
	})
}

// TestThirdReceiveGoesToTheBack of a standard queue.
func TestThirdReceiveGoesToTheBack(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, s *site) {
		q := s.queue()
		for _, b := range []string{"a", "b"} {
			if err := s.send(q, body(b)); err != nil {
				t.Fatal(err)
			}
		}
		var got []string
		for range 4 {
			m := s.must(q)
			got = append(got, *m.Body)
			if err := s.hide(q, m.ReceiptHandle, 0); err != nil {
				t.Fatal(err)
			}
		}
		if diff := cmp.Diff([]string{"a", "a", "a", "b"}, got); diff != "" {
			t.Error(diff)
		}
	})
}

// TestDeadLetterQueueThatWasDeleted: S39. The message stays where it is.
func TestDeadLetterQueueThatWasDeleted(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, s *site) {
		q, dlq := s.withDLQ(1)
		m := s.one(q, body("x"))
		if _, err := s.DeleteQueue(t.Context(), &sqs.DeleteQueueInput{QueueUrl: &dlq}); err != nil {
			t.Fatal(err)
		}
		if err := s.hide(q, m.ReceiptHandle, 0); err != nil {
			t.Fatal(err)
		}
		if got := s.must(q).Attributes["ApproximateReceiveCount"]; got != "2" {
			t.Errorf("receive count %s, want 2", got)
		}
	})
}

// TestMoveTaskKeepsItsRate, is the only one, and can be cancelled.
func TestMoveTaskKeepsItsRate(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, s *site) {
		_, dlq := s.withDLQ(1)
		to, err := s.create("to")
		if err != nil {
			t.Fatal(err)
		}
		for range 5 {
			if err := s.send(dlq, body("x")); err != nil {
				t.Fatal(err)
			}
		}
		in := &sqs.StartMessageMoveTaskInput{
			SourceArn: ptr(s.arn(dlq)), DestinationArn: ptr(s.arn(to)), MaxNumberOfMessagesPerSecond: aws.Int32(1),
		}
		out, err := s.StartMessageMoveTask(t.Context(), in)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.StartMessageMoveTask(t.Context(), in); code(err) != invalidValue {
			t.Errorf("a second task: %v", err)
		}
		time.Sleep(2500 * time.Millisecond)
		if n := len(s.fake.Messages("to")); n != 3 {
			t.Errorf("%d messages after 2.5 s, want 3", n)
		}
		cancelled, err := s.CancelMessageMoveTask(t.Context(), &sqs.CancelMessageMoveTaskInput{TaskHandle: out.TaskHandle})
		if err != nil || cancelled.ApproximateNumberOfMessagesMoved != 3 {
			t.Errorf("cancel: %+v, %v", cancelled, err)
		}
		time.Sleep(5 * time.Second)
		if n := len(s.fake.Messages("to")); n != 3 {
			t.Errorf("%d messages after the cancellation, want 3", n)
		}
		list, err := s.ListMessageMoveTasks(t.Context(), &sqs.ListMessageMoveTasksInput{SourceArn: in.SourceArn})
		if err != nil || len(list.Results) != 1 {
			t.Fatalf("list: %+v, %v", list, err)
		}
		r := list.Results[0]
		got := fmt.Sprintln(*r.Status, r.ApproximateNumberOfMessagesMoved, *r.ApproximateNumberOfMessagesToMove, r.TaskHandle == nil)
		if want := "CANCELLED 3 5 true\n"; got != want {
			t.Errorf("list: %s, want %s", got, want)
		}
		if _, err := s.CancelMessageMoveTask(t.Context(), &sqs.CancelMessageMoveTaskInput{TaskHandle: out.TaskHandle}); code(err) != "AWS.SimpleQueueService.UnsupportedOperation" {
			t.Errorf("cancel what has ended: %v", err)
		}
	})
}

// TestInvalidUTF8IsStored: S9. The SDK sends U+FFFD, the service stores it, and
// the SDK finds another digest than its own: an error after the fact, which a
// client that tries again multiplies. What wants to see that needs the service
// to behave as it does.
func TestInvalidUTF8IsStored(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, s *site) {
		q, err := s.create("q")
		if err != nil {
			t.Fatal(err)
		}
		if err := s.send(q, body("\xff")); err == nil {
			t.Error("the SDK finds nothing wrong")
		}
		got := s.fake.Messages("q")
		if len(got) != 1 || got[0].Body != "\uFFFD" {
			t.Errorf("stored: %+v", got)
		}
	})
}

// TestReceiverGetsTheAttributesItAskedFor, and no others.
func TestReceiverGetsTheAttributesItAskedFor(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, s *site) {
		q := s.queue("VisibilityTimeout", "0")
		in := attributes(text("a.x", "1", "a.y", "2", "b", "3"))
		in.MessageSystemAttributes = map[string]types.MessageSystemAttributeValue{
			"AWSTraceHeader": {DataType: aws.String("String"), StringValue: aws.String("Root=1")},
		}
		if err := s.send(q, in); err != nil {
			t.Fatal(err)
		}
		for _, tt := range []struct {
			ask    []string
			system []types.MessageSystemAttributeName
			want   []string
			has    int
		}{
			{},
			{ask: []string{"All"}, want: []string{"a.x", "a.y", "b"}},
			{ask: []string{".*"}, want: []string{"a.x", "a.y", "b"}},
			{ask: []string{"a.*"}, want: []string{"a.x", "a.y"}},
			{ask: []string{"b"}, system: []types.MessageSystemAttributeName{"AWSTraceHeader"}, want: []string{"b"}, has: 1},
			{system: []types.MessageSystemAttributeName{"All"}, has: 5},
		} {
			out, err := s.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{
				QueueUrl: &q, MessageAttributeNames: tt.ask, MessageSystemAttributeNames: tt.system,
			})
			if err != nil {
				t.Fatal(err)
			}
			m := out.Messages[0]
			if len(m.MessageAttributes) != len(tt.want) || len(m.Attributes) != tt.has {
				t.Errorf("asked for %v and %v: %v and %v", tt.ask, tt.system, m.MessageAttributes, m.Attributes)
			}
			for _, name := range tt.want {
				if _, ok := m.MessageAttributes[name]; !ok {
					t.Errorf("asked for %v: no %s", tt.ask, name)
				}
			}
		}
		_, err := s.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{
			QueueUrl: &q, MessageSystemAttributeNames: []types.MessageSystemAttributeName{"Colour"},
		})
		if code(err) != attributeName {
			t.Errorf("an attribute that there is not: %v", err)
		}
	})
}

// TestListsAndTags: pages of queues, sources of a dead letter queue, tags.
func TestListsAndTags(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, s *site) {
		dlq, err := s.create("d")
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"q-1", "q-2", "q-3"} {
			if _, err := s.create(name, "RedrivePolicy", redrive(s.arn(dlq), 5)); err != nil {
				t.Fatal(err)
			}
		}
		var pages [][]string
		for p := sqs.NewListQueuesPaginator(s, &sqs.ListQueuesInput{QueueNamePrefix: aws.String("q-"), MaxResults: aws.Int32(2)}); p.HasMorePages(); {
			out, err := p.NextPage(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			pages = append(pages, lastParts(out.QueueUrls))
		}
		if diff := cmp.Diff([][]string{{"q-1", "q-2"}, {"q-3"}}, pages); diff != "" {
			t.Error(diff)
		}
		sources, err := s.ListDeadLetterSourceQueues(t.Context(), &sqs.ListDeadLetterSourceQueuesInput{QueueUrl: &dlq})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"q-1", "q-2", "q-3"}, lastParts(sources.QueueUrls)); diff != "" {
			t.Error(diff)
		}
		if _, err := s.TagQueue(t.Context(), &sqs.TagQueueInput{QueueUrl: &dlq, Tags: map[string]string{"team": "billing", "x": "y"}}); err != nil {
			t.Fatal(err)
		}
		if _, err := s.UntagQueue(t.Context(), &sqs.UntagQueueInput{QueueUrl: &dlq, TagKeys: []string{"x"}}); err != nil {
			t.Fatal(err)
		}
		tags, err := s.ListQueueTags(t.Context(), &sqs.ListQueueTagsInput{QueueUrl: &dlq})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(map[string]string{"team": "billing"}, tags.Tags); diff != "" {
			t.Error(diff)
		}
	})
}

func lastParts(urls []string) []string {
	var names []string
	for _, u := range urls {
		names = append(names, u[strings.LastIndex(u, "/")+1:])
	}
	return names
}

// TestCounters: what is ready, delayed and in flight.
func TestCounters(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, s *site) {
		q := s.queue()
		s.one(q, body("flying"))
		for _, in := range []sqs.SendMessageInput{{DelaySeconds: 9}, {}, {}} {
			if err := s.send(q, in); err != nil {
				t.Fatal(err)
			}
		}
		got := s.attribute(q, "ApproximateNumberOfMessages") + " ready, " +
			s.attribute(q, "ApproximateNumberOfMessagesDelayed") + " delayed, " +
			s.attribute(q, "ApproximateNumberOfMessagesNotVisible") + " in flight"
		if want := "2 ready, 1 delayed, 1 in flight"; got != want {
			t.Errorf("%s, want %s", got, want)
		}
	})
}

// TestOverHTTP: the same server behind a socket, where a dropped answer is a
// broken connection. Queue URLs are those of the socket.
func TestOverHTTP(t *testing.T) {
	t.Parallel()
	fake := sqsfake.New(sqsfake.Config{})
	web := httptest.NewServer(fake)
	transport := &http.Transport{}
	t.Cleanup(func() { fake.Close(); transport.CloseIdleConnections(); web.Close() })
	s := &site{t: t, ctx: t.Context(), fake: fake, Client: sqs.New(sqs.Options{
		Region: "us-east-1", BaseEndpoint: &web.URL, RetryMaxAttempts: 1,
		Credentials: credentials.NewStaticCredentialsProvider("id", "secret", ""),
		HTTPClient:  &http.Client{Transport: transport},
	})}
	q := s.queue()
	if !strings.HasPrefix(q, web.URL+"/123456789012/") {
		t.Errorf("URL: %s", q)
	}
	if m := s.one(q, body("x")); *m.Body != "x" {
		t.Errorf("body: %s", *m.Body)
	}
	fake.Inject(sqsfake.Fault{Action: "SendMessage", Do: sqsfake.Drop()})
	if err := s.send(q, body("y")); err == nil {
		t.Error("an answer in spite of the fault")
	}
	if m := s.must(q); *m.Body != "y" {
		t.Errorf("body: %s", *m.Body)
	}
}

// TestCloseEndsPolls, and what comes after it is refused.
func TestCloseEndsPolls(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		fake := sqsfake.New(sqsfake.Config{})
		s := &site{Client: newClient(fake), t: t, ctx: t.Context(), fake: fake}
		q := s.queue()
		done := make(chan error)
		go func() {
			_, err := s.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{QueueUrl: &q, WaitTimeSeconds: 20})
			done <- err
		}()
		synctest.Wait()
		fake.Close()
		if err := <-done; err == nil {
			t.Error("the poll ended without an error")
		}
		if err := s.send(q, body("x")); err == nil {
			t.Error("a closed server took a message")
		}
	})
}

// FuzzRequest: whatever the body, the server answers with JSON and a status, and
// serves the next request.
func FuzzRequest(f *testing.F) {
	q := `"QueueUrl":"https://sqs/123456789012/q"`
	for _, seed := range [][2]string{
		{"SendMessage", `{` + q + `,"MessageBody":"x","MessageAttributes":{"a":{"DataType":"Number","StringValue":"1e-128"}}}`},
		{"SendMessage", `{` + q + `,"MessageBody":"\ud800","DelaySeconds":1.5}`},
		{"SendMessageBatch", `{` + q + `,"Entries":[{"Id":"1","MessageBody":"x"},{}]}`},
		{"SendMessageBatch", `{` + q + `,"Entries":[null]}`},
		{"ReceiveMessage", `{` + q + `,"MaxNumberOfMessages":10,"WaitTimeSeconds":0,"MessageAttributeNames":["a.*"]}`},
		{"DeleteMessage", `{` + q + `,"ReceiptHandle":"c3FzZmFrZSBxIGlkIDE="}`},
		{"DeleteMessageBatch", `{` + q + `,"Entries":[{"Id":"1","ReceiptHandle":"x"}]}`},
		{"ChangeMessageVisibility", `{` + q + `,"ReceiptHandle":"c3FzZmFrZSBxIGlkIDE=","VisibilityTimeout":9223372036854775807}`},
		{"CreateQueue", `{"QueueName":"r","Attributes":{"RedrivePolicy":"{\"deadLetterTargetArn\":1,\"maxReceiveCount\":\"\"}"}}`},
		{"CreateQueue", `{"QueueName":"r.fifo","Attributes":{"FifoQueue":"true","RedriveAllowPolicy":"null"},"tags":{"":""}}`},
		{"SetQueueAttributes", `{` + q + `,"Attributes":{"RedrivePolicy":"","Policy":"{}"}}`},
		{"GetQueueAttributes", `{` + q + `,"AttributeNames":["All","QueueArn"]}`},
		{"ListQueues", `{"MaxResults":1,"NextToken":"q"}`},
		{"StartMessageMoveTask", `{"SourceArn":"arn:aws:sqs:us-east-1:123456789012:q"}`},
		{"ListMessageMoveTasks", `{"SourceArn":"x"}`},
		{"PurgeQueue", `[]`},
		{"Nothing", `{`},
		{"DeleteQueue", ``},
	} {
		f.Add(seed[0], []byte(seed[1]))
	}
	f.Fuzz(func(t *testing.T, action string, body []byte) {
		// A poll would wait for real.
		if action == "ReceiveMessage" && strings.Contains(strings.ToLower(string(body)), "waittime") &&
			!strings.Contains(string(body), `"WaitTimeSeconds":0`) {
			return
		}
		fake := sqsfake.New(sqsfake.Config{})
		defer fake.Close()
		post := func(action string, body []byte) (int, []byte) {
			r, err := http.NewRequest(http.MethodPost, "https://sqs/", strings.NewReader(string(body)))
			if err != nil {
				t.Fatal(err)
			}
			r.Header["X-Amz-Target"] = []string{"AmazonSQS." + action}
			res, err := fake.RoundTrip(r)
			if err != nil {
				t.Fatalf("no answer: %v", err)
			}
			b, err := io.ReadAll(res.Body)
			if err != nil {
				t.Fatal(err)
			}
			return res.StatusCode, b
		}
		if status, b := post("CreateQueue", []byte(`{"QueueName":"q"}`)); status != http.StatusOK {
			t.Fatalf("%d %s", status, b)
		}
		for range 2 {
			status, b := post(action, body)
			if !json.Valid(b) || status != http.StatusOK && !strings.Contains(string(b), `"__type"`) {
				t.Errorf("%s %q: %d %q", action, body, status, b)
			}
			if status >= http.StatusInternalServerError {
				t.Errorf("%s %q: %d %s", action, body, status, b)
			}
		}
		if status, b := post("ListQueues", nil); status != http.StatusOK {
			t.Errorf("afterwards: %d %s", status, b)
		}
	})
}

// TestDeduplicationIDInADeadLetterQueue: a message that is moved to a FIFO dead
// letter queue has its own id as its deduplication id there, as AWS documents.
func TestDeduplicationIDInADeadLetterQueue(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, s *site) {
		fifo := map[string]string{"FifoQueue": "true"}
		dead, err := s.CreateQueue(t.Context(), &sqs.CreateQueueInput{QueueName: aws.String("dead.fifo"), Attributes: fifo})
		if err != nil {
			t.Fatal(err)
		}
		fifo["RedrivePolicy"] = `{"deadLetterTargetArn":"arn:aws:sqs:us-east-1:123456789012:dead.fifo","maxReceiveCount":1}`
		q, err := s.CreateQueue(t.Context(), &sqs.CreateQueueInput{QueueName: aws.String("q.fifo"), Attributes: fifo})
		if err != nil {
			t.Fatal(err)
		}
		sent, err := s.SendMessage(t.Context(), &sqs.SendMessageInput{
			QueueUrl: q.QueueUrl, MessageBody: aws.String("x"), MessageGroupId: aws.String("g"), MessageDeduplicationId: aws.String("mine"),
		})
		if err != nil {
			t.Fatal(err)
		}
		receive := func(url *string) []types.Message {
			t.Helper()
			out, err := s.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{
				QueueUrl: url, VisibilityTimeout: 1, MessageSystemAttributeNames: []types.MessageSystemAttributeName{types.MessageSystemAttributeNameAll},
			})
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * time.Second) // of the bubble
			return out.Messages
		}
		if m := receive(q.QueueUrl); len(m) != 1 || m[0].Attributes["MessageDeduplicationId"] != "mine" {
			t.Fatalf("received %+v", m)
		}
		if m := receive(q.QueueUrl); len(m) != 0 {
			t.Fatalf("received %+v, want it moved", m)
		}
		if m := receive(dead.QueueUrl); len(m) != 1 || m[0].Attributes["MessageDeduplicationId"] != *sent.MessageId {
			t.Errorf("received %+v, want the deduplication id %s", m, *sent.MessageId)
		}
	})
}
