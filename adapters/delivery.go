package adapters

import "context"

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
