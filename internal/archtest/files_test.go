package archtest_test

import (
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/spillway-mq/spillway/internal/archtest"
)

// The forbidden texts are put together here, so that this file is clean itself.
const (
	mark  = "TO" + "DO"
	home  = "/ho" + "me/ana/src/x.go"
	sleep = "\ttime." + "Sleep(time.Second)\n"
)

func TestCheckFiles(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		file archtest.File
		want []string
	}{
		"clean":                         {archtest.File{Path: "a.go", Text: "package a\n// MASTODON is one word.\n"}, nil},
		"unfinished":                    {archtest.File{Path: "docs/a.md", Text: "one\n" + mark + ": two\n"}, []string{"docs/a.md:2: says " + mark + ": finish it, or open an issue"}},
		"unfinished context":            {archtest.File{Path: "a.go", Text: "ctx := context." + mark + "()\n"}, []string{"a.go:1: says " + mark + ": finish it, or open an issue"}},
		"recorded input may say it":     {archtest.File{Path: "x/testdata/issue.json", Text: `{"title": "` + mark + `"}`}, nil},
		"home directory":                {archtest.File{Path: "a.go", Text: `const f = "` + home + `"`}, []string{"a.go:1: names a path of somebody's machine: make it relative"}},
		"home directory at line start":  {archtest.File{Path: "a.md", Text: home}, []string{"a.md:1: names a path of somebody's machine: make it relative"}},
		"home directory as a URL":       {archtest.File{Path: "a.md", Text: "see file://" + home}, []string{"a.md:1: names a path of somebody's machine: make it relative"}},
		"home directory in recorded":    {archtest.File{Path: "x/testdata/a.golden", Text: "at " + home}, []string{"x/testdata/a.golden:1: names a path of somebody's machine: make it relative"}},
		"Windows":                       {archtest.File{Path: "a.md", Text: `C:\Us` + `ers\ana`}, []string{"a.md:1: names a path of somebody's machine: make it relative"}},
		"part of a web address":         {archtest.File{Path: "a.md", Text: "https://example.com" + home}, nil},
		"part of a relative path":       {archtest.File{Path: "a.md", Text: "docs" + home}, nil},
		"test sleeps":                   {archtest.File{Path: "a_test.go", Text: sleep}, []string{"a_test.go:1: sleeps in real time: run the test in testing/synctest, or wait for what it waits for"}},
		"test sleeps in a bubble":       {archtest.File{Path: "a_test.go", Text: "import \"testing/synctest\"\n" + sleep}, nil},
		"program sleeps":                {archtest.File{Path: "a.go", Text: sleep}, nil},
		"several lines, several faults": {archtest.File{Path: "a_test.go", Text: sleep + "// " + mark + "\n"}, []string{"a_test.go:1: sleeps in real time: run the test in testing/synctest, or wait for what it waits for", "a_test.go:2: says " + mark + ": finish it, or open an issue"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tc.want, archtest.CheckFiles([]archtest.File{tc.file})); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
}

func TestReadFilesLeavesOutWhatIsNotOurs(t *testing.T) {
	t.Parallel()
	text := &fstest.MapFile{Data: []byte("text\n")}
	root := fstest.MapFS{
		"a.go":                     text,
		".gitignore":               text,
		".ci/run":                  text,
		".github/workflows/ci.yml": text,
		"x/testdata/a.golden":      text,
		"x/bin/script":             text,
		"logo.png":                 {Data: []byte("\x89PNG\x00\x01")},
		".git/config":              text,
		".brokers/kafka/log":       text,
		".cache/x.go":              text,
		"bin/spillway":             text,
		"cpu.out":                  text,
		"spillway.test":            text,
	}
	files, err := archtest.ReadFiles(root)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range files {
		got = append(got, f.Path)
	}
	want := []string{".ci/run", ".github/workflows/ci.yml", ".gitignore", "a.go", "x/bin/script", "x/testdata/a.golden"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}
