package config

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spillway-mq/spillway"
	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/adapters/kafka"
	"github.com/spillway-mq/spillway/adapters/memory"
	"github.com/spillway-mq/spillway/adapters/rabbitmq"
	"github.com/spillway-mq/spillway/adapters/sqs"
	"github.com/spillway-mq/spillway/triage"
)

// Broker is a kind of broker that a configuration can name by its URL.
type Broker struct {
	// Name is how the command calls it: "rabbitmq".
	Name string
	// Opener connects to it.
	Opener adapters.Opener

	// section is what the file can say about it, below broker.NAME; nil if the
	// URL says it all.
	section func(*Config) section
}

// section are the keys of a kind of broker.
type section struct {
	doc  string
	keys object
	// opener connects as the keys say.
	opener func() adapters.Opener
	// validate reports what cannot be meant, each error beginning with the name
	// of a Go field, which is the key in capitals.
	validate func() error
}

// Brokers are all kinds of brokers that this module has. This is the one place
// that names them: a new adapter is a new line.
func Brokers() []Broker {
	return []Broker{
		{Name: "memory", Opener: memory.Opener()},
		{Name: "rabbitmq", Opener: rabbitmq.Opener(), section: rabbitMQSection},
		{Name: "kafka", Opener: kafka.Opener(), section: kafkaSection},
		{Name: "sqs", Opener: sqs.Opener(), section: sqsSection},
	}
}

// Config is a configuration that was read and found good. It may be changed
// before Open.
type Config struct {
	// BrokerURL names the broker. Empty if neither file nor environment set it.
	BrokerURL SecretURL
	// RabbitMQ is what the file says about that broker. Its TLS, Dial, lanes and
	// time-outs have no keys: set them here.
	RabbitMQ rabbitmq.Config
	// Kafka is what the file says about that broker. Its Sarama, Tracer and
	// Marshaler have no keys: set them here.
	Kafka kafka.Config
	// SQS is what the file says about that broker. Its AWS and HTTPClient have no
	// keys: set them here.
	SQS sqs.Config
	// Spillway is what the file says about failures. Its Rules, Hooks and
	// Logger have no keys: set them here.
	Spillway spillway.Config
	// Consumers are those of all services that an operator looks after. An
	// application does not need the list: it subscribes.
	Consumers []Consumer
	// Inventory is where the command keeps dead letters. Applications need none.
	Inventory Inventory
	// Triage is how the command draws verdicts. Applications need none.
	Triage Triage

	file    string // what was read, for errors; may be empty
	brokers []Broker
}

// Consumer is a consumer group on a topic, and whoever answers for its dead
// letters.
type Consumer struct {
	Topic string
	Group string // the top-level group where the file names none
	Owner string
}

// Inventory is where dead letters are kept, and for how long.
type Inventory struct {
	// URL is the path of a SQLite file, or the URL of a PostgreSQL. Empty means
	// DefaultInventory.
	URL SecretURL
	// Payloads says whether payloads are kept for a time only, which is the
	// default, or for ever.
	Payloads Payloads
	// KeepOpen and KeepClosed are for how long, counted from the failure or from
	// the decision. Zero means 2160h and 360h.
	KeepOpen, KeepClosed time.Duration
	// Author of decisions, where the command line names none. Empty means the
	// user of the operating system.
	Author string
}

// Triage is what verdicts on groups of dead letters depend on.
type Triage struct {
	triage.Thresholds
	// MaxSignatures and MaxGroups are how many are told apart in a file; zero
	// means the defaults of triage.Limits.
	MaxSignatures, MaxGroups int
}

// DefaultInventory is a file in the working directory.
const DefaultInventory = "spillway.db"

// Payloads is for how long payloads are kept.
type Payloads string

// The choices of [Payloads].
const (
	PayloadsKeepFor Payloads = ""
	PayloadsKeep    Payloads = "keep"
)

// SecretURL is a URL that may hold a password. It prints without it; convert
// it to a string to get the URL itself.
type SecretURL string

// String returns the URL without its password and without its options, which
// may be secrets too.
func (s SecretURL) String() string {
	if s == "" {
		return ""
	}
	u, err := url.Parse(string(s))
	if err != nil || u.Opaque != "" {
		return "(not a URL)"
	}
	u.RawQuery, u.Fragment = "", ""
	if u.Host == "" && u.User == nil && u.Path == "" {
		return u.Scheme + "://" // net/url leaves the slashes out
	}
	return redactor.URL(u)
}

// GoString is String, for %#v.
func (s SecretURL) GoString() string { return fmt.Sprintf("%q", s.String()) }

// MarshalText is String, for JSON and its like.
func (s SecretURL) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// LogValue is String, for slog.
func (s SecretURL) LogValue() slog.Value { return slog.StringValue(s.String()) }

// Load reads the file at path, and the environment of the process over it. An
// empty path means the environment only. What is wrong with the configuration
// is reported as [Problems], the first hundred; a file that cannot be read as the error of
// package os.
func Load(path string) (*Config, error) { return Loader{}.Load(path) }

// Open is Load followed by [Config.Open].
func Open(ctx context.Context, path string) (*spillway.Spillway, error) {
	cfg, err := Load(path)
	if err != nil {
		return nil, err
	}
	return cfg.Open(ctx)
}

