package poison_test

import (
	"errors"
	"fmt"

	"github.com/spillway-mq/spillway/failure"
	"github.com/spillway-mq/spillway/poison"
)

func ExampleRedactor() {
	redactor, err := poison.NewRedactor(poison.Redaction{
		CPF:         true,
		Patterns:    []poison.Pattern{{Name: "badge", Regexp: `badge (\d+)`}},
		DropHeaders: []string{"x-customer-name"},
	})
	if err != nil {
		fmt.Println(err)
		return
	}

	fmt.Println(redactor.Text("connect amqp://app:hunter2@rabbit:5672/: EOF"))
	fmt.Println(redactor.Text("Get https://api.example.com/v1/users?mail=anna%40example.com&key=Zx81: timeout"))
	fmt.Println(redactor.Text("badge 1177 of 529.982.247-25: card 4111 1111 1111 1111 declined"))
	fmt.Println(redactor.Text("passwords do not match"))
	fmt.Println(redactor.Failure(failure.Failure{
		Class: failure.ClassUnauthorized,
		Err:   errors.New("Authorization: Bearer mF_9.B5f-4.1JqM: token expired"),
	}))
	fmt.Println(redactor.Hits()["secret"])
	// Output:
	// connect amqp://app:<q>@rabbit:5672/: EOF
	// Get https://api.example.com/v1/users?mail=<email>&key=<q>: timeout
	// badge <q> of <id>: card <id> declined
	// passwords do not match
	// Authorization: Bearer <id>: token expired
	// 1
}
