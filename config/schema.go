package config

import (
	"strings"
	"unicode"

	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/failure"
	"github.com/spillway-mq/spillway/poison"
	"github.com/spillway-mq/spillway/policy"
)

// schema is the table of all keys: it is what the reader follows, and what the
// documentation and the example are made from. Each value points to where it
// is put.
func (c *Config) schema() object {
	s := &c.Spillway
	return object{
		{"broker", "Where the messages are. What only one kind of broker can be told stands in a section of its name, which is read whatever the URL, and used if the URL is for it.", "", c.brokerSchema()},
		{"group", "The consumer group of this application: retries, parked messages and dead letters belong to it. Without it, every subscriber has to name its own.", "", text(&s.Group)},
		{"concurrency", "How many messages of a subscription are handled at a time. 1 keeps the order of first attempts; at most 65535.", "1", whole(&s.Concurrency)},
		{"retry", "Where messages wait for their next attempt: `topic`, in a stream of their own, or `inPlace`, which blocks those behind them with the same key, and which not every broker can.", "topic", oneOf(&s.Retry,
			option[adapters.RetryMode]{"topic", adapters.RetryTopic}, option[adapters.RetryMode]{"inPlace", adapters.RetryInPlace})},
		{"closeGrace", "How long Close waits for running handlers and hand-offs before it gives their messages back. Keep it below the Router's CloseTimeout, which is 30 s by default.", "20s", duration(&s.CloseGrace)},
		{"consumerVersion", "The version written to dead letters, so that they can be told by release. The default is the version, or the revision, of the build.", "of the build", text(&s.ConsumerVersion)},
		{"lastResort", "A directory for messages that no stream will ever take, such as one that is too large even without evidence. It must be writable at start. Without it, such a message stays with the broker and blocks its slot.", "", text(&s.LastResort)},
		{"policy", "How often and when failures are retried, how long messages are parked, and when they are given up.", "", policySchema(&s.Policy)},
		{"handlers", "Policies of single handlers, by the name that the Router knows them by. Each has the keys of `policy`; what it leaves out is inherited from there.", "", mapOf("HANDLER", "policy", &s.HandlerPolicies, policySchema)},
		{"redaction", "What is taken out of error texts and of what is shown. Payloads and headers in flight are never changed.", "", object{
			{"cpf", "Also take out Brazilian tax numbers of persons, by their check digits.", "false", boolean(&s.Redaction.CPF)},
			{"cnpj", "Also take out Brazilian tax numbers of companies, by their check digits.", "false", boolean(&s.Redaction.CNPJ)},
			{"disable", "Shipped rules to turn off: `url`, `secret`, `authorization`, `jwt`, `aws_key`, `token`, `private_key`, `email`, `card`, `header`.", "[]", texts(&s.Redaction.Disable)},
			{"patterns", "Your own rules. They run before the shipped ones, in this order.", "", listOf(&s.Redaction.Patterns, patternSchema)},
			{"hideHeaders", "Headers whose values are never shown, besides those whose names speak for themselves.", "[]", texts(&s.Redaction.HideHeaders)},
			{"dropHeaders", "Headers that are left out of dead letters. Their names are recorded; a replay cannot bring their values back.", "[]", texts(&s.Redaction.DropHeaders)},
		}},
		{"names", "Templates of stream names. Each must contain {topic} and {group} once. A change leaves the messages of the old streams behind.", "", object{
			{"retry", "Where messages wait for their next attempt.", "{topic}.{group}.retry", text(&s.Names.Retry)},
			{"parking", "Where messages wait for something outside.", "{topic}.{group}.parking", text(&s.Names.Parking)},
			{"deadLetter", "Where dead letters go.", "{topic}.{group}.dlq", text(&s.Names.DeadLetter)},
			{"suspect", "Where messages are processed alone that may have killed their consumer.", "{topic}.{group}.suspect", text(&s.Names.Suspect)},
		}},
		{"metadata", "Which metadata keys describe a message, most preferred first. Leave a key out for the defaults, which cover CloudEvents and Watermill's cqrs; `[]` means none.", "", object{
			{"messageType", "Keys of the message's type.", "CloudEvents type, message-type, event-type, name", texts(&s.Metadata.MessageType)},
			{"aggregate", "Keys of the business object that it is about.", "CloudEvents subject, aggregate, aggregate-id", texts(&s.Metadata.Aggregate)},
			{"producerVersion", "Keys of the producer's version.", "producer-version", texts(&s.Metadata.ProducerVersion)},
			{"schemaVersion", "Keys of the schema's version.", "schema-version, CloudEvents dataschema", texts(&s.Metadata.SchemaVersion)},
		}},
		{"consumers", "The consumers that an operator looks after, of this application and of others, for the command `spillway`. An application does not need the list: it subscribes.", "", listOf(&c.Consumers, consumerSchema)},
		{"inventory", "Where the command `spillway` keeps dead letters, and for how long. An application needs none.", "", object{
			{"url", "The path of a SQLite file, which `spillway collect` makes, or the URL of a PostgreSQL, `postgres://...`, for several instances. Nothing in it is expanded; with a password, set the variable instead.", DefaultInventory, secretURL(&c.Inventory.URL)},
			{"payloads", "Whether payloads, keys and headers are kept for a time, `keepFor`, or for ever, `keep`. They cannot be left out: what is collected is gone from its stream.", "keepFor", oneOf(&c.Inventory.Payloads,
				option[Payloads]{"keepFor", PayloadsKeepFor}, option[Payloads]{"keep", PayloadsKeep})},
			{"keepOpen", "How long after the failure of a dead letter that is open. Then they are removed, and it is closed as expired.", "2160h", duration(&c.Inventory.KeepOpen)},
			{"keepClosed", "How long after a dead letter was closed.", "360h", duration(&c.Inventory.KeepClosed)},
			{"author", "Who decides, where the command line does not say.", "the user of the system", text(&c.Inventory.Author)},
		}},
		{"triage", "What the verdicts of the command `spillway` depend on; `spillway triage --explain` prints what they mean. Its flags come before these. An application needs none.", "", object{
			{"handful", "As many messages or fewer are isolated.", "5", whole(&c.Triage.Handful)},
			{"share", "The part that one episode holds in an incident.", "0.95", number(&c.Triage.Share)},
			{"mixedShare", "The part that it holds at least where others are mixed in.", "0.5", number(&c.Triage.MixedShare)},
			{"short", "An incident lasts no longer.", "12h", duration(&c.Triage.Short)},
			{"manyDays", "Failures on so many days or more are structural.", "4", whole(&c.Triage.ManyDays)},
			{"manyEpisodes", "Failures in so many episodes or more are structural.", "4", whole(&c.Triage.ManyEpisodes)},
			{"silence", "A silence that is not longer ends no episode.", "1h", duration(&c.Triage.Silence)},
			{"density", "Nor does one that is not as many times longer than the usual one.", "10", number(&c.Triage.Density)},
			{"maxSignatures", "How many signatures of a consumer are told apart in a file, and may be new in an hour of collecting; further ones are counted in groups `(overflow)`.", "500", whole(&c.Triage.MaxSignatures)},
			{"maxGroups", "How many groups are told apart in a file.", "5000", whole(&c.Triage.MaxGroups)},
		}},
	}
}

