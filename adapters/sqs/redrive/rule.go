package redrive

import (
	"slices"

	"github.com/spillway-mq/spillway/adapters"
)

// Rule is a row of the table of rules.
type Rule struct {
	// Name is that of the findings: lower case, with dashes, frozen.
	Name string
	// Severities that its findings can have, the worst first.
	Severities []adapters.Severity
	// Pair says that it applies to a source and its dead letter queue alone;
	// otherwise it applies to a folder or an account only.
	Pair bool
	// Needs names the fields of [Application] without which it is silent, as the
	// file of --application has them; may be empty.
	Needs string
	// Finds says what the rule finds.
	Finds string
	// Why says what goes wrong then.
	Why string
}

const (
	sevE = adapters.SeverityError
	sevW = adapters.SeverityWarning
	sevI = adapters.SeverityInfo
)

func only(s adapters.Severity) []adapters.Severity { return []adapters.Severity{s} }

// rules is in the order of the documentation: the files, a queue by itself, its
// policy, the graph, who may redrive where, time, counts, sizes, what lies there.
var rules = []Rule{
	{"export-json", only(sevE), true, "", "a file that is not one JSON document in UTF-8: empty, cut off, with a byte order mark, with a key twice, with something behind its end", "what is read from it would be a guess"},
	{"export-shape", only(sevE), true, "", "a file that is no export: not an object with `Attributes`, or an array where one export is wanted", "the queue is not checked"},
	{"queue-identity", only(sevE), true, "", "`QueueUrl` and `QueueArn` both absent, malformed, or not of one queue", "nothing can be compared with it"},
	{"queue-duplicate", only(sevE), true, "", "two exports of one queue; or one file as source and as dead letter queue", "it is not known which one holds"},
	{"queue-name", only(sevE), true, "", "a name with characters that SQS refuses, over 80 characters, or whose `.fifo` does not agree with `FifoQueue`", "the queue cannot be created"},
	{"name-collision", only(sevE), false, "`topics`", "two topics whose messages go to one queue", "each consumer gets messages of the other"},
	{"name-truncated", only(sevI), false, "`topics`", "a topic whose name is too long for a queue, so that the queue's is cut and ends in a hash", "nobody finds the queue by the name of its topic"},
	{"attribute-type", only(sevE), true, "", "an attribute that is not a string; accepted with `--template`", "AWS exports strings only: somebody wrote this by hand, and what AWS has may differ"},
	{"attribute-name", only(sevE), true, "", "an attribute whose name is nearly that of one of SQS", "SQS refuses it, or an emulator ignores it"},
	{"attr-range", only(sevE), true, "", "a value out of the range of its attribute, or no whole number", "SQS refuses it"},
	{"visibility-zero", only(sevE), true, "", "`VisibilityTimeout` 0", "a message is handed out again while it is being handled, and the count runs away"},
	{"fifo-throughput", only(sevE), true, "", "`FifoThroughputLimit` `perMessageGroupId` without `DeduplicationScope` `messageGroup`", "SQS refuses it"},
	{"sse-both", only(sevE), true, "", "`KmsMasterKeyId` and `SqsManagedSseEnabled` `true`", "SQS has one or the other"},

	{"redrive-toplevel", only(sevE), true, "", "`deadLetterTargetArn` or `maxReceiveCount` as attributes, outside of `RedrivePolicy`", "they are no attributes of SQS: emulators ignore them, and nothing is ever moved"},
	{"redrive-object", only(sevE), true, "", "`RedrivePolicy` or `RedriveAllowPolicy` as an object instead of a string that holds one; accepted with `--template`", "AWS exports a string: somebody wrote this by hand, and `SetQueueAttributes` refuses it"},
	{"redrive-json", only(sevE), true, "", "a `RedrivePolicy` that is not a JSON object with exactly the keys `deadLetterTargetArn` and `maxReceiveCount`, or a `RedriveAllowPolicy` that is none with `redrivePermission` and, at most, `sourceQueueArns`", "SQS refuses it, or there is no policy"},
	{"redrive-target-arn", only(sevE), true, "", "`deadLetterTargetArn` missing, or not the ARN of a queue", "nothing can be moved"},
	{"redrive-max-receive-range", only(sevE), true, "", "`maxReceiveCount` missing, no whole number, or outside of 1 to 1000", "SQS refuses it"},

	{"redrive-missing", only(sevE), true, "", "a source without `RedrivePolicy`", "a message that its consumer never deletes comes back until it expires, and then it is lost"},
	{"pair-order", only(sevE), true, "", "the first file is the dead letter queue of the second", "the wrong one would be checked"},
	{"pair-target", only(sevE), true, "", "the policy of the first file names another queue than that of the second", "messages go to a queue that was not checked"},
	{"redrive-dangling", []adapters.Severity{sevE, sevW}, false, "", "a target that is not among the exports; a warning if some could not be read", "where the target does not exist, SQS keeps the message in the source"},
	{"redrive-self", only(sevE), true, "", "a queue that is its own target", "messages never leave it"},
	{"redrive-cycle", only(sevE), false, "", "policies that lead back to where they began", "messages go round until they expire"},
	{"redrive-chain", only(sevE), false, "`roles`", "a dead letter queue whose policy leads back to a queue with consumers", "dead letters are handled again by looking at them"},
	{"dlq-redrive", only(sevE), true, "", "a dead letter queue that has a `RedrivePolicy`", "looking at dead letters moves them on"},
	{"redrive-type", only(sevE), true, "", "a FIFO queue with a standard target, or the other way round", "SQS refuses it"},
	{"redrive-region", only(sevE), true, "", "a target in another region", "SQS does not move messages there"},
	{"redrive-account", only(sevE), true, "", "a target in another account", "SQS does not move messages there"},
	{"redrive-partition", only(sevE), true, "", "a target in another partition, such as `aws-cn`", "SQS does not move messages there"},
	{"parking-redrive", []adapters.Severity{sevE, sevW}, false, "`roles`", "a parking lot with a `RedrivePolicy`; a warning from a count of 1000", "what waits there is received again and again by design, and would be dead-lettered for it"},
	{"dlq-consumed-as-retry", only(sevW), false, "`roles`", "a target that is a retry queue", "its delay does not apply to what SQS moves"},
	{"dlq-unreferenced", only(sevW), false, "`roles`", "a dead letter queue that no policy names", "SQS refuses to move its messages back by itself, and there is no net"},
	{"dlq-shared", only(sevI), false, "", "a dead letter queue of several sources", "moving messages back needs to be told where to"},
	{"exclude-unused", only(sevI), false, "", "an `--exclude` that fits no queue", "the queue may have another name now"},

	{"allow-denyall", only(sevE), true, "", "a dead letter queue whose `RedriveAllowPolicy` denies all", "SQS does not move messages there"},
	{"allow-not-listed", only(sevE), true, "", "a `RedriveAllowPolicy` by queue that does not list the source", "SQS does not move its messages there"},
	{"allow-count", only(sevE), true, "", "a `RedriveAllowPolicy` by queue with no ARN, or more than 10", "SQS refuses it"},
	{"allow-arns-without-byqueue", only(sevE), true, "", "`sourceQueueArns` with another permission than `byQueue`", "SQS refuses it"},
	{"allow-wrong-side", only(sevW), false, "", "a `RedriveAllowPolicy` of a source that lists its own dead letter queue", "it belongs to the dead letter queue, and lists sources"},
	{"allow-open", only(sevI), false, "", "a dead letter queue that every queue of the account may use", "a queue of others may fill it"},
	{"allow-stale", only(sevI), false, "", "a listed source whose policy does not name this queue", "the list is older than the queues"},

	{"dlq-retention-short", only(sevE), true, "", "a dead letter queue that does not keep messages longer than its source", "on a standard queue the age counts from when the message was first sent, so it expires on arrival or soon after"},
	{"dlq-retention-worstcase", []adapters.Severity{sevE, sevW}, true, "", "a standard dead letter queue that keeps messages no longer than it may take until they are moved: count × the longer of visibility and back-off, plus delay; a warning in the strict form", "messages expire on their way"},
	{"dlq-retention-fifo", only(sevW), false, "", "a FIFO dead letter queue that keeps messages for less than 4 days", "nobody looks at it over a long weekend"},
	{"retention-unknown", only(sevI), false, "", "a live server that does not tell how long a source or its dead letter queue keeps messages; AWS does", "whether the dead letter queue keeps them longer is not checked"},
	{"source-retention-schedule", only(sevE), false, "`mode` and `schedule` or `drain`", "a source that keeps messages for less than their retries take", "messages expire between attempts"},
	{"parking-retention", only(sevE), false, "`roles`, `parkingInterval`", "a parking lot that keeps messages for less than its interval", "messages expire before they are looked at"},
	{"visibility-handler", []adapters.Severity{sevE, sevW}, false, "`handlerTimeout`, `heartbeat`", "a visibility below the handler's time limit without a heartbeat, or below three beats", "the message is handed out again while it is being handled"},
	{"visibility-batch", only(sevW), false, "`batch`, `handlerTimeout`", "a visibility below the time that a batch takes", "the last of a batch are handed out again before their turn"},
	{"visibility-lambda", only(sevW), false, "`lambdaTimeout`", "a visibility below six times the function's time limit", "AWS asks for six: throttled batches come back too early"},
	{"visibility-huge", only(sevW), false, "`heartbeat`", "a visibility over an hour without a heartbeat", "after a crash its messages wait that long"},
	{"visibility-poll", only(sevW), false, "", "a visibility below the wait of a long poll: `poll` if that is known, and otherwise 20 s", "what an answer brings that is late, or lost with its connection, is handed out again before its client has given up on it"},
	{"short-poll", only(sevW), false, "`poll`", "`ReceiveMessageWaitTimeSeconds` 0, and receives that ask for no wait", "each looks at some of the servers only, comes back empty although there are messages, and is paid for"},
	{"default-delay", []adapters.Severity{sevE, sevW}, false, "`roles` for main and retry", "`DelaySeconds` on a main or retry queue, an error; on a dead letter queue, a warning", "a client cannot ask for no delay, so it is added to each message, also at each hop"},
	{"fifo-delay-queue", only(sevE), false, "", "a queue named `…-delay.fifo` without a delay of 900", "the scheme of NServiceBus counts hops of 900 s"},

	{"mrc-one", only(sevW), true, "", "`maxReceiveCount` 1", "a deployment, or a poll that was cancelled, dead-letters a message that nobody has tried"},
	{"mrc-low", only(sevW), false, "", "`maxReceiveCount` 2 to 4", "deployments and abandoned batches count too"},
	{"mrc-high", only(sevW), false, "", "`maxReceiveCount` over 100", "a message that kills its consumer does so that often"},
	{"mrc-vs-attempts", only(sevE), false, "`mode`, `attempts`", "retries in place, and a count that is no greater than the attempts", "SQS moves the message before it is given up, without the reason"},
	{"mrc-batch", only(sevW), false, "`batch`, `attempts`", "batches, and a count less than 5 above the attempts", "each failure in a batch spends a receive of its neighbours"},

	{"size-family", []adapters.Severity{sevE, sevI}, true, "", "a dead letter queue, or by role a retry or parking queue, with a smaller `MaximumMessageSize` than the main one; info in a folder if equal and below 1 MiB", "a message of full size cannot be handed on, and one with evidence neither"},
	{"fifo-content-dedup", []adapters.Severity{sevE, sevW}, false, "`roles`; `noDeduplicationIds` for the error", "`ContentBasedDeduplication` on a FIFO retry or dead letter queue", "a second copy of a body within 5 minutes is accepted and dropped"},
	{"fifo-mode", only(sevE), false, "`mode`", "copies with a delay on a FIFO queue", "SQS refuses a delay for one message of a FIFO queue"},
	{"fifo-dlq-order", only(sevI), false, "", "a FIFO source with a policy", "a message that is moved is overtaken by those behind it"},
	{"sse-weaker-dlq", only(sevW), false, "", "a source encrypted with a key of KMS whose dead letter queue is not", "dead letters are less protected than the messages were"},
	{"sse-cross-key", only(sevW), false, "", "different keys of KMS on a source and its dead letter queue", "moving messages needs rights on both"},
	{"policy-public", only(sevW), false, "", "an access policy that allows everybody without a condition", "strangers may send or read"},

	{"dlq-old", only(sevW), false, "`oldest`", "a dead letter queue whose oldest message is older than three quarters of its retention", "it is deleted soon, and nobody has looked at it"},
	{"dlq-not-empty", only(sevI), false, "", "a dead letter queue with messages in it", "somebody should look"},
	{"inflight-near-quota", only(sevW), false, "", "more than 90,000 messages in flight", "at 120,000 nothing is handed out any more"},
	{"delayed-backlog", only(sevI), false, "", "messages that wait for their delay", "they are in no other number"},
}

// Rules returns all rules. They are the caller's to change.
func Rules() []Rule {
	all := slices.Clone(rules)
	for n := range all {
		all[n].Severities = slices.Clone(all[n].Severities)
	}
	return all
}

// Unproven are the sentences on what a check of attributes cannot prove.
func Unproven() []string {
	return []string{
		"that the handler leaves failures undeleted: a message that is deleted, or acknowledged, after an error never reaches the dead letter queue",
		"on which receive the move happens: after maxReceiveCount receives the next one moves it, and deployments, crashes and looks in the console are receives too",
		"how long it takes: at least maxReceiveCount times the visibility timeout if nothing shortens it, and attribute changes take up to 60 s to hold, of retention 15 minutes",
	}
}
