package adaptertest

import (
	"context"
	"errors"
	"net"
	"sync"

	"github.com/spillway-mq/spillway/adapters"
)

// Dial opens a network connection, as net.Dialer.DialContext does.
type Dial func(ctx context.Context, network, addr string) (net.Conn, error)

// Processes opens brokers whose connections can be cut, as the end of their
// process would: its Kill is what [Target].Kill is for. The zero value is ready.
// All methods are safe for concurrent use.
type Processes struct {
	mu    sync.Mutex
	conns map[adapters.Broker]*Connections
}

// Opener returns the opener that open makes of a way to dial.
func (p *Processes) Opener(open func(Dial) adapters.Opener) adapters.Opener {
	o := open(new(net.Dialer).DialContext)
	o.Open = func(ctx context.Context, params adapters.OpenParams) (adapters.Broker, error) {
		own := &Connections{}
		b, err := open(own.Dial).Open(ctx, params)
		if err != nil {
			return nil, err
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.conns == nil {
			p.conns = map[adapters.Broker]*Connections{}
		}
		p.conns[b] = own
		return b, nil
	}
	return o
}

// Kill cuts the connections of a broker that Opener opened, and lets it make no
// others.
func (p *Processes) Kill(b adapters.Broker) {
	p.mu.Lock()
	c := p.conns[b]
	p.mu.Unlock()
	c.kill()
}

// Close closes all brokers, of which those of killed processes are closed by
// nobody else.
func (p *Processes) Close(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	for b, c := range p.conns {
		if err := b.Close(ctx); !c.killed() {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// Connections are those of one process. The zero value is ready; methods are
// safe for concurrent use.
type Connections struct {
	mu   sync.Mutex
	list []net.Conn
	dead bool
}

// Dial is what the process dials with.
func (c *Connections) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	nc, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dead {
		return nil, errors.Join(net.ErrClosed, nc.Close())
	}
	c.list = append(c.list, nc)
	return nc, nil
}

// Cut ends the connections that there are. The process may make others.
func (c *Connections) Cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cut()
}

func (c *Connections) cut() {
	for _, nc := range c.list {
		_ = nc.Close()
	}
	c.list = nil
}

func (c *Connections) kill() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dead = true
	c.cut()
}

func (c *Connections) killed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.dead
}
