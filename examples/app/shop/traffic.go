package shop

import (
	"bytes"
	"encoding/json"
	"fmt"
	"iter"
	"math/rand/v2"
	"strconv"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
)

// kind is what is special about an order.
type kind uint8

const (
	healthy kind = iota
	cutOff
	amountAsText
	controlCharacter
	newerSchema
	negativeAmount
	customerLate
	customerNever
	needsApproval
	noInstalments
	kinds
)

// perMille says how many of a thousand orders are of a kind. The rest is
// healthy; a third of these are paid by card.
var perMille = [kinds]int{
	cutOff: 5, amountAsText: 3, controlCharacter: 1, newerSchema: 4, negativeAmount: 3,
	customerLate: 15, customerNever: 4, needsApproval: 6, noInstalments: 1,
}

// mix draws the kinds of n orders. From 20 on, every kind is among them.
func mix(n int, seed uint64) []kind {
	drawn := make([]kind, 0, n)
	for k := range kinds {
		count := perMille[k] * n / 1000
		if k != healthy && n >= 2*int(kinds) {
			count = max(count, 1)
		}
		for range count {
			drawn = append(drawn, k)
		}
	}
	drawn = drawn[:n:n]
	rng := rand.New(rand.NewPCG(seed, 0))
	rng.Shuffle(n, func(i, j int) { drawn[i], drawn[j] = drawn[j], drawn[i] })
	return drawn
}

// Messages makes the orders, one after the other.
func (s *Shop) Messages() iter.Seq[*message.Message] {
	return func(yield func(*message.Message) bool) {
		for i, k := range s.kinds {
			o := s.order(i, k)
			msg := message.NewMessage(watermill.NewUUID(), body(o, k))
			msg.Metadata.Set("message-type", "order.placed")
			msg.Metadata.Set("aggregate", o.ID)
			msg.Metadata.Set("schema-version", strconv.Itoa(o.Schema))
			msg.Metadata.Set("producer-version", "webshop-4.2.0")
			if !yield(msg) {
				return
			}
		}
	}
}

func (s *Shop) order(i int, k kind) Order {
	rng := rand.New(rand.NewPCG(s.seed, uint64(i)+1))
	o := Order{
		Schema: latestSchema, ID: fmt.Sprintf("o-%06d", i+1), Customer: fmt.Sprintf("c-%03d", rng.IntN(500)),
		Cents: 100 + rng.Int64N(900_000), Payment: "invoice", Instalments: 1 + rng.Int64N(12),
	}
	if rng.IntN(3) == 0 {
		o.Payment = "card"
	}
	switch k {
	case controlCharacter:
		o.Note = "please ring twice\x0b, the bell is weak" // pasted from a spreadsheet
	case newerSchema:
		o.Schema = 9
	case negativeAmount:
		o.Cents = -o.Cents
	case customerLate:
		o.Customer = fmt.Sprintf("new-%06d", i+1)
	case customerNever:
		o.Customer = fmt.Sprintf("ghost-%03d", rng.IntN(1000))
	case needsApproval:
		o.Cents += approvalLimit
	case noInstalments:
		o.Instalments = 0
	}
	return o
}

// body is what the producer sends for an order; some producers are broken.
func body(o Order, k kind) []byte {
	payload, err := json.Marshal(o)
	if err != nil {
		panic(err) // an Order can always be encoded
	}
	switch k {
	case cutOff:
		return payload[:len(payload)/2]
	case amountAsText:
		amount := strconv.AppendInt([]byte(`"cents":`), o.Cents, 10)
		return bytes.Replace(payload, amount, []byte(`"cents":"12,50"`), 1)
	default:
		return payload
	}
}
