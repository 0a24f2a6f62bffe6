package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/user"
	"strings"
	"time"

	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/config"
	"github.com/spillway-mq/spillway/inventory"
	"github.com/spillway-mq/spillway/poison"
)

// openInventory opens that of the configuration. Only a verb that fills it
// makes one: an empty one, made by a slip, would say that all is well.
func openInventory(ctx context.Context, cfg *config.Config, create bool) (*inventory.Store, error) {
	url := cmp.Or(string(cfg.Inventory.URL), config.DefaultInventory)
	if !create && !inventory.Exists(url) {
		return nil, fmt.Errorf("there is no inventory %s: spillway collect makes it; SPILLWAY_INVENTORY_URL, or inventory.url in a file, names another", config.SecretURL(url))
	}
	return inventory.Open(ctx, url)
}

// withInventory runs do on the inventory that the configuration names.
func (c *call) withInventory(ctx context.Context, create bool, do func(cfg *config.Config, s *inventory.Store) error) (err error) {
	cfg, err := c.load()
	if err != nil {
		return err
	}
	s, err := openInventory(ctx, cfg, create)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	err = do(cfg, s)
	if errors.Is(err, inventory.ErrNotFound) {
		return codedError{exitNothing, err}
	}
	return err
}

// withBroker runs do on the broker that the configuration names.
func withBroker(ctx context.Context, cfg *config.Config, do func(adapters.Broker) error) (err error) {
	broker, err := cfg.OpenBroker(ctx)
	if err != nil {
		return err
	}
	defer func() {
		if closeErr := broker.Close(context.WithoutCancel(ctx)); closeErr != nil && err == nil {
			err = fmt.Errorf("close the broker: %w", closeErr)
		}
	}()
	return do(broker)
}

// author is who does something: as the flag says, else the configuration, else
// the user of the system.
func author(flag string, cfg *config.Config) (string, error) {
	if name := cmp.Or(flag, cfg.Inventory.Author); name != "" {
		return name, nil
	}
	u, err := user.Current()
	if err != nil {
		return "", fmt.Errorf("who is deciding? Name it with --author, or inventory.author: %w", err)
	}
	return u.Username, nil
}

// redactor takes out what the configuration says.
func redactor(cfg *config.Config) (*poison.Redactor, error) {
	return poison.NewRedactor(cfg.Spillway.Redaction)
}

// deadLetterStreams are those of the configured consumers, each once.
func deadLetterStreams(cfg *config.Config) (streams []string) {
	for _, c := range cfg.Consumers {
		streams = append(streams, streamOf(cfg, adapters.StreamDeadLetter, c))
	}
	return streams
}

func streamOf(cfg *config.Config, s adapters.Stream, c config.Consumer) string {
	return cfg.Spillway.Names.Of(s, adapters.Consumer{Topic: c.Topic, Group: c.Group})
}

// listFlag is a flag that may be given more than once.
type listFlag []string

func (l *listFlag) String() string { return strings.Join(*l, ",") }

func (l *listFlag) Set(s string) error {
	if s == "" {
		return errors.New("it is empty")
	}
	*l = append(*l, s)
	return nil
}

// number writes n with commas.
func number(n int64) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// moment is a time for people: to the minute, in UTC.
func moment(t time.Time) string {
	if t.IsZero() {
		return "unknown"
	}
	return t.UTC().Format("2006-01-02 15:04")
}
