// Package configured runs the example on the broker that a configuration file
// names. The programs on real brokers are this, each with a file of its own.
package configured

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spillway-mq/spillway/config"
	"github.com/spillway-mq/spillway/examples/app"
)

// Main is a program on the broker of a configuration file. It does not return.
func Main(file []byte) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := Run(ctx, file, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// Run is [app.Run] on the broker of a configuration file, or of
// SPILLWAY_BROKER_URL, which stands above it and may be of another kind.
func Run(ctx context.Context, file []byte, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	cfg, err := config.Loader{}.Parse("spillway.yaml", file)
	if err != nil {
		fmt.Fprintln(stderr, err)
		return 2
	}
	opener, err := cfg.Opener()
	if err != nil {
		fmt.Fprintln(stderr, err)
		return 2
	}
	kind := cfg.BrokerName()
	broker := app.Broker{Name: spoken[kind], URL: string(cfg.BrokerURL), Opener: opener}
	if kind == "rabbitmq" {
		broker.Main = func(topic, group string) string { return topic + "_" + group }
	}
	return app.Run(ctx, broker, args, stdin, stdout, stderr)
}

// spoken are the names that people use.
var spoken = map[string]string{"memory": "the embedded broker", "rabbitmq": "RabbitMQ", "kafka": "Kafka", "sqs": "SQS"}
