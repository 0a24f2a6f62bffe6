package rabbitmq

import (
	"math"
	"slices"
	"strconv"
	"time"
)

// ladder holds the delays that can be kept, ascending. Every message of a rung
// waits equally long, so that first in is first out and nobody waits behind a
// longer delay.
//
// Four rungs per octave, at 1, 5/4, 6/4 and 7/4 of a power of two, are the
// fewest evenly spaced ones that lengthen a delay by at most a quarter. Two per
// octave would lengthen it by up to 41%. As rungs are declared on first use, a
// policy pays for those between its shortest and longest delay only: 36 queues
// for the default policy, however many consumers share them.
type ladder []time.Duration

// shortestRung starts the first octave.
const shortestRung = 125 * time.Millisecond

func newLadder(shortest, longest time.Duration) ladder {
	var l ladder
	for octave := shortestRung; octave <= longest; octave *= 2 {
		for quarter := range time.Duration(4) {
			// Cut to milliseconds, as x-message-ttl is.
			rung := (octave + octave*quarter/4).Truncate(time.Millisecond)
			if rung >= shortest && rung <= longest {
				l = append(l, rung)
			}
		}
	}
	return l
}

// rung is the shortest one that is at least d, or the longest of all.
func (l ladder) rung(d time.Duration) time.Duration {
	i, _ := slices.BinarySearch(l, d)
	return l[min(i, len(l)-1)]
}

// quantize returns what will be kept for d. Beyond the longest rung a message
// climbs it as often as it fits, and one more rung for the rest.
func (l ladder) quantize(d time.Duration) time.Duration {
	longest := l[len(l)-1]
	switch {
	case d <= 0:
		return 0
	case d > math.MaxInt64-longest:
		return d
	}
	whole := (d - 1) / longest * longest
	return whole + l.rung(d-whole)
}

// step is the most that quantize lengthens d.
func (l ladder) step(d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	return max(l[0]-d, d/4)
}

// rungName names a rung's exchange and queue. The time to live is in the name,
// because a queue's arguments cannot be changed: other delays are other queues.
func rungName(prefix string, rung time.Duration) string {
	return prefix + ".delay." + strconv.FormatInt(rung.Milliseconds(), 10) + "ms"
}

// A queue expires from its head only, so what is parked for a minute must not
// stand behind what is parked for a week. Parking is therefore divided into
// bays, one queue for each doubling of the interval, declared on first use.
// Within a bay the order is that of arrival, which is the order of being due
// as long as intervals are constant.
const longestBay = shortestRung << 24 // 24 days

// bayOf is the bay for what waits that long: the shortest that is at least as
// long.
func bayOf(left time.Duration) time.Duration {
	bay := shortestRung
	for bay < left && bay < longestBay {
		bay *= 2
	}
	return bay
}

func bayName(parking string, bay time.Duration) string {
	return parking + "." + strconv.FormatInt(bay.Milliseconds(), 10) + "ms"
}

// bayNames are the names of all queues that parking may consist of.
func bayNames(parking string) []string {
	names := []string{parking}
	for bay := shortestRung; bay <= longestBay; bay *= 2 {
		names = append(names, bayName(parking, bay))
	}
	return names
}
