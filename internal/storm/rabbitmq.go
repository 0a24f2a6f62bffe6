package storm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/adapters/rabbitmq"
)

// rabbitTarget is a RabbitMQ of the storm's own, which scripts/brokers runs.
type rabbitTarget struct {
	instance
	url *url.URL
}

var rabbitClients = []string{"github.com/ThreeDotsLabs/watermill-amqp/v3", "github.com/rabbitmq/amqp091-go"}

func (t *rabbitTarget) Start(ctx context.Context) error {
	variables, err := t.start(ctx)
	if err != nil {
		return err
	}
	t.url, err = url.Parse(variables["SPILLWAY_TEST_RABBITMQ"])
	if err == nil && t.url.Host == "" {
		err = errors.New("scripts/brokers names no SPILLWAY_TEST_RABBITMQ")
	}
	return err
}

func (t *rabbitTarget) URL() string       { return t.url.String() }
func (t *rabbitTarget) Addr() string      { return t.url.Host }
func (t *rabbitTarget) ProxyAddr() string { return "" }
func (t *rabbitTarget) InProcess() bool   { return false }
func (t *rabbitTarget) Kill(string)       {}

func (t *rabbitTarget) Via(addr string) string {
	via := *t.url
	via.Host = addr
	return via.String()
}

// Opener declares all rungs before anything is handed off. RabbitMQ 3.10.8 loses
// what it has confirmed to the queue that it made last, if it is killed within
// seconds: docs/rabbitmq.md.
func (t *rabbitTarget) Opener() adapters.Opener {
	return rabbitmq.OpenerWith(rabbitmq.Config{WholeLadder: true})
}

func (t *rabbitTarget) Streams(ctx context.Context, c adapters.Consumer) ([]Place, error) {
	places := []Place{
		{Stream: adapters.StreamMain, Name: c.Topic + "_" + c.Group, Group: c.Group},
		{Stream: StreamUndeliverable, Name: "spillway.undeliverable"},
	}
	names, err := t.ctl(ctx, "-q", "list_queues", "--no-table-headers", "name")
	for name := range strings.Lines(names) {
		if name = strings.TrimSpace(name); strings.HasPrefix(name, "spillway.delay.") {
			places = append(places, Place{Stream: StreamDelay, Name: name})
		}
	}
	return places, err
}

// leaderless elects leaders of quorum queues that have none, and returns their
// names: a queue that was being declared when the broker was killed may not
// elect one by itself.
const leaderless = `
lists:foreach(fun(Q) ->
    Server = amqqueue:get_pid(Q),
    case ra:members(Server, 2000) of
        {ok, _, _} -> ok;
        _ -> ra:trigger_election(Server), io:format("~s~n", [element(4, amqqueue:get_name(Q))])
    end
end, rabbit_amqqueue:list_by_type(rabbit_quorum_queue)).`

func (t *rabbitTarget) Mend(ctx context.Context) ([]string, error) {
	out, err := t.ctl(ctx, "eval", leaderless)
	if err != nil {
		return nil, err
	}
	lines := strings.Fields(out)
	return lines[:max(0, len(lines)-1)], nil // the last is what foreach returns
}

// Held finds more than Drain does: what a queue has expired and not yet handed
// to the next one is counted, and cannot be got.
func (t *rabbitTarget) Held(ctx context.Context) (map[string]int, error) {
	out, err := t.ctl(ctx, "-q", "list_queues", "--no-table-headers", "name", "messages")
	held := map[string]int{}
	for line := range strings.Lines(out) {
		name, count, _ := strings.Cut(strings.TrimSpace(line), "\t")
		if n, err := strconv.Atoi(count); err == nil && n > 0 {
			held[name] = n
		}
	}
	return held, err
}

func (t *rabbitTarget) Trials() []Trial {
	return []Trial{
		{Name: "kill -9 of the broker", Weight: 3, Broker: true, Do: t.killed},
		{Name: "restart of the broker", Weight: 2, Broker: true, Do: t.restarted},
		{Name: "memory alarm", Weight: 3, Do: func(ctx context.Context, r *rand.Rand) (string, error) {
			if _, err := t.ctl(ctx, "set_vm_memory_high_watermark", "0.00001"); err != nil {
				return "", err
			}
			pause(ctx, between(r, 500*time.Millisecond, 4*time.Second))
			_, err := t.ctl(ctx, "set_vm_memory_high_watermark", "absolute", "1GiB")
			return "", err
		}},
		{Name: "consumers deleted by the broker", Weight: 3, Do: func(ctx context.Context, r *rand.Rand) (string, error) {
			// With their connections, and for their queues; they make themselves anew.
			_, err := t.ctl(ctx, "close_all_connections", "storm")
			return "", err
		}},
	}
}

