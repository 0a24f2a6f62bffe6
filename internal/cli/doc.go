// Package cli is the command spillway, as a function that tests can call.
//
// Verbs are rows of a table, [verbs]: noun and verb, flags, arguments, output
// formats, examples. Help, usage errors and completion are made from it.
//
// # Output and exit codes
//
// Results go to stdout, all else to stderr. --output chooses between a table,
// whose form may change, and json or jsonl, whose form is stable.
//
//	0  done
//	1  an error, or a check that found one
//	2  wrong usage
//	3  nothing matched
//	4  aborted by a threshold
//	5  refused by a rule that protects from mistakes
//
// # Secrets
//
// Errors are redacted before they are printed, and broker URLs are printed
// without passwords and options.
package cli
