// Package policy decides what becomes of a message that a handler could not
// process: another attempt later, the parking lot, the dead letter stream, or
// back to the broker.
//
// It is arithmetic and nothing else. It reads no clock, draws no random
// number, keeps no state and does no I/O, so a decision can be explained, and
// tested, from its inputs. All functions are safe for concurrent use as long
// as nobody changes [Policy].Classes.
//
// # What it does
//
// [Decide] asks, in this order:
//
//  1. Is the consumer closing? Then [Return]: shutdown is not a failure.
//  2. Was the message replayed Policy.MaxReplays times already? Then
//     [DeadLetter] with [ReasonReplayLimit], whatever the failure.
//  3. Does the failure ask to be parked, or is it ambiguous and either parked
//     before or out of attempts? Then [Park], until the parking deadline, and
//     [DeadLetter] with [ReasonParkingDeadline] from there on.
//  4. Are the attempts used up? All counted attempts, whatever ended them, are
//     compared with the limit of the nature of the failure at hand. So two
//     transient failures and then a permanent one make three attempts. Then
//     [DeadLetter], with the reason of the table below.
//  5. Else [Retry].
//
// On a dead letter stream [DeadLetter] becomes [Return], because such a stream
// must never feed itself. Retries and parking work there as anywhere.
//
// # Reasons
//
// A reason names what ended the message, and with it what an operator can do.
//
//	nature at the end    class            limit   reason
//	permanent            undecodable      any     undecodable
//	permanent            consumer_crash   any     consumer_crash
//	permanent            any other        1       permanent
//	permanent            any other        above   attempts_exhausted
//	transient, unknown   any              any     attempts_exhausted
//	ambiguous            any              any     parking_deadline
//
// Somebody who allows a permanent failure several attempts does not believe
// that it is permanent; then the reason says that the attempts did not help.
// A body that cannot be read stays undecodable however often it was tried.
// Nature means the nature after [Override].
//
// # Delays
//
// The delay before the next attempt is a pure function of the attempts counted
// so far and of a number u in [0,1): see [Backoff]. [Draw] makes u from the
// identity of the message and the attempt, so that two copies of a message are
// due at the same instant, while two messages that failed together are not.
//
// A failure that names a RetryAfter is tried again no sooner than that, or
// than MaxRetryAfter if it asks for more. What asks many messages to wait
// asks all of them for the same time; so jitter spreads them over half of that
// time again, and only to the later side.
//
// # Age
//
// MaxAge counts from the first attempt. No attempt is scheduled beyond it: a
// retry that would be due later is not made, and the message is dead-lettered
// at once with [ReasonTooOld], because waiting would change nothing and an
// effect that late is not wanted. Parking ends at the age limit if that comes
// before the parking deadline. A message that is dead-lettered for another
// reason anyway keeps that reason. Where the first attempt is unknown there is
// no age, and no limit on it.
//
// # Defaults
//
// The zero [Policy] is the default policy and it is finite: transient failures
// get 12 attempts and are given up after about 23m30s, unknown ones 5,
// permanent ones 1, ambiguous ones 3 and then 24 h in the parking lot, or 1 h
// if they name no reference. [Policy.String] prints any policy in this way.
//
// # Failure modes
//
// [Policy.Validate] refuses nonsense and names all of it at once. [Decide]
// itself never fails: with a policy that was not validated it still never
// makes a due time before now or more than [MaxDelay] ahead, and never allows
// more than [MaxAttempts].
package policy
