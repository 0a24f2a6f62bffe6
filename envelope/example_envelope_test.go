package envelope_test

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/spillway-mq/spillway/envelope"
	"github.com/spillway-mq/spillway/failure"
)

// A state is written as headers, and read back on the next delivery.
func ExampleParse() {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	text, truncated := envelope.ErrorText("charge: gateway says no")
	pairs, _ := envelope.State{
		Attempt:       2,
		DueAt:         now.Add(3 * time.Second),
		Source:        envelope.Position{Topic: "orders"},
		ConsumerGroup: "billing",
		Class:         failure.ClassDependencyUnavailable,
		Message:       text,
		Truncated:     truncated,
	}.Pairs(0)

	var headers []envelope.Header
	for _, p := range pairs {
		fmt.Println(p.Key, p.Value)
		headers = append(headers, envelope.Header{Key: p.Key, Value: []byte(p.Value)})
	}

	state := envelope.Parse(headers, now)
	fmt.Println("attempt", state.Attempt, "in", state.DueAt.Sub(now))
	fmt.Println("ours:", state.BelongsTo("orders", "billing"))
	// Output:
	// spillway-state-version 1
	// spillway-attempt 2
	// spillway-due-at 2026-03-01T12:00:03.000000000Z
	// spillway-source-topic orders
	// spillway-consumer-group billing
	// spillway-error-class dependency_unavailable
	// spillway-error-message charge: gateway says no
	// attempt 2 in 3s
	// ours: true
}

// A producer cannot pause a consumer with a due time in the far future.
func ExampleParse_forged() {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	state := envelope.Parse([]envelope.Header{
		{Key: "spillway-attempt", Value: []byte("999999999999")},
		{Key: "spillway-due-at", Value: []byte("9999-01-01T00:00:00Z")},
	}, now)
	fmt.Println("attempt", state.Attempt, "in", state.DueAt.Sub(now))

	state = envelope.Parse([]envelope.Header{
		{Key: "spillway-attempt", Value: []byte("-1")},
		{Key: "spillway-due-at", Value: []byte("9999-01-01T00:00:00Z")},
	}, now)
	fmt.Println("attempt", state.Attempt, "now:", state.DueAt.IsZero())
	// Output:
	// attempt 1000000 in 168h0m0s
	// attempt 1 now: true
}

// Metadata that does not fit the broker shrinks, and says so.
func ExampleState_Pairs() {
	state := envelope.State{
		Attempt:       3,
		ConsumerGroup: "billing",
		Class:         failure.ClassValidation,
		Message:       "quantity must be positive",
		SchemaVersion: "3",
	}
	for _, budget := range []int{0, 200, 150, 20} {
		pairs, ok := state.Pairs(budget)
		fmt.Printf("budget %d, fits: %v\n", budget, ok)
		for _, p := range pairs {
			fmt.Printf("  %s=%s\n", p.Key, p.Value)
		}
	}
	// Output:
	// budget 0, fits: true
	//   spillway-state-version=1
	//   spillway-attempt=3
	//   spillway-consumer-group=billing
	//   spillway-error-class=validation
	//   spillway-error-message=quantity must be positive
	//   spillway-schema-version=3
	// budget 200, fits: true
	//   spillway-state-version=1
	//   spillway-attempt=3
	//   spillway-consumer-group=billing
	//   spillway-error-class=validation
	//   spillway-error-message=quantity must be positive
	//   spillway-schema-version=3
	// budget 150, fits: true
	//   spillway-state-version=1
	//   spillway-attempt=3
	//   spillway-consumer-group=billing
	//   spillway-error-class=validation
	//   spillway-truncated=true
	// budget 20, fits: false
	//   spillway-state-version=1
	//   spillway-attempt=3
	//   spillway-consumer-group=billing
	//   spillway-error-class=validation
	//   spillway-truncated=true
}

// What a handler publishes must not carry the state of what it consumed.
func ExampleStrip() {
	metadata := map[string]string{"tenant": "t1", "spillway-attempt": "3"}
	fmt.Println(envelope.Strip(metadata), len(metadata))
	// Output: map[tenant:t1] 2
}

// Dead letters that a team has written by itself are read like our own.
func ExampleDecodeDeadLetter() {
	for _, line := range []string{
		`{"payload":"{\"id\":1}","errorClass":"validation","errorMessage":"no id","attempts":3,"deadLetteredAt":"2026-03-01T12:00:00Z"}`,
		`{"failedMessage":{"id":2},"failure":{"code":503,"message":"down","attempts":"5","failedAt":"2026-03-01T12:00:00Z"},"source":"orders"}`,
		`{"payload":"x","attempts":"many"}`,
	} {
		d, err := envelope.DecodeDeadLetter([]byte(line))
		if err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Printf("%s: %s %s after %d attempts\n", d.FailedMessage.Payload, d.Failure.Class, d.Failure.Code, d.Failure.Attempts)
	}
	// Output:
	// {"id":1}: validation  after 3 attempts
	// {"id":2}: unknown 503 after 5 attempts
	// dead letter: attempts: a text, want a whole number from 0 to 1000000
}

func ExampleFromState() {
	state := envelope.State{
		Attempt:        1,
		ConsumerGroup:  "billing",
		Source:         envelope.Position{Topic: "orders"},
		Class:          failure.ClassValidation,
		Message:        "no id",
		Reason:         "permanent",
		DeadLetteredAt: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC),
	}
	state.DeadLetterID = envelope.DeadLetterID(state, "5f1c", []byte(`{}`))
	d := envelope.FromState(state, "5f1c", nil, nil, []byte(`{}`))
	text, err := json.MarshalIndent(d, "", "  ")
	if err != nil {
		fmt.Println(err)
	}
	fmt.Println(string(text))
	// Output:
	// {
	//   "deadLetterId": "rt52ne3csemv5nul5o57xl3qnjjrory3xn5oaimupdouidcemavq",
	//   "failedMessage": {
	//     "id": "5f1c",
	//     "payload": "{}"
	//   },
	//   "failure": {
	//     "class": "validation",
	//     "message": "no id",
	//     "reason": "permanent",
	//     "attempts": 1,
	//     "firstAttemptAt": "2026-03-01T12:00:00.000000000Z",
	//     "failedAt": "2026-03-01T12:00:00.000000000Z"
	//   },
	//   "source": {
	//     "topic": "orders"
	//   },
	//   "consumer": {
	//     "group": "billing"
	//   }
	// }
}
