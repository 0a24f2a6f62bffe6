package storm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/envelope"
	"github.com/spillway-mq/spillway/poison"
)

// Config of a storm. Zero fields mean the defaults.
type Config struct {
	Broker string // name of a target; default memory
	// Duration of the faults, and longer if there was not one of each by then;
	// default 1 min.
	Duration time.Duration
	Seed     uint64 // of the script, and of the order of faults
	// Messages that are published meanwhile; default 100 for each second.
	Messages int
	// Consumers that act, in processes of their own; default 4. Two more watch.
	Consumers   int
	Concurrency int // of each; default 16
	// Dir gets ledgers and logs of the processes. It must be empty.
	Dir string
	// Flow is how many messages must come to an end between two faults, for at most
	// half a minute: on a busy machine, faults that follow each other leave no time
	// for anything to fail. Default 0: none.
	Flow int
	// Only runs just the trials whose names contain one of these; empty means all.
	Only []string
	// Keep leaves the broker running, for a look after a violation.
	Keep bool
	// Log gets a line for each fault; nil means none.
	Log io.Writer
}

func (c Config) withDefaults() Config {
	if c.Broker == "" {
		c.Broker = "memory"
	}
	if c.Duration == 0 {
		c.Duration = time.Minute
	}
	if c.Messages == 0 {
		c.Messages = max(1, int(100*c.Duration.Seconds()))
	}
	if c.Consumers == 0 {
		c.Consumers = 4
	}
	if c.Concurrency == 0 {
		c.Concurrency = 16
	}
	if c.Log == nil {
		c.Log = io.Discard
	}
	return c
}

// watchers is how many processes of the watching group there are.
const watchers = 2

// Report is what a storm did, and what came of it.
type Report struct {
	Config  Config
	Groups  int      // on the topic
	Version string   // of the broker
	Clients []string // modules
	Faults  map[string]int
	// Lives is how many processes there were, and Killed how many of them did not
	// end in good order during the faults; played processes always do.
	Lives, Killed int
	Took          time.Duration
	// Held is what the broker still counts though everything was drained.
	Held    map[string]int
	Drained time.Duration // from the last fault until everything was quiet
	Mended  []string      // streams that somebody had to mend, see mender
	*Result
}

// driver is a storm that runs.
type driver struct {
	cfg       Config
	target    Target
	script    Script
	proxy     *Proxy // nil if there is no network
	url       string // for the processes
	ledger    *Ledger
	acting    []*slot
	watching  []*slot
	producer  *slot
	faults    map[string]int
	guests    int // processes that came and went
	lives     int // of guests
	started   time.Time
	consumers []adapters.Consumer
	groups    []string // on the topic: the watching one is missing where a topic has one group
}

