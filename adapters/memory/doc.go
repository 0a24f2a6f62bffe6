// Package memory is a message broker inside the process: small, but a real
// one. It has topics with partitions and offsets, consumer groups with
// competing consumers, delivery counts, delays, redelivery and size limits, and
// it keeps records until every group is done with them. Use it to run Spillway
// without a broker, and to test what your handlers and your operations do when
// something breaks.
//
// # Terms
//
//	topic, stream    a log of one or more partitions; made on first use
//	partition        chosen by the hash of a record's key; records without a
//	                 key go to the partitions in turn
//	consumer group   a cursor over a topic; its subscriptions compete
//	process          one view of the broker: what one Open returned. A crash
//	                 hits a whole process
//
// # What it can do
//
//	Positions        yes: partition, offset, timestamp
//	DeliveryCount    yes, exact
//	Keys             yes
//	NullPayload      yes
//	RepeatedHeaders  yes
//	InPlaceRetry     no; Ensure and Subscribe answer with ErrUnsupported
//	delays           exact: Quantize changes nothing
//
// # Sharing
//
// A [Broker] made by [New] lives until [Broker.Close]. Each Open of its
// [Broker.Opener] is a view of the same data, so that several Spillway
// instances, which play several processes, work on one broker. Closing a view
// closes its subscriptions and nothing else. The package's own [Opener] makes a
// fresh broker for each Open, which dies with it:
//
//	memory://
//	memory://?partitions=4&maxMessageBytes=262144
//
// The options are those of [Config] with a small first letter. Unknown and
// repeated options are refused, and so is everything else in the URL: there is
// no host to connect to.
//
// # Keeping and removing
//
// A group that Ensure makes receives everything that its topic still holds,
// oldest first. A record is removed when all groups that its topic has by then
// acknowledged it; a topic without groups keeps everything, which is why dead
// letters stay where they are. [Config.Retain] keeps the records of the
// application's topics in any case.
//
// # Ordering
//
// A group hands out each partition's records in the order of their offsets. A
// record that comes back, whatever the way, is handed out again before later
// ones of its partition. With a single subscription of Concurrency 1 that is
// the order in which messages are handled. A subscription takes turns between
// its main and its retry stream, so that a backlog on one never starves the
// other. The suspect stream is served one record at a time per group, in
// addition to Concurrency.
//
// A record with a due time gets its offset when it is due, so that the offsets
// of a retry stream are the order of release.
//
// # Delivery counts
//
// The count rises by one each time a record is put into a subscription's
// Deliveries, and falls again if the subscription ends before anybody received
// it from there. Whatever was received and not settled when a process died has
// been counted. A subscription with free places holds up to Concurrency records
// that its competitors then do not get, as with a prefetch limit.
//
// # Failure modes
//
// By itself this broker never fails, except for the limits of [Config]. What
// fails in production is played with a script of [Fault] values, given to
// [Broker.Inject]. The third hand-off to the dead letter stream, and its first
// repetition, fail:
//
//	broker.Inject(memory.Fault{
//		On: memory.Handoff, Stream: "orders.billing.dlq",
//		Skip: 2, Times: 2,
//		Do: memory.Fail(errors.New("no quorum")),
//	})
//
// [Broker.FaultsLeft] says what of the script has not happened yet; assert that
// it is empty, so that a test cannot pass without its fault.
//
// [Broker.Crash] and [Broker.Disconnect] break processes and subscriptions at a
// moment of the test's choosing.
//
// # Time
//
// All waiting goes through the time package and no lock is held meanwhile, so
// that inside a testing/synctest bubble twenty minutes of backoff take no time.
// Make the broker inside the bubble. There are no goroutines, except for one
// per delivery that a fault holds back, which Stop and Close wait for. What can
// be delivered is in Deliveries before the call returns that made it so, Publish
// for example: a test of one subscription needs no waiting at all.
package memory
