package failuretest_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/timestamppb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/spillway-mq/spillway/failure"
)

const (
	transient = failure.NatureTransient
	permanent = failure.NaturePermanent
	ambiguous = failure.NatureAmbiguous
	unknown   = failure.NatureUnknown
)

// check classifies err as it is, wrapped (K11), and as a branch of a join.
func check(t *testing.T, err error, nature failure.Nature, class failure.Class, code failure.Code) {
	t.Helper()
	want := failure.Failure{Nature: nature, Class: class, Code: code}
	for _, e := range []error{
		err,
		fmt.Errorf("handler: %w", fmt.Errorf("call: %w", err)),
		errors.Join(errors.New("unrelated"), err),
	} {
		got := failure.Classifier{}.Classify(e)
		got.Err = nil
		if nature == unknown && class == failure.ClassUnknown {
			got.Code, want.Code = "", "" // in a join, of equals the first counts
		}
		if got != want {
			t.Errorf("%v (%T in %T) classified as %+v, want %+v", err, err, e, got, want)
		}
	}
}

func TestGRPC(t *testing.T) {
	t.Parallel()
	want := map[codes.Code]struct {
		nature failure.Nature
		class  failure.Class
	}{
		codes.Canceled:           {transient, failure.ClassDependencyTimeout},
		codes.Unknown:            {unknown, failure.ClassUnknown},
		codes.InvalidArgument:    {permanent, failure.ClassValidation},
		codes.DeadlineExceeded:   {transient, failure.ClassDependencyTimeout},
		codes.NotFound:           {ambiguous, failure.ClassReferenceNotFound},
		codes.AlreadyExists:      {permanent, failure.ClassValidation},
		codes.PermissionDenied:   {permanent, failure.ClassUnauthorized},
		codes.ResourceExhausted:  {transient, failure.ClassDependencyUnavailable},
		codes.FailedPrecondition: {permanent, failure.ClassValidation},
		codes.Aborted:            {transient, failure.ClassDependencyUnavailable},
		codes.OutOfRange:         {permanent, failure.ClassValidation},
		codes.Unimplemented:      {permanent, failure.ClassIncompatibleSchema},
		codes.Internal:           {transient, failure.ClassDependencyUnavailable},
		codes.Unavailable:        {transient, failure.ClassDependencyUnavailable},
		codes.DataLoss:           {unknown, failure.ClassUnknown},
		codes.Unauthenticated:    {permanent, failure.ClassUnauthorized},
	}
	for code := codes.Code(1); code <= codes.Unauthenticated; code++ {
		w, ok := want[code]
		if !ok {
			t.Fatalf("no expectation for %s", code)
		}
		err := status.Error(code, "boom")
		check(t, err, w.nature, w.class, failure.Code("grpc:"+code.String()))
		if got := (failure.Classifier{}).Classify(err).Code; got != failure.Code("grpc:"+code.String()) {
			t.Errorf("code = %s, want grpc:%s", got, code)
		}
	}
	check(t, status.FromContextError(context.DeadlineExceeded).Err(), transient, failure.ClassDependencyTimeout, "grpc:DeadlineExceeded")
	check(t, status.Error(codes.Code(99), "of the future"), unknown, failure.ClassUnknown, "")
}

func TestPostgreSQL(t *testing.T) {
	t.Parallel()
	for state, w := range map[string]struct {
		nature failure.Nature
		class  failure.Class
	}{
		"08006": {transient, failure.ClassDependencyUnavailable},
		"40001": {transient, failure.ClassDependencyUnavailable},
		"40P01": {transient, failure.ClassDependencyUnavailable},
		"53300": {transient, failure.ClassDependencyUnavailable},
		"57P01": {transient, failure.ClassDependencyUnavailable},
		"22021": {permanent, failure.ClassValidation},
		"23505": {permanent, failure.ClassValidation},
		"23503": {ambiguous, failure.ClassReferenceNotFound},
		"42P01": {unknown, failure.ClassUnknown},
	} {
		check(t, &pgconn.PgError{Code: state}, w.nature, w.class, failure.Code("pg:"+state))
	}
	check(t, (*pgconn.PgError)(nil), unknown, failure.ClassUnknown, "")
	check(t, pgx.ErrNoRows, ambiguous, failure.ClassReferenceNotFound, "sql:ErrNoRows")
}

