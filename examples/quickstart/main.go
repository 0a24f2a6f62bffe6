// Quickstart shows what Spillway does with messages that a handler cannot
// process, on the embedded broker, in ten seconds:
//
//	go run ./examples/quickstart
//	go run ./examples/quickstart -n 100000 -seed 7
//	go run ./examples/quickstart -input webhooks.jsonl
//
// The orders and their handler are in examples/app/shop, and the few lines that
// a program needs to use Spillway are in examples/app/app.go: consume.
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spillway-mq/spillway/adapters/memory"
	"github.com/spillway-mq/spillway/examples/app"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	return app.Run(ctx, app.Broker{
		Name:   "the embedded broker",
		URL:    "memory://",
		Opener: memory.New(memory.Config{Partitions: 4}).Opener(),
		Fresh:  true,
	}, args, stdin, stdout, stderr)
}