// Run runs a storm and checks what it left. The error is nil also for a storm
// that found violations; it says that the storm itself could not be run.
func Run(ctx context.Context, cfg Config) (report *Report, err error) {
	cfg = cfg.withDefaults()
	target, err := NewTarget(cfg.Broker)
	if err != nil {
		return nil, err
	}
	d := &driver{
		cfg: cfg, target: target, script: Script{Seed: cfg.Seed, Messages: cfg.Messages},
		faults: map[string]int{}, started: time.Now(),
		groups: []string{groupActing, groupWatching},
	}
	if d.ledger, err = OpenLedger(cfg.Dir, "driver"); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.ledger.Close()) }()
	if err := target.Start(ctx); err != nil {
		return nil, fmt.Errorf("storm: start %s: %w", cfg.Broker, err)
	}
	defer func() {
		if !cfg.Keep {
			err = errors.Join(err, target.Stop(context.WithoutCancel(ctx)))
		}
	}()
	d.url = target.URL()
	if addr := target.Addr(); addr != "" {
		if d.proxy, err = NewProxy(addr, target.ProxyAddr()); err != nil {
			return nil, err
		}
		defer d.proxy.Close()
		d.url = target.Via(d.proxy.Addr())
	}
	if err := d.withBroker(ctx, func(b adapters.Broker) error {
		if b.Capabilities().OneGroup {
			d.groups = d.groups[:1]
		}
		for _, group := range d.groups {
			d.consumers = append(d.consumers, adapters.Consumer{Topic: topicIn, Group: group, Concurrency: 1})
		}
		d.consumers = append(d.consumers, adapters.Consumer{Topic: topicOut, Group: groupSink, Concurrency: 1})
		for _, c := range d.consumers {
			if err := b.Ensure(ctx, c); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		return nil, err
	}
	defer d.end()
	return d.run(ctx)
}

// withBroker opens the broker itself, past the proxy.
func (d *driver) withBroker(ctx context.Context, fn func(adapters.Broker) error) error {
	u, err := url.Parse(d.target.URL())
	if err != nil {
		return err
	}
	b, err := d.target.Opener().Open(ctx, adapters.OpenParams{URL: u, Names: adapters.Names{}.WithDefaults(), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	return errors.Join(fn(b), b.Close(ctx))
}

func (d *driver) say(format string, args ...any) {
	fmt.Fprintf(d.cfg.Log, "%7.1fs  %s\n", time.Since(d.started).Seconds(), fmt.Sprintf(format, args...))
}

func (d *driver) launch(p Part) (process, error) {
	if d.target.InProcess() {
		return play(p, d.target), nil
	}
	return execute(p)
}

func (d *driver) run(ctx context.Context) (*Report, error) {
	part := Part{Broker: d.cfg.Broker, URL: d.url, Dir: d.cfg.Dir, Script: d.script, Concurrency: d.cfg.Concurrency}
	start := func(name string, p Part) *slot { return startSlot(name, p, d) }
	for i := range d.cfg.Consumers {
		p := part
		p.Role, p.Group = roleConsumer, groupActing
		d.acting = append(d.acting, start(fmt.Sprintf("%s-%d", p.Group, i), p))
	}
	if slices.Contains(d.groups, groupWatching) {
		for i := range watchers {
			p := part
			p.Role, p.Group = roleConsumer, groupWatching
			d.watching = append(d.watching, start(fmt.Sprintf("%s-%d", p.Group, i), p))
		}
	}
	p := part
	p.Role, p.Begin, p.Interval = roleProducer, time.Now(), d.cfg.Duration*9/10/time.Duration(d.cfg.Messages)
	d.producer = start("producer", p)

	w := newWatch(d.script, d.cfg.Dir, d.groups)
	if err := d.untilItFlows(ctx, w); err != nil {
		return nil, err
	}
	d.say("%d messages, %d + %d consumers, seed %d, for %s", d.cfg.Messages, len(d.acting), len(d.watching), d.cfg.Seed, d.cfg.Duration)
	if err := d.trouble(ctx, w); err != nil {
		return nil, err
	}
	calm := time.Now()
	d.say("calm: nothing fails any more")
	var mended []string
	if m, ok := d.target.(mender); ok {
		var err error
		if mended, err = m.Mend(ctx); err != nil {
			return nil, fmt.Errorf("storm: mend the broker: %w", err)
		}
	}
	for _, s := range slices.Concat(d.acting, d.watching) {
		s.change(func(p *Part) { p.Calm = true })
		s.hit(process.kill)
	}
	if err := d.untilQuiet(ctx, w); err != nil {
		return nil, err
	}
	drained := time.Since(calm)
	if err := d.end(); err != nil {
		return nil, err
	}
	if err := w.read(); err != nil {
		return nil, err
	}
	h := History{Script: d.script, Topic: topicIn, Groups: d.groups, Acting: groupActing, Events: w.events}
	if err := d.withBroker(ctx, func(b adapters.Broker) error { return d.drain(ctx, b, &h) }); err != nil {
		return nil, fmt.Errorf("storm: read what is left: %w", err)
	}
	held, err := d.held(ctx)
	if err != nil {
		return nil, fmt.Errorf("storm: what the broker still holds: %w", err)
	}
	if err := readLastResorts(d.cfg.Dir, &h); err != nil {
		return nil, err
	}
	d.say("checking %d events", len(h.Events))
	r := &Report{Config: d.cfg, Groups: len(d.groups), Version: d.target.Version(), Clients: d.target.Clients(), Faults: d.faults, Drained: drained, Mended: mended, Held: held, Result: Check(h)}
	r.Lives = d.lives
	for _, s := range slices.Concat(d.acting, d.watching, []*slot{d.producer}) {
		r.Lives += s.lives
	}
	r.Killed = max(0, w.deaths-len(d.acting)-len(d.watching)) // without those killed for the calm
	r.Took = time.Since(d.started)
	return r, nil
}

// end stops all processes. It is idempotent.
func (d *driver) end() error {
	var errs []error
	for _, s := range slices.Concat(d.acting, d.watching, []*slot{d.producer}) {
		if s != nil {
			errs = append(errs, s.end())
		}
	}
	return errors.Join(errs...)
}

// untilItFlows waits for a message that each group has processed.
func (d *driver) untilItFlows(ctx context.Context, w *watch) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for pause(ctx, 50*time.Millisecond) {
		if err := w.read(); err != nil || w.allEnded(1) {
			return err
		}
	}
	return fmt.Errorf("storm: nothing is processed, see the logs in %s: %w", d.cfg.Dir, ctx.Err())
}

// trouble makes one of each fault, and then more, until the time is up. The
// order depends on the seed alone; the moments depend on the machine too.
func (d *driver) trouble(ctx context.Context, w *watch) error {
	trials := d.trials()
	if len(trials) == 0 {
		return errors.New("storm: no fault has such a name")
	}
	r := rand.New(rand.NewPCG(d.cfg.Seed, 1))
	order := r.Perm(len(trials))
	weights := 0
	for _, t := range trials {
		weights += t.Weight
	}
	end := time.Now().Add(d.cfg.Duration)
	for i := 0; ; i++ {
		var t Trial
		if i < len(order) {
			t = trials[order[i]]
		} else {
			at := r.IntN(weights)
			for _, t = range trials {
				if at -= t.Weight; at < 0 {
					break
				}
			}
		}
		// Numbers of its own, so that what a fault draws moves no other.
		own := rand.New(rand.NewPCG(d.cfg.Seed, uint64(i)+2))
		gap := between(own, min(d.cfg.Duration/200, time.Second), min(d.cfg.Duration/40, 4*time.Second))
		pause(ctx, gap)
		if err := d.flow(ctx, w); err != nil {
			return err
		}
		if ctx.Err() != nil || i >= len(order) && !time.Now().Before(end) {
			return ctx.Err()
		}
		d.say("%s", t.Name)
		at := time.Now()
		if t.Offline {
			d.proxy.Refuse(true)
			d.proxy.Cut(nil)
		}
		scope, err := t.Do(ctx, own)
		if t.Offline {
			d.proxy.Refuse(false)
		}
		d.ledger.Write(Event{
			At: at.UnixNano(), Kind: Disturbed, Due: time.Now().Add(t.Aftermath).UnixNano(), Scope: scope, Broker: t.Broker, Note: t.Name,
			Stream: t.Destroys, Group: t.Of,
		})
		d.faults[t.Name]++
		if err != nil {
			return fmt.Errorf("storm: %s: %w", t.Name, err)
		}
		// Half of what needs long to recover from is followed by faults during the
		// recovery, half by faults after it.
		if t.Aftermath > 0 && own.IntN(2) == 0 {
			if err := d.untilItMoves(ctx, w); err != nil {
				return err
			}
		}
	}
}

// flow waits until [Config].Flow more messages have ended.
func (d *driver) flow(ctx context.Context, w *watch) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	if err := w.read(); err != nil {
		return err
	}
	wanted := min(w.ended[groupActing]+d.cfg.Flow, d.cfg.Messages)
	for w.ended[groupActing] < wanted && pause(ctx, 100*time.Millisecond) {
		if err := w.read(); err != nil {
			return err
		}
	}
	return nil
}

// recovery is how long a storm waits for messages that end.
const recovery = 20 * time.Second

// untilItMoves waits until in each group another message has ended, for a while.
func (d *driver) untilItMoves(ctx context.Context, w *watch) error {
	if err := w.read(); err != nil {
		return err
	}
	before := maps.Clone(w.ended)
	for end := time.Now().Add(recovery); time.Now().Before(end) && pause(ctx, 100*time.Millisecond); {
		if err := w.read(); err != nil {
			return err
		}
		if !slices.ContainsFunc(d.groups, func(group string) bool { return w.ended[group] == before[group] }) {
			break
		}
	}
	return nil
}

func (d *driver) trials() []Trial {
	hit := func(name string, weight int, of []*slot, do func(process)) Trial {
		return Trial{Name: name, Weight: weight, Do: func(_ context.Context, r *rand.Rand) (string, error) {
			return d.scope(of[r.IntN(len(of))].hit(do)), nil
		}}
	}
	all := slices.Concat(d.acting, d.watching)
	trials := []Trial{
		hit("kill -9 of a consumer", 6, all, process.kill),
		hit("restart of a consumer", 3, all, process.stop),
		hit("kill -9 of the producer", 1, []*slot{d.producer}, process.kill),
		{Name: "kill -9 of all consumers", Weight: 1, Do: func(context.Context, *rand.Rand) (string, error) {
			for _, s := range all {
				s.hit(process.kill)
			}
			return d.scope(""), nil
		}},
	}
	if d.proxy != nil {
		trials = append(trials, d.network()...)
	}
	if !d.target.InProcess() {
		trials = append(trials, Trial{Name: "members join and leave every second", Weight: 2, Do: d.comeAndGo})
	}
	trials = append(trials, d.target.Trials()...)
	if len(d.cfg.Only) > 0 {
		trials = slices.DeleteFunc(trials, func(t Trial) bool {
			return !slices.ContainsFunc(d.cfg.Only, func(part string) bool { return strings.Contains(t.Name, part) })
		})
	}
	return trials
}

// comeAndGo lets processes join a group and leave it again after a second, each
// other one by kill -9.
func (d *driver) comeAndGo(ctx context.Context, r *rand.Rand) (scope string, err error) {
	for range 3 + r.IntN(5) {
		model := d.acting[0]
		if r.IntN(2) == 0 && len(d.watching) > 0 {
			model = d.watching[0]
		}
		d.guests++
		guest := startSlot(fmt.Sprintf("%s-guest%d", model.part.Group, d.guests), model.part, d)
		pause(ctx, between(r, 500*time.Millisecond, 1500*time.Millisecond))
		if r.IntN(2) == 0 {
			guest.kill()
		}
		if err := guest.end(); err != nil {
			return "", err
		}
		d.lives += guest.lives
	}
	return scopeNobody, nil // whom a death concerned is in the ledger already
}

// scope of the death of processes. A played one dies at an instant, and so what
// was acknowledged before it is so.
func (d *driver) scope(of string) string {
	if d.target.InProcess() {
		return scopeNobody
	}
	return of
}

// network is what the proxy can do.
func (d *driver) network() []Trial {
	p := d.proxy
	hole := func(name string, dir Direction) Trial {
		return Trial{Name: name, Weight: 2, Do: func(ctx context.Context, r *rand.Rand) (string, error) {
			p.Hole(dir, true)
			pause(ctx, between(r, 500*time.Millisecond, 4*time.Second))
			p.Hole(dir, false)
			return "", nil
		}}
	}
	return []Trial{
		{Name: "all connections cut", Weight: 2, Do: func(context.Context, *rand.Rand) (string, error) {
			p.Cut(nil)
			return "", nil
		}},
		{Name: "some connections cut", Weight: 4, Do: func(_ context.Context, r *rand.Rand) (string, error) {
			p.Cut(func() bool { return r.IntN(3) == 0 })
			return "", nil
		}},
		{Name: "connections cut and refused", Weight: 2, Do: func(ctx context.Context, r *rand.Rand) (string, error) {
			p.Refuse(true)
			p.Cut(nil)
			pause(ctx, between(r, 200*time.Millisecond, 2*time.Second))
			p.Refuse(false)
			return "", nil
		}},
		{Name: "network slow, then cut", Weight: 2, Do: func(ctx context.Context, r *rand.Rand) (string, error) {
			p.Delay(between(r, 20*time.Millisecond, 400*time.Millisecond))
			pause(ctx, between(r, 500*time.Millisecond, 3*time.Second))
			p.Cut(nil)
			p.Delay(0)
			return "", nil
		}},
		hole("half open: nothing reaches the broker", ToBroker),
		hole("half open: nothing comes from the broker", FromBroker),
	}
}

// How long there must be no event, after everything has ended, so that also
// copies in a retry stream have come back; and how long without any event means
// that nothing will come any more.
const (
	quietReal      = 8 * time.Second // above the longest delay of shortPolicy
	quietPlayed    = time.Second     // Drain sees what waits
	hopelessReal   = 45 * time.Second
	hopelessPlayed = 8 * time.Second
)

// untilQuiet returns once every message has ended in every group, and also when
// nothing moves any more: then the checker has something to say.
func (d *driver) untilQuiet(ctx context.Context, w *watch) error {
	quiet, hopeless := quietReal, hopelessReal
	if d.target.InProcess() {
		quiet, hopeless = quietPlayed, hopelessPlayed
	}
	for pause(ctx, 300*time.Millisecond) {
		if err := w.read(); err != nil {
			return err
		}
		for _, s := range slices.Concat(d.acting, d.watching, []*slot{d.producer}) {
			select {
			case <-s.over:
				if s.cause != nil {
					return s.cause
				}
			default:
			}
		}
		silent := time.Since(w.last)
		if w.complete() && silent > quiet || silent > hopeless {
			d.say("quiet: %d published, ended by group: %v", w.confirmed, w.ended)
			return nil
		}
	}
	return ctx.Err()
}

// watch follows the ledgers while they are written.
type watch struct {
	script    Script
	groups    []string
	reader    *Reader
	events    []Event
	confirmed int
	ended     map[string]int
	seen      map[pair]bool
	last      time.Time // the last event of a process
	deaths    int
}

func newWatch(s Script, dir string, groups []string) *watch {
	return &watch{script: s, groups: groups, reader: NewReader(dir), ended: map[string]int{}, seen: map[pair]bool{}, last: time.Now()}
}

func (w *watch) read() error {
	return w.reader.Next(func(e Event) {
		w.events = append(w.events, e)
		if at := time.Unix(0, e.At); e.Kind != Disturbed && at.After(w.last) {
			w.last = at
		}
		switch {
		case e.Kind == Disturbed && strings.HasPrefix(e.Note, processEnded):
			if !strings.HasSuffix(e.Note, endedWell) {
				w.deaths++
			}
		case e.Kind == Confirmed && !w.seen[pair{e.ID, ""}]:
			w.seen[pair{e.ID, ""}] = true
			w.confirmed++
		case e.Kind == Outcome && isEnd(e.Note) && !w.seen[pair{e.ID, e.Group}]:
			w.seen[pair{e.ID, e.Group}] = true
			w.ended[e.Group]++
		}
	})
}

// isEnd reports outcomes after which a message is at its end.
func isEnd(outcome string) bool {
	for _, end := range []string{"processed", "dead_lettered", "last_resort"} {
		if strings.HasPrefix(outcome, end) {
			return true
		}
	}
	return false
}

// complete reports that everything is published and has ended everywhere.
func (w *watch) complete() bool {
	return w.confirmed == w.script.Messages && w.allEnded(w.confirmed)
}

// allEnded reports that n messages have ended in every group.
func (w *watch) allEnded(n int) bool {
	return !slices.ContainsFunc(w.groups, func(group string) bool { return w.ended[group] < n })
}

// drain reads every stream to its end.
func (d *driver) drain(ctx context.Context, b adapters.Broker, h *History) error {
	names := adapters.Names{}.WithDefaults()
	seen := map[string]bool{}
	for _, c := range d.consumers {
		places, err := d.target.Streams(ctx, c)
		if err != nil {
			return err
		}
		for _, s := range []adapters.Stream{adapters.StreamRetry, adapters.StreamParking, adapters.StreamDeadLetter, adapters.StreamSuspect} {
			places = append(places, Place{Stream: s, Name: names.Of(s, c), Group: c.Group})
		}
		for _, p := range places {
			if seen[p.Name] {
				continue
			}
			seen[p.Name] = true
			err := b.Drain(ctx, p.Name, func(_ context.Context, r adapters.Record) error {
				if c.Group == groupSink {
					h.Outputs = append(h.Outputs, idOf(r))
				} else {
					h.Left = append(h.Left, leftOf(p, r))
				}
				return nil
			})
			if err != nil && !d.absent(p, err) {
				return err
			}
		}
	}
	slices.Sort(h.Outputs)
	return nil
}

// held asks a few times, because brokers count every few seconds only.
func (d *driver) held(ctx context.Context) (held map[string]int, err error) {
	for range 20 {
		if held, err = d.target.Held(ctx); err != nil || len(held) == 0 {
			break
		}
		pause(ctx, time.Second)
	}
	return held, err
}

// absent reports a stream that is made on first use and was not used.
func (d *driver) absent(p Place, err error) bool {
	return p.Stream == adapters.StreamSuspect && strings.Contains(err.Error(), "does not exist")
}

func leftOf(p Place, r adapters.Record) Left {
	l := Left{Stream: p.Stream, Group: p.Group, ID: idOf(r), Digest: Digest(r)}
	if len(envelope.StripHeaders(r.Headers)) < len(r.Headers) {
		st := envelope.Parse(r.Headers, time.Now())
		l.Owner, l.Reason = st.Source.Topic+"/"+st.ConsumerGroup, st.Reason
		if l.Group == "" && st.Source.Topic == topicIn {
			l.Group = st.ConsumerGroup
		}
	}
	return l
}

// readLastResorts reads the files that stand in for streams. Which group a
// letter belongs to, it says itself.
func readLastResorts(dir string, h *History) error {
	var files []string
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() && strings.HasPrefix(filepath.Base(filepath.Dir(path)), lastResortPrefix) {
			files = append(files, path)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("storm: last resort: %w", err)
	}
	for _, path := range files {
		_, err := poison.ReadLastResort(path, func(line []byte) error {
			letter, err := envelope.DecodeDeadLetter(line)
			if err != nil {
				return err
			}
			m := letter.FailedMessage
			r := adapters.Record{ID: m.ID, Key: m.Key, Payload: m.Payload, Headers: m.Headers}
			h.Left = append(h.Left, Left{
				Stream: StreamLastResort, Group: letter.Consumer.Group, ID: idOf(r), Digest: Digest(r), Reason: letter.Failure.Reason,
				Owner: letter.Source.Topic + "/" + letter.Consumer.Group,
			})
			return nil
		})
		if err != nil {
			return fmt.Errorf("storm: %w", err)
		}
	}
	return nil
}
