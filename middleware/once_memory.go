package middleware

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// MemoryStoreConfig configures [NewMemoryStore]. The zero value works.
type MemoryStoreConfig struct {
	// TTL is how long a key is remembered after its handler succeeded; default
	// 48 h, which outlasts retries and the parking lot at their defaults.
	TTL time.Duration
	// MaxKeys bounds the remembered keys; default 100,000. Above it the oldest
	// key is forgotten before its time. Each key keeps the encoded outputs.
	MaxKeys int
	// OnForget, if set, is told of each key that is forgotten before its time:
	// a message with that key would be handled again. It is called on the
	// goroutine of another message, and must be safe for concurrent use.
	OnForget func(ForgetInfo)
}

// ForgetInfo is what [MemoryStoreConfig].OnForget is told.
type ForgetInfo struct {
	Key string
	// Age is the time since the handler succeeded.
	Age time.Duration
}

// MemoryStore is an [OnceStore] in the memory of one process. A second message
// with a key whose handler is running waits for it. A restart, a crash, and
// other processes know nothing of its keys.
type MemoryStore struct {
	cfg MemoryStoreConfig

	mu   sync.Mutex // held for map operations only
	runs map[string]*onceRun
	done []*onceRun // those that succeeded and are in runs, oldest first
}

// onceRun is one call of a handler, and what became of it.
type onceRun struct {
	key    string
	ended  chan struct{} // closed after the fields below are set for good
	ok     bool
	result []byte
	at     time.Time
}

// NewMemoryStore makes a store. It fails, naming each field, when one is
// negative.
func NewMemoryStore(cfg MemoryStoreConfig) (*MemoryStore, error) {
	var errs []error
	if cfg.TTL < 0 {
		errs = append(errs, fmt.Errorf("once: TTL is %v, must not be negative", cfg.TTL))
	}
	if cfg.MaxKeys < 0 {
		errs = append(errs, fmt.Errorf("once: MaxKeys is %d, must not be negative", cfg.MaxKeys))
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	cfg.TTL = cmp.Or(cfg.TTL, 48*time.Hour)
	cfg.MaxKeys = cmp.Or(cfg.MaxKeys, 100_000)
	return &MemoryStore{cfg: cfg, runs: map[string]*onceRun{}}, nil
}

// Do implements [OnceStore].
func (s *MemoryStore) Do(ctx context.Context, key string, fn func(context.Context) ([]byte, error)) ([]byte, bool, error) {
	for {
		run, mine := s.claim(key)
		if mine {
			result, err := s.run(ctx, run, fn)
			return result, false, err
		}
		select {
		case <-run.ended:
		case <-ctx.Done():
			return nil, false, fmt.Errorf("wait for the handler that runs with the same key: %w", ctx.Err())
		}
		if run.ok {
			return run.result, true, nil
		}
	}
}

// claim returns the run of a key, and whether it is the caller's to make.
func (s *MemoryStore) claim(key string) (run *onceRun, mine bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for len(s.done) > 0 && now.Sub(s.done[0].at) >= s.cfg.TTL {
		s.forgetOldest()
	}
	if run, ok := s.runs[key]; ok {
		return run, false
	}
	run = &onceRun{key: key, ended: make(chan struct{})}
	s.runs[key] = run
	return run, true
}

func (s *MemoryStore) run(ctx context.Context, run *onceRun, fn func(context.Context) ([]byte, error)) (result []byte, err error) {
	defer func() { s.end(run) }() // also after a panic
	result, err = fn(ctx)
	run.result, run.ok = result, err == nil
	return result, err
}

// end remembers a run that succeeded, and forgets one that did not.
func (s *MemoryStore) end(run *onceRun) {
	now := time.Now()
	var forgotten []*onceRun
	s.mu.Lock()
	if run.ok {
		run.at = now
		s.done = append(s.done, run)
		for len(s.done) > s.cfg.MaxKeys {
			forgotten = append(forgotten, s.forgetOldest())
		}
	} else {
		delete(s.runs, run.key)
	}
	s.mu.Unlock()
	close(run.ended)
	if s.cfg.OnForget == nil {
		return
	}
	for _, f := range forgotten {
		s.cfg.OnForget(ForgetInfo{Key: f.key, Age: now.Sub(f.at)})
	}
}

// forgetOldest is called with mu held.
func (s *MemoryStore) forgetOldest() *onceRun {
	oldest := s.done[0]
	s.done[0] = nil // or the slice would keep it alive
	s.done = s.done[1:]
	delete(s.runs, oldest.key)
	return oldest
}