// What pgx really returns where nobody listens, and for a dead context.
func TestPostgreSQLConnect(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	url := fmt.Sprintf("postgres://user@%s/db", listener.Addr())
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	_, err = pgconn.Connect(t.Context(), url)
	check(t, err, transient, failure.ClassDependencyUnavailable, "syscall:ECONNREFUSED")

	ctx, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	_, err = pgconn.Connect(ctx, url)
	check(t, err, transient, failure.ClassDependencyTimeout, "context:DeadlineExceeded")
}

func TestProtobuf(t *testing.T) {
	t.Parallel()
	packed, err := anypb.New(timestamppb.Now())
	if err != nil {
		t.Fatal(err)
	}
	_, marshal := proto.Marshal(wrapperspb.String("\xff"))
	for name, err := range map[string]error{
		"garbage":            proto.Unmarshal([]byte{0xff, 0xff}, &timestamppb.Timestamp{}),
		"cut off":            proto.Unmarshal([]byte{0x0a, 0x05, 'a'}, &wrapperspb.StringValue{}),
		"invalid UTF-8":      proto.Unmarshal([]byte{0x0a, 0x01, 0xff}, &wrapperspb.StringValue{}),
		"another type":       packed.UnmarshalTo(&wrapperspb.StringValue{}),
		"bad JSON":           protojson.Unmarshal([]byte(`{"a":`), &anypb.Any{}),
		"bad value":          protojson.Unmarshal([]byte(`"yesterday"`), &timestamppb.Timestamp{}),
		"encoding bad UTF-8": marshal,
	} {
		if err == nil {
			t.Fatalf("%s: no error to classify", name)
		}
		check(t, err, permanent, failure.ClassUndecodable, "protobuf:error")
	}
}

func TestAWS(t *testing.T) {
	t.Parallel()
	// as the SDK nests them
	operation := func(status int, cause error) error {
		return &smithy.OperationError{ServiceID: "SQS", OperationName: "SendMessage", Err: &smithyhttp.ResponseError{
			Response: &smithyhttp.Response{Response: &http.Response{StatusCode: status}},
			Err:      cause,
		}}
	}
	api := func(code string) error { return &smithy.GenericAPIError{Code: code, Message: "no"} }
	check(t, operation(400, api("ThrottlingException")), transient, failure.ClassDependencyUnavailable, "aws:ThrottlingException")
	check(t, operation(503, api("SlowDown")), transient, failure.ClassDependencyUnavailable, "aws:SlowDown")
	check(t, operation(400, api("ValidationException")), permanent, failure.ClassValidation, "http:400")
	check(t, operation(403, api("AccessDenied")), permanent, failure.ClassUnauthorized, "http:403")
	check(t, operation(404, api("NoSuchKey")), ambiguous, failure.ClassReferenceNotFound, "http:404")
	check(t, operation(500, api("InternalError")), transient, failure.ClassDependencyUnavailable, "http:500")
	check(t, &smithy.CanceledError{Err: context.Canceled}, transient, failure.ClassDependencyTimeout, "context:Canceled")
	// A response that never came: HTTPStatusCode panics, the cause still counts.
	check(t, &smithyhttp.ResponseError{Err: context.DeadlineExceeded}, transient, failure.ClassDependencyTimeout, "context:DeadlineExceeded")
}

// K11: Watermill's own Recoverer inside the chain must not hide a panic.
func TestWatermillRecoverer(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		value any
		code  failure.Code
	}{{"boom", "panic:string"}, {failure.Permanent(errors.New("x")), "panic:*failure.Error"}} {
		_, err := middleware.Recoverer(func(*message.Message) ([]*message.Message, error) { panic(tt.value) })(nil)
		got := failure.Classifier{}.Classify(err)
		if got.Class != failure.ClassPanic || got.Nature != unknown || got.Code != tt.code {
			t.Errorf("classified as %+v, want an unknown panic with code %s", got, tt.code)
		}
	}
}
