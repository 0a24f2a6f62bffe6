package rabbitmq

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	wamqp "github.com/ThreeDotsLabs/watermill-amqp/v3/pkg/amqp"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/envelope"
)

const (
	uuidHeader          = wamqp.DefaultMessageUUIDHeaderKey
	deliveryCountHeader = "x-delivery-count"
)

// isBrokers reports headers that brokers write, or act on, in every copy. A
// copy with x-death is dropped as a cycle by RabbitMQ before 4.0, and one with
// CC is routed a second time.
func isBrokers(key string) bool {
	switch key {
	case "x-death", deliveryCountHeader, "x-acquired-count", "CC", "BCC", "_watermill_amqp_redelivered":
		return true
	}
	return strings.HasPrefix(key, "x-first-death-") || strings.HasPrefix(key, "x-last-death-")
}

// recordOf makes a record of a delivery. The broker's own headers are left out
// of what handlers see, so that a retried message looks like a first delivery.
func recordOf(d *amqp.Delivery, stream string) adapters.Record {
	r := adapters.Record{
		ID: idOf(d), Payload: d.Body, Native: d,
		Position: envelope.Position{Topic: stream},
		Headers:  make([]adapters.Header, 0, len(d.Headers)),
	}
	if r.Payload == nil {
		r.Payload = []byte{}
	}
	for _, key := range slices.Sorted(maps.Keys(d.Headers)) {
		if isBrokers(key) || isUUID(key, d.Headers[key]) {
			continue
		}
		kind, text := formatField(d.Headers[key])
		r.Headers = append(r.Headers, adapters.Header{Key: key, Value: text, Type: kind})
	}
	return r
}

// storedRecordOf makes a record for those who keep it elsewhere: with the
// broker's headers, which tell why the broker dead-lettered it, and with the
// properties.
func storedRecordOf(d *amqp.Delivery, stream string) adapters.Record {
	r := recordOf(d, stream)
	for _, key := range slices.Sorted(maps.Keys(d.Headers)) {
		if isBrokers(key) && key != deliveryCountHeader { // which counts this read
			kind, text := formatField(d.Headers[key])
			r.Headers = append(r.Headers, adapters.Header{Key: key, Value: text, Type: kind})
		}
	}
	add := func(name, value string) {
		if value != "" {
			r.Headers = append(r.Headers, adapters.Header{Key: name, Value: []byte(value), Type: typeProperty})
		}
	}
	p := publishingOf(d)
	for i := range properties {
		add(properties[i].name, properties[i].get(&p))
	}
	add("user-id", d.UserId)
	return r
}

// idOf is Watermill's message UUID, or else the message-id property.
func idOf(d *amqp.Delivery) string {
	if id, ok := d.Headers[uuidHeader].(string); ok && id != "" {
		return id
	}
	return d.MessageId
}

func isUUID(key string, v any) bool {
	_, text := v.(string)
	return key == uuidHeader && text
}

// countOf is how often the broker handed out d. Without the redelivered flag
// the header is the producer's, or left from another queue.
func countOf(d *amqp.Delivery) int {
	if !d.Redelivered {
		return 1
	}
	switch n := d.Headers[deliveryCountHeader].(type) {
	case int64:
		return int(min(max(n, 0), envelope.MaxCount)) + 1
	case int32:
		return int(min(max(n, 0), envelope.MaxCount)) + 1
	}
	return 2 // a classic queue, which does not count
}

// properties that a copy keeps. It does not keep the user id, which the broker
// would compare with ours, nor the expiration: how long a message may wait for
// its first delivery says nothing of its retries.
var properties = []struct {
	name string
	get  func(*amqp.Publishing) string
	set  func(*amqp.Publishing, string) error
}{
	{"content-type", func(p *amqp.Publishing) string { return p.ContentType }, setText(func(p *amqp.Publishing) *string { return &p.ContentType })},
	{"content-encoding", func(p *amqp.Publishing) string { return p.ContentEncoding }, setText(func(p *amqp.Publishing) *string { return &p.ContentEncoding })},
	{"priority", func(p *amqp.Publishing) string {
		if p.Priority == 0 {
			return ""
		}
		return strconv.Itoa(int(p.Priority))
	}, func(p *amqp.Publishing, v string) error {
		n, err := strconv.ParseUint(v, 10, 8)
		p.Priority = uint8(n)
		return err
	}},
	{"correlation-id", func(p *amqp.Publishing) string { return p.CorrelationId }, setText(func(p *amqp.Publishing) *string { return &p.CorrelationId })},
	{"reply-to", func(p *amqp.Publishing) string { return p.ReplyTo }, setText(func(p *amqp.Publishing) *string { return &p.ReplyTo })},
	{"message-id", func(p *amqp.Publishing) string { return p.MessageId }, setText(func(p *amqp.Publishing) *string { return &p.MessageId })},
	{"timestamp", func(p *amqp.Publishing) string {
		if p.Timestamp.IsZero() {
			return ""
		}
		return strconv.FormatInt(p.Timestamp.Unix(), 10)
	}, func(p *amqp.Publishing, v string) error {
		n, err := strconv.ParseInt(v, 10, 64)
		p.Timestamp = time.Unix(n, 0)
		return err
	}},
	{"type", func(p *amqp.Publishing) string { return p.Type }, setText(func(p *amqp.Publishing) *string { return &p.Type })},
	{"app-id", func(p *amqp.Publishing) string { return p.AppId }, setText(func(p *amqp.Publishing) *string { return &p.AppId })},
}

