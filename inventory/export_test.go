package inventory

import (
	"strings"

	"github.com/spillway-mq/spillway/triage/signature"
)

// For fuzzing: through a database there are a few hundred a second.
var (
	EncodeHeaders = encodeHeaders
	DecodeHeaders = decodeHeaders
)

// SetRules has a store sign by other rules, as an earlier or later version
// does. The version begins the ids.
func SetRules(s *Store, version string, normalise func(string) string) {
	s.rules = rules{version, func(text string) signature.Signature {
		sig := signature.Of(normalise(text))
		return signature.Signature{ID: version + ":" + strings.TrimPrefix(sig.ID, signature.Version+":"), Text: normalise(text)}
	}}
}
