package failure

import "slices"

// BuiltinRule is a row of the table of built-in rules.
type BuiltinRule struct {
	// Name of the row.
	Name string
	// Recognises says in words what the rule is about.
	Recognises string
	// Codes that belong to the rule. A "?" stands for any one character, a
	// final "*" for any text.
	Codes []Code
	// Nature and Class of such a failure. Its Code is the one recognised.
	Nature Nature
	Class  Class
}

// Builtin returns the table of built-in rules, most specific first. Nothing
// else decides what an error means to a zero [Classifier]; package policy can
// override the nature of a class. The result is the caller's own.
func Builtin() []BuiltinRule {
	rules := slices.Clone(builtin)
	for i := range rules {
		rules[i].Codes = slices.Clone(rules[i].Codes)
	}
	return rules
}

// builtin is the whole knowledge of what errors mean. The recognisers turn an
// error into a code; the first row with a matching code says the rest.
//
// Order: what somebody answered, then what cannot be encoded or decoded, then
// what is known about the call alone. So a 503 whose body could not be decoded
// is a 503, and a protobuf message that was cut off is not a broken connection.
var builtin = []BuiltinRule{
	{
		Name:       "panic",
		Recognises: "`*failure.PanicError`, any `runtime.Error`, and `RecoveredPanicError` of Watermill's Recoverer",
		Codes:      []Code{"panic:*"},
		Nature:     NatureUnknown, Class: ClassPanic,
	},
	{
		Name:       "AWS throttling",
		Recognises: "`ErrorCode() string` with one of the names by which AWS services slow a client down",
		Codes: []Code{
			"aws:BandwidthLimitExceeded", "aws:EC2ThrottledException", "aws:LimitExceededException",
			"aws:PriorRequestNotComplete", "aws:ProvisionedThroughputExceededException",
			"aws:RequestLimitExceeded", "aws:RequestThrottled", "aws:RequestThrottledException",
			"aws:SlowDown", "aws:ThrottledException", "aws:Throttling", "aws:ThrottlingException",
			"aws:TooManyRequestsException", "aws:TransactionInProgressException",
		},
		Nature: NatureTransient, Class: ClassDependencyUnavailable,
	},
	{
		Name:       "HTTP timeout",
		Recognises: "`StatusCode() int` or `HTTPStatusCode() int`; `RetryAfter() time.Duration` is honoured",
		Codes:      []Code{"http:408", "http:504"},
		Nature:     NatureTransient, Class: ClassDependencyTimeout,
	},
	{
		Name:       "HTTP unavailable",
		Recognises: "the same, too early, too many requests or a fault of the server",
		Codes:      []Code{"http:425", "http:429", "http:5??"},
		Nature:     NatureTransient, Class: ClassDependencyUnavailable,
	},
	{
		Name:       "HTTP not found",
		Recognises: "the same, not found",
		Codes:      []Code{"http:404"},
		Nature:     NatureAmbiguous, Class: ClassReferenceNotFound,
	},
	{
		Name:       "HTTP unauthorized",
		Recognises: "the same, credentials missing or not sufficient",
		Codes:      []Code{"http:401", "http:403"},
		Nature:     NaturePermanent, Class: ClassUnauthorized,
	},
	{
		Name:       "HTTP rejected",
		Recognises: "the same, any other fault of the request",
		Codes:      []Code{"http:4??"},
		Nature:     NaturePermanent, Class: ClassValidation,
	},
	{
		Name:       "gRPC timeout",
		Recognises: "`GRPCStatus()`, the call took too long or was given up",
		Codes:      []Code{"grpc:DeadlineExceeded", "grpc:Canceled"},
		Nature:     NatureTransient, Class: ClassDependencyTimeout,
	},
	{
		Name:       "gRPC unavailable",
		Recognises: "the same, overload, conflict or a fault of the server",
		Codes:      []Code{"grpc:Unavailable", "grpc:ResourceExhausted", "grpc:Aborted", "grpc:Internal"},
		Nature:     NatureTransient, Class: ClassDependencyUnavailable,
	},
	{
		Name:       "gRPC not found",
		Recognises: "the same, not found",
		Codes:      []Code{"grpc:NotFound"},
		Nature:     NatureAmbiguous, Class: ClassReferenceNotFound,
	},
	{
		Name:       "gRPC unauthorized",
		Recognises: "the same, credentials missing or not sufficient",
		Codes:      []Code{"grpc:Unauthenticated", "grpc:PermissionDenied"},
		Nature:     NaturePermanent, Class: ClassUnauthorized,
	},
	{
		Name:       "gRPC rejected",
		Recognises: "the same, a fault of the request",
		Codes:      []Code{"grpc:InvalidArgument", "grpc:OutOfRange", "grpc:AlreadyExists", "grpc:FailedPrecondition"},
		Nature:     NaturePermanent, Class: ClassValidation,
	},
	{
		Name:       "gRPC unimplemented",
		Recognises: "the same, the server does not know the method",
		Codes:      []Code{"grpc:Unimplemented"},
		Nature:     NaturePermanent, Class: ClassIncompatibleSchema,
	},
	{
		Name:       "SQL foreign key",
		Recognises: "`SQLState() string`, a row that is referred to does not exist",
		Codes:      []Code{"pg:23503"},
		Nature:     NatureAmbiguous, Class: ClassReferenceNotFound,
	},
	{
		Name:       "SQL rejected",
		Recognises: "the same, bad data (class 22) or a violated constraint (23)",
		Codes:      []Code{"pg:22???", "pg:23???"},
		Nature:     NaturePermanent, Class: ClassValidation,
	},
	{
		Name:       "SQL unavailable",
		Recognises: "the same, connection (08), rolled back transaction such as a deadlock (40), resources (53), shutdown (57P)",
		Codes:      []Code{"pg:08???", "pg:40???", "pg:53???", "pg:57P??"},
		Nature:     NatureTransient, Class: ClassDependencyUnavailable,
	},
	{
		Name:       "encoding",
		Recognises: "`UnsupportedTypeError`, `UnsupportedValueError` and `MarshalerError` of encoding/json, `UnsupportedTypeError` of encoding/xml: an outgoing document that cannot be written, for example because of a control character",
		Codes:      []Code{"json:UnsupportedTypeError", "json:UnsupportedValueError", "json:MarshalerError", "xml:UnsupportedTypeError"},
		Nature:     NaturePermanent, Class: ClassSerialization,
	},
	{
		Name:       "JSON",
		Recognises: "`SyntaxError`, `UnmarshalTypeError` and `InvalidUnmarshalError` of encoding/json, and what json.Unmarshal returns for a field of bytes or time: `base64.CorruptInputError`, `*time.ParseError`",
		Codes:      []Code{"json:SyntaxError", "json:UnmarshalTypeError", "json:InvalidUnmarshalError", "base64:CorruptInputError", "time:ParseError"},
		Nature:     NaturePermanent, Class: ClassUndecodable,
	},
	{
		Name:       "XML",
		Recognises: "`SyntaxError`, `UnmarshalError` and `TagPathError` of encoding/xml",
		Codes:      []Code{"xml:SyntaxError", "xml:UnmarshalError", "xml:TagPathError"},
		Nature:     NaturePermanent, Class: ClassUndecodable,
	},
	{
		Name:       "protobuf",
		Recognises: "any error of google.golang.org/protobuf",
		Codes:      []Code{"protobuf:error"},
		Nature:     NaturePermanent, Class: ClassUndecodable,
	},
	{
		Name:       "no rows",
		Recognises: "`sql.ErrNoRows`",
		Codes:      []Code{"sql:ErrNoRows"},
		Nature:     NatureAmbiguous, Class: ClassReferenceNotFound,
	},
	{
		Name:       "bad connection",
		Recognises: "`driver.ErrBadConn` of database/sql",
		Codes:      []Code{"sql:ErrBadConn"},
		Nature:     NatureTransient, Class: ClassDependencyUnavailable,
	},
	{
		Name:       "circuit breaker",
		Recognises: "the errors of gobreaker, and so of Watermill's CircuitBreaker, by their whole text: \"circuit breaker is open\" and \"too many requests\"",
		Codes:      []Code{"gobreaker:ErrOpenState", "gobreaker:ErrTooManyRequests"},
		Nature:     NatureTransient, Class: ClassDependencyUnavailable,
	},
	{
		Name:       "context",
		Recognises: "`context.DeadlineExceeded`; `context.Canceled` if it is not the shutdown of the consumer",
		Codes:      []Code{"context:DeadlineExceeded", "context:Canceled"},
		Nature:     NatureTransient, Class: ClassDependencyTimeout,
	},
	{
		Name:       "connection timeout",
		Recognises: "`syscall.ETIMEDOUT`",
		Codes:      []Code{"syscall:ETIMEDOUT"},
		Nature:     NatureTransient, Class: ClassDependencyTimeout,
	},
	{
		Name:       "connection",
		Recognises: "`syscall.Errno`: connection refused, reset, aborted, broken or not open; host or network down or unreachable",
		Codes: []Code{
			"syscall:ECONNREFUSED", "syscall:ECONNRESET", "syscall:ECONNABORTED", "syscall:EPIPE", "syscall:ENOTCONN",
			"syscall:EHOSTDOWN", "syscall:EHOSTUNREACH", "syscall:ENETDOWN", "syscall:ENETUNREACH",
		},
		Nature: NatureTransient, Class: ClassDependencyUnavailable,
	},
	{
		Name:       "network timeout",
		Recognises: "any `net.Error` whose `Timeout()` is true",
		Codes:      []Code{"net:timeout"},
		Nature:     NatureTransient, Class: ClassDependencyTimeout,
	},
	{
		Name:       "network",
		Recognises: "any other `*net.OpError` (the code ends in its Op) or `*net.DNSError`",
		Codes:      []Code{"net:*"},
		Nature:     NatureTransient, Class: ClassDependencyUnavailable,
	},
	{
		Name:       "cut off",
		Recognises: "`io.ErrUnexpectedEOF`",
		Codes:      []Code{"io:ErrUnexpectedEOF"},
		Nature:     NatureTransient, Class: ClassDependencyUnavailable,
	},
	{
		Name:       "code only",
		Recognises: "any other SQLSTATE, and gRPC codes that say nothing: known by their code, but not what they mean",
		Codes:      []Code{"pg:?????", "grpc:Unknown", "grpc:DataLoss"},
		Nature:     NatureUnknown, Class: ClassUnknown,
	},
}

// rowOf returns the index of the first row for code, or len(builtin).
func rowOf(code Code) int {
	for i := range builtin {
		for _, pattern := range builtin[i].Codes {
			if pattern.covers(code) {
				return i
			}
		}
	}
	return len(builtin)
}

// covers says whether code is one that the pattern c stands for.
func (c Code) covers(code Code) bool {
	for i := range len(c) {
		switch {
		case c[i] == '*':
			return true
		case i == len(code), c[i] != '?' && c[i] != code[i]:
			return false
		}
	}
	return len(c) == len(code)
}
