package sqsfake_test

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/aws/smithy-go"
	gocmp "github.com/google/go-cmp/cmp"
)

// Codes as SDKs report them.
const (
	accepted       = ""
	invalidValue   = "InvalidParameterValue"
	missingValue   = "MissingParameter"
	badContents    = "InvalidMessageContents"
	attributeName  = "InvalidAttributeName"
	attributeValue = "InvalidAttributeValue"
	badHandle      = "ReceiptHandleIsInvalid"
	notInflight    = "AWS.SimpleQueueService.MessageNotInflight"
	noQueue        = "AWS.SimpleQueueService.NonExistentQueue"
	noResource     = "ResourceNotFoundException"
)

// limit is a line of what AWS documents: a call, and whether it is accepted.
type limit struct {
	name string
	// try returns the error of the call, or what came out of it otherwise than
	// documented.
	try func(*site) error
	// want is the code of the error that is documented, empty if the call is
	// accepted.
	want string
	// elasticmq is what comes of it there, if that is something else.
	elasticmq outcome
}

// outcome is what comes of a call, without the code of an error: servers agree
// on codes even less than on limits.
type outcome string

const (
	accepts outcome = "accepts"
	refuses outcome = "refuses"
	differs outcome = "differs" // accepts, and does something else
)

func outcomeOf(err error) outcome {
	if err == nil {
		return accepts
	}
	if _, ok := errors.AsType[smithy.APIError](err); ok {
		return refuses
	}
	return differs
}

func (l limit) documented() outcome {
	if l.want == accepted {
		return accepts
	}
	return refuses
}

// TestLimitsOfTheFake: what the documentation says, the fake does.
func TestLimitsOfTheFake(t *testing.T) {
	t.Parallel()
	for _, l := range limits {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T, s *site) {
				if err := l.try(s); code(err) != l.want {
					t.Errorf("got %q, want %q: %v", code(err), l.want, err)
				}
			})
		})
	}
}

// TestLimitsOfServers runs the same table on what SPILLWAY_TEST_SQS names. The
// known deviations of ElasticMQ are pinned, so that a change is noticed; AWS has
// none. Codes that are not those of the table are logged.
func TestLimitsOfServers(t *testing.T) {
	t.Parallel()
	s := remote(t)
	for _, l := range limits {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			err := l.try(s.at(t))
			want := l.documented()
			if !s.aws {
				want = cmp.Or(l.elasticmq, want)
			}
			if got := outcomeOf(err); got != want {
				t.Errorf("it %s, want %s: %v", got, want, err)
			} else if code(err) != l.want {
				t.Logf("it %s with %q, the table has %q", got, code(err), l.want)
			}
		})
	}
}

var update = flag.Bool("update", false, "write the list of deviations anew")