// Headers have the types that AMQP has, in the forms of the adapter.
func (t *rabbitTarget) Headers(r *rand.Rand) []adapters.Header {
	h := func(key, kind string, format string, args ...any) adapters.Header {
		return adapters.Header{Key: key, Type: kind, Value: fmt.Appendf(nil, format, args...)}
	}
	return []adapters.Header{
		h("int64", "int64", "%d", r.Int64()),
		h("int32", "int32", "%d", -r.Int32()),
		h("bool", "bool", "%t", r.IntN(2) == 0),
		h("float", "float64", "%d.5", r.IntN(1000)),
		h("time", "timestamp", "%d", 1_700_000_000+r.IntN(1_000_000)),
		h("void", "void", ""),
		h("table", "table", `{"deep":{"n":%d},"list":[1,"ü",null]}`, r.Int64()),
		{Key: "bytes", Type: "bytes", Value: []byte{0, 0xff, byte(r.Int())}},
	}
}

// fieldOf is what the client sends for a header.
func fieldOf(h adapters.Header) (any, error) {
	text := string(h.Value)
	switch h.Type {
	case "":
		return text, nil
	case "int64":
		return strconv.ParseInt(text, 10, 64)
	case "int32":
		n, err := strconv.ParseInt(text, 10, 32)
		return int32(n), err
	case "bool":
		return strconv.ParseBool(text)
	case "float64":
		return strconv.ParseFloat(text, 64)
	case "timestamp":
		n, err := strconv.ParseInt(text, 10, 64)
		return time.Unix(n, 0), err
	case "void":
		return nil, nil
	case "bytes":
		return h.Value, nil
	case "table":
		dec := json.NewDecoder(strings.NewReader(text))
		dec.UseNumber()
		var v map[string]any
		if err := dec.Decode(&v); err != nil {
			return nil, err
		}
		return nested(v), nil
	}
	return nil, fmt.Errorf("storm: no AMQP type %q", h.Type)
}

func nested(v any) any {
	switch v := v.(type) {
	case json.Number:
		n, _ := v.Int64() // Headers makes no other numbers
		return n
	case []any:
		for i := range v {
			v[i] = nested(v[i])
		}
	case map[string]any:
		table := amqp.Table{}
		for key, e := range v {
			table[key] = nested(e)
		}
		return table
	}
	return v
}

// NativePublisher publishes as a service does that knows no Spillway: its id is
// the message-id property.
func (t *rabbitTarget) NativePublisher(url string) (NativePublisher, error) {
	return &rabbitPublisher{url: url}, nil
}

type rabbitPublisher struct {
	url string

	mu   sync.Mutex // 32 lanes at most wait for a connection; the storm can wait
	conn *amqp.Connection
	ch   *amqp.Channel
}

func (p *rabbitPublisher) channel() (*amqp.Channel, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ch != nil && !p.ch.IsClosed() {
		return p.ch, nil
	}
	if p.conn != nil {
		_ = p.conn.Close()
	}
	var err error
	p.conn, err = amqp.DialConfig(p.url, amqp.Config{Heartbeat: 5 * time.Second, Dial: amqp.DefaultDial(5 * time.Second)})
	if err != nil {
		return nil, err
	}
	if p.ch, err = p.conn.Channel(); err != nil {
		return nil, err
	}
	return p.ch, p.ch.Confirm(false)
}

func (p *rabbitPublisher) Publish(ctx context.Context, topic string, r adapters.Record) error {
	ch, err := p.channel()
	if err != nil {
		return err
	}
	headers := amqp.Table{}
	for _, h := range r.Headers {
		if headers[h.Key], err = fieldOf(h); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	confirm, err := ch.PublishWithDeferredConfirmWithContext(ctx, topic, "", false, false, amqp.Publishing{
		MessageId: r.ID, Body: r.Payload, Headers: headers, DeliveryMode: amqp.Persistent,
	})
	if err != nil {
		return err
	}
	acked, err := confirm.WaitContext(ctx)
	if err == nil && !acked {
		err = errors.New("not confirmed")
	}
	return err
}

func (p *rabbitPublisher) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.conn == nil {
		return nil
	}
	return p.conn.Close()
}
