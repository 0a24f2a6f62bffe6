package foreign

import "cmp"

// springAMQP reads what Spring AMQP's RepublishMessageRecoverer adds. It tells
// neither the queue nor the time; the exception's name is in the stack trace,
// which may be cut.
func springAMQP(in *input) told {
	t := told{messageType: in.text("__TypeId__")}
	t.source.Topic = cmp.Or(in.text("x-original-exchange"), in.text("x-original-routingKey"))
	t.threw(causes(in.text("x-exception-stacktrace")))
	// That of the cause, where there is one.
	t.message = cmp.Or(in.text("x-exception-message"), t.message)
	return t
}
