package spillway_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/cqrs"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/go-cmp/cmp"
	"github.com/spillway-mq/spillway"
	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/failure"
	"github.com/spillway-mq/spillway/middleware"
	"github.com/spillway-mq/spillway/policy"
)

type placeOrder struct {
	Customer string
}

type orderPlaced struct {
	Customer string
}

type orderShipped struct {
	Customer string
}

var marshaler = cqrs.JSONMarshaler{GenerateName: cqrs.StructName}

// commandConfig puts all commands on the topic of the other tests.
func commandConfig(s *service) cqrs.CommandProcessorConfig {
	return cqrs.CommandProcessorConfig{
		GenerateSubscribeTopic: func(cqrs.CommandProcessorGenerateSubscribeTopicParams) (string, error) { return topic, nil },
		SubscriberConstructor: func(p cqrs.CommandProcessorSubscriberConstructorParams) (message.Subscriber, error) {
			return s.sw.Subscriber(), nil
		},
		Marshaler: marshaler,
	}
}

func sendCommand(t *testing.T, s *service, command any) {
	t.Helper()
	bus, err := cqrs.NewCommandBusWithConfig(s.sw.Publisher(), cqrs.CommandBusConfig{
		GeneratePublishTopic: func(cqrs.CommandBusGeneratePublishTopicParams) (string, error) { return topic, nil },
		Marshaler:            marshaler,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := bus.Send(t.Context(), command); err != nil {
		t.Fatal(err)
	}
}

func handleCommands(t *testing.T, s *service, cfg cqrs.CommandProcessorConfig, h func(context.Context, *placeOrder) error) {
	t.Helper()
	processor, err := cqrs.NewCommandProcessorWithConfig(s.router, cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := processor.AddHandlers(cqrs.NewCommandHandler("place", h)); err != nil {
		t.Fatal(err)
	}
}

func TestCommandIsRetriedAndDeadLetteredWithItsType(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := installed(t, spillway.Config{})
		calls := 0
		handleCommands(t, s, commandConfig(s), func(_ context.Context, c *placeOrder) error {
			if c.Customer != "anna" {
				t.Errorf("attempt %d sees %+v", calls+1, c)
			}
			if calls++; calls < 3 {
				return errors.New("not yet")
			}
			return failure.Permanent(errors.New("blocked customer"), failure.ClassValidation)
		})
		s.start()
		sendCommand(t, s, &placeOrder{"anna"})
		after(time.Minute)
		_, st := only(t, s.broker, dlqOf)
		if st.MessageType != "placeOrder" || st.Attempt != 3 || st.Handler != "place" || st.Class != failure.ClassValidation {
			t.Errorf("dead letter has type %q, attempt %d, handler %q, class %q", st.MessageType, st.Attempt, st.Handler, st.Class)
		}
		s.stop()
	})
}

func TestCommandThatCannotBeUnmarshalledIsUndecodable(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := installed(t, spillway.Config{})
		handleCommands(t, s, commandConfig(s), func(context.Context, *placeOrder) error {
			t.Error("the handler was called")
			return nil
		})
		s.start()
		msg := message.NewMessage("1", []byte(`{"Customer":"an`))
		msg.Metadata.Set("name", "placeOrder")
		s.send(msg)
		after(0)
		rec, st := only(t, s.broker, dlqOf)
		if st.Class != failure.ClassUndecodable || st.Reason != string(policy.ReasonUndecodable) || string(rec.Payload) != `{"Customer":"an` {
			t.Errorf("dead letter of class %q, reason %q, %q", st.Class, st.Reason, rec.Payload)
		}
		s.stop()
	})
}

// AckCommandHandlingErrors turns a failure into a success inside Watermill's
// handler, where nothing shows it from outside: it cannot be refused, and the
// failed command is gone, counted as processed. Leave it off.
func TestAckCommandHandlingErrorsHidesFailures(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := installed(t, spillway.Config{})
		cfg := commandConfig(s)
		cfg.AckCommandHandlingErrors = true
		handleCommands(t, s, cfg, func(context.Context, *placeOrder) error { return errors.New("no") })
		s.start()
		sendCommand(t, s, &placeOrder{"anna"})
		after(time.Minute)
		s.stop()
		s.wantOutcomes(middleware.OutcomeProcessed)
		wantDepths(t, s.broker, nil)
	})
}

