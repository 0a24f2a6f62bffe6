package poison_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spillway-mq/spillway/adapters"
	"github.com/spillway-mq/spillway/poison"
)

func openLastResort(t testing.TB, dir string) *poison.LastResort {
	t.Helper()
	l, err := poison.OpenLastResort(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

func readLines(t testing.TB, path string) (lines []string, torn []poison.Torn) {
	t.Helper()
	torn, err := poison.ReadLastResort(path, func(line []byte) error {
		lines = append(lines, string(line))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return lines, torn
}

func files(t testing.TB, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var paths []string
	for _, e := range entries {
		paths = append(paths, filepath.Join(dir, e.Name()))
	}
	return paths
}

func TestLastResortKeepsLines(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "new")
	l := openLastResort(t, dir)
	want := []string{
		`{"deadLetterId":"a","failedMessage":{"payloadBase64":"/wAB","headers":[["k","1"],["k","2"]]}}`,
		`{}`,
		`{"payload":"` + strings.Repeat("é", 1<<18) + `"}`,
	}
	for _, line := range want {
		buf := []byte(line)
		if err := l.Write(t.Context(), buf); err != nil {
			t.Fatal(err)
		}
		clear(buf) // Write does not keep it
	}
	got, torn := readLines(t, l.Path())
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
	if len(torn) != 0 {
		t.Errorf("torn: %v", torn)
	}
	for path, mode := range map[string]os.FileMode{dir: 0o700, l.Path(): 0o600} {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != mode {
			t.Errorf("%s: mode %v, want %v", path, info.Mode().Perm(), mode)
		}
	}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	if base := filepath.Base(l.Path()); !strings.HasPrefix(base, fmt.Sprintf("spillway-%s-%d-", host, os.Getpid())) {
		t.Errorf("the file's name %s lacks host %s and process %d", base, host, os.Getpid())
	}
}

func TestLastResortRefusesWhatIsNoLine(t *testing.T) {
	t.Parallel()
	l := openLastResort(t, t.TempDir())
	for _, line := range []string{"", "\n", "{", "{\n}", `"text"`, "[]", "1", "null", " {}", "{} {}", "{}\n"} {
		if err := l.Write(t.Context(), []byte(line)); !errors.Is(err, poison.ErrBadLine) {
			t.Errorf("Write(%q) = %v", line, err)
		}
	}
	if lines, torn := readLines(t, l.Path()); len(lines)+len(torn) != 0 {
		t.Errorf("lines %q, torn %v", lines, torn)
	}
}

func TestLastResortFilesDoNotCollide(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	paths := map[string]bool{}
	for range 20 {
		paths[openLastResort(t, dir).Path()] = true
	}
	if len(paths) != 20 {
		t.Errorf("%d files for 20 last resorts", len(paths))
	}
}

func TestLastResortClose(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	used, unused := openLastResort(t, dir), openLastResort(t, dir)
	if err := used.Write(t.Context(), []byte(`{"n":1}`)); err != nil {
		t.Fatal(err)
	}
	for _, l := range []*poison.LastResort{used, unused, used} {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
	if diff := cmp.Diff([]string{used.Path()}, files(t, dir)); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	if err := used.Write(t.Context(), []byte(`{"n":2}`)); !errors.Is(err, adapters.ErrClosed) {
		t.Errorf("Write after Close: %v", err)
	}
	if lines, _ := readLines(t, used.Path()); len(lines) != 1 {
		t.Errorf("lines: %q", lines)
	}
}

func TestLastResortHonoursContext(t *testing.T) {
	t.Parallel()
	l := openLastResort(t, t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := l.Write(ctx, []byte(`{"n":1}`)); !errors.Is(err, context.Canceled) {
		t.Errorf("Write: %v", err)
	}
	if lines, _ := readLines(t, l.Path()); len(lines) != 0 {
		t.Errorf("lines: %q", lines)
	}
}

func TestLastResortRefusesWhatIsNoDirectory(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{file, filepath.Join(file, "below"), ""} {
		_, err := poison.OpenLastResort(dir)
		if err == nil {
			t.Errorf("%q was accepted", dir)
			continue
		}
		if !strings.Contains(err.Error(), fmt.Sprintf("%q", dir)) || !strings.Contains(err.Error(), "choose another") {
			t.Errorf("the error names neither directory nor way out: %v", err)
		}
	}
}

// Nothing that Write acknowledged may depend on a file that somebody cleaned up
// before.
func TestLastResortSurvivesCleaning(t *testing.T) {
	t.Parallel()
	for name, clean := range map[string]func(path string) error{
		"removed":   os.Remove,
		"moved":     func(path string) error { return os.Rename(path, path+".old") },
		"truncated": func(path string) error { return os.Truncate(path, 0) },
		"appended": func(path string) error {
			f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
			if err != nil {
				return err
			}
			_, err = f.WriteString("half a")
			return errors.Join(err, f.Close())
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := openLastResort(t, t.TempDir())
			if err := l.Write(t.Context(), []byte(`{"n":1}`)); err != nil {
				t.Fatal(err)
			}
			before := l.Path()
			if err := clean(before); err != nil {
				t.Fatal(err)
			}
			for _, line := range []string{`{"n":2}`, `{"n":3}`} {
				if err := l.Write(t.Context(), []byte(line)); err != nil {
					t.Fatal(err)
				}
			}
			if l.Path() == before {
				t.Error("the file is still the same")
			}
			lines, torn := readLines(t, l.Path())
			if diff := cmp.Diff([]string{`{"n":2}`, `{"n":3}`}, lines); diff != "" || len(torn) != 0 {
				t.Errorf("torn %v, lines (-want +got):\n%s", torn, diff)
			}
		})
	}
}

func TestLastResortManyWriters(t *testing.T) {
	t.Parallel()
	const writers, each = 32, 20
	l := openLastResort(t, t.TempDir())
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for n := range each {
				line := fmt.Sprintf(`{"id":"%d-%d","payload":"%s"}`, w, n, strings.Repeat("x", w*n))
				if err := l.Write(t.Context(), []byte(line)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	lines, torn := readLines(t, l.Path())
	ids := map[string]int{}
	for _, line := range lines {
		var v struct{ ID string }
		if err := json.Unmarshal([]byte(line), &v); err != nil {
			t.Fatal(err)
		}
		ids[v.ID]++
	}
	if len(torn) != 0 || len(lines) != writers*each || len(ids) != writers*each {
		t.Errorf("torn %v; %d lines, %d ids, want %d", torn, len(lines), len(ids), writers*each)
	}
}

// A writer whose Write raced with Close has its line in the file exactly if
// Write said so.
func TestLastResortCloseWhileWriting(t *testing.T) {
	t.Parallel()
	l := openLastResort(t, t.TempDir())
	var wg sync.WaitGroup
	var mu sync.Mutex
	var acked int
	started := make(chan struct{}, 8)
	for range 8 {
		wg.Go(func() {
			for n := 0; ; n++ {
				err := l.Write(t.Context(), []byte(`{"n":1}`))
				if errors.Is(err, adapters.ErrClosed) {
					return
				}
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				acked++
				mu.Unlock()
				if n == 0 {
					started <- struct{}{}
				}
			}
		})
	}
	<-started
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	wg.Wait()
	if lines, torn := readLines(t, l.Path()); len(lines) != acked || len(torn) != 0 {
		t.Errorf("%d lines for %d acknowledged; torn %v", len(lines), acked, torn)
	}
}

func TestReadLastResortReportsTornLines(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "x.jsonl")
	content := "\n{\"n\":1}\n{\"n\":2,\"pay{\"n\":3}\n{\"n\":4}\n\x00\x00\n{\"n\":5}"
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	lines, torn := readLines(t, path)
	if diff := cmp.Diff([]string{`{"n":1}`, `{"n":4}`}, lines); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
	want := []poison.Torn{{Line: 3, Offset: 9, Bytes: 18}, {Line: 5, Offset: 36, Bytes: 2}, {Line: 6, Offset: 39, Bytes: 7}}
	if diff := cmp.Diff(want, torn); diff != "" {
		t.Errorf("torn (-want +got):\n%s", diff)
	}

	stop := errors.New("stop")
	calls := 0
	_, err := poison.ReadLastResort(path, func([]byte) error { calls++; return stop })
	if !errors.Is(err, stop) || calls != 1 || !strings.Contains(err.Error(), "line 2") {
		t.Errorf("%d calls, error %v", calls, err)
	}
	if _, err := poison.ReadLastResort(path+".none", func([]byte) error { return nil }); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}

func FuzzReadLastResort(f *testing.F) {
	f.Add([]byte("{}\n"))
	f.Add([]byte("\n{\"n\":1}\n{\"n\":\n\x00{}\r\n{}"))
	f.Fuzz(func(t *testing.T, content []byte) {
		path := filepath.Join(t.TempDir(), "x.jsonl")
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		bytes := strings.Count(string(content), "\n")
		torn, err := poison.ReadLastResort(path, func(line []byte) error {
			bytes += len(line)
			if !json.Valid(line) {
				t.Errorf("line %q", line)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, tear := range torn {
			bytes += tear.Bytes
			if part := content[tear.Offset:][:tear.Bytes]; strings.Contains(string(part), "\n") {
				t.Errorf("torn %+v is %q", tear, part)
			}
		}
		if bytes != len(content) {
			t.Errorf("%d of %d bytes are accounted for", bytes, len(content))
		}
	})
}

// One sync serves many writers: compare writers=1 with writers=64.
func BenchmarkLastResort(b *testing.B) {
	line := []byte(`{"payload":"` + strings.Repeat("x", 1000) + `"}`)
	for _, writers := range []int{1, 64} {
		b.Run(fmt.Sprintf("writers=%d", writers), func(b *testing.B) {
			l := openLastResort(b, b.TempDir())
			b.SetParallelism(writers)
			if writers == 1 {
				for b.Loop() {
					if err := l.Write(b.Context(), line); err != nil {
						b.Fatal(err)
					}
				}
				return
			}
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if err := l.Write(b.Context(), line); err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
	}
}

func ExampleLastResort() {
	dir, err := os.MkdirTemp("", "spillway")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	lastResort, err := poison.OpenLastResort(dir)
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := lastResort.Write(context.Background(), []byte(`{"deadLetterId":"mzxw6","failedMessage":{"payload":"too large"}}`)); err != nil {
		fmt.Println(err) // do not acknowledge the message
		return
	}
	if err := lastResort.Close(); err != nil {
		fmt.Println(err)
		return
	}

	torn, err := poison.ReadLastResort(lastResort.Path(), func(line []byte) error {
		fmt.Println(string(line))
		return nil
	})
	fmt.Println(len(torn), err)
	// Output:
	// {"deadLetterId":"mzxw6","failedMessage":{"payload":"too large"}}
	// 0 <nil>
}

// A slip of the pen must not make a tree of directories that nobody looks into.
func TestLastResortMakesNoParents(t *testing.T) {
	t.Parallel()
	if _, err := poison.OpenLastResort(filepath.Join(t.TempDir(), "no", "such")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error %v, want one for the parent that is not there", err)
	}
}
