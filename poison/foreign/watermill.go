package foreign

// watermill reads what the middleware PoisonQueue adds. It tells neither the
// consumer group nor the attempts.
func watermill(in *input) told {
	t := told{
		handler:  in.text("handler_poisoned"),
		message:  in.text("reason_poisoned"),
		failedAt: in.Position.Timestamp,
	}
	t.source.Topic = in.text("topic_poisoned")
	return t
}
