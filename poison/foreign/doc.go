// Package foreign decodes dead letters that Spillway did not write.
//
// # What it does
//
// A dead letter queue also holds what others put there: brokers by themselves,
// and other frameworks. Each decoder here takes a drained record and returns it
// in the form of our own dead letters, with as much as its headers tell. What
// they do not tell is left empty, and nothing of the record is dropped: payload
// and headers are in the result as they came. A record of our own decodes as
// what it is.
//
// # RabbitMQ
//
// [RabbitMQ] reads x-death, with x-first-death-* and x-last-death-* where the
// broker writes them. The dead letter's reason is rejected_by_broker, and
//
//	x-death's reason  class    code                      meaning
//	rejected          unknown  rabbitmq:rejected         a consumer refused it, and said no more
//	expired           expired  rabbitmq:expired          its time to live ended before it was handled
//	maxlen            unknown  rabbitmq:maxlen           its queue was full, and dropped it
//	delivery_limit    unknown  rabbitmq:delivery_limit   it came back to its queue too often
//
// A delivery limit is not taken for consumer_crash: the broker counts messages
// that were given back as well as consumers that died, and neighbours of the
// message that killed them among both.
//
// The source's topic is the exchange that the message was published to, or its
// queue if that was the default exchange. The consumer's group follows from the
// name of the drained stream where that is a dead letter stream of the topic;
// else it is the name of the queue, which is who consumes. Attempts are how
// often it was rejected or reached the limit; zero if it never was.
//
// # Trust
//
// Headers are evidence and not proof: a producer can write any. Spillway's own
// state is believed of a record that the broker moved only if it came out of a
// stream that only Spillway writes to: the retry or suspect stream of the
// consumer that the state names, or a dead letter stream. RabbitMQ before 4.0
// also lets a producer write the beginning of x-death.
//
// # Failure modes
//
// Nothing makes a decoder panic or fail: it says that the record is not of its
// kind. All functions are safe for concurrent use.
package foreign
