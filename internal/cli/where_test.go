package cli_test

import (
	"path/filepath"
	"strings"
	"testing"
)

// Where a broker cannot be looked into, that is said, and not that nothing is
// there.
func TestWhereSaysWhatItDoesNotKnow(t *testing.T) {
	t.Parallel()
	nothing := "SPILLWAY_INVENTORY_URL=" + filepath.Join(t.TempDir(), "inventory.db")
	for name, tc := range map[string]struct {
		environ []string
		config  string
		wants   []string
		code    int
	}{
		"no peek": {
			[]string{"SPILLWAY_BROKER_URL=otherq://host", nothing}, "testdata/rabbitmq.yaml",
			[]string{"orders.billing.retry: the broker cannot be looked into", "refunds.audit.parking: the broker", "the inventory: there is none"}, 3,
		},
		"no broker":    {[]string{nothing}, "testdata/rabbitmq.yaml", []string{"all streams: no broker is named"}, 3},
		"no consumers": {[]string{"SPILLWAY_BROKER_URL=otherq://host", nothing}, "", []string{"all streams: the configuration lists no consumers"}, 3},
		"down":         {[]string{"SPILLWAY_BROKER_URL=otherq://u:hunter2@down", nothing}, "testdata/rabbitmq.yaml", nil, 1},
	} {
		stdout, stderr, code := app(t, tc.environ, "where", "order-1", "--config", tc.config)
		if code != tc.code || strings.Contains(stdout+stderr, "hunter2") {
			t.Errorf("%s: exit %d\n%s%s", name, code, stdout, stderr)
		}
		for _, want := range tc.wants {
			if !strings.Contains(stdout, want) {
				t.Errorf("%s: %q is missing in:\n%s", name, want, stdout)
			}
		}
	}
}
