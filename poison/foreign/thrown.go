package foreign

import (
	"cmp"
	"slices"
	"strings"

	"github.com/spillway-mq/spillway/failure"
)

// kind is what the name of an exception is known to mean.
type kind struct {
	class  failure.Class
	nature failure.Nature
}

var (
	timeout      = kind{failure.ClassDependencyTimeout, failure.NatureTransient}
	unavailable  = kind{failure.ClassDependencyUnavailable, failure.NatureTransient}
	undecodable  = kind{failure.ClassUndecodable, failure.NaturePermanent}
	invalid      = kind{failure.ClassValidation, failure.NaturePermanent}
	unauthorized = kind{failure.ClassUnauthorized, failure.NaturePermanent}
	notFound     = kind{failure.ClassReferenceNotFound, failure.NatureAmbiguous}
)

// kinds are exceptions that mean one thing wherever they are thrown. What both
// directions of a codec throw, or what depends on a status inside, is not here.
var kinds = map[string]kind{
	// Somebody who was asked did not answer in time.
	"java.net.SocketTimeoutException":                                        timeout,
	"java.net.http.HttpTimeoutException":                                     timeout,
	"java.net.http.HttpConnectTimeoutException":                              timeout,
	"java.util.concurrent.TimeoutException":                                  timeout,
	"java.sql.SQLTimeoutException":                                           timeout,
	"io.netty.handler.timeout.ReadTimeoutException":                          timeout,
	"org.apache.kafka.common.errors.TimeoutException":                        timeout,
	"org.springframework.dao.QueryTimeoutException":                          timeout,
	"System.TimeoutException":                                                timeout,
	"MassTransit.RequestTimeoutException":                                    timeout,
	"org.springframework.web.client.HttpServerErrorException$GatewayTimeout": timeout,

	// Somebody could not be asked, or said that he is not well.
	"java.net.ConnectException":                                                   unavailable,
	"java.net.NoRouteToHostException":                                             unavailable,
	"java.net.UnknownHostException":                                               unavailable,
	"java.sql.SQLTransientConnectionException":                                    unavailable,
	"java.sql.SQLNonTransientConnectionException":                                 unavailable,
	"org.apache.kafka.common.errors.DisconnectException":                          unavailable,
	"org.springframework.amqp.AmqpConnectException":                               unavailable,
	"org.springframework.jdbc.CannotGetJdbcConnectionException":                   unavailable,
	"org.springframework.web.client.HttpServerErrorException$InternalServerError": unavailable,
	"org.springframework.web.client.HttpServerErrorException$BadGateway":          unavailable,
	"org.springframework.web.client.HttpServerErrorException$ServiceUnavailable":  unavailable,
	"org.springframework.web.client.HttpClientErrorException$TooManyRequests":     unavailable,
	"System.Net.Sockets.SocketException":                                          unavailable,

	// The message could not be read. These are thrown by decoders only.
	"com.fasterxml.jackson.core.JsonParseException":                         undecodable,
	"com.fasterxml.jackson.core.io.JsonEOFException":                        undecodable,
	"com.fasterxml.jackson.databind.exc.InvalidFormatException":             undecodable,
	"com.fasterxml.jackson.databind.exc.MismatchedInputException":           undecodable,
	"com.fasterxml.jackson.databind.exc.UnrecognizedPropertyException":      undecodable,
	"com.google.gson.JsonSyntaxException":                                   undecodable,
	"com.google.protobuf.InvalidProtocolBufferException":                    undecodable,
	"org.apache.kafka.common.errors.RecordDeserializationException":         undecodable,
	"org.springframework.kafka.support.serializer.DeserializationException": undecodable,
	"Newtonsoft.Json.JsonReaderException":                                   undecodable,
	"NServiceBus.MessageDeserializationException":                           undecodable,

	// The message was read and found wrong.
	"jakarta.validation.ConstraintViolationException":                                          invalid,
	"javax.validation.ConstraintViolationException":                                            invalid,
	"org.springframework.messaging.handler.annotation.support.MethodArgumentNotValidException": invalid,
	"FluentValidation.ValidationException":                                                     invalid,
	"System.ComponentModel.DataAnnotations.ValidationException":                                invalid,

	// Somebody who was asked knows no such thing, or did not want to say.
	"jakarta.persistence.EntityNotFoundException":                          notFound,
	"javax.persistence.EntityNotFoundException":                            notFound,
	"org.springframework.dao.EmptyResultDataAccessException":               notFound,
	"org.springframework.web.client.HttpClientErrorException$NotFound":     notFound,
	"org.springframework.web.client.HttpClientErrorException$Forbidden":    unauthorized,
	"org.springframework.web.client.HttpClientErrorException$Unauthorized": unauthorized,
	"org.springframework.security.access.AccessDeniedException":            unauthorized,
	"org.apache.kafka.common.errors.TopicAuthorizationException":           unauthorized,
}

