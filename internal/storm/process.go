package storm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/spillway-mq/spillway/adapters"
)

// envPart is the environment variable that makes this program a process of a
// storm: the part, as JSON.
const envPart = "SPILLWAY_STORM_PART"

// exitScripted is the exit code of a handler that ends its process.
const exitScripted = 42

// RunPart plays the part of a process if the environment has one, and ends the
// program; otherwise it does nothing. Programs and tests that call Run call it
// first.
func RunPart() {
	text := os.Getenv(envPart)
	if text == "" {
		return
	}
	if err := runPart(text); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func runPart(text string) error {
	var p Part
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		return fmt.Errorf("storm: part: %w", err)
	}
	target, err := NewTarget(p.Broker)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	// The driver holds the other end: when it dies, so do we.
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(1)
	}()
	return p.run(ctx, env{target: target, exit: func() { os.Exit(exitScripted) }, opened: func(adapters.Broker) {}})
}

// process is a running part.
type process interface {
	kill() // kill -9
	stop() // SIGTERM
	// done is closed when it has ended; then err says how: nil for well.
	done() <-chan struct{}
	err() error
}

// ended is the part of a process that waits.
type ended struct {
	over  chan struct{}
	cause error
}

func (e *ended) done() <-chan struct{} { return e.over }
func (e *ended) err() error            { return e.cause }

// executed is a process of the operating system.
type executed struct {
	ended
	cmd *exec.Cmd
}

func execute(p Part) (process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(p)
	if err != nil {
		return nil, err
	}
	log, err := os.OpenFile(filepath.Join(p.Dir, life(p.Process)+".log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	x := &executed{ended: ended{over: make(chan struct{})}, cmd: exec.Command(self)}
	x.cmd.Env = append(os.Environ(), envPart+"="+string(text))
	x.cmd.Stdout, x.cmd.Stderr = log, log
	in, err := x.cmd.StdinPipe()
	if err == nil {
		err = x.cmd.Start()
	}
	if err != nil {
		return nil, errors.Join(err, log.Close())
	}
	go func() {
		defer close(x.over)
		x.cause = x.cmd.Wait()
		_ = in.Close()
		_ = log.Close()
	}()
	return x, nil
}

func (x *executed) kill() { _ = x.cmd.Process.Kill() }
func (x *executed) stop() { _ = x.cmd.Process.Signal(syscall.SIGTERM) }

// played is a process that is goroutines of this one.
type played struct {
	ended
	part   Part
	target Target
	cancel context.CancelFunc
}

func play(p Part, t Target) process {
	ctx, cancel := context.WithCancel(context.Background())
	x := &played{ended: ended{over: make(chan struct{})}, part: p, target: t, cancel: cancel}
	opened := make(chan adapters.Broker, 1)
	var watcher sync.WaitGroup
	watcher.Go(func() { x.watch(ctx, opened) })
	go func() {
		defer close(x.over)
		x.cause = p.run(ctx, env{target: t, exit: x.kill, opened: func(b adapters.Broker) { opened <- b }})
		cancel()
		watcher.Wait()
	}()
	return x
}

// watch takes apart what is left of a process that the broker calls dead.
func (x *played) watch(ctx context.Context, opened <-chan adapters.Broker) {
	var b adapters.Broker
	select {
	case b = <-opened:
	case <-ctx.Done():
		return
	}
	for pause(ctx, 20*time.Millisecond) {
		if errors.Is(b.Ensure(ctx, adapters.Consumer{Topic: topicIn, Group: groupWatching, Concurrency: 1}), adapters.ErrClosed) {
			x.cancel()
		}
	}
}

func (x *played) kill() {
	if x.part.Role == roleConsumer {
		x.target.Kill(x.part.Group)
	} else {
		x.cancel()
	}
}

func (x *played) stop() { x.cancel() }

// How a process ended, in the driver's ledger.
const (
	processEnded = "the process ended: "
	endedWell    = "in good order"
)

// restartAfter is what a supervisor waits, so that a broker that is down does not
// make processes come and go without end.
const restartAfter = 500 * time.Millisecond

// slot keeps one process running, in one life after the other.
type slot struct {
	name   string
	driver *driver

	mu     sync.Mutex
	part   Part
	proc   process
	lives  int
	ending bool
	over   chan struct{} // it will not run again
	cause  error         // it cannot be started
}

// startSlot starts the process, and starts it again whenever it has ended,
// except for a producer that is done and for one that was told to end.
func startSlot(name string, p Part, d *driver) *slot {
	s := &slot{name: name, part: p, driver: d, over: make(chan struct{})}
	go s.run()
	return s
}

func (s *slot) run() {
	defer close(s.over)
	for {
		s.mu.Lock()
		if s.ending {
			s.mu.Unlock()
			return
		}
		p := s.part
		p.Process = fmt.Sprintf("%s.%d", s.name, s.lives)
		s.lives++
		proc, err := s.driver.launch(p)
		s.proc = proc
		s.cause = err
		s.mu.Unlock()
		if err != nil {
			return
		}
		<-proc.done()
		how := endedWell
		if err := proc.err(); err != nil {
			how = err.Error()
		}
		now := time.Now().UnixNano()
		s.driver.ledger.Write(Event{At: now, Kind: Disturbed, Due: now, Scope: s.driver.scope(p.Process), Note: processEnded + how})
		if p.Role == roleProducer && proc.err() == nil {
			return // all is published
		}
		pause(context.Background(), restartAfter)
	}
}

// hit does something to the process of this moment.
func (s *slot) hit(do func(process)) (scope string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc == nil {
		return s.name
	}
	do(s.proc)
	return fmt.Sprintf("%s.%d", s.name, s.lives-1)
}

// change lets the next life play another part.
func (s *slot) change(change func(*Part)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.part)
}

// kill ends the process by kill -9, for good.
func (s *slot) kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ending = true
	if s.proc != nil {
		s.proc.kill()
	}
}

// end stops the process in good order, and waits.
func (s *slot) end() error {
	s.mu.Lock()
	s.ending = true
	if s.proc != nil {
		s.proc.stop()
	}
	s.mu.Unlock()
	<-s.over
	return s.cause
}
