//go:build unix

package main

import (
	"syscall"
	"time"
)

// processor is the time that processors have spent on this program. Unlike the
// time on the wall it does not grow when others want them too.
func processor() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
