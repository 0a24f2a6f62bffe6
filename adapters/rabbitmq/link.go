package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/spillway-mq/spillway/adapters"
)

// link is one connection, made when it is needed and made anew when it is
// lost. It is safe for concurrent use.
type link struct {
	dial func(context.Context) (*amqp.Connection, error)

	lock    chan struct{} // one slot, so that waiting for it ends with a context
	conn    *conn
	closed  bool
	failure error // of the last dial, for those who waited for it
	failed  time.Time
}

// conn is a connection with what the broker says of its being blocked.
type conn struct {
	*amqp.Connection
	gate gate
	done chan struct{} // the watcher of blocking has ended
}

// dialPause is how long a failed dial speaks for those that come after it, so
// that many who wait do not dial one after the other.
const dialPause = 200 * time.Millisecond

func newLink(dial func(context.Context) (*amqp.Connection, error)) *link {
	return &link{dial: dial, lock: make(chan struct{}, 1)}
}

func (l *link) get(ctx context.Context) (*conn, error) {
	select {
	case l.lock <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-l.lock }()
	switch {
	case l.closed:
		return nil, adapters.ErrClosed
	case l.conn != nil && !l.conn.IsClosed():
		return l.conn, nil
	case l.failure != nil && time.Since(l.failed) < dialPause:
		return nil, l.failure
	}
	if l.conn != nil {
		<-l.conn.done
		l.conn = nil
	}
	c, err := l.dial(ctx)
	l.failure, l.failed = err, time.Now()
	if err != nil {
		return nil, err
	}
	l.conn = &conn{Connection: c, gate: gate{open: make(chan struct{})}, done: make(chan struct{})}
	close(l.conn.gate.open)
	go l.conn.watch(c.NotifyBlocked(make(chan amqp.Blocking, 1)))
	return l.conn, nil
}

// close closes the connection within ctx, and waits for its goroutines.
func (l *link) close(ctx context.Context) error {
	l.lock <- struct{}{}
	l.closed = true
	c := l.conn
	l.conn = nil
	<-l.lock
	if c == nil {
		return nil
	}
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = time.Now().Add(closeTimeout)
	}
	err := c.CloseDeadline(deadline)
	<-c.done
	if errors.Is(err, amqp.ErrClosed) {
		return nil
	}
	return err
}

const closeTimeout = 5 * time.Second

// watch follows what the broker says until the connection ends. Then it opens
// the gate, so that those who wait see the connection closed.
func (c *conn) watch(notes <-chan amqp.Blocking) {
	defer close(c.done)
	defer c.gate.set(true)
	for note := range notes {
		c.gate.set(!note.Active)
	}
}

// gate lets through while it is open.
type gate struct {
	mu   sync.Mutex
	open chan struct{} // closed while the gate is open
}

func (g *gate) set(open bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-g.open:
		if !open {
			g.open = make(chan struct{})
		}
	default:
		if open {
			close(g.open)
		}
	}
}

func (g *gate) wait(ctx context.Context) error {
	g.mu.Lock()
	open := g.open
	g.mu.Unlock()
	select {
	case <-open:
		return nil
	default:
	}
	select {
	case <-open:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("the broker blocks publishers, for want of memory or disk: %w", ctx.Err())
	}
}

// channel opens a channel. The client library's calls know no context.
func (c *conn) channel(ctx context.Context) (*amqp.Channel, error) {
	type result struct {
		ch  *amqp.Channel
		err error
	}
	done := make(chan result, 1)
	go func() {
		ch, err := c.Channel()
		done <- result{ch, err}
	}()
	select {
	case r := <-done:
		return r.ch, r.err
	case <-ctx.Done():
		go func() {
			if r := <-done; r.err == nil {
				_ = r.ch.Close()
			}
		}()
		return nil, ctx.Err()
	}
}

// bounded waits for call until ctx ends; call then goes on until its connection
// answers or is lost.
func bounded(ctx context.Context, call func() error) error {
	done := make(chan error, 1)
	go func() { done <- call() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// dialer returns a function that connects to u. Its errors never contain the
// password.
func dialer(u *url.URL, cfg Config, name string) func(context.Context) (*amqp.Connection, error) {
	return func(ctx context.Context) (*amqp.Connection, error) {
		ctx, cancel := context.WithTimeout(ctx, cfg.DialTimeout)
		defer cancel()
		var stop func() bool
		properties := amqp.NewConnectionProperties()
		properties.SetClientConnectionName(name)
		c, err := amqp.DialConfig(u.String(), amqp.Config{
			Heartbeat:       heartbeat,
			TLSClientConfig: cfg.TLS.Clone(),
			Properties:      properties,
			Dial: func(network, addr string) (net.Conn, error) {
				nc, err := cfg.Dial(ctx, network, addr)
				if err != nil {
					return nil, err
				}
				// The end of ctx ends the handshake too.
				stop = context.AfterFunc(ctx, func() { _ = nc.Close() })
				return nc, nil
			},
		})
		if stop != nil && !stop() && err == nil {
			_ = c.Close()
			err = ctx.Err()
		}
		if err != nil {
			return nil, fmt.Errorf("rabbitmq: connect to %s: %w", shown(u), withoutSecret(err, u))
		}
		return c, nil
	}
}

// shown is a URL for people: without its password, and without its options,
// which may hold another one.
func shown(u *url.URL) string {
	plain := *u
	plain.RawQuery, plain.Fragment = "", ""
	return plain.Redacted()
}

const heartbeat = 10 * time.Second

// withoutSecret replaces an error whose text contains the URL's password.
func withoutSecret(err error, u *url.URL) error {
	password, ok := u.User.Password()
	if !ok || password == "" {
		return err
	}
	text := err.Error()
	for _, secret := range []string{password, url.QueryEscape(password), url.PathEscape(password), u.User.String()} {
		text = strings.ReplaceAll(text, secret, "xxxxx")
	}
	if text == err.Error() {
		return err
	}
	return errors.New(text)
}
