package failure_test

import (
	"bytes"
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spillway-mq/spillway/failure"
)

var update = flag.Bool("update", false, "rewrite golden files")

const (
	transient = failure.NatureTransient
	permanent = failure.NaturePermanent
	ambiguous = failure.NatureAmbiguous
	unknown   = failure.NatureUnknown
)

type (
	sqlError      struct{ state string }
	awsError      struct{ code string }
	sdkError      struct{ status int }
	busyError     struct{ status int }
	timeoutError  struct{}
	notAnnoyed    struct{ error } // net.Error that did not time out
	unmarshalable struct{}
	grpcError     struct{ code grpcCode }
	grpcStatus    struct{ code grpcCode }
	grpcCode      uint32
)

func (e *sqlError) Error() string              { return "sql state " + e.state }
func (e *sqlError) SQLState() string           { return e.state }
func (e *awsError) Error() string              { return "api error " + e.code }
func (e *awsError) ErrorCode() string          { return e.code }
func (e *sdkError) Error() string              { return fmt.Sprint("response ", e.status) }
func (e *sdkError) HTTPStatusCode() int        { return e.status }
func (e *busyError) Error() string             { return "busy" }
func (e *busyError) StatusCode() int           { return e.status }
func (e *busyError) RetryAfter() time.Duration { return 90 * time.Second }
func (timeoutError) Error() string             { return "too slow" }
func (timeoutError) Timeout() bool             { return true }
func (timeoutError) Temporary() bool           { return true }
func (notAnnoyed) Timeout() bool               { return false }
func (notAnnoyed) Temporary() bool             { return false }
func (unmarshalable) MarshalJSON() ([]byte, error) {
	return nil, errors.New("no such thing")
}
func (e *grpcError) Error() string           { return "rpc error" }
func (e *grpcError) GRPCStatus() *grpcStatus { return &grpcStatus{e.code} }
func (s *grpcStatus) Code() grpcCode         { return s.code }

