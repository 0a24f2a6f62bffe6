package sqsfake

import (
	"slices"
	"time"
)

// task is a run of StartMessageMoveTask. Server.mu guards it.
type task struct {
	handle      string
	source      *queue
	destination string // ARN, empty if each message goes where it came from
	rate        int    // messages in a second
	given       *int   // the rate that was asked for
	started     time.Time
	total       int
	moved       int
	status      string
	failure     string
	cancel      chan struct{} // closed by CancelMessageMoveTask
}

const (
	taskRunning   = "RUNNING"
	taskCompleted = "COMPLETED"
	taskCancelled = "CANCELLED"
	taskFailed    = "FAILED"

	maxRate = 500
)

type startMessageMoveTaskInput struct {
	SourceArn                    *string
	DestinationArn               *string
	MaxNumberOfMessagesPerSecond *int
}

func (s *Server) startMessageMoveTask(_ request, in startMessageMoveTaskInput) (any, error) {
	if value(in.SourceArn) == "" {
		return nil, missing("SourceArn")
	}
	if err := inRange("MaxNumberOfMessagesPerSecond", in.MaxNumberOfMessagesPerSecond, 1, maxRate); err != nil {
		return nil, err
	}
	source := s.findARN(*in.SourceArn)
	if source == nil {
		return nil, noResource("SourceArn")
	}
	if len(s.sourcesOf(source)) == 0 {
		return nil, fail("InvalidParameterValue", "Source queue must be configured as a Dead Letter Queue.")
	}
	t := &task{
		handle: s.nextID(), source: source, destination: value(in.DestinationArn), rate: maxRate,
		given: in.MaxNumberOfMessagesPerSecond, started: time.Now(), status: taskRunning, cancel: make(chan struct{}),
	}
	if t.destination != "" {
		d := s.findARN(t.destination)
		switch {
		case d == nil:
			return nil, noResource("DestinationArn")
		case d == source:
			return nil, fail("InvalidParameterValue", "Source queue arn and destination queue arn cannot be the same.")
		case d.fifo != source.fifo:
			return nil, fail("InvalidParameterValue", "Source and destination must be queues of the same type.")
		}
	}
	for _, other := range s.tasks {
		if other.source == source && other.status == taskRunning {
			return nil, fail("InvalidParameterValue", "There is already a task running. "+
				"Only one active task is allowed for a source queue arn at a given time.")
		}
	}
	if t.given != nil {
		t.rate = *t.given
	}
	source.expire(t.started)
	for _, m := range source.messages {
		if !m.visible.After(t.started) {
			t.total++
		}
	}
	s.tasks = append(s.tasks, t)
	s.wg.Add(1) // the request has one too, so this is before Close waits
	go s.move(t)
	return struct{ TaskHandle string }{t.handle}, nil
}

func noResource(parameter string) *apiError {
	return failf("ResourceNotFoundException", "The resource that you specified for the %s parameter doesn't exist.", parameter)
}

// move runs a task: a message at a time, at its rate.
func (s *Server) move(t *task) {
	defer s.wg.Done()
	tick := time.NewTicker(time.Second / time.Duration(t.rate))
	defer tick.Stop()
	for s.moveOne(t) {
		select {
		case <-tick.C:
		case <-t.cancel:
			return
		case <-s.closed.Done():
			return
		}
	}
}

// moveOne returns false when the task has ended.
func (s *Server) moveOne(t *task) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.status != taskRunning {
		return false
	}
	now := time.Now()
	t.source.expire(now)
	i := slices.IndexFunc(t.source.messages, func(m *stored) bool { return !m.visible.After(now) })
	if i < 0 {
		t.status = taskCompleted
		return false
	}
	m := t.source.messages[i]
	arn := t.destination
	if arn == "" {
		arn = m.source
	}
	if arn == "" {
		t.status, t.failure = taskFailed, "CouldNotDetermineMessageSource"
		return false
	}
	d := s.findARN(arn)
	if d == nil {
		t.status, t.failure = taskFailed, simple+"NonExistentQueue"
		return false
	}
	t.source.remove(m)
	moved := &stored{
		id: s.nextID(), body: m.body, attributes: m.attributes, trace: m.trace, group: m.group, dedup: m.dedup,
		sent: now, enqueued: now, visible: now.Add(d.seconds("DelaySeconds")),
	}
	if d.fifo {
		moved.sequence = s.sequence()
	}
	d.messages = append(d.messages, moved)
	d.wake()
	t.moved++
	return true
}

type listMessageMoveTasksInput struct {
	SourceArn  *string
	MaxResults *int
}

type taskView struct {
	TaskHandle                        string `json:",omitempty"`
	Status                            string
	SourceArn                         string
	DestinationArn                    string `json:",omitempty"`
	MaxNumberOfMessagesPerSecond      *int   `json:",omitempty"`
	ApproximateNumberOfMessagesMoved  int
	ApproximateNumberOfMessagesToMove int
	FailureReason                     string `json:",omitempty"`
	StartedTimestamp                  int64
}

func (s *Server) listMessageMoveTasks(_ request, in listMessageMoveTasksInput) (any, error) {
	if value(in.SourceArn) == "" {
		return nil, missing("SourceArn")
	}
	if err := inRange("MaxResults", in.MaxResults, 1, 10); err != nil {
		return nil, err
	}
	source := s.findARN(*in.SourceArn)
	if source == nil {
		return nil, noResource("SourceArn")
	}
	limit := 1
	if in.MaxResults != nil {
		limit = *in.MaxResults
	}
	var views []taskView
	for _, t := range slices.Backward(s.tasks) {
		if t.source != source || len(views) == limit {
			continue
		}
		v := taskView{
			Status: t.status, SourceArn: source.arn, DestinationArn: t.destination, MaxNumberOfMessagesPerSecond: t.given,
			ApproximateNumberOfMessagesMoved: t.moved, ApproximateNumberOfMessagesToMove: t.total,
			FailureReason: t.failure, StartedTimestamp: t.started.UnixMilli(),
		}
		if t.status == taskRunning {
			v.TaskHandle = t.handle // only these can be cancelled
		}
		views = append(views, v)
	}
	return struct {
		Results []taskView `json:",omitempty"`
	}{views}, nil
}

type cancelMessageMoveTaskInput struct {
	TaskHandle *string
}

func (s *Server) cancelMessageMoveTask(_ request, in cancelMessageMoveTaskInput) (any, error) {
	if value(in.TaskHandle) == "" {
		return nil, missing("TaskHandle")
	}
	for _, t := range s.tasks {
		if t.handle != *in.TaskHandle {
			continue
		}
		if t.status != taskRunning {
			return nil, fail("UnsupportedOperation", "Only active tasks can be cancelled.")
		}
		t.status = taskCancelled
		close(t.cancel)
		return struct{ ApproximateNumberOfMessagesMoved int }{t.moved}, nil
	}
	return nil, noResource("TaskHandle")
}
