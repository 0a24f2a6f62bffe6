package inventory

// For fuzzing: through a database there are a few hundred a second.
var (
	EncodeHeaders = encodeHeaders
	DecodeHeaders = decodeHeaders
)
