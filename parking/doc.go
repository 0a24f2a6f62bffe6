// Package parking holds the rules of the parking lot: where messages wait for
// something outside, such as a reference that has not arrived or an approval,
// apart from those that have failed for good.
//
// # Re-check
//
// A parked message lies in a stream of its own, so that operators see what
// waits. After a constant interval it moves to its consumer's retry stream and
// the handler is called again. If the failure is still ambiguous the message is
// parked again. None of these calls counts as an attempt. No database is
// needed: the handler finds out by itself whether the wait is over.
//
// # Deadline
//
// It counts from the first parking: 24 h for a message that names a reference,
// 1 h for one that does not, configurable in policy.Parking. The last look is
// taken at the deadline; a message that still waits is then dead-lettered with
// the reason parking_deadline.
//
// # Leaving
//
// A message leaves the lot when its handler succeeds, or when the attempt fails
// in another way: then that failure is decided about as if the message had
// never been parked.
package parking
