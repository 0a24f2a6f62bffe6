// Package failure lets handlers say what a failure means, and finds out where
// they don't.
package failure