func TestBuiltinRules(t *testing.T) {
	t.Parallel()
	unmarshal := func(text string, to any) error { return json.Unmarshal([]byte(text), to) }
	marshal := func(v any) error { _, err := json.Marshal(v); return err }
	var order struct {
		ID    int
		Photo []byte
		At    time.Time
	}
	for _, tt := range []struct {
		name   string
		err    error
		nature failure.Nature
		class  failure.Class
		code   failure.Code
	}{
		// K10: what nobody knows is not taken for retryable, nor for fatal.
		{"nothing known", errors.New("boom"), unknown, failure.ClassUnknown, ""},
		{"nil", nil, unknown, failure.ClassUnknown, ""},
		{"io.EOF", io.EOF, unknown, failure.ClassUnknown, ""},

		{"deadline", context.DeadlineExceeded, transient, failure.ClassDependencyTimeout, "context:DeadlineExceeded"},
		{"canceled", context.Canceled, transient, failure.ClassDependencyTimeout, "context:Canceled"},
		{"unexpected EOF", io.ErrUnexpectedEOF, transient, failure.ClassDependencyUnavailable, "io:ErrUnexpectedEOF"},
		{"no rows", sql.ErrNoRows, ambiguous, failure.ClassReferenceNotFound, "sql:ErrNoRows"},
		{"bad connection", driver.ErrBadConn, transient, failure.ClassDependencyUnavailable, "sql:ErrBadConn"},
		{"closed sql.DB", sql.ErrConnDone, unknown, failure.ClassUnknown, ""},

		{"ETIMEDOUT", syscall.ETIMEDOUT, transient, failure.ClassDependencyTimeout, "syscall:ETIMEDOUT"},
		{"ECONNREFUSED", syscall.ECONNREFUSED, transient, failure.ClassDependencyUnavailable, "syscall:ECONNREFUSED"},
		{"ECONNRESET", syscall.ECONNRESET, transient, failure.ClassDependencyUnavailable, "syscall:ECONNRESET"},
		{"ECONNABORTED", syscall.ECONNABORTED, transient, failure.ClassDependencyUnavailable, "syscall:ECONNABORTED"},
		{"EPIPE", syscall.EPIPE, transient, failure.ClassDependencyUnavailable, "syscall:EPIPE"},
		{"ENOTCONN", syscall.ENOTCONN, transient, failure.ClassDependencyUnavailable, "syscall:ENOTCONN"},
		{"EHOSTDOWN", syscall.EHOSTDOWN, transient, failure.ClassDependencyUnavailable, "syscall:EHOSTDOWN"},
		{"EHOSTUNREACH", syscall.EHOSTUNREACH, transient, failure.ClassDependencyUnavailable, "syscall:EHOSTUNREACH"},
		{"ENETDOWN", syscall.ENETDOWN, transient, failure.ClassDependencyUnavailable, "syscall:ENETDOWN"},
		{"ENETUNREACH", syscall.ENETUNREACH, transient, failure.ClassDependencyUnavailable, "syscall:ENETUNREACH"},
		{"a file error", &os.PathError{Op: "open", Path: "x", Err: syscall.ENOENT}, unknown, failure.ClassUnknown, ""},

		{"timeout", timeoutError{}, transient, failure.ClassDependencyTimeout, "net:timeout"},
		{"i/o timeout", os.ErrDeadlineExceeded, transient, failure.ClassDependencyTimeout, "net:timeout"},
		{"slow DNS", &net.DNSError{Err: "timeout", IsTimeout: true}, transient, failure.ClassDependencyTimeout, "net:timeout"},
		{"no such host", &net.DNSError{Err: "no such host", IsNotFound: true}, transient, failure.ClassDependencyUnavailable, "net:dns"},
		{"dial", &net.OpError{Op: "dial", Err: errors.New("nobody home")}, transient, failure.ClassDependencyUnavailable, "net:dial"},
		{"read", &net.OpError{Op: "read", Err: net.ErrClosed}, transient, failure.ClassDependencyUnavailable, "net:read"},
		{"refused", &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}, transient, failure.ClassDependencyUnavailable, "syscall:ECONNREFUSED"},
		{"net.Error in name only", notAnnoyed{errors.New("x")}, unknown, failure.ClassUnknown, ""},
		{"bad URL", &url.Error{Op: "parse", URL: "%", Err: url.EscapeError("%")}, unknown, failure.ClassUnknown, ""},

		{"SQL connection", &sqlError{"08006"}, transient, failure.ClassDependencyUnavailable, "pg:08006"},
		{"SQL serialization", &sqlError{"40001"}, transient, failure.ClassDependencyUnavailable, "pg:40001"},
		{"SQL deadlock", &sqlError{"40P01"}, transient, failure.ClassDependencyUnavailable, "pg:40P01"},
		{"SQL resources", &sqlError{"53300"}, transient, failure.ClassDependencyUnavailable, "pg:53300"},
		{"SQL shutdown", &sqlError{"57P01"}, transient, failure.ClassDependencyUnavailable, "pg:57P01"},
		{"SQL data", &sqlError{"22021"}, permanent, failure.ClassValidation, "pg:22021"},
		{"SQL unique", &sqlError{"23505"}, permanent, failure.ClassValidation, "pg:23505"},
		{"SQL foreign key", &sqlError{"23503"}, ambiguous, failure.ClassReferenceNotFound, "pg:23503"},
		{"SQL canceled", &sqlError{"57014"}, unknown, failure.ClassUnknown, "pg:57014"},
		{"SQL undefined table", &sqlError{"42P01"}, unknown, failure.ClassUnknown, "pg:42P01"},
		{"SQL without state", &sqlError{""}, unknown, failure.ClassUnknown, ""},
		{"SQL nonsense", &sqlError{"08\n6x"}, unknown, failure.ClassUnknown, ""},

		{"http 200", &statusError{200}, unknown, failure.ClassUnknown, ""},
		{"http 399", &statusError{399}, unknown, failure.ClassUnknown, ""},
		{"http 400", &statusError{400}, permanent, failure.ClassValidation, "http:400"},
		{"http 401", &statusError{401}, permanent, failure.ClassUnauthorized, "http:401"},
		{"http 403", &statusError{403}, permanent, failure.ClassUnauthorized, "http:403"},
		{"http 404", &statusError{404}, ambiguous, failure.ClassReferenceNotFound, "http:404"},
		{"http 408", &statusError{408}, transient, failure.ClassDependencyTimeout, "http:408"},
		{"http 409", &statusError{409}, permanent, failure.ClassValidation, "http:409"},
		{"http 422", &statusError{422}, permanent, failure.ClassValidation, "http:422"},
		{"http 425", &statusError{425}, transient, failure.ClassDependencyUnavailable, "http:425"},
		{"http 429", &statusError{429}, transient, failure.ClassDependencyUnavailable, "http:429"},
		{"http 499", &statusError{499}, permanent, failure.ClassValidation, "http:499"},
		{"http 500", &statusError{500}, transient, failure.ClassDependencyUnavailable, "http:500"},
		{"http 502", &statusError{502}, transient, failure.ClassDependencyUnavailable, "http:502"},
		{"http 503", &statusError{503}, transient, failure.ClassDependencyUnavailable, "http:503"},
		{"http 504", &statusError{504}, transient, failure.ClassDependencyTimeout, "http:504"},
		{"http 599", &statusError{599}, transient, failure.ClassDependencyUnavailable, "http:599"},
		{"http 600", &statusError{600}, unknown, failure.ClassUnknown, ""},
		{"http -503", &statusError{-503}, unknown, failure.ClassUnknown, ""},
		{"http 5030", &statusError{5030}, unknown, failure.ClassUnknown, ""},
		{"HTTPStatusCode", &sdkError{503}, transient, failure.ClassDependencyUnavailable, "http:503"},

		{"AWS throttling", &awsError{"ThrottlingException"}, transient, failure.ClassDependencyUnavailable, "aws:ThrottlingException"},
		{"AWS slow down", &awsError{"SlowDown"}, transient, failure.ClassDependencyUnavailable, "aws:SlowDown"},
		{"AWS throughput", &awsError{"ProvisionedThroughputExceededException"}, transient, failure.ClassDependencyUnavailable, "aws:ProvisionedThroughputExceededException"},
		{"AWS other", &awsError{"ValidationException"}, unknown, failure.ClassUnknown, ""},
		{"somebody's ErrorCode", &awsError{strings.Repeat("x", 1<<20)}, unknown, failure.ClassUnknown, ""},

		{"gRPC OK", &grpcError{0}, unknown, failure.ClassUnknown, ""},
		{"gRPC Canceled", &grpcError{1}, transient, failure.ClassDependencyTimeout, "grpc:Canceled"},
		{"gRPC Unknown", &grpcError{2}, unknown, failure.ClassUnknown, "grpc:Unknown"},
		{"gRPC Unavailable", &grpcError{14}, transient, failure.ClassDependencyUnavailable, "grpc:Unavailable"},
		{"gRPC future code", &grpcError{17}, unknown, failure.ClassUnknown, ""},
		{"gRPC nonsense", &grpcError{math.MaxUint32}, unknown, failure.ClassUnknown, ""},

		{"JSON syntax", unmarshal(`{"ID": x}`, &order), permanent, failure.ClassUndecodable, "json:SyntaxError"},
		{"JSON control character", unmarshal("{\"ID\": \"a\x01b\"}", &order), permanent, failure.ClassUndecodable, "json:SyntaxError"},
		{"JSON cut off", unmarshal(`{"ID": 1`, &order), permanent, failure.ClassUndecodable, "json:SyntaxError"},
		{"JSON empty", unmarshal(``, &order), permanent, failure.ClassUndecodable, "json:SyntaxError"},
		{"JSON type", unmarshal(`{"ID": "seven"}`, &order), permanent, failure.ClassUndecodable, "json:UnmarshalTypeError"},
		{"JSON overflow", unmarshal(`{"ID": 1e400}`, &order), permanent, failure.ClassUndecodable, "json:UnmarshalTypeError"},
		{"JSON bytes", unmarshal(`{"Photo": "!"}`, &order), permanent, failure.ClassUndecodable, "base64:CorruptInputError"},
		{"JSON time", unmarshal(`{"At": "yesterday"}`, &order), permanent, failure.ClassUndecodable, "time:ParseError"},
		{"JSON into nothing", unmarshal(`{}`, order), permanent, failure.ClassUndecodable, "json:InvalidUnmarshalError"},
		{"XML syntax", xml.Unmarshal([]byte("<a>\x01</a>"), &order), permanent, failure.ClassUndecodable, "xml:SyntaxError"},
		{"XML root", xml.Unmarshal([]byte("<b/>"), &struct {
			XMLName xml.Name `xml:"a"`
		}{}), permanent, failure.ClassUndecodable, "xml:UnmarshalError"},
		{"XML tags", xml.Unmarshal([]byte("<a/>"), &struct {
			A string `xml:"x"`
			B string `xml:"x>y"`
		}{}), permanent, failure.ClassUndecodable, "xml:TagPathError"},

		{"encode NaN", marshal(math.NaN()), permanent, failure.ClassSerialization, "json:UnsupportedValueError"},
		{"encode channel", marshal(make(chan int)), permanent, failure.ClassSerialization, "json:UnsupportedTypeError"},
		{"encode by method", marshal(unmarshalable{}), permanent, failure.ClassSerialization, "json:MarshalerError"},
		// The cause is a *json.SyntaxError, but the document was on its way out.
		{"encode control character", marshal(json.RawMessage("\"a\x01b\"")), permanent, failure.ClassSerialization, "json:MarshalerError"},
		{"encode XML channel", encodeXML(make(chan int)), permanent, failure.ClassSerialization, "xml:UnsupportedTypeError"},

		// Most specific first, wherever in the tree (K11).
		{"503 with a page instead of JSON", wrapping{&statusError{503}, unmarshal(`<html>`, &order)}, transient, failure.ClassDependencyUnavailable, "http:503"},
		{"throttled with a 400", wrapping{&sdkError{400}, &awsError{"ThrottlingException"}}, transient, failure.ClassDependencyUnavailable, "aws:ThrottlingException"},
		{"refused by AWS", wrapping{&sdkError{400}, &awsError{"ValidationException"}}, permanent, failure.ClassValidation, "http:400"},
		{"unclear SQL state after a timeout", wrapping{&sqlError{"57014"}, context.DeadlineExceeded}, transient, failure.ClassDependencyTimeout, "context:DeadlineExceeded"},
		{"foreign key in a class 23", wrapping{&sqlError{"23000"}, &sqlError{"23503"}}, ambiguous, failure.ClassReferenceNotFound, "pg:23503"},
		{"the outer of two of a kind", wrapping{&statusError{502}, &statusError{503}}, transient, failure.ClassDependencyUnavailable, "http:502"},
		{"deadline of an HTTP call", &url.Error{Op: "Get", URL: "/", Err: context.DeadlineExceeded}, transient, failure.ClassDependencyTimeout, "context:DeadlineExceeded"},
		{"posing as another", posing{&sqlError{"40001"}}, transient, failure.ClassDependencyUnavailable, "pg:40001"},
		{"posing as a sentinel", posing{sql.ErrNoRows}, ambiguous, failure.ClassReferenceNotFound, "sql:ErrNoRows"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			want := failure.Failure{Nature: tt.nature, Class: tt.class, Code: tt.code}
			if diff := cmp.Diff(want, said(tt.err)); diff != "" {
				t.Errorf("%v (%T) classified (-want +got):\n%s", tt.err, tt.err, diff)
			}
			if tt.err == nil {
				return
			}
			// K11: frameworks and handlers wrap; that must not change a thing.
			deep := tt.err
			for range 5 {
				deep = fmt.Errorf("handler: %w", deep)
			}
			if diff := cmp.Diff(want, said(deep)); diff != "" {
				t.Errorf("five deep classified (-want +got):\n%s", diff)
			}
		})
	}
}

