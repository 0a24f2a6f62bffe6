package adapters

import (
	"context"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
)

type deliveryKey struct{}

// deliveryContext carries a delivery without a second allocation, and without
// hiding the parent's cancellation from the context package.
type deliveryContext struct {
	context.Context
	delivery *Delivery
}

func (c *deliveryContext) Value(key any) any {
	if _, ok := key.(deliveryKey); ok {
		return c.delivery
	}
	return c.Context.Value(key)
}

// Attach makes msg the message of d, and gives it a context that carries d.
func Attach(ctx context.Context, d *Delivery, msg *message.Message) {
	d.owner = msg
	msg.SetContext(WithDelivery(ctx, d))
}

// Owns reports whether msg is the message that d was attached to, and not one
// that has inherited its context.
func (d *Delivery) Owns(msg *message.Message) bool { return d.owner == msg }

// WithDelivery returns a context that carries d.
func WithDelivery(ctx context.Context, d *Delivery) context.Context {
	return &deliveryContext{ctx, d}
}

// DeliveryFrom returns the delivery that a message's context carries, and
// false for messages of other subscribers.
func DeliveryFrom(ctx context.Context) (*Delivery, bool) {
	d, ok := ctx.Value(deliveryKey{}).(*Delivery)
	return d, ok
}

// Postpone notes that the delivery, which is going to be returned, has failed and
// is to come again at due, at its place. The chain calls it, for consumers that
// retry in place.
func (d *Delivery) Postpone(due time.Time) { d.postponed = due }

// Postponed is when a delivery that is returned is to come again; the zero time
// means at once.
func (d *Delivery) Postponed() time.Time { return d.postponed }
