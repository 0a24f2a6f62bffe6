//go:build !unix

package cputime

import "time"

// Spent is not known here.
func Spent() time.Duration { return 0 }
