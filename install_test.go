package spillway_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/spillway-mq/spillway"
	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/failure"
	"github.com/spillway-mq/spillway/middleware"
	"github.com/spillway-mq/spillway/policy"
)

// A handler whose failures nobody handles would see a failing message again at
// once, for ever.
func TestSubscribingWithoutTheChainIsRefused(t *testing.T) {
	t.Parallel()
	s := newService(t, spillway.Config{})
	s.consume(func(*message.Message) error { return nil })
	err := s.refused()
	if err == nil {
		t.Fatal("it was not refused")
	}
	wantContains(t, err.Error(), "Install", topic)
}

// Two handlers of one consumer would get half of the messages each, and either
// of them the retries of both: the second would process what the first failed.
func TestHandlersThatShareAConsumerAreRefused(t *testing.T) {
	t.Parallel()
	s := installed(t, spillway.Config{})
	s.consume(func(*message.Message) error { return nil })
	s.router.AddConsumerHandler("audit", topic, s.sw.Subscriber(), func(*message.Message) error { return nil })
	err := s.refused()
	if err == nil {
		t.Fatal("it was not refused")
	}
	wantContains(t, err.Error(), `"audit"`, `"charge"`, topic, group, "SubscriberFor")
}

func TestHandlersOfOtherGroupsAndTopicsAreNotRefused(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := installed(t, spillway.Config{})
		s.consume(func(*message.Message) error { return nil })
		nothing := func(*message.Message) error { return nil }
		s.router.AddConsumerHandler("audit", topic, s.sw.SubscriberFor("audit"), nothing)
		s.router.AddConsumerHandler("refund", "refunds", s.sw.Subscriber(), nothing)
		s.start()
		s.publish("x")
		after(0)
		s.stop()
		s.wantOutcomes(middleware.OutcomeProcessed, middleware.OutcomeProcessed)
	})
}

func TestHandlerAddedLaterThatSharesAConsumerIsRefused(t *testing.T) {
	t.Parallel()
	err := refusedLater(t, func(s *service) {
		s.router.AddConsumerHandler("audit", topic, s.sw.Subscriber(), func(*message.Message) error { return nil })
	})
	if err == nil {
		t.Fatal("it was not refused")
	}
	wantContains(t, err.Error(), `"audit"`, `"charge"`)
}

// What a decorator outside of ours refuses is no failure of its handler, only
// a Nack that nobody explains.
func TestPublisherDecoratorBeforeInstallIsRefused(t *testing.T) {
	t.Parallel()
	s := newService(t, spillway.Config{})
	s.router.AddPublisherDecorators(middleware.StripControlCharacters(middleware.StripConfig{Action: middleware.StripRefuse}))
	s.sw.Install(s.router)
	s.consume(func(*message.Message) error { return nil })
	err := s.refused()
	if err == nil {
		t.Fatal("it was not refused")
	}
	wantContains(t, err.Error(), "Install first", "publisher decorator")
}

func TestPolicyOfAHandlerThatIsNotThereIsReported(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := installed(t, spillway.Config{HandlerPolicies: map[string]policy.Policy{
			"chagre": {MaxAge: time.Hour}, "charge": {MaxAge: time.Hour},
		}})
		s.consume(func(*message.Message) error { return nil })
		s.start()
		s.stop()
		logged := s.logs.String()
		wantContains(t, logged, "handler=chagre")
		if strings.Contains(logged, "HandlerPolicies names a handler that the Router does not have\" handler=charge") {
			t.Errorf("the handler that is there is reported too: %s", logged)
		}
	})
}

func TestUselessRulesAndPoliciesAreRefused(t *testing.T) {
	t.Parallel()
	_, err := spillway.Open(t.Context(), "memory://", spillway.Config{
		Rules:           []failure.Rule{{Name: "mine"}},
		HandlerPolicies: map[string]policy.Policy{"": {}},
	})
	if err == nil {
		t.Fatal("it was not refused")
	}
	wantContains(t, err.Error(), `Rules[0] ("mine") has no Match`, "HandlerPolicies has a handler without a name")
}

func TestOpenWithoutURLOrOpenerSaysSo(t *testing.T) {
	t.Parallel()
	_, err := spillway.Open(t.Context(), "", spillway.Config{})
	if err == nil || !strings.Contains(err.Error(), "URL is empty") {
		t.Errorf("without a URL: %v", err)
	}
	_, err = spillway.Open(t.Context(), "memory://", spillway.Config{})
	if err == nil || !strings.Contains(err.Error(), "no opener was given") {
		t.Errorf("without an opener: %v", err)
	}
}

func TestNamesWithBracesAreRefused(t *testing.T) {
	t.Parallel()
	s := installed(t, spillway.Config{})
	_, err := s.sw.SubscriberFor("a/{topic}").Subscribe(t.Context(), "orders\n")
	if err == nil {
		t.Fatal("it was not refused")
	}
	wantContains(t, err.Error(), `"a/{topic}"`, `"orders\n"`)
	if err := s.sw.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// A stream of a consumer's own must not be a topic that another consumer reads
// as main: its retries would be seen there.
func TestTopicThatIsAnotherConsumersStreamIsRefused(t *testing.T) {
	t.Parallel()
	for _, order := range [][]string{{"orders", "orders-billing"}, {"orders-billing", "orders"}} {
		s := installed(t, spillway.Config{Names: adapters.Names{Retry: "{topic}-{group}"}})
		if _, err := s.sw.Subscriber().Subscribe(t.Context(), order[0]); err != nil {
			t.Fatal(err)
		}
		if _, err := s.sw.Subscriber().Subscribe(t.Context(), order[1]); err == nil {
			t.Errorf("%s after %s was not refused", order[1], order[0])
		}
		if err := s.sw.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// Handlers and their middlewares may be added while the Router runs; Watermill
// guards its list, and so must whoever reads it. The race detector judges.
func TestAddingHandlerMiddlewaresWhileOthersStart(t *testing.T) {
	t.Parallel()
	s := installed(t, spillway.Config{})
	s.consume(func(*message.Message) error { return nil })
	s.start()
	h := s.router.AddConsumerHandler("refund", "refunds", s.sw.Subscriber(), func(*message.Message) error { return nil })
	var wg sync.WaitGroup
	wg.Go(func() {
		for range 100 {
			h.AddMiddleware(func(h message.HandlerFunc) message.HandlerFunc { return h })
		}
	})
	wg.Go(func() {
		if err := s.router.RunHandlers(t.Context()); err != nil {
			t.Error(err)
		}
	})
	wg.Wait()
	s.stop()
}
