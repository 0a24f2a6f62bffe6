package rabbitmq

import "time"

// What no broker is needed for.
var (
	FormatField = formatField
	ParseField  = parseField
	FieldSize   = fieldSize
)

// BayNames are the queues that a parking stream may consist of.
func BayNames(parking string) []string { return bayNames(parking) }

type Ladder = ladder

func NewLadder(shortest, longest time.Duration) Ladder { return newLadder(shortest, longest) }

func (l ladder) Quantize(d time.Duration) time.Duration { return l.quantize(d) }
func (l ladder) Step(d time.Duration) time.Duration     { return l.step(d) }
func (l ladder) Rung(d time.Duration) time.Duration     { return l.rung(d) }
