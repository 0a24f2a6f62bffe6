package sqs

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
)

// Config is what [OpenerWith] can be told. The zero Config works and is what
// [Opener] uses. Durations are kept in whole seconds, rounded up.
type Config struct {
	// AWS is the configuration of the SDK. Nil means that of the environment:
	// region, credentials and retries as every AWS program finds them. Region and
	// Endpoint win over it, and the URL's over these.
	AWS *aws.Config
	// Region is that of the queues. Empty means that of AWS, or of the environment.
	Region string
	// Endpoint is another address of AWS, such as that of an interface endpoint of
	// a VPC: https://vpce-1.sqs.eu-west-1.vpce.amazonaws.com. Credentials are
	// found as usual. Empty means the region's.
	Endpoint string
	// Account is the owner of the queues, 12 digits, if it is another than that of
	// the credentials. SQS creates and changes no queues there, so that it implies
	// VerifyOnly.
	Account string
	// HTTPClient carries the requests; nil means the SDK's. [http.Client] is one.
	HTTPClient interface {
		Do(*http.Request) (*http.Response, error)
	}

	// Prefix begins the names of all queues, for an account that several
	// environments share: "prod-". Those that Queues names, or that are given as
	// a URL, have none.
	Prefix string
	// Queues names the queue of a topic or a stream where it is not the one that
	// the name makes: {"orders.billing.dlq": "orders-dlq"}.
	Queues map[string]string
	// VerifyOnly creates and changes no queue: Ensure checks that each exists
	// and names the first that does not.
	VerifyOnly bool
	// MaxReceiveCount is how often SQS hands out a message of a main, retry or
	// suspect queue before it moves it to the dead letter queue by itself: the
	// net below the chain, which acts after 3. From 5 to 1000, default 10.
	MaxReceiveCount int
	// MaxMessageBytes is the MaximumMessageSize of the main queues that are
	// created, and the most that Publisher publishes. Default 960 KiB: Spillway's
	// own queues take 1 MiB, which is SQS's limit, so that there is room for
	// what a failure adds.
	MaxMessageBytes int
	// RelaxedFIFO lets messages of FIFO queues wait for their retry in a standard
	// queue. Those behind them overtake; without it, a FIFO topic is refused.
	RelaxedFIFO bool

	// Visibility is how long a message that was handed out stays hidden unless
	// its lease is renewed, which happens three times in that time; it is how
	// long the messages of a process that died stay away. From 2 seconds to
	// 12 hours, default 30 seconds.
	Visibility time.Duration
	// MaxLease bounds how long one receive may be held, from 0 to SQS's limit of
	// 12 hours. Default 11 hours and 59 minutes. Then the lease is lost.
	MaxLease time.Duration
	// PollWait is the length of a long poll. From 1 to 20 seconds, default 20.
	PollWait time.Duration
	// BatchSize is the most messages of one receive. What waits for a free slot
	// keeps its lease, and its delivery is counted. From 1 to 10, default 1.
	BatchSize int
	// MaxDelay is the longest delay of one hop. From 1 second to 15 minutes,
	// which is the default and SQS's limit.
	MaxDelay time.Duration

	// RequestTimeout bounds each request, beside its context; a long poll has
	// PollWait in addition. Default 10 seconds.
	RequestTimeout time.Duration
	// CloseWait is how long Close waits for long polls that are in flight. What
	// they bring later is released as long as the process lives, and else comes
	// again after Visibility. Zero means not at all.
	CloseWait time.Duration
}

const (
	maxMessageBytes = 1 << 20
	headRoom        = 64 << 10 // for what Spillway adds to a message

	maxVisibility = 12 * time.Hour
	leaseMargin   = time.Minute // between our bound of a lease and SQS's
	// maxInPlace leaves a handler an hour of the 12, which count from the receive.
	maxInPlace = maxVisibility - time.Hour
)

