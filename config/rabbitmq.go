package config

import (
	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/adapters/rabbitmq"
)

func rabbitMQSection(c *Config) section {
	r := &c.RabbitMQ
	return section{
		doc: "What only RabbitMQ can be told; docs/rabbitmq.md explains it.",
		keys: object{
			{"prefix", "Begins the names of what consumers share: the delay ladder, the return exchange, and the queue of what could not be returned.", "spillway", text(&r.Prefix)},
			{"minDelay", "The shortest delay that the ladder keeps; shorter ones are lengthened to it. At least 125ms.", "125ms", duration(&r.MinDelay)},
			{"maxDelay", "The longest rung of the ladder; longer delays take several hops. At most 24h.", "15m", duration(&r.MaxDelay)},
			{"deliveryLimit", "How often the broker hands out a message before it dead-letters it by itself: the net below Spillway, which acts much sooner. At least 10.", "10000", whole(&r.DeliveryLimit)},
			{"verifyOnly", "Declare nothing: check that every stream and every rung exists, and refuse to start otherwise. For a user who may not declare.", "false", boolean(&r.VerifyOnly)},
			{"wholeLadder", "Declare all rungs at start instead of each on first use: for an administrator's run before applications that are `verifyOnly`.", "false", boolean(&r.WholeLadder)},
			{"management", "The address of the management plugin, for `spillway check rabbitmq`. It is asked as the user of `broker.url`, whose option `management` comes before this key.", "", text(&r.Management)},
			{"topic", "How topics lie on the broker that `topics` does not name.", "", rabbitMQTopicSchema(&r.Topic)},
			{"topics", "The same for single topics, by their names. An entry inherits nothing from `topic`.", "", mapOf("TOPIC", "broker.rabbitmq.topic", &r.Topics, rabbitMQTopicSchema)},
		},
		opener:   func() adapters.Opener { return rabbitmq.OpenerWith(*r) },
		validate: func() error { return r.Validate() },
	}
}

func rabbitMQTopicSchema(t *rabbitmq.Topic) object {
	return object{
		{"exchange", "The exchange to publish to, and to bind the queue to; {topic} is replaced. Leave it out for kind `queue`.", "{topic}", text(&t.Exchange)},
		{"kind", "The kind of the exchange, or `queue` for a topic that is a queue without an exchange and has one group.", rabbitmq.KindFanout, oneOf(&t.Kind,
			option[string]{"fanout", rabbitmq.KindFanout}, option[string]{"direct", "direct"}, option[string]{"topic", "topic"},
			option[string]{"headers", "headers"}, option[string]{"queue", rabbitmq.KindQueue})},
		{"queue", "The main queue of a group; {topic} and {group} are replaced. For kind `queue` the default is {topic}.", "{topic}_{group}", text(&t.Queue)},
		{"bindKey", "The routing key that the queue is bound with.", "", text(&t.BindKey)},
		{"publishKey", "The routing key that the publisher uses.", "that of bindKey", text(&t.PublishKey)},
		{"mandatory", "Publishing fails where a message reaches no queue. Without it nobody has to listen. Kind `queue` is always mandatory.", "false", boolean(&t.Mandatory)},
		{"existing", "Exchange, queue and binding belong to somebody else: they are used as they are, and only checked for existence.", "false", boolean(&t.Existing)},
	}
}
