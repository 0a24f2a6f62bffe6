package nearest_test

import (
	"strings"
	"testing"

	"github.com/spillway-mq/spillway/internal/nearest"
)

func TestTo(t *testing.T) {
	t.Parallel()
	known := []string{"policy", "closeGrace", "concurrency", "cpf", "cnpj", "max"}
	for name, want := range map[string]string{
		"polcy":        "policy", // a letter is missing
		"poilcy":       "policy", // two are swapped
		"close_grace":  "closeGrace",
		"CLOSE-GRACE":  "closeGrace",
		"concurency":   "concurrency",
		"concurrencyy": "concurrency",
		"cfp":          "cpf",
		"mx":           "max",
		"policy":       "policy",

		"":     "",
		"x":    "",
		"abc":  "",
		"retr": "",
		// Neither slow nor wrong.
		strings.Repeat("policy", 10_000): "",
		"\xff\xfe":                       "",
	} {
		got, ok := nearest.To(name, known)
		if ok != (want != "") || got != want {
			t.Errorf("To(%.20q) = %q, %v, want %q", name, got, ok, want)
		}
	}
	if got, ok := nearest.Within("SPILLWAY_BROKER_PORT", []string{"SPILLWAY_BROKER_URL"}, 2); ok {
		t.Errorf("took the port for %s", got)
	}
	if got, ok := nearest.To("policy", nil); ok {
		t.Errorf("found %q among nothing", got)
	}
}
