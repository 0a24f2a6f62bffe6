// Package archtest keeps the shape of the repository: which package may
// import what, and what no file may contain.
//
// The table in table.go is the design's package list made executable. A test
// compares it with what `go list` reports and fails, with a sentence that says
// what to do, when
//
//   - a package imports something that its row does not name,
//   - a package has no row, or no doc comment,
//   - a package that users link into their programs pulls in, through others,
//     something it must not: a broker client, a YAML parser, package testing,
//   - a file contains a mark of unfinished work or a path of somebody's
//     machine, or a test sleeps in real time.
//
// A row may name packages that do not exist yet.
package archtest
