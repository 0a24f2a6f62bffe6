// Package config reads a YAML file and the environment into what
// [spillway.Open] needs, so that an application changes its broker, its
// policies and its redaction without being built anew. The operator's command,
// spillway, reads the same file.
//
//	sw, err := config.Open(ctx, "spillway.yaml")
//
// or, to add what only Go can say, such as hooks and rules:
//
//	cfg, err := config.Load("spillway.yaml")
//	...
//	cfg.Spillway.Hooks = metrics.Hooks()
//	sw, err := cfg.Open(ctx)
//
// This package links the client of every broker; that is its price. A program
// that wants one broker only calls spillway.Open with that broker's opener.
//
// # The file
//
// docs/configuration.md lists every key. [Example] is a file with all of them.
// What is left out has its default; an unknown key is an error, so that a
// mistyped one can't be mistaken for a default.
//
// # The environment
//
// Every key whose value is a single one, or a list of texts, has a variable
// that overrides the file: its path in capitals behind SPILLWAY_, so that
// policy.attempts.transient is SPILLWAY_POLICY_ATTEMPTS_TRANSIENT. Lists are
// written with commas, and maps to texts as NAME:TEXT,NAME:TEXT. An empty variable counts as not set. The entries of
// policy.classes, handlers and consumers have no variables.
//
// Values of the file are taken as they are: nothing in them is expanded. A
// broker URL with a password belongs into SPILLWAY_BROKER_URL.
//
// # Failure modes
//
// All problems are reported at once, as [Problems]: each with its line or its
// variable, its key, what was expected and what was found. Neither they nor a
// printed [Config] show the broker URL's password.
package config
