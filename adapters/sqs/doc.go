// Package sqs is the adapter for Amazon SQS.
//
// # Terms
//
//	topic                a queue of that name
//	consumer group       whoever reads the queue: a queue has one group
//	retry stream         a standard queue, <topic>_<group>_retry
//	delay                DelaySeconds of a message, at most 15 minutes
//	parking lot          a standard queue, <topic>_<group>_parking
//	dead letter stream   a queue, <topic>_<group>_dlq, of the topic's kind
//	suspect stream       a standard queue, <topic>_<group>_suspect
//	key                  MessageGroupId, where there is one
//	position             the time of sending; SQS has no other
//
// The wire format is that of watermill-aws: the body, one String attribute for
// each key of the metadata, and the UUID as _watermill_message_uuid. So its
// producers and consumers work with ours in both directions.
//
// # Names
//
// Of a topic or stream, a dot becomes an underscore. A name that SQS would still
// not allow, or that has more than 80 characters, is cut and ends in eight digits
// of its SHA-256. The suffix .fifo stays the end, also of a dead letter stream's
// name. Two names that would be one queue are an error at start.
// [Config].Queues names a queue that exists, and [Config].Prefix begins the names
// of all others. A topic may also be the full URL of
// a queue, which is then taken to exist.
//
// # Capabilities
//
//	Positions         no
//	DeliveryCount     ApproximateReceiveCount
//	Keys              no partitions
//	NullPayload       no
//	RepeatedHeaders   no
//	OneGroup          yes: give each group a queue, for example with SNS
//	InPlaceRetry      yes, by visibility: in order on FIFO queues
//	CountedInPlace    yes, a message in a queue cannot be changed
//	MaxInPlaceDelay   11 hours
//	DelayStep         1 second: SQS knows whole seconds, and delays are rounded up
//	MaxMetadataBytes  none of its own
//	MaxMessageBytes   960 KiB, see [Config].MaxMessageBytes; attributes count too,
//	                  and a body that is not text takes a third more
//
// # Messages
//
// SQS takes text without control characters, not empty, with at most ten
// attributes that are not empty either. We write at most seven, because tracing
// agents add their own. What does not fit is packed as JSON into the attribute
// spillway-metadata, together with Spillway's state; a body that is empty or not
// text is encoded, and spillway-encoding says how. Attributes of other types
// than String keep their type, as the type of a header. An AWSTraceHeader and a
// MessageGroupId go with every copy.
//
// # Delivery semantics
//
// At least once. A hand-off is sent and confirmed before its source is deleted.
// Longer delays than [Config].MaxDelay take several hops. Each receive is one
// attempt: nothing is tried again in the process, and nothing sleeps in a
// handler.
//
// While a message is out its lease is renewed, so that a handler may take longer
// than the visibility. A lease that is lost, because the network was away, or the
// 12 hours of SQS are over, ends the handler's context with
// [adapters.ErrLeaseLost]; nothing is handed off then, and the work of a handler
// that succeeds all the same is deleted if SQS still lets us.
//
// What is returned is visible again after a second, and later the more often it
// was received; at a shutdown, at once. SQS counts that as a receive, like a
// crash, and so any message may become a suspect. Suspects are received only when
// nothing else is in a handler of the process, so that their count means crashes
// of their own, and are written anew when they go back. Others are written anew
// when half of MaxReceiveCount is reached, before SQS would take them for failed.
//
// # Dead letters
//
// Two doors lead to the dead letter queue: Spillway's, with the reason, and SQS's
// own redrive policy, the net below, after [Config].MaxReceiveCount receives. A
// queue that has no policy gets one; a queue whose policy has another target is
// refused, with the way out. Messages that the console or a move task brings back
// to the main queue carry the state of a dead letter; they are recognised as
// replays and have a fresh budget.
//
// Drain shows what SQS says about a record as headers of type "system", such as
// sqs:DeadLetterQueueSourceArn. It waits for messages whose delay has not ended,
// because SQS shows them to nobody.
//
// # Ordering
//
// None on standard queues. FIFO topics need a mode. With [adapters.RetryInPlace] a
// failed message stays where it is, invisible until its next attempt, and its
// group waits behind it; others go on. Its attempt is SQS's receive count, which
// returns and crashes raise too, so that a message may have fewer attempts than
// the policy says, never more; there are no suspects. SQS hides a message for 12
// hours from its receive, handling and waiting together: a policy that may ask for
// a delay of more than 11 hours is refused at start, and a message whose handler
// took so long that less is left comes again early, with a warning. Parking,
// replays and dead letters leave the order by nature. With [Config].RelaxedFIFO messages wait in a standard queue, and those
// behind them overtake. Without either a FIFO topic is refused at start.
//
// Publishing to a FIFO queue needs the metadata MessageGroupId. The deduplication
// id is the metadata MessageDeduplicationId, which consumers do not see, for their
// outputs would inherit it; or else it follows from UUID and payload.
//
// # Closing
//
// A long poll in flight is not cut off: what SQS is about to send would be hidden
// from everybody for the whole visibility. It goes on aside, and what it brings is
// released, as long as the process lives. [Config].CloseWait waits for it.
//
// # The URL
//
//	sqs://?region=eu-west-1                  AWS, with the credentials of the environment
//	sqs://localhost:9324?region=elasticmq    another server, by http
//	sqs://host?tls=true                      by https
//	sqs://key:secret@host                    with credentials
//
// More options are queue=STREAM:QUEUE for [Config].Queues, repeated, and
// visibility, pollWait, maxDelay, closeWait, batchSize, maxReceiveCount, prefix,
// account, verifyOnly and relaxedFifo for the fields of those names.
//
// # Permissions
//
// Main queue: ReceiveMessage, DeleteMessage, ChangeMessageVisibility, GetQueueUrl,
// GetQueueAttributes; SetQueueAttributes to add the net; SendMessage to publish,
// and to write anew. The consumer's own queues: the same, and CreateQueue unless
// [Config].VerifyOnly.
//
// # Why not on watermill-aws
//
// Its subscriber drops acknowledgements once it closes, leaves the rest of a batch
// hidden after a nack, has no heartbeat, goes round in circles with what it cannot
// decode, and panics on a UUID that is not a string; its publisher knows neither
// delay nor group. Taming both takes more code than the loop here.
package sqs
