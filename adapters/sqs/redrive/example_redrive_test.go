package redrive_test

import (
	"fmt"

	"github.com/spillway-mq/spillway/adapters/sqs/redrive"
)

// A program that has asked AWS for the attributes of its queues checks them
// without files.
func ExampleCheckPair() {
	source := redrive.Export{
		URL: "https://sqs.sa-east-1.amazonaws.com/123456789012/pedidos",
		Attributes: map[string]string{
			"VisibilityTimeout":      "90",
			"MessageRetentionPeriod": "345600",
			"RedrivePolicy":          `{"deadLetterTargetArn":"arn:aws:sqs:sa-east-1:123456789012:pedidos-dlq","maxReceiveCount":"5"}`,
		},
	}
	deadLetter := redrive.Export{
		URL:        "https://sqs.sa-east-1.amazonaws.com/123456789012/pedidos-dlq",
		Attributes: map[string]string{"MessageRetentionPeriod": "86400"},
	}
	report := redrive.CheckPair(source, deadLetter, redrive.Options{})
	for _, link := range report.Links {
		fmt.Println(link)
	}
	for _, f := range report.Findings {
		fmt.Println(f.Severity, f.Rule, f.Stream)
		fmt.Println("fix:", f.Fix)
	}
	// Output:
	// DLQ=pedidos-dlq maxReceiveCount=5 VisibilityTimeout=90s
	// error dlq-retention-short pedidos-dlq
	// fix: set MessageRetentionPeriod to 1209600 here, 14 days
}