// WithDefaults fills the empty fields, but for those that mean AWS's own.
func (c Config) WithDefaults() Config {
	c.VerifyOnly = c.VerifyOnly || c.Account != ""
	c.MaxReceiveCount = cmp.Or(c.MaxReceiveCount, 10)
	c.MaxMessageBytes = cmp.Or(c.MaxMessageBytes, maxMessageBytes-headRoom)
	c.Visibility = wholeSeconds(cmp.Or(c.Visibility, 30*time.Second))
	c.MaxLease = cmp.Or(c.MaxLease, maxVisibility-leaseMargin)
	c.PollWait = wholeSeconds(cmp.Or(c.PollWait, 20*time.Second))
	c.BatchSize = cmp.Or(c.BatchSize, 1)
	c.MaxDelay = wholeSeconds(cmp.Or(c.MaxDelay, 15*time.Minute))
	c.RequestTimeout = cmp.Or(c.RequestTimeout, 10*time.Second)
	return c
}

// Validate reports every problem at once, each beginning with the name of its
// field. [Opener] and [OpenerWith] do the same when they open.
func (c Config) Validate() error {
	c = c.WithDefaults()
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	within := func(name string, v, least, most time.Duration) {
		if v < least || v > most {
			bad("%s must be between %s and %s, is %s", name, least, most, v)
		}
	}
	if c.Region != "" && strings.Trim(c.Region, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
		bad("Region must be the name of one, such as eu-west-1")
	}
	if c.Endpoint != "" && !isEndpoint(c.Endpoint) {
		bad("Endpoint must have the form https://host, with nothing else: credentials are found by the AWS SDK")
	}
	if c.Account != "" && (len(c.Account) != 12 || strings.Trim(c.Account, "0123456789") != "") {
		bad("Account must have 12 digits")
	}
	if len(c.Prefix) > maxPrefix || strings.ContainsFunc(c.Prefix, func(r rune) bool { return !isNameChar(r) }) {
		bad("Prefix must have at most %d letters, digits, hyphens and underscores", maxPrefix)
	}
	owners := map[string]string{}
	for _, stream := range slices.Sorted(maps.Keys(c.Queues)) {
		queue := c.Queues[stream]
		if err := checkName(queue); err != nil {
			bad("Queues[%q] is no name: %w", stream, err)
		}
		if other, ok := owners[queue]; ok {
			bad("Queues names queue %q for both %q and %q", queue, other, stream)
		}
		owners[queue] = stream
	}
	if c.MaxReceiveCount < 5 || c.MaxReceiveCount > 1000 {
		bad("MaxReceiveCount must be between 5 and 1000, is %d: the chain must get to act first", c.MaxReceiveCount)
	}
	if c.MaxMessageBytes < minMessageBytes || c.MaxMessageBytes > maxMessageBytes {
		bad("MaxMessageBytes must be between %d and %d, is %d", minMessageBytes, maxMessageBytes, c.MaxMessageBytes)
	}
	within("Visibility", c.Visibility, 2*time.Second, maxVisibility)
	within("MaxLease", c.MaxLease, c.Visibility, maxVisibility)
	within("PollWait", c.PollWait, time.Second, 20*time.Second)
	if c.BatchSize < 1 || c.BatchSize > 10 {
		bad("BatchSize must be between 1 and 10, is %d", c.BatchSize)
	}
	within("MaxDelay", c.MaxDelay, time.Second, 15*time.Minute)
	within("RequestTimeout", c.RequestTimeout, time.Millisecond, 10*time.Minute)
	within("CloseWait", c.CloseWait, 0, time.Hour)
	return errors.Join(errs...)
}

// maxPrefix leaves a name more than what a hash takes.
const maxPrefix = 40

// isEndpoint reports whether s is the address of a server and nothing else.
func isEndpoint(s string) bool {
	u, err := url.Parse(s)
	return err == nil && (u.Scheme == "https" || u.Scheme == "http") && u.Host != "" && u.User == nil &&
		(u.Path == "" || u.Path == "/") && u.RawQuery == "" && u.Fragment == ""
}

