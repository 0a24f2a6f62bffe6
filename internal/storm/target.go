package storm

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/spillway-mq/spillway/adapters"
)

// Target is a broker that a storm can hit. A broker joins with one file that
// implements it, and a row in targets.
type Target interface {
	// Start starts the broker, without data, for the driver. Stop ends it.
	Start(context.Context) error
	Stop(context.Context) error
	// Version of the broker, once started.
	Version() string
	// Clients are the modules that the adapter reaches it with.
	Clients() []string
	// URL of the broker, once started. Via is the same at another address, which
	// is the proxy's.
	URL() string
	Via(addr string) string
	// Addr is what a proxy connects to; empty if there is no network. ProxyAddr is
	// where that proxy has to listen, for a broker that tells its clients where to
	// find it; empty: anywhere.
	Addr() string
	ProxyAddr() string

	// Opener is what the processes open.
	Opener() adapters.Opener
	// NativePublisher publishes records with typed headers, without the adapter.
	NativePublisher(url string) (NativePublisher, error)
	// Headers returns headers of the types that the broker has, with the
	// adapter's names of the types and forms of the values.
	Headers(*rand.Rand) []adapters.Header

	// Streams returns what Drain reads for a consumer at the end, beside retry,
	// parking, dead letter and suspect: its main stream, and wherever else the
	// broker may hold its messages.
	Streams(context.Context, adapters.Consumer) ([]Place, error)
	// Held returns how many messages the broker still counts, by stream: after
	// everything was drained there must be none, also where Drain cannot look.
	Held(context.Context) (map[string]int, error)
	// Trials are what can be done to this broker, besides what the driver does to
	// the processes and the network.
	Trials() []Trial

	// InProcess means that the processes are played by goroutines of the driver.
	// The broker says by adapters.ErrClosed that such a process is dead.
	InProcess() bool
	// Kill kills all played processes of a group.
	Kill(group string)
}

// mender is a [Target] whose broker can come out of a fault with a stream that
// does not work any more, through no doing of ours, and that its operator knows
// how to mend. Mend does that when all faults are over, and names the streams.
type mender interface {
	Mend(context.Context) ([]string, error)
}

// NativePublisher publishes with the broker's own client, confirmed.
type NativePublisher interface {
	Publish(ctx context.Context, topic string, r adapters.Record) error
	Close() error
}

// Place is a stream that holds records at the end.
type Place struct {
	Stream adapters.Stream
	// Name for Drain.
	Name string
	// Group that it belongs to; empty if that has to be told from the record.
	Group string
}

const (
	// StreamUndeliverable is the broker's own end state: what it could not move.
	StreamUndeliverable adapters.Stream = "undeliverable"
	// StreamDelay is where messages wait on their way to retry. When all is quiet
	// nothing may wait there any more.
	StreamDelay adapters.Stream = "delay"
)

// Trial is one kind of fault.
type Trial struct {
	Name string
	// Weight against the others; a storm begins with one of each.
	Weight int
	// Broker means that the broker itself dies, so that its own moves of messages
	// between streams may be repeated.
	Broker bool
	// Offline means that clients reach the broker again only when the trial is over.
	Offline bool
	// Aftermath is how long after its end acknowledgements may still get lost.
	Aftermath time.Duration
	// Destroys is a stream of the group Of whose records vanish, as by an operator
	// who deletes them: what was handed off to it before the end need not be there.
	Destroys adapters.Stream
	Of       string
	// Do does it and undoes it. It returns whose acknowledgements it may have
	// swallowed though they seemed well: those of a process, of a group, empty for
	// all, or scopeNobody.
	Do func(ctx context.Context, r *rand.Rand) (scope string, err error)
}

const scopeNobody = "nobody"

// targets by name.
var targets = map[string]func() Target{
	"kafka":    func() Target { return &kafkaTarget{instance: instance{name: "kafkastorm", clients: kafkaClients}} },
	"memory":   func() Target { return newMemoryTarget() },
	"rabbitmq": func() Target { return &rabbitTarget{instance: instance{name: "rabbitmqstorm", clients: rabbitClients}} },
	"rabbitmq4": func() Target {
		return &rabbitTarget{instance: instance{name: "rabbitmq4storm", clients: rabbitClients}}
	},
	"sqs": func() Target { return &sqsTarget{instance: instance{name: "sqsstorm", clients: sqsClients}} },
}

// NewTarget returns the broker of that name.
func NewTarget(name string) (Target, error) {
	if t, ok := targets[name]; ok {
		return t(), nil
	}
	return nil, fmt.Errorf("storm: no broker %q; there are: %s", name, strings.Join(slices.Sorted(maps.Keys(targets)), ", "))
}

// between draws a duration.
func between(r *rand.Rand, from, to time.Duration) time.Duration {
	return from + time.Duration(r.Int64N(int64(to-from)))
}
