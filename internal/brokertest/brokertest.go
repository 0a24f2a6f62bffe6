// Package brokertest tells tests where the real brokers are. `make test` starts
// brokers with scripts/brokers and sets the variables; a plain `go test ./...`
// leaves out the tests that need a broker.
//
// Some tests stop the broker, or let it run out of memory. So the packages that
// use one take turns, although go test runs packages side by side.
package brokertest

import (
	"os"
	"strings"
	"sync"
	"testing"
)

// Asked is the environment variable that, when it is 1, says that the tests
// were asked to run with brokers. A broker that is missing then is a failure.
const Asked = "SPILLWAY_TEST_BROKERS"

// URL returns the URL of a broker from an environment variable, such as
// SPILLWAY_TEST_RABBITMQ. The first call of a process waits until other
// processes that called it for this broker have ended.
func URL(t testing.TB, variable string) string {
	t.Helper()
	url := value(t, variable)
	mu.Lock()
	defer mu.Unlock()
	if !ours[url] {
		if err := lock(url); err != nil {
			t.Fatalf("wait for other tests of %s: %v", variable, err)
		}
		ours[url] = true
	}
	return url
}

var (
	mu   sync.Mutex
	ours = map[string]bool{} // brokers that this process has to itself
)

// Command returns a command line from an environment variable, such as
// SPILLWAY_TEST_RABBITMQCTL, to which arguments can be appended.
func Command(t testing.TB, variable string) []string {
	t.Helper()
	return strings.Fields(value(t, variable))
}

func value(t testing.TB, variable string) string {
	t.Helper()
	v := os.Getenv(variable)
	if v != "" {
		return v
	}
	if os.Getenv(Asked) == "1" {
		t.Fatalf("%s is not set, and the tests were asked to run with brokers", variable)
	}
	t.Skipf("%s is not set: start the brokers with scripts/brokers up, or use make test", variable)
	return ""
}
