package middleware

import (
	"context"
	"log/slog"
	"time"

	"github.com/spillway-mq/spillway/failure"
	"github.com/spillway-mq/spillway/poison"
)

// SlogHooks logs what happens to messages. A handler that fails is not our
// fault: retries and parking are logged at Info, dead letters at Warn. A
// hand-off that fails is logged at Error. Successes are logged at Debug.
// Payloads are never logged; error texts are logged as evidence redacts them.
//
// The keys are constant: topic, group, stream, message_uuid, handler, attempt,
// delivery_count, class, code, reason, dead_letter_id, reference, file, to,
// tries, delay, error.
func SlogHooks(logger *slog.Logger, evidence poison.Evidence) Hooks {
	errAttr := func(f failure.Failure) slog.Attr {
		text, _ := evidence.Error(f)
		return slog.String("error", text)
	}
	return Hooks{
		OnHandoffFailure: func(ctx context.Context, i *HandoffFailureInfo) {
			logger.LogAttrs(ctx, slog.LevelError, "hand-off failed", append(i.attrs(),
				slog.String("to", string(i.To)), slog.Int("tries", i.Tries), slog.Duration("delay", i.Next), errAttr(failure.Failure{Err: i.Err}))...)
		},
		OnOutcome: func(ctx context.Context, i *OutcomeInfo) {
			level, text := slog.LevelInfo, ""
			switch i.Outcome {
			case OutcomeProcessed:
				level, text = slog.LevelDebug, "message processed"
			case OutcomeReturned:
				level, text = slog.LevelDebug, "message returned to the broker"
			case OutcomeDelayed:
				level, text = slog.LevelDebug, "message came early, handed off again"
			case OutcomeRetried:
				text = "handler failed, message will be retried"
			case OutcomeParked:
				text = "handler failed, message parked"
			case OutcomeSuspected:
				level, text = slog.LevelWarn, "message delivered too often without an outcome, will be processed alone"
			case OutcomeDeadLettered:
				level, text = slog.LevelWarn, "message dead-lettered"
			case OutcomeLastResort:
				level, text = slog.LevelError, "message written to the last resort"
			}
			if logger.Enabled(ctx, level) {
				logOutcome(ctx, logger, level, text, i, errAttr)
			}
		},
	}
}

func logOutcome(ctx context.Context, logger *slog.Logger, level slog.Level, text string, i *OutcomeInfo, errAttr func(failure.Failure) slog.Attr) {
	attrs := i.attrs()
	if i.Failure.Class != "" {
		attrs = append(attrs, slog.String("class", string(i.Failure.Class)), slog.String("code", string(i.Failure.Code)), errAttr(i.Failure))
	}
	if i.Reason != "" {
		attrs = append(attrs, slog.String("reason", string(i.Reason)), slog.String("dead_letter_id", i.DeadLetterID))
	}
	if i.Failure.Reference != "" {
		attrs = append(attrs, slog.String("reference", i.Failure.Reference))
	}
	if i.LastResort != "" {
		attrs = append(attrs, slog.String("file", i.LastResort))
	}
	if !i.DueAt.IsZero() {
		attrs = append(attrs, slog.Duration("delay", time.Until(i.DueAt).Round(time.Millisecond)))
	}
	logger.LogAttrs(ctx, level, text, attrs...)
}

func (i MessageInfo) attrs() []slog.Attr {
	return []slog.Attr{
		slog.String("topic", i.Consumer.Topic), slog.String("group", i.Consumer.Group), slog.String("stream", string(i.Stream)),
		slog.String("message_uuid", i.MessageID), slog.String("handler", i.Handler),
		slog.Int("attempt", i.Attempt), slog.Int("delivery_count", i.DeliveryCount),
	}
}

// Tee returns hooks that call each of hooks in turn.
func Tee(hooks ...Hooks) Hooks {
	var t Hooks
	for _, h := range hooks {
		t.OnOpen = tee(t.OnOpen, h.OnOpen)
		t.OnStart = tee(t.OnStart, h.OnStart)
		t.OnAttempt = tee(t.OnAttempt, h.OnAttempt)
		t.OnHandoffFailure = tee(t.OnHandoffFailure, h.OnHandoffFailure)
		t.OnOutcome = tee(t.OnOutcome, h.OnOutcome)
	}
	return t
}

func tee[I any](first, second func(context.Context, *I)) func(context.Context, *I) {
	switch {
	case first == nil:
		return second
	case second == nil:
		return first
	}
	return func(ctx context.Context, info *I) {
		first(ctx, info)
		second(ctx, info)
	}
}