func setText(field func(*amqp.Publishing) *string) func(*amqp.Publishing, string) error {
	return func(p *amqp.Publishing, v string) error {
		*field(p) = v
		return nil
	}
}

// publishingOf copies what a delivery's properties are, without headers.
func publishingOf(d *amqp.Delivery) amqp.Publishing {
	return amqp.Publishing{
		ContentType: d.ContentType, ContentEncoding: d.ContentEncoding, Priority: d.Priority,
		CorrelationId: d.CorrelationId, ReplyTo: d.ReplyTo, MessageId: d.MessageId,
		Timestamp: d.Timestamp, Type: d.Type, AppId: d.AppId,
	}
}

// publishing builds what a hand-off writes: from the native record where there
// is one, and else from the portable fields.
func publishing(h adapters.Handoff) (amqp.Publishing, error) {
	var p amqp.Publishing
	dropped := func(key string) bool { return isBrokers(key) || !h.Keeps(key) }
	if d, ok := h.Record.Native.(*amqp.Delivery); ok && d != nil {
		p = publishingOf(d)
		p.Headers = make(amqp.Table, len(d.Headers)+len(h.State))
		for key, v := range d.Headers {
			if !dropped(key) {
				p.Headers[key] = v
			}
		}
	} else {
		p.Headers = make(amqp.Table, len(h.Record.Headers)+len(h.State)+1)
		for _, header := range h.Record.Headers {
			if dropped(header.Key) {
				continue
			}
			if header.Type == typeProperty {
				if err := setProperty(&p, header); err != nil {
					return p, err
				}
				continue
			}
			v, err := parseField(header.Type, header.Value)
			if err != nil {
				return p, fmt.Errorf("%w: header %q %w", adapters.ErrRefused, header.Key, err)
			}
			p.Headers[header.Key] = v
		}
		if id := h.Record.ID; id != "" && id != p.MessageId && !dropped(uuidHeader) {
			p.Headers[uuidHeader] = id
		}
	}
	p.Body = h.Record.Payload
	p.DeliveryMode = amqp.Persistent
	for _, pair := range h.State {
		p.Headers[pair.Key] = pair.Value
	}
	return p, nil
}

func setProperty(p *amqp.Publishing, h adapters.Header) error {
	for i := range properties {
		if properties[i].name == h.Key {
			if err := properties[i].set(p, string(h.Value)); err != nil {
				return fmt.Errorf("%w: property %q: %w", adapters.ErrRefused, h.Key, err)
			}
		}
	}
	return nil // one that copies do not keep
}

// checkSize refuses what would be cut, or cost the connection: AMQP closes it
// when headers do not fit one frame.
func checkSize(p *amqp.Publishing, frame int) error {
	for key := range p.Headers {
		if len(key) > maxShortString {
			return fmt.Errorf("%w: the header name %.40q… has %d bytes, and AMQP allows %d", adapters.ErrRefused, key, len(key), maxShortString)
		}
	}
	if err := p.Headers.Validate(); err != nil {
		return fmt.Errorf("%w: headers: %w", adapters.ErrRefused, err)
	}
	size := contentHeaderSize + tableSize(p.Headers)
	for i := range properties {
		text := properties[i].get(p)
		if len(text) > maxShortString {
			return fmt.Errorf("%w: the property %s has %d bytes, and AMQP allows %d", adapters.ErrRefused, properties[i].name, len(text), maxShortString)
		}
		size += 1 + len(text)
	}
	if frame > 0 && size > frame {
		return fmt.Errorf("%w: headers of %d bytes, and a frame has %d", adapters.ErrTooLarge, size, frame)
	}
	return nil
}

// contentHeaderSize is what frame, class, flags and the properties that are not
// counted one by one take at most.
const contentHeaderSize = 64
