package poison

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spillway-mq/spillway/adapters"
)

// ErrBadLine is returned by [LastResort.Write] for what would not come back as
// one line.
var ErrBadLine = errors.New("last resort: a line must be one JSON object without line breaks")

// LastResort is a file for dead letters that no stream takes. Each process has
// a file of its own, which nobody else writes. Lines are JSON objects, one dead
// letter each.
//
// All methods are safe for concurrent use. Concurrent writers share a sync.
type LastResort struct {
	dir, name string

	// commit is held by the writer that commits for all. It is a channel, not
	// a mutex, so that the others can also wait for their context.
	commit chan struct{}
	file   *os.File // nil after a failed sync: the next write begins a new file
	path   string
	size   int64 // what is acknowledged; the file never keeps more
	files  int   // begun so far

	mu     sync.Mutex
	closed bool
	next   *batch // lines for the next commit
}

// batch is what one commit writes.
type batch struct {
	lines []byte
	done  chan struct{} // closed when err is set
	err   error
}

// probe is what OpenLastResort writes: an empty line, which readers skip.
const probe = "\n"

// OpenLastResort opens a last resort in dir, which is created, for the owner
// only, if it does not exist but its parent does. It writes a byte there, and returns an error that
// says what to do if that fails, so that a last resort that would not work is
// found at start.
//
// The file's name has the host, the process and the time, such as
// spillway-web1-4711-20261130T200757.000000000Z.jsonl; its mode is 0600. It is
// removed by Close if nothing else was written.
func OpenLastResort(dir string) (*LastResort, error) {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "unknown"
	}
	host = strings.Map(func(r rune) rune {
		if r < 0x80 && (isNameByte(byte(r))) {
			return r
		}
		return '_'
	}, host)
	l := &LastResort{
		dir:    dir,
		name:   fmt.Sprintf("spillway-%s-%d-%s", host, os.Getpid(), time.Now().UTC().Format("20060102T150405.000000000Z")),
		commit: make(chan struct{}, 1),
	}
	if err := makeDir(dir); err != nil {
		return nil, l.unusable(err)
	}
	if err := l.begin(); err != nil {
		return nil, l.unusable(err)
	}
	// A full disk, or a quota, takes a file but no bytes.
	if err := l.append([]byte(probe)); err != nil {
		l.abandon()
		os.Remove(l.path)
		return nil, l.unusable(err)
	}
	return l, nil
}

func (l *LastResort) unusable(err error) error {
	return fmt.Errorf("last resort: directory %q cannot be used: %w: make it a directory that uid %d may write to, with room on its disk, or choose another", l.dir, err, os.Getuid())
}

// makeDir makes dir, whose parent must exist, or a slip of the pen would make a
// tree. It syncs the parent, because a file is not found again after a crash if
// its directory is not.
func makeDir(dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		if errors.Is(err, os.ErrExist) {
			return nil
		}
		return err
	}
	return syncDir(filepath.Dir(filepath.Clean(dir)))
}

func syncDir(dir string) error {
	if runtime.GOOS == "windows" {
		return nil // directories cannot be synced there, and need not be
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	// Some file systems cannot sync a directory; they say EINVAL.
	if err := d.Sync(); err != nil && !errors.Is(err, syscall.EINVAL) {
		return err
	}
	return nil
}

// begin makes the next file of this process.
func (l *LastResort) begin() error {
	for {
		name := l.name
		if l.files > 0 {
			name = fmt.Sprintf("%s-%d", name, l.files)
		}
		l.files++
		path := filepath.Join(l.dir, name+".jsonl")
		f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o600)
		if errors.Is(err, os.ErrExist) {
			continue // opened twice within a tick of the clock
		}
		if err != nil {
			return err
		}
		if err := syncDir(l.dir); err != nil {
			f.Close()
			os.Remove(path)
			return err
		}
		l.file, l.path, l.size = f, path, 0
		return nil
	}
}

// Path returns the file that is written to now. It changes after a failed
// sync, and when the file was removed or changed.
func (l *LastResort) Path() string {
	l.commit <- struct{}{}
	defer func() { <-l.commit }()
	return l.path
}

// Write appends line, a JSON object without line breaks, and returns nil when
// it is on the disk. After an error other than that of ctx the line is not in
// the file, and the message must not be acknowledged. If ctx ends while Write
// waits for another writer, the line may still be written.
//
// The end of ctx does not interrupt a write or sync that has begun. Write does
// not keep line.
func (l *LastResort) Write(ctx context.Context, line []byte) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if len(line) == 0 || line[0] != '{' || bytes.ContainsAny(line, "\r\n") || !json.Valid(line) {
		return ErrBadLine
	}
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return fmt.Errorf("last resort: %w", adapters.ErrClosed)
	}
	if l.next == nil {
		l.next = &batch{done: make(chan struct{})}
	}
	b := l.next
	b.lines = append(append(b.lines, line...), '\n')
	l.mu.Unlock()

	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-b.done:
		return b.err
	case l.commit <- struct{}{}:
		// Either the batch is still the next one, or whoever held commit before
		// has written it.
		l.flush()
		<-l.commit
		<-b.done
		return b.err
	}
}