func (c *Config) brokerSchema() object {
	o := object{
		{"url", "The broker, as a URL. Nothing in it is expanded; with a password, set the variable instead.", "", secretURL(&c.BrokerURL)},
	}
	for _, b := range c.known() {
		if b.section != nil {
			s := b.section(c)
			o = append(o, field{b.Name, s.doc, "", s.keys})
		}
	}
	return o
}

// known are the brokers that the file can be about.
func (c *Config) known() []Broker {
	if c.brokers == nil {
		return Brokers()
	}
	return c.brokers
}

func policySchema(p *policy.Policy) object {
	return object{
		{"attempts", "", "", object{
			{"transient", "Attempts of a message whose current failure is expected to pass. 1 means no retry.", "12", whole(&p.Attempts.Transient)},
			{"unknown", "Attempts where no rule knows the error.", "5", whole(&p.Attempts.Unknown)},
			{"permanent", "Attempts where the message can never succeed.", "1", whole(&p.Attempts.Permanent)},
			{"ambiguous", "Attempts where it depends on something outside; then the message is parked.", "3", whole(&p.Attempts.Ambiguous)},
		}},
		{"backoff", "", "", backoffSchema(&p.Backoff)},
		{"parking", "", "", parkingSchema(&p.Parking)},
		{"maxRetryAfter", "The most that a failure may ask for with RetryAfter; at most 168h. Jitter comes on top.", "1h", duration(&p.MaxRetryAfter)},
		{"maxAge", "No attempt is scheduled later than this after the first one.", "no limit", duration(&p.MaxAge)},
		{"maxReplays", "A failed message that was replayed this often already is dead-lettered without a retry.", "10", whole(&p.MaxReplays)},
		{"classes", "Overrides for failures of one class, such as `validation` or one of your own. What an entry leaves out is inherited.", "", mapOf("CLASS", "", &p.Classes, overrideSchema)},
	}
}

