package storm

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// Proxy is the network between the processes and a broker: TCP that can be cut,
// slowed down, refused, or left half open. The zero settings are a good network.
// It is safe for concurrent use.
type Proxy struct {
	listener net.Listener
	upstream string
	wg       sync.WaitGroup

	mu     sync.Mutex
	refuse bool
	delay  time.Duration
	holes  [2]bool // by direction
	links  map[*link]bool
	closed bool
}

// Direction of bytes through a [Proxy].
type Direction int

const (
	ToBroker Direction = iota
	FromBroker
)

// NewProxy listens on addr for connections to upstream; on a free port of this
// machine if addr is empty.
func NewProxy(upstream, addr string) (*Proxy, error) {
	l, err := net.Listen("tcp", cmp.Or(addr, "127.0.0.1:0"))
	if err != nil {
		return nil, fmt.Errorf("proxy: %w", err)
	}
	p := &Proxy{listener: l, upstream: upstream, links: map[*link]bool{}}
	p.wg.Go(p.accept)
	return p, nil
}

// Addr is where it listens.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Cut resets the connections for which which returns true; all for nil.
func (p *Proxy) Cut(which func() bool) (cut int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		if which == nil || which() {
			l.reset()
			cut++
		}
	}
	return cut
}

// Refuse makes new connections fail, or not.
func (p *Proxy) Refuse(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = on
}

// Delay makes bytes take d longer in each direction. Zero ends it; what is on
// its way keeps its delay.
func (p *Proxy) Delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// Hole makes all bytes in one direction vanish while the connections stay, or
// ends that. A stream with a gap is of no use: connections that lost something
// are reset when the hole ends.
func (p *Proxy) Hole(d Direction, on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.holes[d] = on
	if on {
		return
	}
	for l := range p.links {
		if l.gap[d] {
			l.reset()
		}
	}
}

// Close resets all connections and waits for their end.
func (p *Proxy) Close() error {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	err := p.listener.Close()
	p.Cut(nil)
	p.wg.Wait()
	return err
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			pauseBriefly()
			continue
		}
		p.wg.Go(func() { p.serve(client) })
	}
}

// pauseBriefly is for errors of Accept, such as too many open files.
func pauseBriefly() { <-time.After(10 * time.Millisecond) }

// link is one connection through the proxy.
type link struct {
	client, server net.Conn
	gap            [2]bool // bytes got lost; guarded by Proxy.mu
}

// reset closes both ends so that they notice: with RST instead of FIN.
func (l *link) reset() {
	for _, c := range []net.Conn{l.client, l.server} {
		if tcp, ok := c.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}
		_ = c.Close()
	}
}

func (p *Proxy) serve(client net.Conn) {
	p.mu.Lock()
	refuse := p.refuse || p.closed
	p.mu.Unlock()
	l := &link{client: client}
	if !refuse {
		server, err := net.DialTimeout("tcp", p.upstream, 5*time.Second)
		refuse = err != nil
		l.server = server
	}
	p.mu.Lock()
	if refuse || p.closed {
		p.mu.Unlock()
		if l.server == nil {
			l.server = client
		}
		l.reset()
		return
	}
	p.links[l] = true
	p.mu.Unlock()

	var pumps sync.WaitGroup
	pumps.Go(func() { p.pump(l, ToBroker, l.client, l.server) })
	pumps.Go(func() { p.pump(l, FromBroker, l.server, l.client) })
	pumps.Wait()
	p.mu.Lock()
	delete(p.links, l)
	p.mu.Unlock()
}

// chunk is what was read at once, and when it may go on.
type chunk struct {
	data []byte
	at   time.Time
}

// pump carries bytes in one direction until an end closes, which closes both.
func (p *Proxy) pump(l *link, d Direction, from, to net.Conn) {
	// Enough to carry on at full speed while bytes are delayed.
	chunks := make(chan chunk, 256)
	var writer sync.WaitGroup
	writer.Go(func() {
		defer to.Close()
		broken := false
		for c := range chunks {
			if broken {
				continue
			}
			if wait := time.Until(c.at); wait > 0 {
				<-time.After(wait)
			}
			if p.vanishes(l, d) {
				continue
			}
			if _, err := to.Write(c.data); err != nil {
				broken = true
				_ = from.Close()
			}
		}
	})
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			p.mu.Lock()
			delay := p.delay
			p.mu.Unlock()
			chunks <- chunk{append([]byte(nil), buf[:n]...), time.Now().Add(delay)}
		}
		if err != nil {
			break
		}
	}
	close(chunks)
	writer.Wait()
	_ = from.Close()
}

// vanishes reports whether bytes are lost now, and remembers the gap.
func (p *Proxy) vanishes(l *link, d Direction) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	l.gap[d] = l.gap[d] || p.holes[d]
	return l.gap[d]
}
