// Sqs is the quickstart on Amazon SQS, or on ElasticMQ. README.md has the
// commands.
package main

import (
	"context"
	_ "embed"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spillway-mq/spillway/adapters/sqs"
	"github.com/spillway-mq/spillway/config"
	"github.com/spillway-mq/spillway/examples/app"
)

//go:embed spillway.yaml
var file []byte

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	cfg, err := config.Loader{}.Parse("spillway.yaml", file)
	if err != nil {
		fmt.Fprintln(stderr, err)
		return 2
	}
	return app.Run(ctx, app.Broker{
		Name:   "SQS",
		URL:    string(cfg.BrokerURL),
		Opener: sqs.Opener(),
	}, args, stdin, stdout, stderr)
}
