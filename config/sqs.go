package config

import (
	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/adapters/sqs"
)

func sqsSection(c *Config) section {
	q := &c.SQS
	return section{
		doc: "What only Amazon SQS can be told; docs/sqs.md explains it. Credentials are found by the AWS SDK, and have no keys here.",
		keys: object{
			{"region", "The region of the queues. That of `broker.url` comes before this key.", "that of AWS_REGION", text(&q.Region)},
			{"endpoint", "Another address of AWS, such as that of an interface endpoint of a VPC. A server that is not AWS's stands in `broker.url`.", "the region's", text(&q.Endpoint)},
			{"account", "The owner of the queues, 12 digits, if it is another account than that of the credentials; it implies `verifyOnly`.", "of the credentials", text(&q.Account)},
			{"prefix", "Begins the names of all queues, for an account that several environments share.", "", text(&q.Prefix)},
			{"queues", "The queues of topics and of streams that have another name than the one made of theirs.", "", textsBy(&q.Queues)},
			{"verifyOnly", "Create and change no queue: check that each exists, and refuse to start otherwise.", "false", boolean(&q.VerifyOnly)},
			{"maxReceiveCount", "How often SQS hands out a message before it moves it to the dead letter queue by itself: the net below Spillway, which acts after 3. From 5 to 1000.", "10", whole(&q.MaxReceiveCount)},
			{"maxMessageBytes", "The most that is published, and what main queues that are created take. From 1024 to 1048576; the rest of that is room for what a failure adds.", "983040", whole(&q.MaxMessageBytes)},
			{"relaxedFifo", "Messages of FIFO queues wait for their retry in a standard queue, and those behind them overtake. Without it a FIFO topic needs `retry: inPlace`.", "false", boolean(&q.RelaxedFIFO)},
			{"visibility", "How long a message that was handed out stays hidden unless its lease is renewed, which happens three times in that time: how long the messages of a process that died stay away. From 2s to 12h.", "30s", duration(&q.Visibility)},
			{"maxLease", "How long one receive may be held, at most 12h. Then the handler's context ends.", "11h59m", duration(&q.MaxLease)},
			{"pollWait", "The length of a long poll, from 1s to 20s.", "20s", duration(&q.PollWait)},
			{"batchSize", "The most messages of one receive, from 1 to 10. Those that wait for a free slot keep their lease, and their delivery is counted.", "1", whole(&q.BatchSize)},
			{"maxDelay", "The longest delay of one hop, from 1s to 15m; longer delays take several.", "15m", duration(&q.MaxDelay)},
			{"requestTimeout", "Bounds each request; a long poll has `pollWait` in addition.", "10s", duration(&q.RequestTimeout)},
			{"closeWait", "How long Close waits for long polls that are in flight; at most 1h.", "", duration(&q.CloseWait)},
		},
		opener:   func() adapters.Opener { return sqs.OpenerWith(*q) },
		validate: func() error { return q.Validate() },
	}
}
