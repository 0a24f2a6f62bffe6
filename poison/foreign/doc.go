// Package foreign decodes dead letters, whoever wrote them.
//
// # What it does
//
// A dead letter queue also holds what others put there: brokers by themselves,
// and other frameworks. [Decode] takes a drained record and returns it in the
// form of our own dead letters, with as much as its headers tell. What they do
// not tell is left empty, and nothing of the record is dropped: payload and
// headers are in the result as they came. A record of our own decodes as what
// it is.
//
// # Formats
//
// They are tried in this order, and the first that recognises a record decodes
// it:
//
//	format         is recognised by
//	spillway       our headers, in a dead letter stream of the consumer that they name
//	spring-kafka   kafka_dlt-*, kafka_exception-*, kafka_key-exception-*, kafka_original-*
//	kafka-connect  __connect.errors.*
//	kafka-streams  __streams.errors.*
//	masstransit    MT-Fault-*, MT-Reason
//	nservicebus    NServiceBus.ExceptionInfo.*, NServiceBus.FailedQ
//	spring-amqp    x-exception-message, x-exception-stacktrace
//	watermill      reason_poisoned
//	spillway       our headers, anywhere else
//	share-group    __dlq.errors.*
//	rabbitmq       x-death
//	sqs            the system attribute DeadLetterQueueSourceArn
//	json           a body that envelope.DecodeDeadLetter reads, with an error in it
//	unknown        everything else
//
// Programs come before brokers, because they know why a message failed; a
// message often has the broker's marks as well, from delays. Of two programs'
// marks it cannot be told which were written last. docs/foreign-formats.md says
// for each format what is read and what stays empty.
//
// # Classes
//
// The name of an exception is the dead letter's code. If it means one thing
// wherever it is thrown, as java.net.SocketTimeoutException does, it also gives
// class and nature; otherwise both are unknown. Wrappers, which have one text
// for all causes, are looked through, for which the causes in a stack trace are
// read. Of a trace nothing else is taken; it stays in its header. Error texts
// are redacted and then cut, as those of our own were when they were written.
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
// message that killed them among both. Nor is that of a share group, or the
// receive count of SQS, for the same reason.
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
// The id of a dead letter that others wrote is that of the record which was
// drained: its position there, or else its message id, body and headers, which
// tell one death from the next. Without a message id it takes a time of death,
// or else the id is drawn. What headers and bodies say of the first position, or
// of an id, is shown and never makes two records one.
//
// # Failure modes
//
// Nothing makes a decoder panic or fail, and all that it takes from headers is
// bounded. All functions are safe for concurrent use.
package foreign
