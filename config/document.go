package config

import (
	"fmt"
	"strings"
	"unicode"
)

// Example returns a file with every key, its default and what it is for. All
// keys are comments, so that it is the default configuration until one of them
// is uncommented.
func Example() string {
	var b strings.Builder
	b.WriteString("# Configuration of Spillway. Every key is shown with its default: uncomment\n# what you want to change. Variables such as SPILLWAY_GROUP override the file.\n")
	new(Config).schema().example(&b, "", "")
	return b.String()
}

// examples are the values of keys whose defaults are no values.
var examples = map[string]string{
	"broker.url":                                            "memory://",
	"broker.rabbitmq.management":                            "http://localhost:15672",
	"broker.rabbitmq.topic.exchange":                        "'{topic}'",
	"broker.rabbitmq.topic.queue":                           "'{topic}_{group}'",
	"broker.rabbitmq.topic.bindKey":                         "orders",
	"broker.rabbitmq.topic.publishKey":                      "orders",
	"broker.rabbitmq.topics.TOPIC":                          "{exchange: shop, kind: topic, bindKey: 'order.*', existing: true}",
	"broker.kafka.partitions":                               "12",
	"broker.kafka.replication":                              "3",
	"broker.kafka.tls.ca":                                   "/etc/kafka/ca.pem",
	"broker.kafka.tls.cert":                                 "/etc/kafka/client.pem",
	"broker.kafka.tls.key":                                  "/etc/kafka/client.key",
	"broker.kafka.tls.serverName":                           "kafka.example.com",
	"broker.kafka.sasl.user":                                "billing",
	"broker.kafka.sasl.password":                            "secret",
	"broker.kafka.sasl.passwordFile":                        "/run/secrets/kafka",
	"broker.sqs.region":                                     "eu-west-1",
	"broker.sqs.endpoint":                                   "https://vpce-1-a.sqs.eu-west-1.vpce.amazonaws.com",
	"broker.sqs.account":                                    "'123456789012'",
	"broker.sqs.prefix":                                     "prod-",
	"broker.sqs.queues":                                     "{orders.billing.dlq: orders-dlq}",
	"broker.sqs.closeWait":                                  "20s",
	"group":                                                 "billing",
	"consumerVersion":                                       "1.8.2",
	"lastResort":                                            "/var/lib/spillway",
	"policy.maxAge":                                         "72h",
	"policy.classes.CLASS.nature":                           "permanent",
	"policy.classes.CLASS.attempts":                         "2",
	"policy.classes.CLASS.backoff.base":                     "10s",
	"policy.classes.CLASS.backoff.factor":                   "1",
	"policy.classes.CLASS.backoff.max":                      "1m",
	"policy.classes.CLASS.backoff.jitter":                   "full",
	"policy.classes.CLASS.parking.interval":                 "10m",
	"policy.classes.CLASS.parking.deadline":                 "72h",
	"policy.classes.CLASS.parking.deadlineWithoutReference": "2h",
	"handlers.HANDLER":                                      "{attempts: {transient: 20}}",
	"redaction.patterns[].name":                             "order",
	"redaction.patterns[].regexp":                           "'ORD-[0-9]+'",
	"metadata.messageType":                                  "[message-type]",
	"metadata.aggregate":                                    "[aggregate-id]",
	"metadata.producerVersion":                              "[producer-version]",
	"metadata.schemaVersion":                                "[schema-version]",
	"consumers[].topic":                                     "orders",
	"consumers[].group":                                     "billing",
	"consumers[].owner":                                     "team-billing",
	"inventory.author":                                      "ana",
}

func (o object) example(b *strings.Builder, path, indent string) {
	for i, f := range o {
		at := path + f.name
		if path == "" {
			b.WriteString("\n")
		}
		for _, line := range wrap(plain(f.doc), 76-len(indent)) {
			fmt.Fprintf(b, "# %s# %s\n", indent, line)
		}
		key := indent + f.name
		if strings.HasSuffix(path, "[].") { // the first key of an entry carries its dash
			lead := "  "
			if i == 0 {
				lead = "- "
			}
			key = indent[:len(indent)-2] + lead + f.name
		}
		switch v := f.value.(type) {
		case object:
			fmt.Fprintf(b, "# %s:\n", key)
			v.example(b, at+".", indent+"  ")
		case collection:
			fmt.Fprintf(b, "# %s:\n", key)
			inner, place := v.entry()
			switch {
			case inner == nil:
				fmt.Fprintf(b, "# %s  %s: %s\n", indent, entryName(place), examples[at+place])
			case place == "[]":
				inner.example(b, at+place+".", indent+"    ")
			default:
				fmt.Fprintf(b, "# %s  %s:\n", indent, entryName(place))
				inner.example(b, at+place+".", indent+"    ")
			}
		default:
			shown, ok := examples[at]
			if !ok {
				shown = f.def
			}
			if strings.HasPrefix(shown, "{") && strings.HasSuffix(f.def, shown) {
				shown = "'" + shown + "'" // a template begins like a mapping
			}
			fmt.Fprintf(b, "# %s: %s\n", key, shown)
		}
	}
}

func entryName(place string) string {
	switch place {
	case ".CLASS":
		return "validation"
	case ".TOPIC":
		return "orders"
	}
	return "charge"
}

// reference returns the tables of all keys, for docs/configuration.md.
func reference() string {
	var b strings.Builder
	heading := ""
	new(Config).schema().leaves(func(l leaf) {
		section, _, nested := strings.Cut(strings.ReplaceAll(l.path, "[]", "."), ".")
		if !nested {
			section = "General"
		}
		if section != heading {
			heading = section
			fmt.Fprintf(&b, "\n### %s\n\n", section)
			for _, f := range new(Config).schema() {
				if f.name == section {
					fmt.Fprintf(&b, "%s\n\n", f.doc)
				}
			}
			b.WriteString("| key | type | default | |\n|---|---|---|---|\n")
		}
		def := l.def
		switch {
		case def == "[]" || strings.HasPrefix(def, "{") || def != "" && !strings.ContainsAny(def, " ") && def != "required" && def != "inherited":
			def = "`" + def + "`"
		case def == "":
			def = "none"
		}
		env := ""
		if l.env != "" {
			env = "<br>`" + l.env + "`"
		}
		doc := l.doc
		if _, all := l.value.(collection); all && l.name == section {
			doc = "" // it stands above the table
		}
		fmt.Fprintf(&b, "| `%s`%s | %s | %s | %s |\n", l.path, env, typeName(l.value), def, doc)
	})
	return strings.TrimLeft(b.String(), "\n")
}

// typeName makes a type of what is expected: "duration" of "a duration such
// as 5m".
func typeName(v value) string {
	kind, _, _ := strings.Cut(v.kind(), " such as ")
	return strings.TrimPrefix(kind, "a ")
}

// plain is a text of the documentation without its markup.
func plain(s string) string { return strings.ReplaceAll(s, "`", "") }

// wrap breaks a text into lines of at most width letters.
func wrap(s string, width int) (lines []string) {
	line := ""
	for word := range strings.FieldsFuncSeq(s, unicode.IsSpace) {
		if line != "" && len(line)+1+len(word) > width {
			lines, line = append(lines, line), ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	if line != "" {
		lines = append(lines, line)
	}
	return lines
}
