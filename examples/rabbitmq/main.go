// Rabbitmq is the quickstart on RabbitMQ. README.md has the commands.
package main

import (
	_ "embed"

	"github.com/spillway-mq/spillway/examples/app/configured"
)

//go:embed spillway.yaml
var file []byte

func main() { configured.Main(file) }