// wrapping is an error with properties of its own and a cause.
type wrapping struct {
	error
	cause error
}

func (w wrapping) Unwrap() error     { return w.cause }
func (w wrapping) As(to any) bool    { return errors.As(w.error, to) }
func (w wrapping) Is(err error) bool { return errors.Is(w.error, err) }

// posing shows another error by its methods Is and As only.
type posing struct{ as error }

func (posing) Error() string          { return "posing" }
func (p posing) Is(target error) bool { return errors.Is(p.as, target) }
func (p posing) As(target any) bool   { return errors.As(p.as, target) }

// The errors of a real client that talks to real servers.
func TestRealNetwork(t *testing.T) {
	t.Parallel()
	hang := make(chan struct{})
	slow := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-hang:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(func() { close(hang); slow.Close() })
	gone := httptest.NewServer(nil)
	gone.Close()
	cut := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "10")
		_, _ = io.WriteString(w, "half")
	}))
	t.Cleanup(cut.Close)
	get := func(client *http.Client, u string) error {
		resp, err := client.Get(u)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		_, err = io.ReadAll(resp.Body)
		return err
	}
	for name, tt := range map[string]struct {
		err   error
		class failure.Class
	}{
		"client timeout":     {get(&http.Client{Timeout: time.Millisecond}, slow.URL), failure.ClassDependencyTimeout},
		"nobody listens":     {get(http.DefaultClient, gone.URL), failure.ClassDependencyUnavailable},
		"body cut off":       {get(http.DefaultClient, cut.URL), failure.ClassDependencyUnavailable},
		"unresolvable by us": {get(&http.Client{Transport: &http.Transport{}}, "http://"+strings.Repeat("x", 300)+".invalid"), failure.ClassDependencyUnavailable},
	} {
		got := said(tt.err)
		if got.Nature != transient || got.Class != tt.class || got.Code == "" {
			t.Errorf("%s: %v classified as %+v, want transient %s with a code", name, tt.err, got, tt.class)
		}
	}
}

