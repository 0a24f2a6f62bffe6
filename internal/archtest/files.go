package archtest

import (
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
)

// File is a text file of the repository; Path has forward slashes.
type File struct{ Path, Text string }

var (
	unfinished = regexp.MustCompile(`\b(?:TO` + `DO|FIX` + `ME)\b`)
	// machinePath finds an absolute path that only exists on the computer of
	// whoever wrote it.
	machinePath = regexp.MustCompile(`(?:^|[^\w./-]|file://)/(?:home|Users|root|work)/[\w.]|\b[A-Za-z]:\\+Users\\`)
)

// hints are parts of whatever the rules forbid. Most files have none, and
// looking for them is cheap, where regular expressions under the race detector
// are not.
var hints = []string{"TO" + "DO", "FIX" + "ME", "/home/", "/Users/", "/root/", "/work/", `\Users\`, "time." + "Sleep("}

// CheckFiles returns one sentence for each line that no file may contain.
func CheckFiles(files []File) []string {
	var problems []string
	for _, f := range files {
		if !slices.ContainsFunc(hints, func(h string) bool { return strings.Contains(f.Text, h) }) {
			continue
		}
		testdata := strings.Contains("/"+f.Path, "/testdata/")
		// A file is on a bubble's time if it makes one, or uses its package's helper.
		bubble := strings.Contains(f.Text, `"testing/synctest"`) || strings.Contains(f.Text, "bubble(t")
		mustNotSleep := strings.HasSuffix(f.Path, "_test.go") && !bubble
		number := 0
		for line := range strings.Lines(f.Text) {
			number++
			say := func(what string) {
				problems = append(problems, fmt.Sprintf("%s:%d: %s", f.Path, number, what))
			}
			if mark := unfinished.FindString(line); mark != "" && !testdata {
				say("says " + mark + ": finish it, or open an issue")
			}
			if machinePath.MatchString(line) {
				say("names a path of somebody's machine: make it relative")
			}
			if mustNotSleep && strings.Contains(line, "time."+"Sleep(") {
				say("sleeps in real time: run the test in testing/synctest, or wait for what it waits for")
			}
		}
	}
	return problems
}

// ReadFiles returns the text files below the root of a repository. It leaves
// out what git ignores by our .gitignore, and folders of tools.
func ReadFiles(root fs.FS) ([]File, error) {
	var files []File
	err := fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		base := path.Base(name)
		if d.IsDir() {
			hidden := strings.HasPrefix(base, ".") && base != "." && base != ".ci" && base != ".github"
			if hidden || name == "bin" {
				return fs.SkipDir
			}
			return nil
		}
		if !d.Type().IsRegular() || base == ".git" || strings.HasSuffix(base, ".test") || strings.HasSuffix(base, ".out") {
			return nil
		}
		text, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		if !strings.ContainsRune(string(text), 0) {
			files = append(files, File{Path: name, Text: string(text)})
		}
		return nil
	})
	return files, err
}
