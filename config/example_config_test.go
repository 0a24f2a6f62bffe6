package config_test

import (
	"fmt"
	"log/slog"

	"github.com/spillway-mq/spillway/config"
	"github.com/spillway-mq/spillway/failure"
	"github.com/spillway-mq/spillway/middleware"
)

// An application reads its file, adds what only Go can say, and opens.
func Example() {
	cfg, err := config.Load("testdata/billing.yaml")
	if err != nil {
		fmt.Println(err)
		return
	}
	cfg.Spillway.Hooks = middleware.Hooks{} // such as those of package signals
	cfg.Spillway.Logger = slog.New(slog.DiscardHandler)

	fmt.Println(cfg.BrokerURL, cfg.Spillway.Group)
	fmt.Println("gives up after about", cfg.Spillway.Policy.GivesUpAfter(failure.NatureTransient))
	for _, c := range cfg.Consumers {
		fmt.Println(c.Topic, c.Group, c.Owner)
	}
	// Output:
	// memory:// billing
	// gives up after about 1h3m30s
	// orders billing team-billing
}

// Whatever is wrong is reported at once, each where it stands.
func ExampleLoader_Parse() {
	file := []byte(`group: billing
closeGrace: 20
policy:
  attempts: {transiet: 20}
  backoff: {base: 10m}
`)
	_, err := config.Loader{Environ: []string{"SPILLWAY_CONCURRENCY=many"}}.Parse("spillway.yaml", file)
	fmt.Println(err)
	// Output:
	// spillway.yaml:2: closeGrace: expected a duration such as 90s, 5m or 1h30m, found the number 20: a unit is missing: write 20s, 20m or 20h
	// spillway.yaml:4: policy.attempts.transiet: there is no such key; did you mean transient?
	// spillway.yaml:5: policy.backoff.base: must be at most max, which is 5m (not set here), is 10m
	// SPILLWAY_CONCURRENCY: concurrency: expected a whole number such as 3, found "many"
}
