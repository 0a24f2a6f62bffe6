package shop

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/spillway-mq/spillway/failure"
)

// Order is the message that is consumed.
type Order struct {
	Schema      int    `json:"schema"`
	ID          string `json:"id"`
	Customer    string `json:"customer"`
	Cents       int64  `json:"cents"`
	Payment     string `json:"payment"` // card or invoice
	Instalments int64  `json:"instalments"`
	Note        string `json:"note,omitempty"`
}

const (
	// latestSchema of orders that Bill understands.
	latestSchema = 2
	// approvalLimit in cents: somebody has to approve what costs more.
	approvalLimit = 10_000_00
)

// Bill is the handler. What becomes of an order depends only on the error.
func (s *Shop) Bill(msg *message.Message) error {
	var o Order
	if err := json.Unmarshal(msg.Payload, &o); err != nil {
		return fmt.Errorf("decode order: %w", err) // recognised as undecodable
	}
	if o.Schema > latestSchema {
		return failure.Permanent(fmt.Errorf("order has schema %d, this consumer knows %d", o.Schema, latestSchema),
			failure.ClassIncompatibleSchema, failure.Code(fmt.Sprintf("schema:%d", o.Schema)))
	}
	if o.Cents <= 0 {
		return failure.Permanent(fmt.Errorf("amount must be positive, is %d cents", o.Cents),
			failure.ClassValidation, failure.Code("AMOUNT_NOT_POSITIVE"))
	}
	if !s.knows(o.Customer) {
		return failure.Missing("customer", o.Customer) // tried again soon, then parked
	}
	if o.Cents > approvalLimit {
		return failure.Waiting(errors.New("amounts above 10,000.00 need an approval"), "credit-approval/"+o.ID)
	}
	rate := instalment(o)
	document, err := fiscalDocument(o, rate)
	if err != nil {
		return failure.Permanent(err, failure.ClassSerialization, failure.Code("XML_CHARACTER"))
	}
	if o.Payment == "card" {
		return s.gateway.charge(msg.Context(), document) // a 503, a time-out: recognised
	}
	return nil
}

// instalment has the bug of this program: nobody thought of orders without any.
func instalment(o Order) int64 { return o.Cents / o.Instalments }
