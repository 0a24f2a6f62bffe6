package spillway

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/spillway-mq/spillway/middleware"
)

// Install puts the chain into a Router: as the outermost middleware, and around
// the publishers of handlers, so that an output that cannot be published is a
// failure of its handler. Call it first after message.NewRouter.
//
// The Router's Run fails where Spillway could not keep its word: if the chain
// is not outermost, if middlewares stand beside it that must not, or if two
// handlers would share the messages of one consumer. Install panics if router is
// nil.
func (s *Spillway) Install(router *message.Router) {
	if router == nil {
		panic("spillway: Install needs a router")
	}
	s.placed.Store(true)
	router.AddMiddleware(s.chain.Middleware)
	router.AddPublisherDecorators(s.chain.PublisherDecorator)
	c := companions{sw: s, router: router, handlerOf: map[consumerKey]string{}}
	router.AddSubscriberDecorators(func(sub message.Subscriber) (message.Subscriber, error) {
		return sub, c.check()
	})
}

// Middleware is the chain alone, for those who place it themselves. It belongs
// outermost. Without the publisher decorator that Install adds, an output that
// cannot be published sends its message back to the broker, uncounted.
func (s *Spillway) Middleware() message.HandlerMiddleware {
	s.placed.Store(true)
	return s.chain.Middleware
}

// companions looks at what a Router holds beside the chain, before each of its
// handlers starts. The Router starts one at a time.
type companions struct {
	sw        *Spillway
	router    *message.Router
	handlerOf map[consumerKey]string
	warned    bool
}

type consumerKey struct{ topic, group string }

func (c *companions) check() error {
	if !c.warned {
		c.warned = true
		c.warnOfUnknownHandlers()
	}
	return errors.Join(middleware.Forbidden(c.router), c.sharedConsumers())
}

func (c *companions) warnOfUnknownHandlers() {
	handlers := c.router.Handlers()
	for _, name := range slices.Sorted(maps.Keys(c.sw.cfg.HandlerPolicies)) {
		if _, ok := handlers[name]; !ok {
			c.sw.cfg.Logger.Warn("Config.HandlerPolicies names a handler that the Router does not have",
				"handler", name, "handlers", strings.Join(slices.Sorted(maps.Keys(handlers)), ", "))
		}
	}
}

// sharedConsumers reports handlers that compete for the messages of one
// consumer: each message would go to one of them, and its retry to either.
func (c *companions) sharedConsumers() error {
	var errs []error
	for name, key := range c.subscriptions() {
		other, ok := c.handlerOf[key]
		if !ok {
			c.handlerOf[key] = name
			continue
		}
		if other != name {
			first, second := min(name, other), max(name, other)
			errs = append(errs, fmt.Errorf("spillway: the handlers %q and %q both consume %q as group %q: each message would go to only one of them, and its retry to either; give each a group of its own with SubscriberFor, or use one handler and Config.Concurrency",
				first, second, key.topic, key.group))
		}
	}
	return errors.Join(errs...)
}

// subscriptions returns which consumer each handler of the router that has not
// started yet subscribes as, as far as its subscriber is ours and not wrapped.
// Watermill does not export it; if a later version keeps it elsewhere there is
// nothing to see.
func (c *companions) subscriptions() map[string]consumerKey {
	found := map[string]consumerKey{}
	handlers := reflect.ValueOf(c.router).Elem().FieldByName("handlers")
	if !handlers.IsValid() || handlers.Kind() != reflect.Map {
		return nil
	}
	for it := handlers.MapRange(); it.Next(); {
		h := it.Value()
		if h.Kind() != reflect.Pointer || h.Elem().Kind() != reflect.Struct {
			return nil
		}
		sub, topic := h.Elem().FieldByName("subscriber"), h.Elem().FieldByName("subscribeTopic")
		if !sub.IsValid() || sub.Kind() != reflect.Interface || !topic.IsValid() || topic.Kind() != reflect.String {
			return nil
		}
		if sub.Elem().IsValid() && sub.Elem().Type() == reflect.TypeFor[*subscriber]() {
			ours := (*subscriber)(sub.Elem().UnsafePointer())
			found[it.Key().String()] = consumerKey{topic.String(), ours.group}
		}
	}
	return found
}
