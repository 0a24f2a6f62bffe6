// Command spillway looks after messages that their handlers could not process:
// it checks configurations and the streams of brokers, and prints what a
// policy means. Run it without arguments for its verbs.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/spillway-mq/spillway/internal/cli"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := cli.Run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}
