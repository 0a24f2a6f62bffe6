// Package sqsfake is an in-process fake of Amazon SQS that enforces what AWS
// documents: it refuses what the service refuses. It speaks the JSON protocol of
// current SDKs, over HTTP or without any network.
//
//	fake := sqsfake.New(sqsfake.Config{})
//	defer fake.Close()
//	client := sqs.New(sqs.Options{
//		Region:      "us-east-1",
//		Credentials: credentials.NewStaticCredentialsProvider("id", "secret", ""),
//		HTTPClient:  fake.Client(),
//	})
//
// It is for tests. No program of this module may link it.
//
// # Time
//
// Used through [Server.Client] or as an http.RoundTripper, no socket is open,
// long polls wait on channels and timers, and all time is time.Now. So it runs
// in a testing/synctest bubble, if it was made there: a retention of 14 days
// takes no time, and every instant is exact. Call [Server.Close] before the
// bubble ends: it ends long polls whose clients are gone.
//
// # What it enforces
//
//   - Queue names, and what a FIFO queue's name must be.
//   - Names and ranges of queue attributes; QueueNameExists for a queue that
//     is there with other values; a minute before a deleted name is free.
//   - RedrivePolicy and RedriveAllowPolicy: keys, 1 to 1000 receives, a target
//     that exists, is of the same type, account and region, and allows it.
//   - Messages: the characters of XML 1.0, no empty body, 10 attributes with
//     legal names, types and non-empty values, body and attributes together at
//     most the queue's MaximumMessageSize, 0 to 900 seconds of delay.
//   - Batches: 1 to 10 entries, distinct legal ids, 1 MiB for all together.
//   - FIFO: a group id, 5 minutes of deduplication by id or by content and by
//     queue or by group, one group in flight at a time, no delay by message.
//   - Visibility of 0 to 12 hours, and 12 hours in all counted from the receive.
//   - ApproximateReceiveCount; the move to the dead letter queue on the receive
//     that would exceed maxReceiveCount, where the count and, on standard
//     queues, the retention continue, without the delay of the target; on FIFO
//     queues the message's id becomes its deduplication id.
//   - Retention: what is too old is deleted, and goes to no dead letter queue.
//   - Move tasks: their source must be a dead letter queue, one runs at a time,
//     messages get a new id, time and count, and without a destination a message
//     that was sent to the queue directly fails the task.
//   - Quotas of messages in flight, the minute between purges.
//
// # Where AWS leaves it open
//
// The documentation allows several behaviours; the fake takes the one that is
// harder for a client.
//
//   - A long poll whose client went away goes on, and may take messages, which
//     nobody then has until their visibility ends.
//   - Deleting by a handle that is not the newest one succeeds and deletes
//     nothing.
//   - After its visibility ended, a message that nobody else has received is
//     MessageNotInflight to ChangeMessageVisibility; one that somebody has, or
//     that was deleted, is an InvalidParameterValue. On FIFO queues all of these
//     are an InvalidParameterValue, also for DeleteMessage.
//   - A standard queue delivers a message again if it must, but never twice at
//     the same time: use a fault for that.
//   - Cycles of redrive policies are accepted, as is a queue that is its own
//     target.
//   - A move task goes on until nothing is visible in its source: what comes back
//     there meanwhile is moved again.
//   - If the dead letter queue was deleted, messages stay on their source and
//     are delivered on.
//
// # Where it deviates
//
//   - Everything takes effect at once; AWS takes up to a minute for attributes,
//     deletions and move tasks, and up to 15 for MessageRetentionPeriod.
//   - A FIFO queue looks at all messages for a group that is free, AWS at the
//     first 120,000.
//   - Counters are exact.
//   - Signatures, policies and encryption are not checked: inject AccessDenied.
//   - ReceiveRequestAttemptId is checked but does not repeat a receive.
//   - AddPermission and RemovePermission are refused as unsupported.
//   - Fair queues keep the group id and do not reorder.
//   - A lone surrogate in a JSON string arrives as U+FFFD.
package sqsfake
