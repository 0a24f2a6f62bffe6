package spillway_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/spillway-mq/spillway"
	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/adapters/memory"
	"github.com/spillway-mq/spillway/failure"
	"github.com/spillway-mq/spillway/middleware"
	"github.com/spillway-mq/spillway/poison"
)

const secret = "s3cr3t-Hj8f"

// errWithSecret is how an error of a client looks that names its connection.
var errWithSecret = fmt.Errorf("dial amqp://user:%s@broker:5672/prod: no route", secret)

func wantNoSecret(t *testing.T, where, text string) {
	t.Helper()
	for _, form := range []string{secret, url.QueryEscape(secret + "/@%"), "p%ss"} {
		if i := strings.Index(text, form); i >= 0 {
			t.Errorf("%s holds the secret: %s", where, text[max(0, i-200):min(len(text), i+100)])
		}
	}
}

// Whatever the broker, or a handler, says in its errors: no secret of a URL gets
// into logs, into messages, or into errors.
func TestNoSecretOfAURLGetsOut(t *testing.T) {
	handled := func(*message.Message) ([]*message.Message, error) { return nil, nil }
	fail := memory.Fail(errWithSecret)
	for name, tc := range map[string]struct {
		faults  []memory.Fault
		handler message.HandlerFunc
	}{
		"hand-off":           {[]memory.Fault{{On: memory.Handoff, Times: 3, Do: fail}}, failing},
		"refused hand-off":   {[]memory.Fault{{On: memory.Handoff, Times: 3, Do: memory.Fail(errors.Join(adapters.ErrRefused, errWithSecret))}}, failing},
		"acknowledgement":    {[]memory.Fault{{On: memory.Ack, Do: fail}}, handled},
		"confirmation of it": {[]memory.Fault{{On: memory.Ack, Do: memory.FailAfter(errWithSecret)}}, handled},
		"return":             {[]memory.Fault{{On: memory.Return, Do: fail}}, func(msg *message.Message) ([]*message.Message, error) { msg.Nack(); return nil, nil }},
		"publish":            {[]memory.Fault{{On: memory.Publish, Stream: outTopic, Do: fail}}, func(*message.Message) ([]*message.Message, error) { return outputs("a"), nil }},
		"undecodable record": {[]memory.Fault{{On: memory.Deliver, Do: memory.Undecodable(errWithSecret)}}, handled},
		"handler":            {nil, func(*message.Message) ([]*message.Message, error) { return nil, errWithSecret }},
		"handler, permanent": {nil, func(*message.Message) ([]*message.Message, error) { return nil, failure.Permanent(errWithSecret) }},
		"handler panics":     {nil, func(*message.Message) ([]*message.Message, error) { panic(errWithSecret) }},
		"publisher panics": {nil, func(*message.Message) ([]*message.Message, error) {
			return nil, fmt.Errorf("nested: %w", errors.Join(errors.New("a"), errWithSecret))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := installed(t, spillway.Config{})
				s.broker.Inject(tc.faults...)
				var calls int
				s.produce(func(msg *message.Message) ([]*message.Message, error) {
					if calls++; calls > 2 {
						return nil, nil
					}
					return tc.handler(msg)
				})
				s.start()
				s.publish("body")
				after(time.Hour)
				s.stop()
				wantNoFaultsLeft(t, s.broker)
				wantNoSecret(t, "the log", s.logs.String())
				if !strings.Contains(s.logs.String(), "no route") && name != "publish" {
					t.Errorf("the log says nothing of it:\n%s", s.logs)
				}
				for _, stream := range s.broker.Streams() {
					for _, rec := range s.broker.Records(stream) {
						for _, h := range rec.Headers {
							wantNoSecret(t, stream+" "+h.Key, string(h.Value))
						}
					}
				}
			})
		})
	}
}

