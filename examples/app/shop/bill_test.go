package shop_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/go-cmp/cmp"
	"github.com/spillway-mq/spillway/examples/app/shop"
	"github.com/spillway-mq/spillway/failure"
)

// What the handler returns for an order says what becomes of it.
func TestBillSaysWhatAFailureMeans(t *testing.T) {
	t.Parallel()
	order := func(change func(*shop.Order)) string {
		o := shop.Order{Schema: 2, ID: "o-1", Customer: "c-1", Cents: 5000, Payment: "invoice", Instalments: 2}
		change(&o)
		payload, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		return string(payload)
	}
	for name, c := range map[string]struct {
		payload string
		want    string
	}{
		"healthy":              {order(func(o *shop.Order) {}), ""},
		"cut off":              {`{"schema":2,"id":"o-1`, "permanent undecodable json:SyntaxError"},
		"amount as text":       {`{"cents":"12,50"}`, "permanent undecodable json:UnmarshalTypeError"},
		"no body":              {"", "permanent undecodable json:SyntaxError"},
		"newer schema":         {order(func(o *shop.Order) { o.Schema = 3 }), "permanent incompatible_schema schema:3"},
		"free":                 {order(func(o *shop.Order) { o.Cents = 0 }), "permanent validation AMOUNT_NOT_POSITIVE"},
		"unknown customer":     {order(func(o *shop.Order) { o.Customer = "ghost-1" }), "ambiguous reference_not_found customer/ghost-1"},
		"expensive":            {order(func(o *shop.Order) { o.Cents = 10_000_01 }), "ambiguous unknown credit-approval/o-1 park"},
		"as dear as allowed":   {order(func(o *shop.Order) { o.Cents = 10_000_00 }), ""},
		"control character":    {order(func(o *shop.Order) { o.Note = "a\x01" }), "permanent serialization XML_CHARACTER"},
		"not a character":      {order(func(o *shop.Order) { o.Note = "a\uFFFE" }), "permanent serialization XML_CHARACTER"},
		"tab and line feed":    {order(func(o *shop.Order) { o.Note = "a\tb\r\nc <&> ü" }), ""},
		"card, gateway is up":  {order(func(o *shop.Order) { o.Payment = "card" }), ""},
		"negative instalments": {order(func(o *shop.Order) { o.Instalments = -1 }), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := shop.New(1, 1, time.Hour)
			s.Start()
			if got := verdict(s.Bill(message.NewMessage("1", []byte(c.payload)))); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func verdict(err error) string {
	if err == nil {
		return ""
	}
	f := failure.Classifier{}.Classify(err)
	text := fmt.Sprintf("%s %s", f.Nature, f.Class)
	for _, more := range []string{string(f.Code), f.Reference} {
		if more != "" {
			text += " " + more
		}
	}
	if f.Park {
		text += " park"
	}
	return text
}

func TestGatewayHangsThenAnswersThenRecovers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := shop.New(1, 1, 10*time.Second) // down from 4 s to 9 s
		s.Start()
		order, err := json.Marshal(shop.Order{Schema: 2, ID: "o-1", Customer: "c-1", Cents: 1, Payment: "card", Instalments: 1})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, at := range []time.Duration{3 * time.Second, 4100 * time.Millisecond, 5 * time.Second, 9 * time.Second} {
			time.Sleep(at - time.Since(synctestEpoch))
			got = append(got, s.Status()+" "+verdict(s.Bill(message.NewMessage("1", order))))
		}
		want := []string{
			"payment gateway: up ",
			"payment gateway: DOWN transient dependency_timeout context:DeadlineExceeded",
			"payment gateway: DOWN transient dependency_unavailable http:503",
			"payment gateway: up ",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
	})
}

// synctestEpoch is when the clock of every bubble starts.
var synctestEpoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

func TestTheSameSeedMakesTheSameOrders(t *testing.T) {
	t.Parallel()
	orders := func(seed uint64) (bodies []string) {
		for msg := range shop.New(200, seed, time.Second).Messages() {
			bodies = append(bodies, string(msg.Payload))
		}
		return bodies
	}
	if diff := cmp.Diff(orders(3), orders(3)); diff != "" {
		t.Error(diff)
	}
	if cmp.Equal(orders(3), orders(4)) {
		t.Error("another seed made the same orders")
	}
	if n := len(orders(3)); n != 200 {
		t.Errorf("made %d orders, want 200", n)
	}
}
