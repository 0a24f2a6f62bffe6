package kafka_test

import (
	"net"
	"sync"
	"testing"
	"time"

	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/adapters/kafka"
)

// freezer is the network of a process that can be stopped for a while, as with a
// virtual machine that is paused: nothing breaks, and nothing gets on.
type freezer struct {
	net.Dialer
	running sync.RWMutex
}

func (f *freezer) Dial(network, addr string) (net.Conn, error) {
	f.running.RLock()
	defer f.running.RUnlock()
	c, err := f.Dialer.Dial(network, addr)
	return &frozenConn{c, f}, err
}

type frozenConn struct {
	net.Conn
	f *freezer
}

func (c *frozenConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.f.running.RLock()
	defer c.f.running.RUnlock()
	return n, err
}

func (c *frozenConn) Write(b []byte) (int, error) {
	c.f.running.RLock()
	defer c.f.running.RUnlock()
	return c.Conn.Write(b)
}

// Issue 4.7: a process that was paused for longer than its session lasts comes back
// and says so. However often that happens to whoever has a message, the message is
// not convicted, neither on its way to the suspects nor among them.
func TestPausedProcessesConvictNobody(t *testing.T) {
	t.Parallel()
	onBoth(t, kafka.Config{}, func(b *bench) {
		for _, stream := range []adapters.Stream{adapters.StreamMain, adapters.StreamSuspect} {
			c := b.consumer(4)
			if stream == adapters.StreamMain {
				b.publish(c.Topic, 1)
			} else {
				b.Handoff(adapters.Handoff{Consumer: c, Stream: stream, Record: adapters.Record{ID: "m-00000", Payload: []byte("x")}})
			}
			check := func(d *adapters.Delivery, most int) {
				if d.Stream != stream || d.Count > most {
					b.Errorf("delivery %d from %s, want at most %d: the others were paused, not dead", d.Count, d.Stream, most)
				}
			}
			end := func() {}
			for range 5 {
				process := &freezer{}
				cfg := b.cfg
				sc := testSarama()
				sc.Consumer.Group.Session.Timeout = 1500 * time.Millisecond
				sc.Net.Proxy.Enable, sc.Net.Proxy.Dialer = true, process
				cfg.Sarama = sc
				s := b.SubscribeOn(b.openWith(cfg), c)
				check(b.Next(s), 2)
				end() // the pause before
				process.running.Lock()
				end = sync.OnceFunc(func() {
					process.running.Unlock()
					b.Close(s)
				})
				b.Cleanup(end)
			}
			s := b.SubscribeOn(b.Broker, c)
			check(b.Next(s), 2)
			end()
			b.Close(s)
			s = b.SubscribeOn(b.open(), c)
			d := b.Next(s)
			check(d, 1) // all have come back
			b.Ack(d)
			b.Close(s)
		}
	})
}
