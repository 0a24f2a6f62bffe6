package spillway

import (
	"slices"
	"sync"
)

// outlived remembers suspects that this process has handled and could not
// settle, because the connection was lost. The broker counts that like a crash
// of the consumer, and would convict them; a process that is still there knows
// better. The zero value is ready.
type outlived struct {
	mu  sync.Mutex
	ids []string
}

// maxOutlived bounds what is remembered: suspects are rare.
const maxOutlived = 1000

func (o *outlived) add(id string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if id == "" || slices.Contains(o.ids, id) {
		return
	}
	if len(o.ids) == maxOutlived {
		o.ids = slices.Delete(o.ids, 0, 1)
	}
	o.ids = append(o.ids, id)
}

// take reports whether id is remembered, and forgets it.
func (o *outlived) take(id string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	i := slices.Index(o.ids, id)
	if i < 0 {
		return false
	}
	o.ids = slices.Delete(o.ids, i, i+1)
	return true
}