// wholeSeconds rounds up: what waits longer is safe.
func wholeSeconds(d time.Duration) time.Duration {
	const longest = 1<<63 - 1 - time.Second
	if d <= 0 {
		return 0
	}
	return (min(d, longest) + time.Second - 1).Truncate(time.Second)
}

// seconds is d as SQS takes it.
func seconds(d time.Duration) int32 { return int32(wholeSeconds(d) / time.Second) }

// place is what the URL says.
type place struct {
	endpoint string // empty: AWS's own
	region   string
	user     *url.Userinfo // access key and secret; nil: as usual with AWS
}

// options are the query parameters of the URL, beside those of place.
var options = map[string]func(c *Config, v string) error{
	"visibility":  durationOption(func(c *Config) *time.Duration { return &c.Visibility }),
	"pollWait":    durationOption(func(c *Config) *time.Duration { return &c.PollWait }),
	"maxDelay":    durationOption(func(c *Config) *time.Duration { return &c.MaxDelay }),
	"closeWait":   durationOption(func(c *Config) *time.Duration { return &c.CloseWait }),
	"prefix":      textOption(func(c *Config) *string { return &c.Prefix }),
	"account":     textOption(func(c *Config) *string { return &c.Account }),
	"verifyOnly":  boolOption(func(c *Config) *bool { return &c.VerifyOnly }),
	"relaxedFifo": boolOption(func(c *Config) *bool { return &c.RelaxedFIFO }),
	"batchSize": func(c *Config, v string) (err error) {
		c.BatchSize, err = strconv.Atoi(v)
		return err
	},
	"maxReceiveCount": func(c *Config, v string) (err error) {
		c.MaxReceiveCount, err = strconv.Atoi(v)
		return err
	},
}

func durationOption(field func(*Config) *time.Duration) func(*Config, string) error {
	return func(c *Config, v string) (err error) {
		*field(c), err = time.ParseDuration(v)
		return err
	}
}

func textOption(field func(*Config) *string) func(*Config, string) error {
	return func(c *Config, v string) error {
		*field(c) = v
		return nil
	}
}

func boolOption(field func(*Config) *bool) func(*Config, string) error {
	return func(c *Config, v string) (err error) {
		*field(c), err = strconv.ParseBool(v)
		return err
	}
}

// parseURL reads sqs://[key:secret@][host[:port]][?option=value...].
func parseURL(u *url.URL, c *Config) (place, error) {
	if u == nil {
		return place{}, nil
	}
	p := place{user: u.User}
	if u.Path != "" && u.Path != "/" || u.Fragment != "" {
		return p, errors.New("the URL has a path: a queue is named by the topic")
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return p, errors.New("the options of the URL cannot be parsed")
	}
	tls := false
	var errs []error
	for name, values := range query {
		v := values[len(values)-1]
		set, known := options[name]
		var err error
		switch {
		case name == "region":
			p.region = v
		case name == "tls":
			tls, err = strconv.ParseBool(v)
		case name == "queue":
			err = c.nameQueues(values)
		case known:
			err = set(c, v)
		default:
			err = fmt.Errorf("is unknown; there are %s", strings.Join(optionNames(), ", "))
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("option %s: %w", name, err))
		}
	}
	if u.Host != "" {
		scheme := "http"
		if tls {
			scheme = "https"
		}
		p.endpoint = scheme + "://" + u.Host
	}
	return p, errors.Join(errs...)
}

func optionNames() []string {
	names := []string{"region", "tls", "queue"}
	for name := range options {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// nameQueues reads queue=STREAM:QUEUE. The last colon separates: queues have none.
func (c *Config) nameQueues(values []string) error {
	queues := maps.Clone(c.Queues)
	if queues == nil {
		queues = map[string]string{}
	}
	for _, v := range values {
		i := strings.LastIndexByte(v, ':')
		if i < 1 {
			return fmt.Errorf("%q is not STREAM:QUEUE", v)
		}
		queues[v[:i]] = v[i+1:]
	}
	c.Queues = queues
	return nil
}
