// Package cputime says how much processor time this process has used: what
// measures cost by it is not misled by other work on the machine.
package cputime
