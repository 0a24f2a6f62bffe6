package foreign_test

import (
	"os"
	"strings"
	"testing"

	"github.com/spillway-mq/spillway/poison/foreign"
)

// The page for operators names every exception in the row of its class.
func TestDocsNameEveryException(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/foreign-formats.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]string{}
	for line := range strings.Lines(string(page)) {
		if cells := strings.Split(line, " | "); len(cells) == 3 {
			rows[strings.Trim(cells[0], "| `")+" "+cells[1]] = cells[2]
		}
	}
	for exception, k := range foreign.Exceptions() {
		if !strings.Contains(rows[k[0]+" "+k[1]], "`"+exception+"`") {
			t.Errorf("docs/foreign-formats.md does not name %s as %s, %s", exception, k[0], k[1])
		}
	}
	for wrapper := range foreign.Wrappers() {
		if !strings.Contains(string(page), "`"+wrapper+"`") {
			t.Errorf("docs/foreign-formats.md does not name the wrapper %s", wrapper)
		}
	}
}
