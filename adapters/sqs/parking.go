package sqs

import (
	"context"
	"time"

	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/envelope"
)

// moveParked moves what is due from the parking queue to the retry queue, and
// what waits longer than a hop back to its end.
func (s *subscription) moveParked() {
	name := s.b.names.Of(adapters.StreamParking, s.c)
	for !s.isStopped() {
		got, err := s.receive(name, 10, s.b.cfg.PollWait)
		if err != nil {
			s.pause(name, err)
			continue
		}
		for _, h := range got {
			s.move(h, name)
		}
	}
}

// move writes a parked message to where it belongs now. What fails comes again
// at the end of its visibility.
func (s *subscription) move(h held, name string) {
	if s.isStopped() {
		s.release(h, name)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.b.cfg.RequestTimeout)
	defer cancel()
	r, _ := recordOf(h.m, name) // the chain says what is undecodable
	next := again(s.c, adapters.StreamRetry, r)
	if st := envelope.Parse(r.Headers, time.Now()); time.Until(st.DueAt) > 0 {
		next.Stream, next.Due = adapters.StreamParking, st.DueAt
		next.State, _ = st.Pairs(0) // with a due time that does not move, if it was absurd
	}
	err := s.b.handoff(ctx, next)
	if err == nil {
		err = h.lease.delete(ctx)
	} else {
		h.lease.end()
	}
	if err != nil {
		s.b.logger.Warn("moving a parked message failed, it is moved later", "topic", s.c.Topic, "group", s.c.Group,
			"message_uuid", r.ID, "error", err)
	}
}
