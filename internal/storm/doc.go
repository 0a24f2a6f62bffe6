// Package storm breaks everything that can break around consumers on a real
// broker, for a while, and then looks for every message by its id. The command
// in internal/storm/cmd runs it; see docs/reliability.md.
//
// # Parts
//
//	script      what the handler does with a message: a function of seed and id
//	ledger      what each process saw and did, a file per process
//	consumer    a process with Spillway and the scripted handler
//	producer    a process that publishes each message until that is confirmed
//	target      a broker: how it starts, and what can be done to it
//	proxy       the network between the processes and the broker
//	storm       the driver: kills, cuts, restarts, then lets everything drain
//	check       compares ledgers with what lies in the streams
//
// A broker joins with one file that implements [Target]; see memory.go,
// rabbitmq.go and kafka.go.
//
// # What is checked
//
// For each message and each of the two consumer groups on its topic:
//
//   - it is in at least one end state: processed, retry, parking, dead letter,
//     last resort, or the broker's own place for what it could not deliver; or was
//     in a stream that the storm deleted;
//   - no more often than doubtful hops explain: a publish or a hand-off that was
//     repeated because it was not confirmed, an acknowledgement that a fault may
//     have swallowed, a move by a broker that was killed meanwhile. Each
//     duplicate is listed with the hop that made it;
//   - no attempt began before its due time, as the hand-off wrote it;
//   - no group saw what another group handed off;
//   - payload, headers and their types are the producer's, wherever it was seen;
//   - no message that the script lets succeed was given up, except as suspect of
//     killing processes, which a message cannot be told from whose processes the
//     storm killed;
//   - outputs exist for what was processed, and only for that.
//
// The checker is only worth as much as its own tests: they feed it histories
// with one of these faults each.
//
// # Ledgers and kill -9
//
// Each event is one write to a file opened for appending, before the step that
// it announces or after the step that it reports. What was written survives the
// death of the process, without fsync, because it is the kernel's by then; only
// the machine must not die. The last line of a killed process may be torn.
package storm
