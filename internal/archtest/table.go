package archtest

// watermill is the framework; its broker packages are modules of their own.
const watermill = "github.com/ThreeDotsLabs/watermill"

// linkedByAll is all third-party code that an application gets from Spillway
// before it chooses a broker: Watermill and what its message package links.
var linkedByAll = []string{
	watermill,
	"github.com/google/uuid",
	"github.com/lithammer/shortuuid/v3",
	"github.com/oklog/ulid",
	"github.com/pkg/errors",
}

// testHelpers must never be linked into a program.
var testHelpers = []string{
	"testing", "github.com/stretchr/testify", "github.com/google/go-cmp",
	"github.com/spillway-mq/spillway/adapters/sqs/sqsfake",
}

// Spillway is the table: section 8 of the design as Go. To add a package, add
// its row. To allow an import, name it in the row of the package that needs
// it, and say why in docs/decisions.md.
var Spillway = Rules{
	Module:  "github.com/spillway-mq/spillway",
	Guarded: []string{"flag", "testing"},

	Rows: []Row{
		// The vocabulary. It knows no broker and no framework.
		{Package: "failure"},
		{Package: "policy", Imports: []string{"failure"}},
		{Package: "envelope", Imports: []string{"failure"}},

		// The seam, and what stands on it.
		{
			Package:  "adapters",
			Imports:  []string{"envelope"},
			External: []string{watermill},
		},
		{
			Package: "retrytopic",
			Imports: []string{"adapters", "envelope", "failure", "policy"},
		},
		{
			Package: "parking",
			Imports: []string{"adapters", "envelope", "failure", "policy"},
		},
		{
			Package: "poison",
			Imports: []string{"adapters", "envelope", "failure", "policy"},
		},
		{
			Package: "poison/foreign",
			Imports: []string{"adapters", "envelope", "failure", "policy", "poison"},
		},
		{
			Package:  "middleware",
			Imports:  []string{"adapters", "envelope", "failure", "internal/build", "parking", "poison", "policy"},
			External: []string{watermill},
			// Once is tested on a real database.
			TestExternal: []string{"modernc.org/sqlite"},
		},
		{
			Package:  ".",
			Imports:  []string{"adapters", "envelope", "failure", "internal/build", "middleware", "parking", "poison", "policy", "retrytopic"},
			External: []string{watermill},
		},
		// The version of the program, of which messages tell.
		{Package: "internal/build"},

		// The adapters: each knows its own client, and none knows another.
		{
			Package:  "adapters/memory",
			Imports:  []string{"adapters", "envelope", "retrytopic"},
			External: []string{watermill},
		},
		{
			Package: "adapters/rabbitmq",
			Imports: []string{"adapters", "envelope", "retrytopic"},
			External: []string{
				watermill,
				"github.com/ThreeDotsLabs/watermill-amqp/v3",
				"github.com/rabbitmq/amqp091-go",
			},
		},
		{
			Package: "adapters/kafka",
			Imports: []string{"adapters", "envelope", "retrytopic"},
			External: []string{
				watermill,
				"github.com/ThreeDotsLabs/watermill-kafka/v3",
				"github.com/IBM/sarama",
			},
			TestExternal: []string{
				"github.com/twmb/franz-go/pkg/kfake", "github.com/twmb/franz-go/pkg/kmsg", "github.com/twmb/franz-go/pkg/kversion",
			},
		},
		{
			Package: "adapters/sqs",
			Imports: []string{"adapters", "adapters/sqs/redrive", "envelope", "retrytopic"},
			External: []string{
				watermill,
				"github.com/ThreeDotsLabs/watermill-aws",
				"github.com/aws/aws-sdk-go-v2",
				"github.com/aws/smithy-go",
			},
		},
		// A fake of the service, for tests: an ordinary package, which nobody
		// links but tests.
		{
			Package:      "adapters/sqs/sqsfake",
			TestExternal: []string{"github.com/aws/aws-sdk-go-v2", "github.com/aws/smithy-go"},
		},
		{
			// Reads exported attributes, and needs no client for it.
			Package: "adapters/sqs/redrive",
			Imports: []string{"adapters", "internal/nearest"},
		},
		{
			// The conformance suite is test code in an ordinary package: it is
			// the one that may import testing, and nobody links it but tests.
			Package:  "adapters/adaptertest",
			Imports:  []string{".", "adapters", "envelope", "failure", "middleware", "parking", "poison", "policy"},
			External: []string{watermill, "github.com/google/go-cmp"},
			Std:      []string{"testing"},
		},

		// The operator side.
		{
			Package: "inventory",
			Imports: []string{"adapters", "envelope", "failure", "policy", "poison", "poison/foreign", "triage", "triage/signature"},
			// Its two databases.
			External: []string{"github.com/jackc/pgx/v5", "modernc.org/sqlite"},
		},
		// Signatures are a function of a text and nothing else.
		{Package: "triage/signature"},
		{
			// Groups, and verdicts on them. Where groups are kept is not its concern.
			Package: "triage",
			// poison/foreign: an unknown dead letter says the same from a file and from a stream.
			Imports: []string{"envelope", "failure", "poison/foreign", "triage/signature"},
		},
		{
			Package: "replay",
			Imports: []string{"adapters", "envelope", "failure", "inventory", "policy", "poison"},
		},
		{
			// The only importer of Prometheus and OpenTelemetry.
			Package:  "signals",
			Imports:  []string{"adapters", "envelope", "failure", "middleware", "policy"},
			External: []string{"github.com/prometheus", "go.opentelemetry.io"},
		},
		{
			Package: "dashboard",
			Imports: []string{"envelope", "failure", "inventory", "policy", "replay", "triage"},
		},

		// Where everything meets: configuration and the command link all brokers.
		{
			Package: "config",
			Imports: []string{
				".", "adapters", "failure", "middleware", "poison", "policy",
				"adapters/kafka", "adapters/memory", "adapters/rabbitmq", "adapters/sqs",
				"internal/nearest", "triage", // its thresholds
			},
			External: []string{"go.yaml.in/yaml/v3"},
		},
		{
			Package: "cmd/spillway",
			Imports: []string{"internal/cli/..."},
			Std:     []string{"flag"},
		},
		{
			Package:  "internal/cli/...",
			Imports:  []string{Any},
			External: []string{Any},
			Std:      []string{"flag"},
		},
		{
			Package: "examples/...",
			Imports: []string{
				".", "config", "envelope", "failure", "middleware", "poison", "policy", "signals",
				"adapters", "adapters/kafka", "adapters/memory", "adapters/rabbitmq", "adapters/sqs",
				"examples/...",
			},
			External: []string{watermill, "github.com/prometheus/client_golang"},
			Std:      []string{"flag"},
		},

		// "Did you mean ...?", for keys and for verbs.
		{Package: "internal/nearest"},

		// What benchmarks measure cost by.
		{Package: "internal/cputime"},

		// What keeps the repository itself.
		{Package: "internal/archtest"},
		// Where tests find the real brokers: nobody links it but tests.
		{Package: "internal/brokertest", Std: []string{"testing"}},
		// What the examples on real brokers have in common as tests.
		{
			Package: "internal/exampletest",
			Imports: []string{"adapters", "config", "examples/app/configured", "internal/brokertest"},
			Std:     []string{"testing"},
		},
		{
			// Benchmarks that print a table need testing.Benchmark in a program.
			Package: "internal/bench",
			Imports: []string{
				".", "adapters", "envelope", "failure", "inventory", "middleware", "poison", "policy",
				"adapters/kafka", "adapters/memory", "adapters/rabbitmq", "adapters/sqs", "internal/cputime", "triage", "triage/signature",
			},
			// What Spillway is measured against, and plain clients.
			External: []string{
				watermill, watermill + "-amqp/v3", "github.com/rabbitmq/amqp091-go",
				watermill + "-kafka/v3", "github.com/IBM/sarama",
				watermill + "-aws", "github.com/aws/aws-sdk-go-v2",
			},
			Std: []string{"flag", "testing"},
		},
		{
			// The storm plays producers and consumers on every broker, and publishes
			// with the brokers' own clients too.
			Package: "internal/storm",
			Imports: []string{
				".", "adapters", "envelope", "failure", "middleware", "poison", "policy",
				"adapters/kafka", "adapters/memory", "adapters/rabbitmq", "adapters/sqs",
			},
			External: []string{watermill, "github.com/rabbitmq/amqp091-go", "github.com/IBM/sarama", "github.com/aws/aws-sdk-go-v2"},
		},
		{
			Package: "internal/storm/cmd",
			Imports: []string{"internal/storm"},
			Std:     []string{"flag"},
		},
	},

	// Tests run whole chains on the embedded broker, and decode what real ones
	// dead-letter by themselves.
	Tests: Row{
		Imports: []string{
			".", "adapters", "envelope", "failure", "middleware", "parking", "poison", "policy", "retrytopic",
			"adapters/adaptertest", "adapters/memory", "adapters/sqs/sqsfake", "poison/foreign", "internal/brokertest",
			"internal/cputime", "internal/exampletest",
		},
		External: []string{watermill, "github.com/google/go-cmp", "go.uber.org/goleak"},
		Std:      []string{"flag", "testing"},
	},

	Links: []Link{
		// The facade reaches all that stands below it, so this row speaks for
		// failure, policy, envelope, adapters, parking, poison and middleware.
		{Package: ".", Only: linkedByAll, Never: testHelpers},
		{Package: "adapters/memory", Only: linkedByAll, Never: testHelpers},
		{Package: "adapters/sqs/redrive", Only: linkedByAll, Never: testHelpers},
		{Package: "signals", Never: testHelpers},
		{Package: "config", Never: testHelpers},
		{Package: "cmd/...", Never: testHelpers},
		{Package: "examples/...", Never: testHelpers},
	},
}
