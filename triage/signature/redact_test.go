package signature_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/spillway-mq/spillway/envelope"
	"github.com/spillway-mq/spillway/poison"
	"github.com/spillway-mq/spillway/triage/signature"
)

// O44: dead letters keep a redacted text, and other texts come as they are. One
// function makes the same signature of both.
func TestRedactedAndRawSignAlike(t *testing.T) {
	t.Parallel()
	r, err := poison.NewRedactor(poison.Redaction{CPF: true, CNPJ: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{
		"no account for anna.kowalska@example.com in tenant 5",
		`no account for "anna@example.com"`,
		"no account for <anna@example.com>",
		"card 4111111111111111 was declined",
		"card 4111 1111 1111 1111 was declined",
		"card 4111-1111-1111-1111 was declined",
		"dial amqp://guest:s3cret@broker.example.com:5672/vhost: connection refused",
		"dial postgres://app:hunter2@db.example.com/orders: EOF",
		"parse mysql dsn app:hunter2@tcp(10.0.0.1:3306)/orders: refused",
		"login failed: password=hunter2",
		"login failed: password=hunter2&user=5",
		"login failed: password: hunter2",
		`login failed: wrong password "hunter2"`,
		`login failed: {"user":"anna","password":"hunter2"}`,
		"request failed: api_key=abcDEF123456, retrying",
		"request failed: Authorization: Bearer abcdef0123456789abcdef",
		"request failed: Authorization: Basic YW5uYTpodW50ZXIy",
		"jwt eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U is not valid",
		"AccessDenied for AKIAIOSFODNN7EXAMPLE",
		"bad credentials ghp_abcdefghijklmnopqrstuvwxyz0123456789",
		"slack: xoxb-123456789012-abcdefABCDEF is revoked",
		"taxpayer 529.982.247-25 is unknown",
		"taxpayer 52998224725 is unknown",
		"company 11.222.333/0001-81 is unknown",
		"GET https://api.example.com/v1?token=abcdef123456: 403",
		"run: psql --password hunter2 failed",
	} {
		redacted := r.Text(text)
		if redacted == text {
			t.Errorf("nothing is redacted in %q", text)
		}
		a, b := signature.Of(text), signature.Of(redacted)
		if a.ID != b.ID {
			t.Errorf("raw      %s\n\tredacted %s\n\tfrom     %s", a.Text, b.Text, redacted)
		}
	}
}

// Dead letters keep 500 runes of a text. Cutting before signing made 33
// signatures of one cause elsewhere.
func TestCutTextsSignLikeTheWhole(t *testing.T) {
	t.Parallel()
	ids := map[string]string{}
	for i := range 400 {
		// The cut falls at another place in each.
		text := strings.Repeat(fmt.Sprintf("order %d of customer %q rejected by 10.0.%d.7:443: ", i*i*i, strings.Repeat("x", i%60), i%250), 30)
		whole := signature.Of(text)
		cut, truncated := envelope.ErrorText(text)
		if !truncated {
			t.Fatal("nothing was cut")
		}
		if s := signature.Of(cut); s.ID != whole.ID {
			t.Fatalf("whole %s\ncut   %s", whole.Text, s.Text)
		}
		ids[whole.ID] = whole.Text
	}
	if len(ids) != 1 {
		t.Errorf("%d signatures of one cause: %v", len(ids), ids)
	}
	for _, text := range []string{
		strings.Repeat("x", 2000), strings.Repeat("é", 2000), strings.Repeat("\xff", 2000), strings.Repeat("1", 2000),
		"https://example.com/" + strings.Repeat("a1/", 900), `{"error":"` + strings.Repeat("no stock ", 300) + `"}`,
		strings.Repeat("line\n", 900), "\x1b[31m" + strings.Repeat("red 5 ", 900), `"` + strings.Repeat("open ", 300),
	} {
		cut, _ := envelope.ErrorText(text)
		if a, b := signature.Of(text), signature.Of(cut); a.ID != b.ID {
			t.Errorf("whole %s\ncut   %s", a.Text, b.Text)
		}
	}
}

// O46: a message without a text has a group as well.
func TestEmptyTextHasASignature(t *testing.T) {
	t.Parallel()
	want := signature.Of("")
	if want.Text != signature.NoText {
		t.Errorf("%+v", want)
	}
	for _, text := range []string{" ", "\n\t", "...", "\x1b[0m", "\u00a0"} {
		if s := signature.Of(text); s != want {
			t.Errorf("%q: %+v", text, s)
		}
	}
}
