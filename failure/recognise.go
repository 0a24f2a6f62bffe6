package failure

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/base64"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// match is the best built-in rule for the errors of one branch so far.
type match struct {
	row   int // index in builtin; len(builtin) for none
	code  Code
	after time.Duration // wish of the outermost error that has one
}

func newMatch() match { return match{row: len(builtin)} }

func (m *match) any() bool { return m.row < len(builtin) }

// found takes code unless a more specific one, or the same kind of code of an
// error further out, was found before.
func (m *match) found(code Code) {
	if row := rowOf(code); row < m.row {
		m.row, m.code = row, code
	}
}

// failure is what the best rule says; zero if there is none.
func (m *match) failure() Failure {
	if !m.any() {
		return Failure{}
	}
	r := &builtin[m.row]
	return Failure{Nature: r.Nature, Class: r.Class, Code: m.code, RetryAfter: m.after}
}

// look lets every recogniser see err, which is one error of a tree, without
// what it wraps.
func (m *match) look(err error) {
	s := subject{error: err}
	if slices.Contains(textTypes, reflect.TypeOf(err)) {
		recogniseSentinel(s, m)
		return
	}
	s.is, _ = err.(interface{ Is(error) bool })
	s.as, _ = err.(interface{ As(any) bool })
	for i := 0; i < len(recognisers); {
		i = m.lookFrom(i, s)
	}
}

// textTypes are the types of which most errors in a tree are. They say nothing
// but their text, so that only sentinels can be recognised, five times faster.
var textTypes = []reflect.Type{
	reflect.TypeOf(fmt.Errorf("%w", io.EOF)),
	errorString,
}

// lookFrom asks recognisers from the i-th on and returns where to go on: after
// the last one, or after one that panicked.
func (m *match) lookFrom(i int, s subject) (next int) {
	defer func() {
		if recover() != nil {
			next = i + 1
		}
	}()
	for ; i < len(recognisers); i++ {
		recognisers[i](s, m)
	}
	return i
}

// subject is one error of a tree.
type subject struct {
	error
	is interface{ Is(error) bool } // nil if it has no such method
	as interface{ As(any) bool }
}

// equals is errors.Is for this error alone. The target must be comparable.
func (s subject) equals(target error) bool {
	return s.error == target || s.is != nil && s.is.Is(target)
}

// as is errors.As for one error alone.
func as[T any](s subject) (T, bool) {
	if t, ok := s.error.(T); ok {
		return t, true
	}
	if s.as != nil {
		if t := *new(T); s.as.As(&t) {
			return t, true
		}
	}
	return *new(T), false
}

// is says whether the error is a T.
func is[T any](s subject) bool {
	_, ok := as[T](s)
	return ok
}

// recognisers find the code of an error. Each may call methods of it, which
// may panic, and must not keep it.
var recognisers = [...]func(subject, *match){
	recognisePanic,
	recogniseAWS,
	recogniseHTTP,
	recogniseGRPC,
	recogniseSQLState,
	recogniseEncoding,
	recogniseDecoding,
	recogniseProtobuf,
	recogniseSentinel,
	recogniseErrno,
	recogniseNet,
	recogniseWish,
}

func recognisePanic(s subject, m *match) {
	if e, ok := as[*PanicError](s); ok {
		m.found(Code(fmt.Sprintf("panic:%T", e.Value)))
	} else if e, ok := as[runtime.Error](s); ok {
		m.found(Code(fmt.Sprintf("panic:%T", e)))
	} else if t := reflect.TypeOf(s.error); t.Name() == "RecoveredPanicError" && declaredIn(t, "github.com/ThreeDotsLabs/watermill/") {
		m.found(Code(fmt.Sprintf("panic:%T", reflect.ValueOf(s.error).FieldByName("V").Interface())))
	}
}

func recogniseAWS(s subject, m *match) {
	if e, ok := as[interface{ ErrorCode() string }](s); ok {
		m.found("aws:" + Code(e.ErrorCode()))
	}
}

func recogniseHTTP(s subject, m *match) {
	var status int
	if e, ok := as[interface{ StatusCode() int }](s); ok {
		status = e.StatusCode()
	} else if e, ok := as[interface{ HTTPStatusCode() int }](s); ok {
		status = e.HTTPStatusCode()
	}
	if status >= 400 && status <= 599 {
		m.found(Code("http:" + strconv.Itoa(status)))
	}
}

// grpcCodes are the names of the gRPC status codes by number.
var grpcCodes = [...]Code{
	"OK", "Canceled", "Unknown", "InvalidArgument", "DeadlineExceeded", "NotFound", "AlreadyExists",
	"PermissionDenied", "ResourceExhausted", "FailedPrecondition", "Aborted", "OutOfRange", "Unimplemented",
	"Internal", "Unavailable", "DataLoss", "Unauthenticated",
}

// recogniseGRPC calls GRPCStatus().Code(). Both return types belong to gRPC, so
// no interface declared here can name them.
func recogniseGRPC(s subject, m *match) {
	method := reflect.ValueOf(s.error).MethodByName("GRPCStatus")
	if !method.IsValid() || method.Type().NumIn() != 0 || method.Type().NumOut() != 1 {
		return
	}
	method = method.Call(nil)[0].MethodByName("Code")
	if !method.IsValid() || method.Type().NumIn() != 0 || method.Type().NumOut() != 1 {
		return
	}
	code := method.Call(nil)[0]
	if code.CanUint() && code.Uint() < uint64(len(grpcCodes)) {
		m.found("grpc:" + grpcCodes[code.Uint()])
	}
}

