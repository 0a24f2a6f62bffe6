package storm_test

import (
	"bufio"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/internal/storm"
)

// echo answers each line with itself, until its listener is closed.
func echo(t *testing.T) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = io.Copy(c, c)
			}()
		}
	}()
	return l.Addr().String()
}

type client struct {
	t *testing.T
	net.Conn
	r *bufio.Reader
}

func proxied(t *testing.T) (*storm.Proxy, func() client) {
	t.Helper()
	p, err := storm.NewProxy(echo(t), "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p, func() client {
		t.Helper()
		c, err := net.Dial("tcp", p.Addr())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return client{t, c, bufio.NewReader(c)}
	}
}

// ask sends a line and returns the answer, or the error of reading it.
func (c client) ask(line string, within time.Duration) (string, error) {
	c.t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(within)); err != nil {
		return "", err
	}
	if _, err := io.WriteString(c, line+"\n"); err != nil {
		return "", err
	}
	return c.r.ReadString('\n')
}

func (c client) answers(line string) {
	c.t.Helper()
	if got, err := c.ask(line, 10*time.Second); got != line+"\n" || err != nil {
		c.t.Errorf("asked %q, got %q and %v", line, got, err)
	}
}

// broken reports that the other end is gone, and does not just keep silent.
func (c client) broken() {
	c.t.Helper()
	if _, err := c.ask("hello", 10*time.Second); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		c.t.Errorf("the connection lives: %v", err)
	}
}

func TestProxyCarriesBytesUntilItCuts(t *testing.T) {
	t.Parallel()
	p, dial := proxied(t)
	first, second := dial(), dial()
	first.answers("one")
	second.answers("two")
	if n := p.Cut(nil); n != 2 {
		t.Errorf("cut %d connections, want 2", n)
	}
	first.broken()
	second.broken()
	dial().answers("three")
}

func TestProxyCutsSome(t *testing.T) {
	t.Parallel()
	p, dial := proxied(t)
	for range 4 {
		dial().answers("one")
	}
	odd := false
	if n := p.Cut(func() bool { odd = !odd; return odd }); n != 2 {
		t.Errorf("cut %d connections, want 2", n)
	}
}

func TestProxyRefuses(t *testing.T) {
	t.Parallel()
	p, dial := proxied(t)
	before := dial()
	before.answers("one")
	p.Refuse(true)
	if c, err := net.Dial("tcp", p.Addr()); err == nil {
		defer c.Close()
		client{t, c, bufio.NewReader(c)}.broken()
	}
	before.answers("two")
	p.Refuse(false)
	dial().answers("three")
}

func TestProxyDelays(t *testing.T) {
	t.Parallel()
	p, dial := proxied(t)
	c := dial()
	c.answers("one")
	p.Delay(50 * time.Millisecond)
	began := time.Now()
	c.answers("two")
	if took := time.Since(began); took < 100*time.Millisecond {
		t.Errorf("there and back took %s, want at least twice 50 ms", took)
	}
}

func TestProxyLeavesConnectionsHalfOpen(t *testing.T) {
	t.Parallel()
	for _, d := range []storm.Direction{storm.ToBroker, storm.FromBroker} {
		p, dial := proxied(t)
		hit, idle := dial(), dial()
		hit.answers("one")
		idle.answers("one")
		p.Hole(d, true)
		if _, err := hit.ask("two", 50*time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("direction %d: %v, want silence", d, err)
		}
		p.Hole(d, false)
		// What lost bytes is of no use any more; what lost none goes on.
		hit.broken()
		idle.answers("two")
		dial().answers("three")
	}
}