// TestDeviationsAreListed: docs/sqs-deviations.md has the rows of the table on
// which ElasticMQ deviates.
func TestDeviationsAreListed(t *testing.T) {
	t.Parallel()
	const (
		file  = "../../../docs/sqs-deviations.md"
		begin = "<!-- from limits_test.go: go test ./adapters/sqs/sqsfake -update -->\n"
		end   = "<!-- end -->\n"
	)
	var table strings.Builder
	table.WriteString("\n| what | AWS's documentation | ElasticMQ |\n|---|---|---|\n")
	for _, l := range limits {
		if l.elasticmq != "" {
			fmt.Fprintf(&table, "| %s | %s | %s |\n", l.name, l.documented(), l.elasticmq)
		}
	}
	table.WriteString("\n")
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok1 := strings.Cut(string(b), begin)
	got, after, ok2 := strings.Cut(rest, end)
	if !ok1 || !ok2 {
		t.Fatalf("%s has no place for the table", file)
	}
	if *update {
		if err := os.WriteFile(file, []byte(before+begin+table.String()+end+after), 0o666); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := gocmp.Diff(table.String(), got); diff != "" {
		t.Errorf("%s is not up to date; run with -update: %s", file, diff)
	}
}

// sending is a row that sends one message to a new queue.
func sending(in sqs.SendMessageInput, pairs ...string) func(*site) error {
	return func(s *site) error { return s.send(s.queue(pairs...), in) }
}

// sendingFIFO is sending to a FIFO queue.
func sendingFIFO(in sqs.SendMessageInput, pairs ...string) func(*site) error {
	return func(s *site) error { return s.send(s.fifo(pairs...), in) }
}

// creating is a row that creates a queue.
func creating(pairs ...string) func(*site) error {
	return func(s *site) error {
		_, err := s.create(s.name("q"), pairs...)
		return err
	}
}

// naming is a row that creates a queue of a name.
func naming(name func(unique string) string, pairs ...string) func(*site) error {
	return func(s *site) error {
		_, err := s.create(name(s.name("q")), pairs...)
		return err
	}
}

func long(unique string, n int, suffix string) string {
	return unique + strings.Repeat("x", n-len(unique)-len(suffix)) + suffix
}

// many returns n attributes.
func many(n int) map[string]types.MessageAttributeValue {
	attributes := map[string]types.MessageAttributeValue{}
	for i := range n {
		attributes[fmt.Sprintf("a%d", i)] = types.MessageAttributeValue{DataType: aws.String("String"), StringValue: aws.String("v")}
	}
	return attributes
}

func typed(dataType, value string) map[string]types.MessageAttributeValue {
	return map[string]types.MessageAttributeValue{"a": {DataType: &dataType, StringValue: &value}}
}

func binary(dataType string, value []byte) map[string]types.MessageAttributeValue {
	return map[string]types.MessageAttributeValue{"a": {DataType: &dataType, BinaryValue: value}}
}

func body(s string) sqs.SendMessageInput { return sqs.SendMessageInput{MessageBody: &s} }

func attributes(a map[string]types.MessageAttributeValue) sqs.SendMessageInput {
	return sqs.SendMessageInput{MessageAttributes: a}
}

func group(id string) sqs.SendMessageInput {
	return sqs.SendMessageInput{MessageGroupId: &id, MessageDeduplicationId: aws.String("d-" + id)}
}

// deadLetters is a row that sets a redrive policy, made of the ARN of a queue.
func deadLetters(policy func(arn string) string) func(*site) error {
	return func(s *site) error {
		dlq := s.queue()
		return s.set(s.queue(), "RedrivePolicy", policy(s.arn(dlq)))
	}
}

// allowing is a row that sets a redrive allow policy on a queue.
func allowing(policy string) func(*site) error {
	return func(s *site) error { return s.set(s.queue(), "RedriveAllowPolicy", policy) }
}

var limits = []limit{
	// Names of queues.
	{name: "name of 80", try: naming(func(u string) string { return long(u, 80, "") })},
	{name: "name of 81", try: naming(func(u string) string { return long(u, 81, "") }), want: invalidValue},
	{name: "name with underscore", try: naming(func(u string) string { return u + "_Z-9" })},
	{name: "name with dot", try: naming(func(u string) string { return "orders." + u }), want: invalidValue},
	{name: "name with slash", try: naming(func(u string) string { return "orders/" + u }), want: invalidValue},
	{name: "name with umlaut", try: naming(func(u string) string { return "ö" + u }), want: invalidValue},
	{name: "fifo name of 80", try: naming(func(u string) string { return long(u, 80, ".fifo") }, "FifoQueue", "true")},
	{name: "fifo name of 81", try: naming(func(u string) string { return long(u, 81, ".fifo") }, "FifoQueue", "true"), want: invalidValue},
	{name: "fifo name without FifoQueue", try: naming(func(u string) string { return u + ".fifo" }), want: invalidValue},
	{name: "FifoQueue without fifo name", try: creating("FifoQueue", "true"), want: invalidValue},
	{name: "FifoQueue false", elasticmq: accepts, try: creating("FifoQueue", "false"), want: attributeName},

	// Attributes of queues.
	{name: "DelaySeconds 900", try: creating("DelaySeconds", "900")},
	{name: "DelaySeconds 901", elasticmq: accepts, try: creating("DelaySeconds", "901"), want: attributeValue},
	{name: "VisibilityTimeout 43200", try: creating("VisibilityTimeout", "43200")},
	{name: "VisibilityTimeout 43201", elasticmq: accepts, try: creating("VisibilityTimeout", "43201"), want: attributeValue},
	{name: "VisibilityTimeout -1", elasticmq: accepts, try: creating("VisibilityTimeout", "-1"), want: attributeValue},
	{name: "VisibilityTimeout text", try: creating("VisibilityTimeout", "x"), want: attributeValue},
	{name: "MessageRetentionPeriod 60", try: creating("MessageRetentionPeriod", "60")},
	{name: "MessageRetentionPeriod 59", elasticmq: accepts, try: creating("MessageRetentionPeriod", "59"), want: attributeValue},
	{name: "MessageRetentionPeriod 1209600", try: creating("MessageRetentionPeriod", "1209600")},
	{name: "MessageRetentionPeriod 1209601", elasticmq: accepts, try: creating("MessageRetentionPeriod", "1209601"), want: attributeValue},
	{name: "ReceiveMessageWaitTimeSeconds 20", try: creating("ReceiveMessageWaitTimeSeconds", "20")},
	{name: "ReceiveMessageWaitTimeSeconds 21", try: creating("ReceiveMessageWaitTimeSeconds", "21"), want: attributeValue},
	{name: "MaximumMessageSize 1024", try: creating("MaximumMessageSize", "1024")},
	{name: "MaximumMessageSize 1023", elasticmq: accepts, try: creating("MaximumMessageSize", "1023"), want: attributeValue},
	{name: "MaximumMessageSize 1048576", try: creating("MaximumMessageSize", "1048576")},
	{name: "MaximumMessageSize 1048577", elasticmq: accepts, try: creating("MaximumMessageSize", "1048577"), want: attributeValue},
	{name: "unknown attribute", elasticmq: accepts, try: creating("Colour", "blue"), want: attributeName},
	{name: "maxReceiveCount outside the policy", elasticmq: accepts, try: creating("maxReceiveCount", "5"), want: attributeName},
	{name: "ContentBasedDeduplication on standard", elasticmq: accepts, try: creating("ContentBasedDeduplication", "true"), want: attributeName},
	{name: "throughput by group without scope", elasticmq: accepts, try: func(s *site) error {
		_, err := s.create(s.name("q.fifo"), "FifoQueue", "true", "FifoThroughputLimit", "perMessageGroupId")
		return err
	}, want: attributeValue},
	{name: "throughput by group", try: func(s *site) error {
		_, err := s.create(s.name("q.fifo"), "FifoQueue", "true", "FifoThroughputLimit", "perMessageGroupId", "DeduplicationScope", "messageGroup")
		return err
	}},
	{name: "create again", try: func(s *site) error { return again(s, "30", "30") }},
	{name: "create again with other attributes", try: func(s *site) error { return again(s, "30", "31") }, want: "QueueAlreadyExists"},
	{name: "set an attribute", try: func(s *site) error {
		q := s.queue()
		if err := s.set(q, "VisibilityTimeout", "77"); err != nil {
			return err
		}
		return expect("visibility", s.attribute(q, "VisibilityTimeout"), "77")
	}},
	{name: "URL of no queue", try: func(s *site) error {
		_, err := s.GetQueueUrl(s.ctx, &sqs.GetQueueUrlInput{QueueName: ptr(s.name("none"))})
		return err
	}, want: noQueue},
	{name: "send to no queue", try: func(s *site) error { return s.send(s.queue()+"-none", body("x")) }, want: noQueue},

	// Policies.
	{name: "redrive", try: deadLetters(func(arn string) string { return redrive(arn, 5) })},
	{name: "redrive with the count as text", try: deadLetters(func(arn string) string { return redrive(arn, `"5"`) })},
	{name: "redrive count 1", try: deadLetters(func(arn string) string { return redrive(arn, 1) })},
	{name: "redrive count 1000", try: deadLetters(func(arn string) string { return redrive(arn, 1000) })},
	{name: "redrive count 0", try: deadLetters(func(arn string) string { return redrive(arn, 0) }), want: invalidValue},
	{name: "redrive count 1001", try: deadLetters(func(arn string) string { return redrive(arn, 1001) }), want: invalidValue},
	{name: "redrive count 1.5", elasticmq: accepts, try: deadLetters(func(arn string) string { return redrive(arn, 1.5) }), want: invalidValue},
	{name: "redrive without count", try: deadLetters(func(arn string) string { return fmt.Sprintf(`{"deadLetterTargetArn":%q}`, arn) }), want: invalidValue},
	{name: "redrive without target", try: deadLetters(func(string) string { return `{"maxReceiveCount":5}` }), want: invalidValue},
	{name: "redrive is no JSON", try: deadLetters(func(string) string { return `five` }), want: invalidValue},
	{name: "redrive to no queue", try: deadLetters(func(arn string) string { return redrive(arn+"-none", 5) }), want: invalidValue},
	{name: "redrive to another region", elasticmq: accepts, try: deadLetters(func(arn string) string {
		parts := strings.Split(arn, ":")
		parts[3] = "mars-north-1"
		return redrive(strings.Join(parts, ":"), 5)
	}), want: invalidValue},
	{name: "redrive from standard to fifo", elasticmq: accepts, try: func(s *site) error {
		dlq := s.fifo()
		return s.set(s.queue(), "RedrivePolicy", redrive(s.arn(dlq), 5))
	}, want: invalidValue},
	{name: "redrive from fifo to standard", elasticmq: accepts, try: func(s *site) error {
		dlq := s.queue()
		return s.set(s.fifo(), "RedrivePolicy", redrive(s.arn(dlq), 5))
	}, want: invalidValue},
	{name: "redrive to a target that denies all", elasticmq: accepts, try: func(s *site) error {
		dlq := s.queue("RedriveAllowPolicy", `{"redrivePermission":"denyAll"}`)
		return s.set(s.queue(), "RedrivePolicy", redrive(s.arn(dlq), 5))
	}, want: invalidValue},
	{name: "redrive to a target that allows this one", try: func(s *site) error {
		source := s.queue()
		dlq := s.queue("RedriveAllowPolicy", fmt.Sprintf(`{"redrivePermission":"byQueue","sourceQueueArns":[%q]}`, s.arn(source)))
		return s.set(source, "RedrivePolicy", redrive(s.arn(dlq), 5))
	}},
	{name: "redrive to a target that allows another", elasticmq: accepts, try: func(s *site) error {
		source, other := s.queue(), s.queue()
		dlq := s.queue("RedriveAllowPolicy", fmt.Sprintf(`{"redrivePermission":"byQueue","sourceQueueArns":[%q]}`, s.arn(other)))
		return s.set(source, "RedrivePolicy", redrive(s.arn(dlq), 5))
	}, want: invalidValue},
	{name: "allow all", elasticmq: refuses, try: allowing(`{"redrivePermission":"allowAll"}`)},
	{name: "allow by queue without a queue", try: allowing(`{"redrivePermission":"byQueue"}`), want: invalidValue},
	{name: "allow all and a queue", try: allowing(`{"redrivePermission":"allowAll","sourceQueueArns":["arn:aws:sqs:us-east-1:123456789012:q"]}`), want: invalidValue},
	{name: "allow by eleven queues", try: allowing(`{"redrivePermission":"byQueue","sourceQueueArns":["arn:aws:sqs:us-east-1:123456789012:q"` +
		strings.Repeat(`,"arn:aws:sqs:us-east-1:123456789012:q"`, 10) + `]}`), want: invalidValue},
	{name: "allow some", try: allowing(`{"redrivePermission":"some"}`), want: invalidValue},

	// Bodies.
	{name: "empty body", try: sending(body("")), want: missingValue},
	{name: "body of one character", try: sending(body("x"))},
	{name: "body with tab, line feed and carriage return", try: sending(body("\t\n\r"))},
	{name: "body with U+10000", try: sending(body("\U00010000"))},
	{name: "body with U+FFFD", try: sending(body("\uFFFD"))},
	{name: "body with NUL", try: sending(body("\x00")), want: badContents},
	{name: "body with U+0008", try: sending(body("\b")), want: badContents},
	{name: "body with U+001F", try: sending(body("\x1f")), want: badContents},
	{name: "body with U+FFFE", try: sending(body("\uFFFE")), want: badContents},
	{name: "body with U+FFFF", try: sending(body("\uFFFF")), want: badContents},
	{name: "body of 1 MiB", try: sending(body(strings.Repeat("x", 1<<20)))},
	{name: "body above 1 MiB", try: sending(body(strings.Repeat("x", 1<<20+1))), want: invalidValue},
	{name: "bytes count, not characters", elasticmq: accepts, try: sending(body(strings.Repeat("ä", 600)), "MaximumMessageSize", "1024"), want: invalidValue},
	{name: "body of the queue's size", try: sending(body(strings.Repeat("x", 1024)), "MaximumMessageSize", "1024")},
	{name: "body above the queue's size", elasticmq: accepts, try: sending(body(strings.Repeat("x", 1025)), "MaximumMessageSize", "1024"), want: invalidValue},
	{name: "body and attributes of the queue's size", try: sending(sqs.SendMessageInput{
		MessageBody: ptr(strings.Repeat("x", 1024-len("nameString")-5)), MessageAttributes: text("name", "value"),
	}, "MaximumMessageSize", "1024")},
	{name: "body and attributes above the queue's size", elasticmq: accepts, try: sending(sqs.SendMessageInput{
		MessageBody: ptr(strings.Repeat("x", 1025-len("nameString")-5)), MessageAttributes: text("name", "value"),
	}, "MaximumMessageSize", "1024"), want: invalidValue},
	{name: "a trace header does not count", try: sending(sqs.SendMessageInput{
		MessageBody: ptr(strings.Repeat("x", 1024)),
		MessageSystemAttributes: map[string]types.MessageSystemAttributeValue{
			"AWSTraceHeader": {DataType: aws.String("String"), StringValue: aws.String("Root=1-5759e988-bd862e3fe1be46a994272793")},
		},
	}, "MaximumMessageSize", "1024")},

	// Attributes of messages.
	{name: "10 attributes", try: sending(attributes(many(10)))},
	{name: "11 attributes", try: sending(attributes(many(11))), want: invalidValue},
	{name: "attribute with an empty value", try: sending(attributes(text("a", ""))), want: invalidValue}, // S29
	{name: "attribute with an empty binary value", elasticmq: accepts, try: sending(attributes(binary("Binary", []byte{}))), want: invalidValue},
	{name: "attribute with a blank", try: sending(attributes(text("a", " ")))},
	{name: "attribute with NUL", try: sending(attributes(text("a", "\x00"))), want: badContents},
	{name: "attribute with U+FFFF", try: sending(attributes(text("a", "\uFFFF"))), want: badContents},
	{name: "attribute name with all that is allowed", try: sending(attributes(text("A_z-0.9", "v")))},
	{name: "attribute name of 256", try: sending(attributes(text(strings.Repeat("n", 256), "v")))},
	{name: "attribute name of 257", elasticmq: accepts, try: sending(attributes(text(strings.Repeat("n", 257), "v"))), want: invalidValue},
	{name: "attribute name with a blank", elasticmq: accepts, try: sending(attributes(text("a b", "v"))), want: invalidValue},
	{name: "attribute name with a colon", elasticmq: accepts, try: sending(attributes(text("a:b", "v"))), want: invalidValue},
	{name: "attribute name with umlaut", elasticmq: accepts, try: sending(attributes(text("ä", "v"))), want: invalidValue},
	{name: "attribute name AWS.x", elasticmq: accepts, try: sending(attributes(text("AWS.x", "v"))), want: invalidValue},
	{name: "attribute name aMaZoN.x", elasticmq: accepts, try: sending(attributes(text("aMaZoN.x", "v"))), want: invalidValue},
	{name: "attribute name AWSx", try: sending(attributes(text("AWSx", "v")))},
	{name: "attribute name begins with a dot", elasticmq: accepts, try: sending(attributes(text(".a", "v"))), want: invalidValue},
	{name: "attribute name ends with a dot", elasticmq: accepts, try: sending(attributes(text("a.", "v"))), want: invalidValue},
	{name: "attribute name with two dots", elasticmq: accepts, try: sending(attributes(text("a..b", "v"))), want: invalidValue},
	{name: "attribute of type Number", try: sending(attributes(typed("Number", "-1.5e3")))},
	{name: "attribute of type Number that is none", try: sending(attributes(typed("Number", "x"))), want: invalidValue},
	{name: "attribute of type Number too large", try: sending(attributes(typed("Number", "1e200"))), want: invalidValue},
	{name: "attribute of type String.x", try: sending(attributes(typed("String.x", "v")))},
	{name: "attribute of type Binary.x", try: sending(attributes(binary("Binary.x", []byte{0})))},
	{name: "attribute of type Text", try: sending(attributes(typed("Text", "v"))), want: invalidValue},
	{name: "attribute without type", try: sending(attributes(typed("", "v"))), want: invalidValue},
	{name: "attribute of type Binary with text", try: sending(attributes(typed("Binary", "v"))), want: invalidValue},
	{name: "attributes of all types come back", try: everyType},

	// Delays.
	{name: "delay 900", try: sending(sqs.SendMessageInput{DelaySeconds: 900})},
	{name: "delay 901", try: sending(sqs.SendMessageInput{DelaySeconds: 901}), want: invalidValue},
	{name: "delay -1", try: sending(sqs.SendMessageInput{DelaySeconds: -1}), want: invalidValue},
	{name: "a delay hides", try: func(s *site) error {
		q := s.queue()
		if err := s.send(q, sqs.SendMessageInput{DelaySeconds: 2}); err != nil {
			return err
		}
		if s.receive(q, 0) != nil {
			return errors.New("received before its time")
		}
		return expect("received later", s.receive(q, 5) != nil, true)
	}},
	{name: "the delay of a queue hides, and zero cannot be sent", try: func(s *site) error { // S7
		q := s.queue("DelaySeconds", "2")
		if err := s.send(q, sqs.SendMessageInput{DelaySeconds: 0}); err != nil {
			return err
		}
		return expect("received at once", s.receive(q, 0) == nil, true)
	}},
	{name: "delays in a batch", try: func(s *site) error {
		q := s.queue()
		out, err := s.SendMessageBatch(s.ctx, &sqs.SendMessageBatchInput{QueueUrl: &q, Entries: []types.SendMessageBatchRequestEntry{
			{Id: aws.String("late"), MessageBody: aws.String("late"), DelaySeconds: 2},
			{Id: aws.String("never"), MessageBody: aws.String("never"), DelaySeconds: 901},
		}})
		if err != nil {
			return err
		}
		return errors.Join(
			expect("failed", len(out.Failed), 1),
			expect("successful", len(out.Successful), 1),
			expect("received at once", s.receive(q, 0) == nil, true),
		)
	}},

	// FIFO.
	{name: "fifo", try: sendingFIFO(group("g"))},
	{name: "fifo without group", try: sendingFIFO(sqs.SendMessageInput{MessageDeduplicationId: aws.String("d")}), want: missingValue},
	{name: "fifo without deduplication", try: sendingFIFO(sqs.SendMessageInput{MessageGroupId: aws.String("g")}), want: invalidValue},
	{name: "fifo with deduplication by content", try: sendingFIFO(sqs.SendMessageInput{MessageGroupId: aws.String("g")}, "ContentBasedDeduplication", "true")},
	{name: "fifo with a delay by message", try: sendingFIFO(sqs.SendMessageInput{
		MessageGroupId: aws.String("g"), MessageDeduplicationId: aws.String("d"), DelaySeconds: 1,
	}), want: invalidValue}, // S16
	{name: "fifo with a delay by queue", try: sendingFIFO(group("g"), "DelaySeconds", "1")},
	{name: "group of 128", try: sendingFIFO(sqs.SendMessageInput{MessageGroupId: ptr(strings.Repeat("g", 128)), MessageDeduplicationId: aws.String("d")})},
	{name: "group of 129", try: sendingFIFO(sqs.SendMessageInput{MessageGroupId: ptr(strings.Repeat("g", 129)), MessageDeduplicationId: aws.String("d")}), want: invalidValue},
	{name: "group with a blank", try: sendingFIFO(sqs.SendMessageInput{MessageGroupId: aws.String("g h"), MessageDeduplicationId: aws.String("d")}), want: invalidValue},
	{name: "deduplication id of 129", try: sendingFIFO(sqs.SendMessageInput{MessageGroupId: aws.String("g"), MessageDeduplicationId: ptr(strings.Repeat("d", 129))}), want: invalidValue},
	{name: "group on standard", try: sending(sqs.SendMessageInput{MessageGroupId: aws.String("tenant")})},
	{name: "deduplication id on standard", try: sending(sqs.SendMessageInput{MessageDeduplicationId: aws.String("d")}), want: invalidValue},
	{name: "fifo forgets a repeated id, also after delete", try: func(s *site) error {
		q := s.fifo()
		if err := s.delete(q, s.one(q, group("g")).ReceiptHandle); err != nil {
			return err
		}
		if err := s.send(q, group("g")); err != nil {
			return err
		}
		return expect("received", s.receive(q, 1) == nil, true)
	}},
	{name: "fifo forgets a repeated body, whatever its attributes", try: func(s *site) error {
		q := s.fifo("ContentBasedDeduplication", "true")
		for _, v := range []string{"1", "2"} {
			if err := s.send(q, sqs.SendMessageInput{MessageGroupId: aws.String("g"), MessageAttributes: text("a", v)}); err != nil {
				return err
			}
		}
		return expect("messages", len(s.receiveAll(sqs.ReceiveMessageInput{QueueUrl: &q, MaxNumberOfMessages: 10, WaitTimeSeconds: 1})), 1)
	}},
	{name: "a group is locked while one of it is in flight", try: func(s *site) error {
		q := s.fifo()
		for _, id := range []string{"1", "2"} {
			if err := s.send(q, sqs.SendMessageInput{MessageBody: &id, MessageGroupId: aws.String("g"), MessageDeduplicationId: &id}); err != nil {
				return err
			}
		}
		if err := s.send(q, sqs.SendMessageInput{MessageBody: aws.String("other"), MessageGroupId: aws.String("h"), MessageDeduplicationId: aws.String("3")}); err != nil {
			return err
		}
		first, second, third := s.must(q), s.must(q), s.receive(q, 1)
		if err := s.delete(q, first.ReceiptHandle); err != nil {
			return err
		}
		return errors.Join(
			expect("first", *first.Body, "1"),
			expect("second", *second.Body, "other"),
			expect("third", third == nil, true),
			expect("after delete", *s.must(q).Body, "2"),
		)
	}},

	// Receiving.
	{name: "receive 10", try: receiving(sqs.ReceiveMessageInput{MaxNumberOfMessages: 10})},
	{name: "receive 11", try: receiving(sqs.ReceiveMessageInput{MaxNumberOfMessages: 11}), want: invalidValue},
	{name: "receive -1", try: receiving(sqs.ReceiveMessageInput{MaxNumberOfMessages: -1}), want: invalidValue},
	{name: "wait 21", try: receiving(sqs.ReceiveMessageInput{WaitTimeSeconds: 21}), want: invalidValue},
	{name: "receive with visibility 43200", try: receiving(sqs.ReceiveMessageInput{VisibilityTimeout: 43200})},
	{name: "receive with visibility 43201", elasticmq: accepts, try: receiving(sqs.ReceiveMessageInput{VisibilityTimeout: 43201}), want: invalidValue},
	{name: "receive count grows", try: func(s *site) error {
		q := s.queue()
		m := s.one(q, body("x"))
		if err := s.hide(q, m.ReceiptHandle, 0); err != nil { // S8
			return err
		}
		return errors.Join(
			expect("first", m.Attributes["ApproximateReceiveCount"], "1"),
			expect("second", s.must(q).Attributes["ApproximateReceiveCount"], "2"),
		)
	}},

	// Visibility and handles.
	{name: "hide for 43201", elasticmq: accepts, try: func(s *site) error {
		q := s.queue()
		return s.hide(q, s.one(q, body("x")).ReceiptHandle, 43201)
	}, want: invalidValue},
	{name: "hide for -1", elasticmq: accepts, try: func(s *site) error {
		q := s.queue()
		return s.hide(q, s.one(q, body("x")).ReceiptHandle, -1)
	}, want: invalidValue},
	{name: "hide for more than what is left of 12 hours", elasticmq: accepts, try: func(s *site) error {
		q := s.queue()
		m := s.one(q, body("x"))
		s.receive(s.queue(), 2) // an empty queue: two seconds
		return s.hide(q, m.ReceiptHandle, 43200)
	}, want: invalidValue},
	{name: "hide by a handle that is none", try: func(s *site) error { return s.hide(s.queue(), aws.String("x"), 1) }, want: badHandle},
	{name: "hide what was deleted", try: func(s *site) error {
		q := s.queue()
		m := s.one(q, body("x"))
		if err := s.delete(q, m.ReceiptHandle); err != nil {
			return err
		}
		return s.hide(q, m.ReceiptHandle, 1)
	}, want: invalidValue},
	{name: "hide what is visible again", elasticmq: accepts, try: func(s *site) error {
		q := s.queue()
		m := s.one(q, body("x"))
		if err := s.hide(q, m.ReceiptHandle, 0); err != nil {
			return err
		}
		return s.hide(q, m.ReceiptHandle, 1)
	}, want: notInflight},
	{name: "hide what somebody else has", try: func(s *site) error {
		q := s.queue()
		m := s.one(q, body("x"))
		if err := s.hide(q, m.ReceiptHandle, 0); err != nil {
			return err
		}
		s.must(q)
		return s.hide(q, m.ReceiptHandle, 1)
	}, want: invalidValue},
	{name: "hiding in a batch", try: func(s *site) error {
		q := s.queue()
		m := s.one(q, body("x"))
		out, err := s.ChangeMessageVisibilityBatch(s.ctx, &sqs.ChangeMessageVisibilityBatchInput{QueueUrl: &q, Entries: []types.ChangeMessageVisibilityBatchRequestEntry{
			{Id: aws.String("good"), ReceiptHandle: m.ReceiptHandle, VisibilityTimeout: 0}, // S8
			{Id: aws.String("bad"), ReceiptHandle: aws.String("x"), VisibilityTimeout: 5},
		}})
		if err != nil {
			return err
		}
		return errors.Join(
			expect("successful", len(out.Successful), 1),
			expect("failed", len(out.Failed), 1),
			expect("received again", s.receive(q, 1) != nil, true),
		)
	}},
	{name: "delete by a handle that is none", try: func(s *site) error { return s.delete(s.queue(), aws.String("x")) }, want: badHandle},
	{name: "delete twice", elasticmq: refuses, try: func(s *site) error {
		q := s.queue()
		m := s.one(q, body("x"))
		if err := s.delete(q, m.ReceiptHandle); err != nil {
			return err
		}
		return s.delete(q, m.ReceiptHandle)
	}},
	{name: "delete what is visible again", try: func(s *site) error {
		q := s.queue()
		m := s.one(q, body("x"))
		if err := s.hide(q, m.ReceiptHandle, 0); err != nil {
			return err
		}
		if err := s.delete(q, m.ReceiptHandle); err != nil {
			return err
		}
		return expect("gone", s.receive(q, 1) == nil, true)
	}},
	{name: "delete from a fifo by a handle that is over", elasticmq: accepts, try: func(s *site) error {
		q := s.fifo()
		m := s.one(q, group("g"))
		if err := s.hide(q, m.ReceiptHandle, 0); err != nil {
			return err
		}
		return s.delete(q, m.ReceiptHandle)
	}, want: invalidValue},
	{name: "deleting in a batch", try: func(s *site) error {
		q := s.queue()
		m := s.one(q, body("x"))
		out, err := s.DeleteMessageBatch(s.ctx, &sqs.DeleteMessageBatchInput{QueueUrl: &q, Entries: []types.DeleteMessageBatchRequestEntry{
			{Id: aws.String("good"), ReceiptHandle: m.ReceiptHandle},
			{Id: aws.String("bad"), ReceiptHandle: aws.String("x")},
		}})
		if err != nil {
			return err
		}
		return errors.Join(expect("successful", len(out.Successful), 1), expect("failed", len(out.Failed), 1))
	}},

	// Batches.
	{name: "batch of 10", try: batching(10, "id")},
	{name: "batch of 11", try: batching(11, "id"), want: "AWS.SimpleQueueService.TooManyEntriesInBatchRequest"},
	{name: "empty batch", elasticmq: accepts, try: batching(0, "id"), want: "AWS.SimpleQueueService.EmptyBatchRequest"},
	{name: "batch with an id that is none", elasticmq: accepts, try: batching(1, "i d"), want: "AWS.SimpleQueueService.InvalidBatchEntryId"},
	{name: "batch with one id twice", try: func(s *site) error {
		e := types.SendMessageBatchRequestEntry{Id: aws.String("id"), MessageBody: aws.String("x")}
		_, err := s.SendMessageBatch(s.ctx, &sqs.SendMessageBatchInput{QueueUrl: ptr(s.queue()), Entries: []types.SendMessageBatchRequestEntry{e, e}})
		return err
	}, want: "AWS.SimpleQueueService.BatchEntryIdsNotDistinct"},
	{name: "batch above 1 MiB", try: func(s *site) error {
		half := ptr(strings.Repeat("x", 1<<19+1))
		_, err := s.SendMessageBatch(s.ctx, &sqs.SendMessageBatchInput{QueueUrl: ptr(s.queue()), Entries: []types.SendMessageBatchRequestEntry{
			{Id: aws.String("1"), MessageBody: half}, {Id: aws.String("2"), MessageBody: half},
		}})
		return err
	}, want: "AWS.SimpleQueueService.BatchRequestTooLong"},

	// Dead letters.
	{name: "the receive that would exceed moves", try: func(s *site) error {
		q, dlq := s.withDLQ(2)
		sent, err := s.sent(q, sqs.SendMessageInput{MessageBody: aws.String("x"), MessageAttributes: text("a", "v")})
		if err != nil {
			return err
		}
		for range 2 {
			if err := s.hide(q, s.must(q).ReceiptHandle, 0); err != nil {
				return err
			}
		}
		if s.receive(dlq, 0) != nil {
			return errors.New("moved without a receive")
		}
		if s.receive(q, 1) != nil {
			return errors.New("a third receive")
		}
		m := s.must(dlq)
		return errors.Join(
			expect("id", *m.MessageId, *sent.MessageId),
			expect("attribute", aws.ToString(m.MessageAttributes["a"].StringValue), "v"),
		)
	}},
	{name: "the receive count continues in the dead letter queue", try: func(s *site) error {
		_, m := dead(s)
		return expect("count", m.Attributes["ApproximateReceiveCount"], "2")
	}},
	{name: "the dead letter queue knows the source", try: func(s *site) error {
		source, m := dead(s)
		return expect("source", m.Attributes["DeadLetterQueueSourceArn"], s.arn(source))
	}},
	{name: "the delay of the dead letter queue does not apply", try: func(s *site) error { // S30
		dlq := s.queue("DelaySeconds", "3")
		q := s.queue("RedrivePolicy", redrive(s.arn(dlq), 1))
		if err := s.hide(q, s.one(q, body("x")).ReceiptHandle, 0); err != nil {
			return err
		}
		if s.receive(q, 0) != nil {
			return errors.New("a second receive")
		}
		return expect("received at once", s.receive(dlq, 0) != nil, true)
	}},

	// Move tasks.
	{name: "move back", elasticmq: differs, try: func(s *site) error { return moved(s, func(source string) *string { return nil }) }},
	{name: "move elsewhere", elasticmq: differs, try: func(s *site) error {
		return moved(s, func(source string) *string { return ptr(s.arn(s.queue())) })
	}},
	{name: "move from no queue", try: func(s *site) error {
		return s.move(s.arn(s.queue())+"-none", nil)
	}, want: noResource},
	{name: "move from what is no dead letter queue", elasticmq: accepts, try: func(s *site) error {
		return s.move(s.arn(s.queue()), ptr(s.arn(s.queue())))
	}, want: invalidValue},
	{name: "move to no queue", try: func(s *site) error {
		_, dlq := s.withDLQ(1)
		return s.move(s.arn(dlq), ptr(s.arn(dlq)+"-none"))
	}, want: noResource},
	{name: "move faster than 500 a second", elasticmq: accepts, try: func(s *site) error {
		_, dlq := s.withDLQ(1)
		_, err := s.StartMessageMoveTask(s.ctx, &sqs.StartMessageMoveTaskInput{SourceArn: ptr(s.arn(dlq)), MaxNumberOfMessagesPerSecond: aws.Int32(501)})
		return err
	}, want: invalidValue},
	{name: "move what was sent to the dead letter queue", elasticmq: differs, try: func(s *site) error { // S35
		_, dlq := s.withDLQ(1)
		if err := s.send(dlq, body("x")); err != nil {
			return err
		}
		if err := s.move(s.arn(dlq), nil); err != nil {
			return err
		}
		task, err := s.ended(s.arn(dlq))
		if err != nil {
			return err
		}
		return errors.Join(
			expect("status", aws.ToString(task.Status), "FAILED"),
			expect("reason", aws.ToString(task.FailureReason), "CouldNotDetermineMessageSource"),
		)
	}},
	{name: "cancel no task", try: func(s *site) error {
		_, err := s.CancelMessageMoveTask(s.ctx, &sqs.CancelMessageMoveTaskInput{TaskHandle: aws.String("x")})
		return err
	}, want: noResource},
}

func again(s *site, first, second string) error {
	name := s.name("q")
	if _, err := s.create(name, "VisibilityTimeout", first); err != nil {
		return fmt.Errorf("the first: %v", err)
	}
	_, err := s.CreateQueue(s.ctx, &sqs.CreateQueueInput{QueueName: &name, Attributes: map[string]string{"VisibilityTimeout": second}})
	return err
}

func everyType(s *site) error {
	q := s.queue()
	sent := map[string]types.MessageAttributeValue{
		"s":  {DataType: aws.String("String"), StringValue: aws.String("ä\t")},
		"n":  {DataType: aws.String("Number"), StringValue: aws.String("0042")},
		"b":  {DataType: aws.String("Binary"), BinaryValue: []byte{0, 0xff}},
		"sx": {DataType: aws.String("String.x"), StringValue: aws.String("v")},
	}
	out, err := s.sent(q, attributes(sent))
	if err != nil {
		return err
	}
	m := s.must(q)
	errs := []error{expect("digest", aws.ToString(m.MD5OfMessageAttributes), aws.ToString(out.MD5OfMessageAttributes))}
	for name, want := range sent {
		got := m.MessageAttributes[name]
		errs = append(errs,
			expect(name+" type", aws.ToString(got.DataType), *want.DataType),
			expect(name+" text", aws.ToString(got.StringValue), aws.ToString(want.StringValue)),
			expect(name+" bytes", string(got.BinaryValue), string(want.BinaryValue)))
	}
	return errors.Join(errs...)
}

func receiving(in sqs.ReceiveMessageInput) func(*site) error {
	return func(s *site) error {
		in := in
		in.QueueUrl = ptr(s.queue())
		_, err := s.ReceiveMessage(s.ctx, &in)
		return err
	}
}

func batching(n int, id string) func(*site) error {
	return func(s *site) error {
		entries := []types.SendMessageBatchRequestEntry{}
		for i := range n {
			entries = append(entries, types.SendMessageBatchRequestEntry{Id: ptr(fmt.Sprint(id, i)), MessageBody: aws.String("x")})
		}
		out, err := s.SendMessageBatch(s.ctx, &sqs.SendMessageBatchInput{QueueUrl: ptr(s.queue()), Entries: entries})
		if err != nil {
			return err
		}
		return expect("successful", len(out.Successful), n)
	}
}

// dead makes a dead letter and returns its source queue and itself.
func dead(s *site) (string, *types.Message) {
	s.t.Helper()
	q, dlq := s.withDLQ(1)
	if err := s.hide(q, s.one(q, body("x")).ReceiptHandle, 0); err != nil {
		s.t.Fatal(err)
	}
	if s.receive(q, 1) != nil {
		s.t.Fatal("a second receive")
	}
	return q, s.must(dlq)
}

func (s *site) move(source string, destination *string) error {
	_, err := s.StartMessageMoveTask(s.ctx, &sqs.StartMessageMoveTaskInput{SourceArn: &source, DestinationArn: destination})
	return err
}

// ended waits for the end of the newest task of a queue.
func (s *site) ended(source string) (types.ListMessageMoveTasksResultEntry, error) {
	idle := s.queue()
	for range 120 {
		out, err := s.ListMessageMoveTasks(s.ctx, &sqs.ListMessageMoveTasksInput{SourceArn: &source})
		if err != nil {
			return types.ListMessageMoveTasksResultEntry{}, err
		}
		if len(out.Results) > 0 && aws.ToString(out.Results[0].Status) != "RUNNING" {
			return out.Results[0], nil
		}
		s.receive(idle, 1) // a second
	}
	return types.ListMessageMoveTasksResultEntry{}, errors.New("the task does not end")
}

// moved lets a task move one dead letter, where to is asked for its destination.
func moved(s *site, to func(source string) *string) error {
	q, dlq := s.withDLQ(1)
	old := s.one(q, body("x"))
	if err := s.hide(q, old.ReceiptHandle, 0); err != nil {
		return err
	}
	if s.receive(q, 1) != nil {
		return errors.New("a second receive")
	}
	destination := to(q)
	if err := s.move(s.arn(dlq), destination); err != nil {
		return err
	}
	task, err := s.ended(s.arn(dlq))
	if err != nil {
		return err
	}
	if destination != nil {
		out, err := s.GetQueueUrl(s.ctx, &sqs.GetQueueUrlInput{QueueName: ptr((*destination)[strings.LastIndex(*destination, ":")+1:])})
		if err != nil {
			return err
		}
		q = *out.QueueUrl
	}
	m := s.must(q)
	return errors.Join(
		expect("status", aws.ToString(task.Status), "COMPLETED"),
		expect("moved", task.ApproximateNumberOfMessagesMoved, 1),
		expect("body", *m.Body, "x"),
		expect("a new id", *m.MessageId != *old.MessageId, true),
		expect("count", m.Attributes["ApproximateReceiveCount"], "1"),
	)
}
