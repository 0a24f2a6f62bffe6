package signature_test

import (
	"fmt"

	"github.com/spillway-mq/spillway/triage/signature"
)

func ExampleOf() {
	a := signature.Of(`charge order 4711: Post "https://api.pay.example.com/v1/charges/99": status 503`)
	b := signature.Of(`charge order 8: Post "https://api.pay.example.com/v1/charges/3": status 503`)
	fmt.Println(a.Text)
	fmt.Println(a.ID == b.ID)
	// Output:
	// charge order <n>: Post "https://api.pay.example.com": status 503
	// true
}

func ExampleExplain() {
	_, made := signature.Explain("order 5 of anna@example.com failed after 2m30.5s")
	for _, r := range made {
		fmt.Printf("%s -> %s (%s)\n", r.From, r.To, r.Rule)
	}
	// Output:
	// 5 -> <n> (number)
	// anna@example.com -> <email> (e-mail)
	// 2m30.5s -> <dur> (duration)
}
