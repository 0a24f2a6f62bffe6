package main

import (
	"testing"

	"github.com/spillway-mq/spillway/internal/exampletest"
)

func TestExample(t *testing.T) {
	exampletest.Run(t, exampletest.Example{
		File:     file,
		Variable: "SPILLWAY_TEST_SQS",
		Query:    "&maxDelay=2s&pollWait=2s",
		Broker:   "SQS",
		Nowhere:  "sqs://guest:hunter2@127.0.0.1:1?region=elasticmq",
	})
}
