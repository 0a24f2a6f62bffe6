package spillway_test

import (
	"bufio"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	testDeclared = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Example)\w*)\(`)
	testNamed    = regexp.MustCompile("`((?:Test|Fuzz|Example)[A-Z]\\w*)`")
	faultRow     = regexp.MustCompile(`^\| ([KRSO]\d+) \|(.*)\|(.*)\|$`)
	laterIssue   = regexp.MustCompile(`\bissue [3-6]\b`)
)

// declaredTests are the names of all tests of the repository.
func declaredTests(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range testDeclared.FindAllSubmatch(text, -1) {
			names[string(m[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// The table of faults names tests, which are renamed and removed like all code.
func TestFaultTableNamesTestsThatExist(t *testing.T) {
	t.Parallel()
	file, err := os.Open("docs/faults.md")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	declared := declaredTests(t)
	rows := map[string]bool{}
	lines := bufio.NewScanner(file)
	for n := 1; lines.Scan(); n++ {
		for _, m := range testNamed.FindAllStringSubmatch(lines.Text(), -1) {
			if !declared[m[1]] {
				t.Errorf("docs/faults.md:%d: there is no test %s", n, m[1])
			}
		}
		row := faultRow.FindStringSubmatch(lines.Text())
		if row == nil {
			continue
		}
		id, answer, proof := row[1], strings.TrimSpace(row[2]), row[3]
		if rows[id] {
			t.Errorf("docs/faults.md:%d: there are two rows %s", n, id)
		}
		rows[id] = true
		if !strings.HasSuffix(answer, ".") || !testNamed.MatchString(proof) && !laterIssue.MatchString(proof) {
			t.Errorf("docs/faults.md:%d: row %s needs a sentence, and a test or an issue", n, id)
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	for kind, want := range map[string]int{"K": 24, "R": 19, "S": 31, "O": 38} {
		got := 0
		for id := range rows {
			if strings.HasPrefix(id, kind) {
				got++
			}
		}
		if got != want {
			t.Errorf("docs/faults.md has %d rows %s, want %d", got, kind, want)
		}
	}
}