func recogniseSQLState(s subject, m *match) {
	e, ok := as[interface{ SQLState() string }](s)
	if !ok {
		return
	}
	state := e.SQLState()
	foreign := func(r rune) bool { return (r < '0' || r > '9') && (r < 'A' || r > 'Z') }
	if len(state) == 5 && !strings.ContainsFunc(state, foreign) {
		m.found("pg:" + Code(state))
	}
}

func recogniseEncoding(s subject, m *match) {
	switch {
	case is[*json.UnsupportedTypeError](s):
		m.found("json:UnsupportedTypeError")
	case is[*json.UnsupportedValueError](s):
		m.found("json:UnsupportedValueError")
	case is[*json.MarshalerError](s):
		m.found("json:MarshalerError")
	case is[*xml.UnsupportedTypeError](s):
		m.found("xml:UnsupportedTypeError")
	}
}

func recogniseDecoding(s subject, m *match) {
	switch {
	case is[*json.SyntaxError](s):
		m.found("json:SyntaxError")
	case is[*json.UnmarshalTypeError](s):
		m.found("json:UnmarshalTypeError")
	case is[*json.InvalidUnmarshalError](s):
		m.found("json:InvalidUnmarshalError")
	case is[base64.CorruptInputError](s):
		m.found("base64:CorruptInputError")
	case is[*time.ParseError](s):
		m.found("time:ParseError")
	case is[*xml.SyntaxError](s):
		m.found("xml:SyntaxError")
	case is[xml.UnmarshalError](s):
		m.found("xml:UnmarshalError")
	case is[*xml.TagPathError](s):
		m.found("xml:TagPathError")
	}
}

// recogniseProtobuf goes by where the type is declared: the module exports
// neither its error types nor an interface, and varies their text on purpose.
func recogniseProtobuf(s subject, m *match) {
	t := reflect.TypeOf(s.error)
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if declaredIn(t, "google.golang.org/protobuf/") {
		m.found("protobuf:error")
	}
}

// declaredIn says whether t is of a package of that module, vendored or not.
func declaredIn(t reflect.Type, module string) bool {
	path := t.PkgPath()
	if i := strings.LastIndex(path, "/vendor/"); i >= 0 {
		path = path[i+len("/vendor/"):]
	}
	return strings.HasPrefix(path, module)
}

var sentinels = [...]struct {
	err  error
	code Code
}{
	{sql.ErrNoRows, "sql:ErrNoRows"},
	{driver.ErrBadConn, "sql:ErrBadConn"},
	{context.DeadlineExceeded, "context:DeadlineExceeded"},
	{context.Canceled, "context:Canceled"},
	{io.ErrUnexpectedEOF, "io:ErrUnexpectedEOF"},
}

// texts are sentinels of libraries that cannot be imported here, made by
// errors.New: their whole text is all that tells them.
var texts = map[string]Code{
	"circuit breaker is open": "gobreaker:ErrOpenState",
	"too many requests":       "gobreaker:ErrTooManyRequests",
}

var errorString = reflect.TypeOf(errors.New(""))

func recogniseSentinel(s subject, m *match) {
	for _, known := range sentinels {
		if s.equals(known.err) {
			m.found(known.code)
		}
	}
	if reflect.TypeOf(s.error) == errorString {
		m.found(texts[s.Error()])
	}
}

var errnos = map[syscall.Errno]Code{
	syscall.ECONNABORTED: "syscall:ECONNABORTED",
	syscall.ECONNREFUSED: "syscall:ECONNREFUSED",
	syscall.ECONNRESET:   "syscall:ECONNRESET",
	syscall.EHOSTDOWN:    "syscall:EHOSTDOWN",
	syscall.EHOSTUNREACH: "syscall:EHOSTUNREACH",
	syscall.ENETDOWN:     "syscall:ENETDOWN",
	syscall.ENETUNREACH:  "syscall:ENETUNREACH",
	syscall.ENOTCONN:     "syscall:ENOTCONN",
	syscall.EPIPE:        "syscall:EPIPE",
	syscall.ETIMEDOUT:    "syscall:ETIMEDOUT",
}

func recogniseErrno(s subject, m *match) {
	if e, ok := as[syscall.Errno](s); ok {
		m.found(errnos[e])
	}
}

// recogniseNet leaves out what only has the methods of a net.Error, such as
// file errors of syscall and a url.Error around anything at all.
func recogniseNet(s subject, m *match) {
	if e, ok := as[net.Error](s); ok && e.Timeout() {
		m.found("net:timeout")
	} else if e, ok := as[*net.OpError](s); ok {
		m.found("net:" + Code(e.Op))
	} else if is[*net.DNSError](s) {
		m.found("net:dns")
	}
}

func recogniseWish(s subject, m *match) {
	if e, ok := as[interface{ RetryAfter() time.Duration }](s); ok && m.after <= 0 {
		m.after = e.RetryAfter()
	}
}