// Errors that the application gets to see, and prints.
func TestNoSecretInReturnedErrors(t *testing.T) {
	t.Parallel()
	fail := memory.Fail(errWithSecret)
	for op, do := range map[memory.Op]func(s *service) error{
		memory.Subscribe: func(s *service) error { _, err := s.sw.Subscriber().Subscribe(t.Context(), topic); return err },
		memory.Ensure: func(s *service) error {
			return s.sw.Subscriber().(message.SubscribeInitializer).SubscribeInitialize(topic)
		},
		memory.Publish: func(s *service) error { return s.sw.Publisher().Publish(topic, message.NewMessage("1", nil)) },
	} {
		s := installed(t, spillway.Config{})
		s.broker.Inject(memory.Fault{On: op, Do: fail})
		err := do(s)
		if !errors.Is(err, errWithSecret) {
			t.Errorf("%s: the cause is lost in %v", op, err)
			continue
		}
		wantNoSecret(t, string(op), err.Error())
		wantContains(t, err.Error(), "no route")
		if err := s.sw.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// Taking a secret out of an error must not take out what the error means.
func TestPublishErrorWithASecretKeepsItsClass(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := installed(t, spillway.Config{})
		err := fmt.Errorf("dial amqp://user:%s@broker:5672/prod: %w", secret, syscall.ECONNREFUSED)
		s.broker.Inject(memory.Fault{On: memory.Publish, Stream: outTopic, Do: memory.Fail(err)})
		s.produce(func(*message.Message) ([]*message.Message, error) { return outputs("a"), nil })
		s.start()
		s.publish("body")
		after(0)
		if o := s.lastOutcome(); o.Outcome != middleware.OutcomeRetried || o.Failure.Class != failure.ClassDependencyUnavailable {
			t.Errorf("%s as %s, want retried as dependency_unavailable", o.Outcome, o.Failure.Class)
		}
		_, st := only(t, s.broker, retryOf)
		wantNoSecret(t, "the error text", st.Message)
		s.stop()
	})
}

func TestNoSecretWhenOpenFails(t *testing.T) {
	t.Parallel()
	opener := adapters.Opener{Schemes: []string{"amqp"}, Open: func(_ context.Context, p adapters.OpenParams) (adapters.Broker, error) {
		return nil, fmt.Errorf("dial %s: no route", p.URL)
	}}
	for _, rawURL := range []string{
		"amqp://user:" + secret + "@broker:5672/",
		"amqp://user:" + secret + "%zz@broker:5672/",                     // must be encoded
		"amqp://user:" + secret + "/x@broker:5672/",                      // a slash ends the host
		"amqp://user:" + secret + "#x@broker:5672/",                      // a hash ends the URL
		"amqp://user:" + secret + "?x@broker:5672/",                      // so does a question mark
		"amqp://user:" + secret + " x@broker:5672/",                      //
		"amqp://user:" + secret + "\x7f@broker:5672/",                    //
		"amqp://user:" + secret + "[@broker:5672/",                       //
		"amqp://user:p%25ss" + secret + "@broker:56x72/",                 // a bad port
		"amqp:user:" + secret + "@broker:5672",                           // the slashes are missing
		"://user:" + secret + "@broker:5672",                             // the scheme is missing
		"user:" + secret + "@broker:5672",                                //
		"ampq://user:" + secret + "@broker:5672",                         // misspelt
		"amqp://broker?password=" + secret,                               // in an option
		"amqp://broker?sasl=plain&password=" + secret,                    // in the second one
		"amqp://user:" + url.QueryEscape(secret+"/@%") + "@broker:5672/", // well encoded
	} {
		_, err := spillway.Open(t.Context(), rawURL, spillway.Config{Group: group}, opener)
		if err == nil {
			t.Errorf("%q was opened", rawURL)
			continue
		}
		wantNoSecret(t, "the error of "+strings.ReplaceAll(rawURL, secret, "..."), err.Error())
	}
}

// A header that the user wants left out of dead letters must not come back as
// one of ours.
func TestDroppedHeaderIsNotDescribed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := installed(t, spillway.Config{Redaction: poison.Redaction{DropHeaders: []string{"aggregate-id", "x-trace-id"}}})
		s.consume(func(*message.Message) error { return failure.Permanent(errors.New("bad")) })
		s.start()
		put(t, s.broker, topic, "m",
			adapters.Header{Key: "aggregate-id", Value: []byte("patient-" + secret)},
			adapters.Header{Key: "x-trace-id", Value: []byte("session-" + secret)})
		after(time.Minute)
		rec, _ := only(t, s.broker, dlqOf)
		for _, h := range rec.Headers {
			wantNoSecret(t, h.Key, string(h.Value))
		}
		s.stop()
	})
}
