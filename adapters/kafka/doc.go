// Package kafka is the adapter for Apache Kafka, from version 2.4; a cluster that
// lacks a request that is needed is refused with a [VersionError]. Its tests run on
// 4.1.1, and on kfake, also as it answers like 2.4.
//
// # Terms
//
//	topic                a topic
//	consumer group       a consumer group of that name, or see [Config].GroupPerTopic
//	retry stream         topics <topic>.<group>.retry.2s, .4s and so on to .3600s, the tiers
//	parking lot          a topic, <topic>.<group>.parking
//	dead letter stream   a topic, <topic>.<group>.dlq
//	suspect stream       a topic, <topic>.<group>.suspect
//
// Each of our own streams is read by a consumer group of the stream's name, one
// member for all tiers. So members that come and go there never interrupt the
// reading of the topic. A name that Kafka cannot have, because it is too long,
// has other characters, or differs from another topic's in '.' and '_' only,
// gets a hash at its end.
//
// The wire format is watermill-kafka's, whose producers and consumers work with
// ours in both directions; [Config].Marshaler takes any other of its marshalers.
//
// # Capabilities
//
//	Positions         yes
//	DeliveryCount     yes, of crashes and returns: see below
//	Keys              yes
//	NullPayload       yes
//	RepeatedHeaders   yes
//	InPlaceRetry      yes, unless [Config].Order is [OrderNone]
//	DelayStep         0
//	MaxMetadataBytes  no limit but the message's
//	MaxMessageBytes   the cluster's message.max.bytes; our topics take 128 KiB more
//	                  than their source
//
// # Delays
//
// A message that is handed off for a retry is written to the tier of its delay,
// and held by whoever reads that until it is due. A reader reads ahead up to
// [Config].Window messages of each partition and lets go of them in the order of
// their due times. It is on time while rate x (longest - shortest delay of the
// tier) fits the window; beyond that messages come late, which is logged, and are
// not lost. Tiers differ by a factor of two and are fixed, whatever policies say.
// Each is created when it is first needed; other processes find it within five
// seconds. Delays of more than an hour are handed off again every hour.
//
// # Positions
//
// A position can only move to the lowest offset that is not finished. So the
// metadata of each commit has a bitmap of those finished above it, which whoever
// gets the partition next leaves out. At most 16,384 offsets lie between the
// lowest unfinished and the highest read one; then the partition waits.
//
// An ack is a note that the next commit writes, once in [Config].CommitInterval
// and whenever a partition is let go. What was finished since the last commit is
// delivered again after a crash, and only then. A consumer without Spillway that
// takes over a group sees a position, and handles again what is finished above it.
//
// A rebalance waits [Config].RevokeGrace for handlers, never for delays. What is
// still in a handler then goes on if its partition comes back to the process and
// nobody has committed meanwhile; otherwise it settles with an error, and is
// delivered elsewhere.
//
// # Messages that kill
//
// Kafka has no delivery count. The metadata also says whether a partition was let
// go. If it was not, its process has crashed, and what it may have been handling
// counts one crash; the next owner is careful until it has passed all that was
// written by then: it commits what it hands out before it does, with up to 48
// messages ahead, and none ahead of those that have two crashes, so that the third
// is exact. In the suspect stream every one is. Restarts, rebalances and long handlers
// count nothing. A process that was paused or cut off for longer than its session
// says so when it comes back, and what was counted because of it is taken back; the
// verdict on a suspect waits for another time-out of the session. docs/kafka.md has
// the rule, and what it cannot tell.
//
// # Ordering
//
// See [Order]. With the default, messages of one key are handled one at a time and
// in order, as long as none of them is retried: what waits is passed by those
// behind it. With concurrency 1, messages of a partition come in order.
//
// With adapters.RetryInPlace nothing passes a message that waits: it keeps its
// place, and those of its key behind it wait too, while other keys go on. Its
// attempts are counted in a compacted topic, <topic>.<group>.retry.inplace, which
// whoever gets the partition reads; so they survive restarts. What is decided about a
// message after its partition went to another member is not carried out: hand-offs
// fail with adapters.ErrClosed. Of the limits: all
// that waits, and all that waits behind it, counts for [Config].Window, and the
// whole partition waits when 16,384 messages lie behind the oldest one. What is
// parked, suspected or replayed has left its place, and comes back, and is
// retried, without an order. Drain does not see what waits in place.
//
// # Failure modes
//
// Readers join again, at most five seconds apart, until they succeed. Topics that
// are deleted are created anew when their consumer notices, within seconds. The
// metadata of a position also names the topic's id, so that one which was deleted
// and created anew is read from its beginning, not from the old position (from
// Kafka 2.8, and with that version in [Config].Sarama).
// Commits that fail are repeated. Errors about topics are a [TopicError], which
// names the setting and both values. Hand-offs and publishes wait for all replicas
// in sync, are idempotent, and share batches; a large message is written alone.
//
// A reader that stops without letting go is noticed after Consumer.Group.Session.
// Timeout, 10 seconds by default; until then nobody reads its partitions.
//
// # Draining
//
// Drain reads a stream in the name of the group <stream>.drain and commits there
// what was taken. Consumers and drains of one stream leave out what the other has
// finished; while a consumer runs, what is due within five seconds is left to it.
// Two drains of one stream at a time read the same. Peek reads the same and takes
// nothing, and Count says from positions alone how much there is.
//
// # Why a loop of our own
//
// See docs/decisions.md. Of watermill-kafka the wire format, the marshalers and the
// Tracer are used.
//
// # Defaults
//
// See [Config]. A URL has the form kafka://user:password@host:9092,host:9092 or
// kafkas://, with TLS; a user means SASL PLAIN unless [Config].SASL or
// [Config].Sarama says otherwise. There are no options in the URL.
package kafka