// flush commits the next batch, if there is one. The caller holds commit.
func (l *LastResort) flush() {
	l.mu.Lock()
	b := l.next
	l.next = nil
	l.mu.Unlock()
	if b == nil {
		return
	}
	if err := l.append(b.lines); err != nil {
		b.err = fmt.Errorf("last resort: %w", err)
	}
	close(b.done)
}

// append writes lines and syncs. After an error, none of them is in the file.
func (l *LastResort) append(lines []byte) error {
	for range 3 {
		if l.file == nil {
			if err := l.begin(); err != nil {
				return err
			}
		}
		if _, err := l.file.Write(lines); err != nil {
			l.undo()
			return err
		}
		if err := l.file.Sync(); err != nil {
			// What the system did with the pages is unknown, and a later sync of
			// this file may succeed without having written them.
			l.undo()
			l.abandon()
			return err
		}
		if l.holds(l.size + int64(len(lines))) {
			l.size += int64(len(lines))
			return nil
		}
		// Somebody removed, moved or truncated the file. What was acknowledged
		// before went with it, knowingly; these lines must not.
		l.abandon()
	}
	return fmt.Errorf("%s: somebody else removes or changes the file", l.path)
}

// undo takes back what was written and not acknowledged, so that no half line
// is left for the next one to be joined to.
func (l *LastResort) undo() {
	if err := l.file.Truncate(l.size); err != nil {
		l.abandon()
	}
}

// abandon leaves the file as it is; the next write begins another.
func (l *LastResort) abandon() {
	if l.file != nil {
		l.file.Close() // everything acknowledged is synced
		l.file = nil
	}
}

// holds reports whether the file that is written to is the one at its path,
// and of this size.
func (l *LastResort) holds(size int64) bool {
	open, err := l.file.Stat()
	if err != nil || open.Size() != size {
		return false
	}
	named, err := os.Lstat(l.path)
	return err == nil && os.SameFile(open, named)
}

// Close commits what concurrent writers have begun and closes the file. It
// removes the file if it is empty. Later calls do nothing.
func (l *LastResort) Close() error {
	l.mu.Lock()
	closed := l.closed
	l.closed = true
	l.mu.Unlock()
	if closed {
		return nil
	}
	l.commit <- struct{}{}
	defer func() { <-l.commit }()
	l.flush()
	if l.file == nil {
		return nil
	}
	empty := l.size <= int64(len(probe)) && l.holds(l.size)
	if err := l.file.Close(); err != nil {
		return fmt.Errorf("last resort: %w", err)
	}
	l.file = nil
	if empty {
		if err := os.Remove(l.path); err != nil {
			return fmt.Errorf("last resort: %w", err)
		}
	}
	return nil
}

// Torn is a line that is no JSON object: the process ended while writing it,
// before it was acknowledged, or somebody else wrote to the file. The broker
// still has the message of a line torn by the process.
type Torn struct {
	// Line counts from 1.
	Line int
	// Offset and Bytes say where it lies in the file.
	Offset int64
	Bytes  int
}

// ReadLastResort calls fn with each line of a last resort's file, in the order
// of writing, and returns the torn ones, which it leaves out. It stops at the
// first error of fn or of reading and returns it; a line whose fn failed is
// named in the error by its number, never by its content. fn must not keep line.
//
// The file may be read while its process lives: a line that is being written
// counts as torn.
func ReadLastResort(path string, fn func(line []byte) error) ([]Torn, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("last resort: %w", err)
	}
	defer f.Close()
	var torn []Torn
	r := bufio.NewReader(f)
	offset := int64(0)
	for n := 1; ; n++ {
		raw, err := r.ReadBytes('\n')
		if err != nil && err != io.EOF {
			return torn, fmt.Errorf("last resort: %s, line %d: %w", path, n, err)
		}
		line, whole := bytes.CutSuffix(raw, []byte("\n"))
		switch {
		case len(line) == 0:
		case whole && line[0] == '{' && json.Valid(line):
			if err := fn(line); err != nil {
				return torn, fmt.Errorf("last resort: %s, line %d: %w", path, n, err)
			}
		default:
			torn = append(torn, Torn{Line: n, Offset: offset, Bytes: len(line)})
		}
		offset += int64(len(raw))
		if err == io.EOF {
			return torn, nil
		}
	}
}
