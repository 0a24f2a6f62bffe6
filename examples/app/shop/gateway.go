package shop

import (
	"context"
	"fmt"
	"net/http"
	"time"
)

// gateway is where cards are charged. In its outage it first hangs, and then
// its load balancer answers in its place.
type gateway struct {
	down, hanging, up time.Time     // hangs from down on, answers 503 from hanging on, works from up on
	waiting           chan struct{} // the few connections that are accepted while it hangs
}

const (
	chargeTimeout   = 20 * time.Millisecond
	hangsFor        = 300 * time.Millisecond
	mostConnections = 4
)

func newGateway(down, up time.Time) *gateway {
	return &gateway{down: down, hanging: down.Add(hangsFor), up: up, waiting: make(chan struct{}, mostConnections)}
}

func (g *gateway) working(now time.Time) bool { return now.Before(g.down) || !now.Before(g.up) }

func (g *gateway) charge(ctx context.Context, _ []byte) error {
	now := time.Now()
	if g.working(now) {
		return nil
	}
	if now.Before(g.hanging) {
		select {
		case g.waiting <- struct{}{}:
			defer func() { <-g.waiting }()
			ctx, cancel := context.WithTimeout(ctx, chargeTimeout)
			defer cancel()
			<-ctx.Done()
			return fmt.Errorf("charge card: %w", ctx.Err())
		default: // no connection left
		}
	}
	return fmt.Errorf("charge card: %w", statusError(http.StatusServiceUnavailable))
}

// statusError is how an HTTP client reports an answer. The method is what the
// classifier looks for.
type statusError int

func (s statusError) Error() string {
	return fmt.Sprintf("payment gateway answered %d %s", int(s), http.StatusText(int(s)))
}

func (s statusError) StatusCode() int { return int(s) }