// wrappers say only that there is a cause, each in the same words for all.
var wrappers = map[string]bool{
	"java.lang.reflect.InvocationTargetException":                              true,
	"java.lang.reflect.UndeclaredThrowableException":                           true,
	"java.util.concurrent.CompletionException":                                 true,
	"java.util.concurrent.ExecutionException":                                  true,
	"org.apache.kafka.streams.errors.StreamsException":                         true,
	"org.apache.kafka.streams.errors.internals.FailedProcessingException":      true,
	"org.springframework.amqp.rabbit.support.ListenerExecutionFailedException": true,
	"org.springframework.kafka.listener.ListenerExecutionFailedException":      true,
	"org.springframework.kafka.listener.TimestampedException":                  true,
	"org.springframework.messaging.MessageHandlingException":                   true,
	"org.springframework.kafka.KafkaException":                                 true,
	"System.AggregateException":                                                true,
	"System.Reflection.TargetInvocationException":                              true,
}

// throwable is an exception as it is printed.
type throwable struct{ class, message string }

const (
	maxTrace = 64 << 10 // bytes of a stack trace that are looked at
	maxChain = 16       // causes of causes
)

// causes returns the exceptions of a stack trace as Java prints it, the
// outermost first, each with the first line of its message.
func causes(trace string) (chain []throwable) {
	trace = trace[:min(len(trace), maxTrace)]
	for line := range strings.Lines(trace) {
		cause, isCause := strings.CutPrefix(line, "Caused by: ")
		if len(chain) > 0 && !isCause {
			continue
		}
		class, message, _ := strings.Cut(strings.TrimRight(cause, "\r\n"), ": ")
		if !isClass(class) || len(chain) == maxChain {
			break
		}
		chain = append(chain, throwable{class, message})
	}
	return chain
}

// isClass reports whether s can be the full name of a class.
func isClass(s string) bool {
	return strings.Contains(s, ".") && !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r == '(' || r == '/' || r == ':' })
}

// threw fills class, code and message from a chain of exceptions, the outermost
// first: of the first that is not only a wrapper, and the class of the first
// from there on that is known.
func (t *told) threw(chain []throwable) {
	if len(chain) == 0 {
		return
	}
	at := max(slices.IndexFunc(chain, func(e throwable) bool { return !wrappers[e.class] }), 0)
	t.code = chain[at].class
	t.message = cmp.Or(chain[at].message, chain[at].class)
	for _, e := range chain[at:] {
		if k, ok := kinds[e.class]; ok {
			t.kind = k
			return
		}
	}
}

// withTrace returns what a stack trace adds to the exception that headers name:
// its causes. A trace of something else is left alone.
func withTrace(outer throwable, trace string) []throwable {
	chain := causes(trace)
	switch {
	case len(chain) == 0 || outer.class != "" && outer.class != chain[0].class:
		if outer == (throwable{}) {
			return nil
		}
		return []throwable{outer}
	case outer.message != "":
		chain[0].message = outer.message // all of its lines
	}
	return chain
}
