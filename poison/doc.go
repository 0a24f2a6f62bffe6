// Package poison keeps what is known of a message that could not be
// processed, without keeping what nobody should read there.
//
// # What it does
//
// A [Redactor] takes secrets and personal data out of error texts, broker
// URLs and headers before they are written into a dead letter, logged or
// shown. [Redactor.Failure] gives the text of a failure in that form.
// Payloads, and user headers in flight, are never touched: the dead letter's
// body is the original body. Headers that must not reach a dead letter at all
// are named in [Redaction].DropHeaders, and their names are recorded.
//
// A [LastResort] is a file per process for the rare message that no stream of
// the broker can take. A line is on the disk before Write returns nil, so the
// caller may acknowledge the message. [ReadLastResort] reads it back.
//
// # Placeholders
//
// What is taken out is replaced so that the sentence around it stays
// readable, and so that triage, which replaces the variable parts of a text
// by placeholders of the same form, groups redacted texts:
//
//	<email>  an e-mail address
//	<id>     a number, or a token that is recognised by its own form: card
//	         numbers, CPF, CNPJ, JWT, AWS key ids, tokens of known vendors,
//	         and the credentials after Bearer and Basic
//	<q>      a secret that is recognised by its place: the password of a URL or
//	         DSN, the value of password=, a private key, a user pattern's match
//
// URLs keep scheme, user, host, path and the names of their query parameters:
// amqp://app:<q>@rabbit:5672/orders. In http and https URLs the user goes as
// well, because API keys are often sent in its place: https://<q>@api.example.com/v1.
//
// # Defaults
//
// The zero [Redaction] has every rule on except CPF and CNPJ. Rules rather
// take out too much of a text than too little, but prose about secrets
// ("token expired", "passwords do not match") stays as it is.
//
// # Failure modes
//
// Redaction is a scan in time linear in the text, of at most [MaxText] bytes;
// what lies beyond is left out, never passed through. It recognises forms. A
// secret that looks like a word, in a place that does not name it, is not
// recognised: give a pattern for those.
//
// A last resort that cannot be written to is refused when it is opened. A
// write that fails leaves no half line, and returns an error: the message
// must then stay with the broker.
package poison