func publishEvent(t *testing.T, s *service, event any) {
	t.Helper()
	bus, err := cqrs.NewEventBusWithConfig(s.sw.Publisher(), cqrs.EventBusConfig{
		GeneratePublishTopic: func(cqrs.GenerateEventPublishTopicParams) (string, error) { return topic, nil },
		Marshaler:            marshaler,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := bus.Publish(t.Context(), event); err != nil {
		t.Fatal(err)
	}
}

// K12 and invariant 9: each handler of an event has a group of its own, and only
// the one that failed sees the event again.
func TestEventHandlersAreGroupsOfTheirOwn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := installed(t, spillway.Config{})
		processor, err := cqrs.NewEventProcessorWithConfig(s.router, cqrs.EventProcessorConfig{
			GenerateSubscribeTopic: func(cqrs.EventProcessorGenerateSubscribeTopicParams) (string, error) { return topic, nil },
			SubscriberConstructor: func(p cqrs.EventProcessorSubscriberConstructorParams) (message.Subscriber, error) {
				return s.sw.SubscriberFor(p.HandlerName), nil
			},
			Marshaler: marshaler,
		})
		if err != nil {
			t.Fatal(err)
		}
		calls := map[string]int{}
		for _, name := range []string{"bill", "ship"} {
			if err := processor.AddHandlers(cqrs.NewEventHandler(name, func(context.Context, *orderPlaced) error {
				s.mu.Lock()
				defer s.mu.Unlock()
				if calls[name]++; name == "ship" {
					return errors.New("no")
				}
				return nil
			})); err != nil {
				t.Fatal(err)
			}
		}
		s.start()
		publishEvent(t, s, &orderPlaced{"anna"})
		after(time.Hour)
		s.stop()
		if diff := cmp.Diff(map[string]int{"bill": 1, "ship": 5}, calls); diff != "" {
			t.Errorf("calls (-want +got):\n%s", diff)
		}
		wantDepths(t, s.broker, map[string]int{"orders.ship.dlq": 1})
		if _, st := only(t, s.broker, "orders.ship.dlq"); st.MessageType != "orderPlaced" || st.ConsumerGroup != "ship" || st.Handler != "ship" {
			t.Errorf("dead letter of type %q, group %q, handler %q", st.MessageType, st.ConsumerGroup, st.Handler)
		}
	})
}

func TestEventGroupIsOneConsumer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := installed(t, spillway.Config{})
		processor, err := cqrs.NewEventGroupProcessorWithConfig(s.router, cqrs.EventGroupProcessorConfig{
			GenerateSubscribeTopic: func(cqrs.EventGroupProcessorGenerateSubscribeTopicParams) (string, error) { return topic, nil },
			SubscriberConstructor: func(p cqrs.EventGroupProcessorSubscriberConstructorParams) (message.Subscriber, error) {
				return s.sw.SubscriberFor(p.EventGroupName), nil
			},
			Marshaler: marshaler,
		})
		if err != nil {
			t.Fatal(err)
		}
		var calls []string
		if err := processor.AddHandlersGroup(group,
			cqrs.NewGroupEventHandler(func(context.Context, *orderPlaced) error {
				if calls = append(calls, "placed"); len(calls) < 3 {
					return errors.New("not yet")
				}
				return nil
			}),
			cqrs.NewGroupEventHandler(func(context.Context, *orderShipped) error {
				calls = append(calls, "shipped")
				return nil
			}),
		); err != nil {
			t.Fatal(err)
		}
		s.start()
		publishEvent(t, s, &orderPlaced{"anna"})
		publishEvent(t, s, &orderShipped{"anna"})
		after(time.Minute)
		s.stop()
		if diff := cmp.Diff([]string{"placed", "shipped", "placed"}, calls[:3]); diff != "" {
			t.Errorf("calls (-want +got):\n%s", diff)
		}
		wantDepths(t, s.broker, nil)
	})
}

// An event that no handler knows is a success with AckOnUnknownEvent, and a
// failure without: dead-lettered after the usual attempts, not redelivered in a
// loop.
func TestUnknownEvent(t *testing.T) {
	for name, tc := range map[string]struct {
		ack  bool
		want map[string]int
	}{
		"acknowledged": {true, nil},
		"refused":      {false, map[string]int{dlqOf: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := installed(t, spillway.Config{})
				processor, err := cqrs.NewEventGroupProcessorWithConfig(s.router, cqrs.EventGroupProcessorConfig{
					GenerateSubscribeTopic: func(cqrs.EventGroupProcessorGenerateSubscribeTopicParams) (string, error) { return topic, nil },
					SubscriberConstructor: func(cqrs.EventGroupProcessorSubscriberConstructorParams) (message.Subscriber, error) {
						return s.sw.Subscriber(), nil
					},
					AckOnUnknownEvent: tc.ack,
					Marshaler:         marshaler,
				})
				if err != nil {
					t.Fatal(err)
				}
				if err := processor.AddHandlersGroup(group, cqrs.NewGroupEventHandler(func(context.Context, *orderPlaced) error { return nil })); err != nil {
					t.Fatal(err)
				}
				s.start()
				publishEvent(t, s, &orderShipped{"anna"})
				after(time.Hour)
				s.stop()
				wantDepths(t, s.broker, tc.want)
			})
		})
	}
}

// Invariant 14: what cqrs finds in a message's context is there on each attempt.
func TestCommandHandlersFindTheOriginalMessageOnEveryAttempt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := installed(t, spillway.Config{})
		type view struct {
			UUID, Topic, Handler string
			Stream               adapters.Stream
		}
		var views []view
		handleCommands(t, s, commandConfig(s), func(ctx context.Context, _ *placeOrder) error {
			d, _ := spillway.DeliveryFrom(ctx)
			views = append(views, view{cqrs.OriginalMessageFromCtx(ctx).UUID, message.SubscribeTopicFromCtx(ctx), message.HandlerNameFromCtx(ctx), d.Stream})
			if len(views) < 3 {
				return errors.New("not yet")
			}
			return nil
		})
		s.start()
		sendCommand(t, s, &placeOrder{"anna"})
		after(time.Minute)
		s.stop()
		id := views[0].UUID
		want := []view{
			{id, topic, "place", adapters.StreamMain}, {id, topic, "place", adapters.StreamRetry}, {id, topic, "place", adapters.StreamRetry},
		}
		if diff := cmp.Diff(want, views); diff != "" || id == "" {
			t.Errorf("views (-want +got):\n%s", diff)
		}
	})
}