// Loader reads configurations from elsewhere, or for other brokers. The zero
// Loader reads the process's environment and knows all brokers of this module.
type Loader struct {
	// Environ is the environment, in the form of os.Environ, which nil means.
	Environ []string
	// Brokers are the brokers that can be named; nil means [Brokers].
	Brokers []Broker
}

// MaxFileBytes is the size of the largest file that is read. Configurations
// are smaller; what is larger was named by mistake.
const MaxFileBytes = 1 << 20

// Load is like the function [Load].
func (l Loader) Load(path string) (*Config, error) {
	if path == "" {
		return l.Parse("", nil)
	}
	data, err := readFile(path)
	if err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	if len(strings.TrimSpace(string(data))) == 0 {
		return nil, Problems{{File: path, Text: "the file is empty: `spillway config example` prints one to start from"}}
	}
	return l.Parse(path, data)
}

// readFile reads pipes too, and no more of them than of files.
func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.IsDir() {
		return nil, fmt.Errorf("%s is a directory: name a file in it", path)
	}
	data, err := io.ReadAll(io.LimitReader(f, MaxFileBytes+1))
	if err != nil {
		return nil, err
	}
	if len(data) > MaxFileBytes {
		return nil, fmt.Errorf("%s has more than %d bytes: this is no configuration", path, MaxFileBytes)
	}
	return data, nil
}

// Parse reads a configuration from data, which came from a file called name,
// or from nowhere if name is empty.
func (l Loader) Parse(name string, data []byte) (*Config, error) {
	if l.Environ == nil {
		l.Environ = os.Environ()
	}
	if l.Brokers == nil {
		l.Brokers = Brokers()
	}
	c := &Config{file: name, brokers: l.Brokers}
	r := &reader{file: name, where: map[string]source{}}
	schema := c.schema()
	r.readFile(schema, data)
	r.readEnviron(schema, l.Environ)
	if len(r.problems) < maxProblems {
		c.inherit()
		c.check(r)
	}
	if len(r.problems) > 0 {
		return nil, r.problems.sorted()
	}
	return c, nil
}

// inherit gives the consumers without a group that of the configuration.
func (c *Config) inherit() {
	for i := range c.Consumers {
		c.Consumers[i].Group = cmp.Or(c.Consumers[i].Group, c.Spillway.Group)
	}
}

// Open connects to the broker and returns Spillway on it, as spillway.Open
// does.
func (c *Config) Open(ctx context.Context) (*spillway.Spillway, error) {
	if err := c.needBroker(); err != nil {
		return nil, err
	}
	var openers []adapters.Opener
	for _, b := range c.brokers {
		openers = append(openers, c.opener(b))
	}
	return spillway.Open(ctx, string(c.BrokerURL), c.Spillway, openers...)
}

// Opener is that of the broker that BrokerURL names, told what the file says
// about it: for spillway.Open with a Config of the caller's own.
func (c *Config) Opener() (adapters.Opener, error) {
	if err := c.needBroker(); err != nil {
		return adapters.Opener{}, err
	}
	b, _, err := c.find()
	if err != nil {
		return adapters.Opener{}, fmt.Errorf("config: broker.url %w", err)
	}
	return c.opener(b), nil
}

// OpenBroker connects to the broker alone, for those who look after its
// streams instead of handling messages. The caller closes it.
func (c *Config) OpenBroker(ctx context.Context) (adapters.Broker, error) {
	if err := c.needBroker(); err != nil {
		return nil, err
	}
	b, u, err := c.find()
	if err != nil {
		return nil, fmt.Errorf("config: broker.url %w", err)
	}
	logger := c.Spillway.Logger
	if logger == nil {
		logger = slog.Default()
	}
	broker, err := c.opener(b).Open(ctx, adapters.OpenParams{URL: u, Names: c.Spillway.Names.WithDefaults(), Logger: logger})
	if err != nil {
		return nil, fmt.Errorf("config: open %s: %w", c.BrokerURL, err)
	}
	return broker, nil
}

// opener is the opener of a broker, told what the file says about it.
func (c *Config) opener(b Broker) adapters.Opener {
	if b.section == nil {
		return b.Opener
	}
	return b.section(c).opener()
}

// BrokerName is the name of the broker that BrokerURL is for; empty if it is
// for none.
func (c *Config) BrokerName() string {
	b, _, err := c.find()
	if err != nil {
		return ""
	}
	return b.Name
}

func (c *Config) needBroker() error {
	if c.BrokerURL == "" {
		return fmt.Errorf("config: no broker is named: set SPILLWAY_BROKER_URL, or broker.url in %s", cmp.Or(c.file, "a file"))
	}
	return nil
}

// find returns the broker of the URL. Its errors show no part of the URL: what
// is not where it belongs may be the password.
func (c *Config) find() (Broker, *url.URL, error) {
	u, err := url.Parse(string(c.BrokerURL))
	if err != nil {
		return Broker{}, nil, errors.New("cannot be parsed: a password in it may need percent-encoding, such as %40 for @, %2F for / and %23 for #")
	}
	var schemes []string
	for _, b := range c.brokers {
		if slices.Contains(b.Opener.Schemes, u.Scheme) {
			return b, u, nil
		}
		schemes = append(schemes, b.Opener.Schemes...)
	}
	return Broker{}, u, fmt.Errorf("must begin with one of %s://", strings.Join(schemes, "://, "))
}