func TestRetryAfterOfTheAnswer(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		err  error
		want time.Duration
	}{
		"429":                      {fmt.Errorf("charge: %w", &busyError{429}), 90 * time.Second},
		"503":                      {&busyError{503}, 90 * time.Second},
		"400 says nothing of time": {&busyError{400}, 0},
		"explicit wins":            {failure.RetryAfter(&busyError{429}, time.Second), time.Second},
		"transient leaves it open": {failure.Transient(&busyError{429}), 90 * time.Second},
		"nothing else is known":    {&busyError{200}, 0},
	} {
		if got := said(tt.err).RetryAfter; got != tt.want {
			t.Errorf("%s: RetryAfter = %v, want %v", name, got, tt.want)
		}
	}
}

// Every code in the table can be reached, and belongs to its own row only.
func TestTableIsReachable(t *testing.T) {
	t.Parallel()
	names := map[string]bool{}
	for _, rule := range failure.Builtin() {
		if names[rule.Name] || rule.Name == "" || rule.Recognises == "" || rule.Nature == "" || rule.Class == "" || len(rule.Codes) == 0 {
			t.Errorf("row %q is incomplete or not unique: %+v", rule.Name, rule)
		}
		names[rule.Name] = true
		for _, code := range rule.Codes {
			kind, value, _ := strings.Cut(string(code), ":")
			var err error
			switch kind {
			case "http":
				var status int
				_, _ = fmt.Sscan(strings.ReplaceAll(value, "?", "1"), &status)
				err = &statusError{status}
			case "aws":
				err = &awsError{value}
			case "pg":
				err = &sqlError{strings.ReplaceAll(value, "?", "9")}
			case "grpc":
				for c := range grpcCode(17) {
					if string(said(&grpcError{c}).Code) == string(code) {
						err = &grpcError{c}
					}
				}
			default:
				continue // each has an example in TestBuiltinRules
			}
			got := said(err)
			if got.Nature != rule.Nature || got.Class != rule.Class {
				t.Errorf("%s %s: classified as %+v, want %s %s", rule.Name, code, got, rule.Nature, rule.Class)
			}
		}
	}
}

