//go:build unix

package brokertest

import (
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"syscall"
)

// lock waits until no other process tests the broker at url. The lock ends with
// this process, whatever ends it.
func lock(url string) error {
	h := fnv.New64a()
	h.Write([]byte(url))
	f, err := os.OpenFile(filepath.Join(os.TempDir(), fmt.Sprintf("spillway-brokertest-%x.lock", h.Sum64())), os.O_CREATE|os.O_RDWR, 0o666)
	if err != nil {
		return err
	}
	for {
		if err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != syscall.EINTR {
			locked = append(locked, f)
			return err
		}
	}
}

// locked keeps the files open: closing one would end its lock.
var locked []*os.File
