// Package rabbitmq is the adapter for RabbitMQ, from version 3.10. All its tests
// were run on 3.10.8 and 4.0.5, with the same results.
//
// # Terms
//
//	topic                a durable fanout exchange of that name
//	consumer group       a quorum queue, <topic>_<group>, bound to the exchange
//	retry stream         a quorum queue, <topic>.<group>.retry
//	delay                a rung of the ladder: exchange and queue <prefix>.delay.<n>ms
//	parking lot          quorum queues, <topic>.<group>.parking[.<n>ms]
//	dead letter stream   a quorum queue, <topic>.<group>.dlq
//	suspect stream       a quorum queue, <topic>.<group>.suspect
//	key, position        RabbitMQ has none
//
// Exchange, main queue and wire format are those of watermill-amqp's
// NewDurablePubSubConfig with GenerateQueueNameTopicNameWithSuffix(group), so
// its producers and consumers work with ours in both directions. Set
// [Topic].Kind to [KindQueue] where producers use NewDurableQueueConfig. A main
// queue that watermill-amqp declared is a classic queue: use it with
// [Topic].Existing, or let it run empty, delete it, and have it declared anew.
//
// # Capabilities
//
//	Positions         no
//	DeliveryCount     yes, of quorum queues; a classic one knows 1 and 2
//	Keys              no
//	NullPayload       no, AMQP has none
//	RepeatedHeaders   no, AMQP's headers are a table
//	InPlaceRetry      no
//	DelayStep         a quarter of the delay; at least up to MinDelay, 125 ms
//	MaxMetadataBytes  the negotiated frame, 128 KiB by default, less 4 KiB
//	MaxMessageBytes   not known: the broker does not tell its max_message_size.
//	                  It limits bodies only, and a hand-off keeps the body
//
// # Delays
//
// A retry is published to a rung whose queue has a fixed time to live and
// dead-letters at least once to <prefix>.return, which routes by the name of
// the queue to return to. All messages of a rung wait equally long, so nobody
// waits behind a longer delay, and the number of queues does not depend on
// jitter or on the number of consumers. There are four rungs per octave (1 s,
// 1.25 s, 1.5 s, 1.75 s, 2 s and so on), so that rounding up lengthens a delay by
// at most a quarter. Each is declared on first use. Delays beyond
// [Config].MaxDelay come early and are handed off again for the rest.
//
// Parked messages carry their interval as expiration. A queue expires from its
// head only, so the parking lot has a queue for each doubling of the interval,
// <topic>.<group>.parking.<n>ms, declared on first use; what is due at once
// passes through <topic>.<group>.parking. Within a queue, a message that waits
// less than those before it leaves after them. Drain reads them all by the name
// of the stream. With [Config].VerifyOnly all share the one queue, and intervals
// should be constant.
//
// Messages whose queue to return to is gone end in the queue
// <prefix>.undeliverable. Nothing empties it: it must be watched.
//
// # Delivery semantics
//
// At least once. Everything is written persistently to quorum queues, moved by
// the broker at least once, and confirmed: a hand-off is mandatory, and one that
// no queue takes is an error, after which the next declares what was missing.
// The expiration and the user id of a message do not survive a hand-off; all
// other properties and the typed headers do. Headers of the broker (x-death,
// x-delivery-count, CC and their like) are kept from handlers and out of copies;
// Native in the delivery's record has them, and Drain shows them.
//
// Drain gives properties as headers of type "property". Headers that are not
// text have the name of their AMQP type; tables and arrays are JSON.
//
// Handlers get from main and retry as many messages together as the
// concurrency says. One less again of each queue are prefetched; they go back
// when the subscription stops, and their delivery counts rise when its process
// dies. So may any message become a suspect. The suspect queue has no consumer:
// it is looked at twice a second, and a message is taken from it only when
// nothing else is in a handler of the process, so that its count means crashes
// of its own. A connection that is lost counts too; the process that lost it
// remembers, another one does not.
//
// # Ordering
//
// With concurrency 1, first deliveries come in the queue's order, also after a
// return.
//
// # Failure modes
//
// There are two connections, made anew when they are lost. An alarm of the
// broker blocks the one that publishes: hand-offs wait for its end or their
// context's, and what has failed by then was not written, but for those that
// were on their way when the alarm began. Acknowledgements go on. A subscription
// declares its topology again whenever it starts anew, which is also how it
// survives the deletion of a queue. [Topology errors][TopologyError] name the
// queue or exchange, the argument, and both values.
//
// Connecting is tried again whatever the broker answers, also a refused login:
// while RabbitMQ starts, it may not know its users yet. Only the first
// connection, in Open, fails at once. Hand-offs connect when they are tried;
// reading goes on at most 15 seconds after the broker is back, for the pause
// between two tries grows to about 10.
//
// Messages that fall due while the broker restarts may come 3 minutes late. On
// its start RabbitMQ lets rungs and parking queues dead-letter before their
// exchanges are there ("Cannot forward any dead-letter messages from source
// quorum queue" in its log), and tries what it could not forward again after
// dead_letter_worker_publisher_confirm_timeout. Nothing is lost, the messages
// are counted in the queue as neither ready nor unacknowledged, and no client can
// hasten them. The broker's advanced.config can, with milliseconds:
//
//	[{rabbit, [{dead_letter_worker_publisher_confirm_timeout, 10000}]}].
//
// A message that the broker hands out more than [Config].DeliveryLimit times, or
// that a consumer without Spillway rejects, or that expires by somebody's
// policy, falls into the dead letter queue by itself, with x-death but without
// evidence. Package poison/foreign decodes it, with the reason
// rejected_by_broker. A limit of length never drops messages of our queues: they
// refuse what they have no room for, and the publisher gets an error.
//
// # Why a loop of our own
//
// Wire format, names and defaults are watermill-amqp's; its Subscriber and
// Publisher are not used. The Subscriber has one message in flight however many
// it prefetches, hands out an empty message when its queue is deleted, sends
// what it cannot read around in a loop, and settles by itself on Close. The
// Publisher ignores returned messages, waits for confirms without a time-out,
// and cannot choose an exchange and a routing key per message. Taming both takes
// more code than the two loops here. Of amqp091 the automatic recovery is off:
// it would consume again without having checked what it consumes from.
//
// # Permissions
//
// For a user that declares, with the prefix "spillway", topic "orders" and
// group "billing":
//
//	configure  ^(orders(_billing)?|orders\.billing\..*|spillway\..*)$
//	write      ^(orders(_billing)?|orders\.billing\..*|spillway\..*|amq\.default)$
//	read       ^(orders(_billing)?|orders\.billing\..*|spillway\..*)$
//
// With [Config].VerifyOnly, after an administrator's run with
// [Config].WholeLadder:
//
//	configure  ^$
//	write      ^(orders|spillway\.delay\..*|amq\.default)$
//	read       ^(orders_billing|orders\.billing\..*)$
//
// # Defaults
//
// See [Config]. Heartbeats are sent every 10 seconds unless the URL says
// otherwise (?heartbeat=). With ?management=http://host:15672, or
// [Config].Management, Check asks the management plugin too, as the user of the
// URL; nothing else uses it.
package rabbitmq
