package signature

import (
	"crypto/sha256"
	"encoding/base32"
	"strings"
)

// Version is that of the rules. It begins every id.
const Version = "s1"

// Signature is an error text without its variable parts.
type Signature struct {
	// ID is the same for texts that differ only in what varies: the version,
	// a colon and 16 characters.
	ID string
	// Text is the normalised text, for people.
	Text string
}

// Of returns the signature of an error text.
func Of(text string) Signature {
	sum := sha256.Sum256([]byte(text))
	return Signature{ID: Version + ":" + strings.ToLower(base32.StdEncoding.EncodeToString(sum[:10])), Text: text}
}
