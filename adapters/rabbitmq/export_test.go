package rabbitmq

import "time"

// What no broker is needed for.
var (
	FormatField = formatField
	ParseField  = parseField
	FieldSize   = fieldSize
)

type Ladder = ladder

func NewLadder(shortest, longest time.Duration) Ladder { return newLadder(shortest, longest) }

func (l ladder) Quantize(d time.Duration) time.Duration { return l.quantize(d) }
func (l ladder) Step(d time.Duration) time.Duration     { return l.step(d) }
func (l ladder) Rung(d time.Duration) time.Duration     { return l.rung(d) }
