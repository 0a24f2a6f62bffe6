package spillway

import (
	"sync"
	"time"
)

// aloneFor bounds two waits for a suspect: its own, until the messages before it
// have left their handlers, and then that of others while it is in its own.
const aloneFor = 30 * time.Second

// gate lets a suspect be alone in the handlers of one Spillway, which is nearly
// always a process, so that a crash meanwhile is its doing and nobody else's.
// Others wait in front of the gate from the moment that a suspect comes to it,
// so each suspect delays them by at most twice aloneFor. A handler that is still
// busy when the first wait ends stays beside the suspect: a message that never
// ends must not keep all others out. The zero gate is open.
type gate struct {
	mu     sync.Mutex // never held while waiting
	inside int        // messages in handlers, without suspects
	left   chan struct{}
	alone  chan struct{} // closed at the end of the suspect's turn; nil without one
}

// enter waits for the end of a suspect's turn. It reports false when closing
// came first.
func (g *gate) enter(closing <-chan struct{}) bool {
	for {
		g.mu.Lock()
		turn := g.alone
		if turn == nil {
			g.inside++
			g.mu.Unlock()
			return true
		}
		g.mu.Unlock()
		select {
		case <-turn:
		case <-closing:
			return false
		}
	}
}

func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.inside--; g.inside == 0 && g.left != nil {
		close(g.left)
		g.left = nil
	}
}

// enterAlone keeps others out, waits for those inside to leave, and returns how
// to end the turn, which ends by itself after aloneFor. It reports false when
// closing came first.
func (g *gate) enterAlone(closing <-chan struct{}) (end func(), ok bool) {
	var turn chan struct{}
	var left <-chan struct{}
	for turn == nil {
		g.mu.Lock()
		other := g.alone
		if other == nil {
			turn = make(chan struct{})
			g.alone = turn
			if g.inside > 0 {
				g.left = make(chan struct{})
				left = g.left
			}
		}
		g.mu.Unlock()
		if other != nil {
			select {
			case <-other:
			case <-closing:
				return nil, false
			}
		}
	}
	finish := sync.OnceFunc(func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		close(turn)
		if g.alone == turn {
			g.alone = nil
		}
	})
	if left != nil {
		t := time.NewTimer(aloneFor)
		defer t.Stop()
		select {
		case <-left:
		case <-t.C:
		case <-closing:
			finish()
			return nil, false
		}
	}
	timer := time.AfterFunc(aloneFor, finish)
	return func() { timer.Stop(); finish() }, true
}