func backoffSchema(b *policy.Backoff) object {
	return object{
		{"base", "The delay after attempt n is base * factor^n, before jitter.", "1s", duration(&b.Base)},
		{"factor", "At least 1, which makes all delays alike.", "2", number(&b.Factor)},
		{"max", "The longest delay before jitter; at most 168h.", "5m", duration(&b.Max)},
		{"jitter", "How delays are spread: `proportional` over 0.5 to 1.5 times the delay, `full` over 0 to 1 times, or `none`.", "proportional", oneOf(&b.Jitter,
			option[policy.Jitter]{"proportional", policy.JitterProportional}, option[policy.Jitter]{"full", policy.JitterFull}, option[policy.Jitter]{"none", policy.JitterNone})},
	}
}

func parkingSchema(p *policy.Parking) object {
	return object{
		{"interval", "How often a parked message is looked at; at most 168h.", "5m", duration(&p.Interval)},
		{"deadline", "When a message that waits for a named reference is given up, from its first parking.", "24h", duration(&p.Deadline)},
		{"deadlineWithoutReference", "When a message that names no reference is given up.", "1h", duration(&p.DeadlineWithoutReference)},
	}
}

func overrideSchema(o *policy.Override) object {
	return object{
		{"nature", "Replaces what the classifier says: `transient`, `unknown`, `permanent` or `ambiguous`.", "as classified", oneOf(&o.Nature,
			option[failure.Nature]{"transient", failure.NatureTransient}, option[failure.Nature]{"unknown", failure.NatureUnknown},
			option[failure.Nature]{"permanent", failure.NaturePermanent}, option[failure.Nature]{"ambiguous", failure.NatureAmbiguous})},
		{"attempts", "The limit of attempts whatever the nature; an ambiguous failure is then parked.", "inherited", whole(&o.Attempts)},
		{"backoff", "", "", inherited(backoffSchema(&o.Backoff))},
		{"parking", "", "", inherited(parkingSchema(&o.Parking))},
	}
}

// inherited replaces the defaults of an object that overrides another.
func inherited(o object) object {
	for i := range o {
		o[i].def = "inherited"
	}
	return o
}

func patternSchema(p *poison.Pattern) object {
	return object{
		{"name", "The rule's name in metrics and errors; unique.", "required", text(&p.Name)},
		{"regexp", "What to take out, in Go's syntax; where it has groups, only what the first one matched.", "required", text(&p.Regexp)},
	}
}

func consumerSchema(c *Consumer) object {
	return object{
		{"topic", "The topic that it consumes.", "required", text(&c.Topic)},
		{"group", "Its consumer group.", "the top-level group", text(&c.Group)},
		{"owner", "Who answers for its dead letters: a team or a person. A dead letter stream without an owner is one that nobody reads.", "required", text(&c.Owner)},
	}
}

// field is a key: its name, what it is for, its default as people read it, and
// where its value goes.
type field struct {
	name, doc, def string
	value          value
}

// object is a mapping with a fixed set of keys.
type object []field

// leaf is a scalar, or a list of texts, as a key of the configuration.
type leaf struct {
	field
	path string // policy.classes.CLASS.nature
	env  string // empty for what stands in a map or a list
}

// leaves calls yield for every leaf, in order, those of collections included.
func (o object) leaves(yield func(leaf)) { o.walk("", true, yield) }

func (o object) walk(prefix string, single bool, yield func(leaf)) {
	for _, f := range o {
		path := prefix + f.name
		switch v := f.value.(type) {
		case object:
			v.walk(path+".", single, yield)
		case collection:
			if inner, place := v.entry(); inner != nil {
				inner.walk(path+place+".", false, yield)
			} else {
				yield(leaf{f, path + place, ""})
			}
		default:
			env := ""
			if single {
				env = envName(path)
			}
			yield(leaf{f, path, env})
		}
	}
}

// envName returns SPILLWAY_CLOSE_GRACE for closeGrace.
func envName(path string) string {
	var b strings.Builder
	b.WriteString(envPrefix)
	for _, r := range path {
		switch {
		case r == '.':
			b.WriteByte('_')
		case unicode.IsUpper(r):
			b.WriteByte('_')
			b.WriteRune(r)
		default:
			b.WriteRune(unicode.ToUpper(r))
		}
	}
	return b.String()
}

const envPrefix = "SPILLWAY_"
