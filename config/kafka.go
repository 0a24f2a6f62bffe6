package config

import (
	"errors"
	"strings"

	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/adapters/kafka"
)

func kafkaSection(c *Config) section {
	k := &c.Kafka
	return section{
		doc: "What only Kafka can be told; docs/kafka.md explains it.",
		keys: object{
			{"clientId", "How brokers call this client in logs, metrics and quotas.", "spillway", text(&k.ClientID)},
			{"order", "Which messages of a partition may be handled side by side: `key`, those with different keys; `none`, all; `partition`, none. It matters with a `concurrency` above 1.", "key", oneOf(&k.Order,
				option[kafka.Order]{"key", kafka.OrderKey}, option[kafka.Order]{"none", kafka.OrderNone}, option[kafka.Order]{"partition", kafka.OrderPartition})},
			{"start", "Where a group begins to read a topic that it has never read: with the `oldest` message, or with those published from its first start on, `newest`.", "oldest", oneOf(&k.Start,
				option[kafka.Start]{"oldest", kafka.StartOldest}, option[kafka.Start]{"newest", kafka.StartNewest})},
			{"groupPerTopic", "Name the consumer group of a topic TOPIC.GROUP instead of GROUP, so that a process that comes or goes interrupts one topic, not all of them. A group that is renamed begins anew: decide before the first start.", "false", boolean(&k.GroupPerTopic)},
			{"window", "How many messages of each partition are read ahead, in handlers or waiting for their retry; at most 16384. It bounds memory, and how many retries are on time.", "10000", whole(&k.Window)},
			{"windowBytes", "The same in bytes of keys, values and headers.", "16777216", whole(&k.WindowBytes)},
			{"commitInterval", "How often positions are committed, from 10ms to 1m. What was finished since is delivered again after a crash.", "1s", duration(&k.CommitInterval)},
			{"revokeGrace", "How long a rebalance waits for handlers that run; at most 2s.", "1s", duration(&k.RevokeGrace)},
			{"sessionTimeout", "For how long a process may be silent before others get its partitions. Brokers bound it, by default from 6s to 30m.", "10s", duration(&k.SessionTimeout)},
			{"publishTimeout", "Bounds each publish and hand-off.", "30s", duration(&k.PublishTimeout)},
			{"verifyOnly", "Create no topics, and refuse to start where one is missing. For a user who may not create.", "false", boolean(&k.VerifyOnly)},
			{"partitions", "Partitions of topics that are created.", "those of the source, or of the cluster", whole(&k.Partitions)},
			{"replication", "Replicas of topics that are created.", "the cluster's", whole(&k.Replication)},
			{"deadLetterRetention", "How long dead letters are kept in their topic, where it is created. At least 1h.", "336h", duration(&k.DeadLetterRetention)},
			{"retryRetention", "How long messages are kept that wait for a retry or in the parking lot, where those topics are created: above the longest outage that is to be survived. At least 2h.", "336h", duration(&k.RetryRetention)},
			{"tls", "For a `broker.url` that begins with kafkas://.", "", object{
				{"ca", "A PEM file with the authorities to trust.", "those of the system", text(&k.TLS.CA)},
				{"cert", "A PEM file with the certificate to show to brokers. It is read for each connection, so it can be replaced.", "", text(&k.TLS.Cert)},
				{"key", "The PEM file with its private key.", "", text(&k.TLS.Key)},
				{"serverName", "The name that the brokers' certificates must have.", "the host of each", text(&k.TLS.ServerName)},
			}},
			{"sasl", "The user. One in `broker.url` comes before these keys.", "", object{
				{"mechanism", "How the password is shown: `PLAIN`, `SCRAM-SHA-256` or `SCRAM-SHA-512`.", string(kafka.MechanismPlain), oneOf(&k.SASL.Mechanism,
					option[kafka.Mechanism]{"PLAIN", kafka.MechanismPlain}, option[kafka.Mechanism]{"SCRAM-SHA-256", kafka.MechanismSCRAM256},
					option[kafka.Mechanism]{"SCRAM-SHA-512", kafka.MechanismSCRAM512})},
				{"user", "The user's name.", "", text(&k.SASL.User)},
				{"password", "The password. It is never printed; better than in this file it stands in the variable, or in a file of its own.", "", secretText(&k.SASL.Password)},
				{"passwordFile", "A file with the password, such as a mounted secret. A line break at its end is left out; `password` comes before it.", "", text(&k.SASL.PasswordFile)},
			}},
		},
		opener: func() adapters.Opener { return kafka.OpenerWith(*k) },
		validate: func() error {
			err := k.Validate()
			if strings.Contains(string(k.SASL.Password), "${") {
				err = errors.Join(err, errors.New("SASL.Password holds ${, but nothing is expanded in this file: set "+
					envName("broker.kafka.sasl.password")+", or name a file by passwordFile"))
			}
			return err
		},
	}
}
