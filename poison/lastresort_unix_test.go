//go:build unix

package poison_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"

	"github.com/spillway-mq/spillway/poison"
)

// The test binary runs itself as the process that writes to the last resort
// where the process must die, or have less rights or room.
const (
	childMode = "POISON_TEST_CHILD"
	childDir  = "POISON_TEST_DIR"
)

func TestMain(m *testing.M) {
	run := map[string]func(dir string) error{
		"crash":    childCrash,
		"readonly": childReadOnly,
		"full":     childFull,
		"fullopen": childFullOpen,
	}[os.Getenv(childMode)]
	if run == nil {
		os.Exit(m.Run())
	}
	if err := run(os.Getenv(childDir)); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	os.Exit(0)
}

func child(t *testing.T, mode, dir string) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), exe)
	cmd.Env = append(os.Environ(), childMode+"="+mode, childDir+"="+dir)
	cmd.Stderr = t.Output()
	return cmd
}

// childCrash writes until it is killed, and prints what was acknowledged.
func childCrash(dir string) error {
	l, err := poison.OpenLastResort(dir)
	if err != nil {
		return err
	}
	failed := make(chan error)
	for w := range 8 {
		go func() {
			for n := 0; ; n++ {
				id := fmt.Sprintf("%d-%d", w, n)
				line := fmt.Sprintf(`{"id":"%s","payload":"%s"}`, id, strings.Repeat("x", 1000*w))
				if err := l.Write(context.Background(), []byte(line)); err != nil {
					failed <- err
				}
				fmt.Println(id)
			}
		}()
	}
	return <-failed
}

func TestLastResortSurvivesKill(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for round := range 3 {
		cmd := child(t, "crash", dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		var acked []string
		lines := bufio.NewReader(out)
		for {
			id, err := lines.ReadString('\n')
			if err != nil {
				break // an id without its line break was torn by the kill
			}
			acked = append(acked, strings.TrimSpace(id))
			if len(acked) == 100+round*37 {
				if err := cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
		}
		err = cmd.Wait()
		if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
			t.Fatalf("the child ended by itself: %v, after %q", err, acked)
		}

		kept := map[string]bool{}
		paths := files(t, dir)
		if len(paths) != round+1 {
			t.Errorf("files: %q", paths)
		}
		torn := 0
		for _, path := range paths {
			tears, err := poison.ReadLastResort(path, func(line []byte) error {
				var v struct{ ID string }
				err := json.Unmarshal(line, &v)
				kept[fmt.Sprint(strings.Contains(path, fmt.Sprintf("-%d-", cmd.Process.Pid)), v.ID)] = true
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			torn += len(tears)
		}
		for _, id := range acked {
			if !kept["true"+id] {
				t.Errorf("round %d: line %s was acknowledged and is not in the file", round, id)
			}
		}
		t.Logf("round %d: %d acknowledged, %d torn", round, len(acked), torn)
	}
}

// childReadOnly gives up root's rights, which ignore those of the directory.
func childReadOnly(dir string) error {
	if os.Getuid() == 0 {
		if err := syscall.Setuid(65534); err != nil {
			return err
		}
	}
	_, err := poison.OpenLastResort(dir)
	fmt.Println(err)
	return nil
}

func TestLastResortRefusesReadOnlyDirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o555); err != nil {
		t.Fatal(err)
	}
	out, err := child(t, "readonly", dir).Output()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, want := range []string{dir, "permission denied", "choose another"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("the error lacks %q: %s", want, out)
		}
	}
}

// limit makes files of this process end at n bytes, as those on a full disk do.
func limit(n uint64) error {
	signal.Ignore(syscall.SIGXFSZ)
	var old syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &old); err != nil {
		return err
	}
	return syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: min(n, old.Max), Max: old.Max})
}

// childFull fills its disk, goes on trying, and gets room again.
func childFull(dir string) error {
	l, err := poison.OpenLastResort(dir)
	if err != nil {
		return err
	}
	if err := limit(4096); err != nil {
		return err
	}
	line := func(n int) []byte { return fmt.Appendf(nil, `{"n":%d,"payload":"%s"}`, n, strings.Repeat("x", 1000)) }
	failures := 0
	for n := range 8 {
		if err := l.Write(context.Background(), line(n)); err != nil {
			failures++
			if strings.Contains(err.Error(), "xxx") {
				return fmt.Errorf("the error shows the payload: %w", err)
			}
			continue
		}
		fmt.Println(n)
	}
	if failures != 4 {
		return fmt.Errorf("%d of 8 lines did not fit, want 4", failures)
	}
	if err := l.Write(context.Background(), []byte(`{"n":98}`)); err != nil {
		return fmt.Errorf("a small line after a large one that did not fit: %w", err)
	}
	if err := limit(1 << 20); err != nil {
		return err
	}
	if err := l.Write(context.Background(), line(99)); err != nil {
		return err
	}
	return l.Close()
}

func TestLastResortOnAFullDisk(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	out, err := child(t, "full", dir).Output()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if string(out) != "0\n1\n2\n3\n" {
		t.Errorf("acknowledged: %q", out)
	}
	paths := files(t, dir)
	if len(paths) != 1 {
		t.Fatalf("files: %q", paths)
	}
	lines, torn := readLines(t, paths[0])
	var ids []int
	for _, line := range lines {
		var v struct{ N int }
		if err := json.Unmarshal([]byte(line), &v); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, v.N)
	}
	if fmt.Sprint(ids) != "[0 1 2 3 98 99]" || len(torn) != 0 {
		t.Errorf("lines %v, torn %v", ids, torn)
	}
}

func childFullOpen(dir string) error {
	if err := limit(0); err != nil {
		return err
	}
	_, err := poison.OpenLastResort(dir)
	if err == nil {
		return errors.New("no error")
	}
	entries, readErr := os.ReadDir(dir)
	if readErr != nil || len(entries) != 0 {
		return fmt.Errorf("left behind: %v, %v", entries, readErr)
	}
	if _, ok := errors.AsType[*os.PathError](err); !ok || !strings.Contains(err.Error(), "room on its disk") {
		return fmt.Errorf("the error has no cause or no way out: %w", err)
	}
	return nil
}

func TestLastResortRefusesAFullDiskAtStart(t *testing.T) {
	t.Parallel()
	if out, err := child(t, "fullopen", t.TempDir()).Output(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
