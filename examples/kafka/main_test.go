package main

import (
	"testing"

	"github.com/spillway-mq/spillway/internal/exampletest"
)

func TestExample(t *testing.T) {
	exampletest.Run(t, exampletest.Example{
		File:     file,
		Variable: "SPILLWAY_TEST_KAFKA",
		Broker:   "Kafka",
		Nowhere:  "kafka://guest:hunter2@127.0.0.1:1/",
	})
}
