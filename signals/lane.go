package signals

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/middleware"
)

// laneKey names where deliveries come from and which handler they go to.
// There are as many as partitions, streams and handlers, never as messages.
type laneKey struct {
	topic, group string
	stream       adapters.Stream
	handler      string
	partition    int32
}

// lane is what deliveries with one laneKey share: the series that every
// message moves, looked up once, and what is in flight.
type lane struct {
	topic, consumer, stream, handler, partition string // as labels

	early                      prometheus.Counter
	lateness                   prometheus.Observer
	attempts                   prometheus.Counter
	succeeded, failed          prometheus.Observer
	processed, processedReplay prometheus.Counter

	mu       sync.Mutex
	inFlight int
	flights  map[flightKey]flights
	// failing counts flights by the label of the stream that does not take
	// them. Entries stay at zero, so that the gauge comes down instead of
	// disappearing.
	failing map[string]int
}

// flightKey tells the deliveries of a lane apart. Attempt and delivery count
// are left out: a chain may learn them between start and outcome.
type flightKey struct {
	id     string
	offset int64
}

func keyOf(m *middleware.MessageInfo) flightKey { return flightKey{m.MessageID, m.Offset} }

// flight is a delivery that has started and has no outcome yet.
type flight struct {
	since time.Time
	// failingTo is the stream that does not take it, empty while none refuses.
	failingTo string
}

// flights are those with one key, in the order of their start: nearly always
// one, so that is kept without an allocation.
type flights struct {
	first flight
	more  []flight
}

func (fs *flights) at(i int) *flight {
	if i == 0 {
		return &fs.first
	}
	return &fs.more[i-1]
}

// find returns the index of the first flight whose hand-off is failing, or is
// not, as asked; 0 if there is none such.
func (fs *flights) find(failing bool) int {
	for i := range 1 + len(fs.more) {
		if (fs.at(i).failingTo != "") == failing {
			return i
		}
	}
	return 0
}

func (l *lane) start(k flightKey, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.inFlight++
	fs, twin := l.flights[k]
	if twin {
		fs.more = append(fs.more, flight{since: at})
	} else {
		fs.first = flight{since: at}
	}
	l.flights[k] = fs
}

func (l *lane) handoffFailed(k flightKey, to string, tries int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	fs, ok := l.flights[k]
	if !ok {
		return
	}
	// Among twins, the first failure belongs to one that was not failing yet.
	f := fs.at(fs.find(tries > 1))
	if f.failingTo == to {
		return
	}
	l.moveFailing(f.failingTo, to)
	f.failingTo = to
	l.flights[k] = fs
}

func (l *lane) end(k flightKey, o middleware.Outcome) {
	l.mu.Lock()
	defer l.mu.Unlock()
	fs, ok := l.flights[k]
	if !ok {
		return
	}
	l.inFlight--
	// Among twins: what was processed needed no hand-off, so none was failing.
	i := fs.find(o != middleware.OutcomeProcessed)
	l.moveFailing(fs.at(i).failingTo, "")
	if len(fs.more) == 0 {
		delete(l.flights, k)
		return
	}
	if i == 0 {
		fs.first, i = fs.more[0], 1
	}
	fs.more = slices.Delete(fs.more, i-1, i)
	l.flights[k] = fs
}

// moveFailing moves one flight from a failing stream to another. Empty means
// no stream.
func (l *lane) moveFailing(from, to string) {
	if from != "" {
		l.failing[from]--
	}
	if to != "" {
		l.failing[to]++
	}
}

// oldestAge is called with mu held, and bounded by what the consumers may hold
// unsettled.
func (l *lane) oldestAge(now time.Time) time.Duration {
	var age time.Duration
	for _, fs := range l.flights {
		for i := range 1 + len(fs.more) {
			age = max(age, now.Sub(fs.at(i).since))
		}
	}
	return age
}

// lanes are copied when one is added, which is rare, so that the three look-ups
// of each message take no lock.
type lanes struct {
	mu sync.Mutex
	m  atomic.Pointer[map[laneKey]*lane]
}

func (ls *lanes) all() map[laneKey]*lane {
	if m := ls.m.Load(); m != nil {
		return *m
	}
	return nil
}

func (ls *lanes) find(k laneKey) *lane { return ls.all()[k] }

// add returns the lane of k, which is l unless another was added meanwhile.
func (ls *lanes) add(k laneKey, l *lane) *lane {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if have := ls.find(k); have != nil {
		return have
	}
	m := maps.Clone(ls.all())
	if m == nil {
		m = map[laneKey]*lane{}
	}
	m[k] = l
	ls.m.Store(&m)
	return l
}
