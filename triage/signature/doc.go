// Package signature makes the signature of an error text: the text without
// what varies from message to message.
package signature