func TestBuiltinReturnsACopy(t *testing.T) {
	t.Parallel()
	rules := failure.Builtin()
	for i := range rules {
		rules[i].Nature, rules[i].Class = permanent, "spoiled"
		clear(rules[i].Codes)
	}
	if got := said(&statusError{503}); got.Nature != transient || got.Class != failure.ClassDependencyUnavailable {
		t.Errorf("changing the returned table changed the rules: %+v", got)
	}
}

// The table in docs is made of the table in code: go test ./failure -update.
func encodeXML(v any) error { return xml.NewEncoder(io.Discard).Encode(v) }

func TestDocumentedRules(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	b.WriteString("# Built-in failure rules\n\n" +
		"<!-- Made from failure/builtin.go by `go test ./failure -update`. Do not edit. -->\n\n" +
		"What an error means when neither a rule of the user nor an explicit wrapper says so.\n" +
		"The first row that fits any error of the tree wins; of joined errors the worst nature wins.\n" +
		"The package documentation of `failure` has the rest, and `Policy.Classes` overrides by class.\n\n" +
		"| rule | recognises | nature | class | code |\n|---|---|---|---|---|\n")
	for _, r := range failure.Builtin() {
		codes := make([]string, len(r.Codes))
		for i, c := range r.Codes {
			codes[i] = "`" + string(c) + "`"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | `%s` | %s |\n", r.Name, r.Recognises, r.Nature, r.Class, strings.Join(codes, " "))
	}
	b.WriteString("\nIn a code, `?` stands for any one character and a final `*` for any text.\n" +
		"Everything else is `unknown` in nature and class.\n")
	const golden = "../docs/failure-rules.md"
	if *update {
		if err := os.MkdirAll("../docs", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(golden, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), b.String()); diff != "" {
		t.Errorf("docs differ from the table; run go test ./failure -update (-docs +code):\n%s", diff)
	}
}
