package memory

import (
	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/envelope"
)

// clone returns a copy of r that shares no memory with it. Nil stays nil and
// empty stays empty.
func clone(r adapters.Record) adapters.Record {
	n := len(r.Key) + len(r.Payload)
	for _, h := range r.Headers {
		n += len(h.Value)
	}
	buf := make([]byte, 0, n)
	// One allocation serves all; the capped slices keep a receiver that
	// appends from running into its neighbour.
	take := func(b []byte) []byte {
		if b == nil {
			return nil
		}
		start := len(buf)
		buf = append(buf, b...)
		return buf[start:len(buf):len(buf)]
	}
	out := adapters.Record{ID: r.ID, Key: take(r.Key), Payload: take(r.Payload)}
	if r.Headers != nil {
		out.Headers = make([]adapters.Header, len(r.Headers))
		for i, h := range r.Headers {
			out.Headers[i] = adapters.Header{Key: h.Key, Value: take(h.Value), Type: h.Type}
		}
	}
	return out
}

// record returns e as its stream shows it. A delayed entry has no
// offset yet.
func (e *entry) record() adapters.Record {
	r := clone(e.rec)
	place := &struct {
		part   int32
		offset int64
	}{e.part, e.offset}
	r.Position = envelope.Position{Topic: e.stream.name, Partition: &place.part, Timestamp: e.at}
	if e.offset >= 0 {
		r.Position.Offset = &place.offset
	}
	return r
}

// handoffRecord is what h writes.
func handoffRecord(h adapters.Handoff) adapters.Record {
	r := clone(h.Record)
	kept := make([]adapters.Header, 0, len(r.Headers)+len(h.State))
	for _, header := range r.Headers {
		if h.Keeps(header.Key) {
			kept = append(kept, header)
		}
	}
	for _, p := range h.State {
		kept = append(kept, adapters.Header{Key: p.Key, Value: []byte(p.Value)})
	}
	r.Headers = kept
	return r
}

func metadataBytes(r adapters.Record) int {
	n := 0
	for _, h := range r.Headers {
		n += len(h.Key) + len(h.Value)
	}
	return n
}
