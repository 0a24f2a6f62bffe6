//go:build unix

package cputime

import (
	"syscall"
	"time"
)

// Spent is the time that processors have spent on this program. Unlike the
// time on the wall it does not grow when others want them too.
func Spent() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
