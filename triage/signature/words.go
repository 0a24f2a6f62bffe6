package signature

import "strings"

// The word lists. A word is asked about in lower case.

// isCodeNoun reports whether a number directly after the word tells causes
// apart: status 404 is not status 503.
func isCodeNoun(word string) bool {
	switch word {
	case "status", "code", "http", "https", "sqlstate", "errno", "error", "err", "signal", "statuscode", "status_code",
		"errorcode", "error_code", "exitcode", "exit_code", "httpstatus", "http_status", "hresult", "ntstatus", "exit",
		"errcode", "sqlcode", "responsecode", "response_code", "returncode", "return_code", "rc":
		return true
	}
	for _, noun := range []string{"status", "code"} { // grpc-status, vendor_code
		if rest, ok := strings.CutSuffix(word, noun); ok && (strings.HasSuffix(rest, "-") || strings.HasSuffix(rest, "_")) {
			return true
		}
	}
	return false
}

// isVersioned reports whether the version of the thing is a cause: schema
// version 3, unlike version 3 of an order.
func isVersioned(word string) bool {
	switch word {
	case "schema", "protocol", "api", "format", "unsupported", "wire":
		return true
	}
	return false
}

// isSchemaNoun reports whether what stands in quotes beside the word is a name
// that a person gave in code: unknown field "a" is not unknown field "b".
func isSchemaNoun(word string) bool {
	switch word {
	case "field", "fields", "column", "columns", "table", "relation", "view", "topic", "queue", "exchange", "stream",
		"constraint", "index", "type", "types", "header", "headers", "property", "attribute", "element", "parameter", "param",
		"argument", "arg", "option", "flag", "variable", "key", "enum", "schema", "database", "role", "function", "method",
		"class", "module", "package", "service", "bucket", "subscription", "handler", "consumer", "event", "command",
		"operation", "operator", "code", "status", "state", "reason", "error", "kind", "level", "codec", "encoding",
		"charset", "format", "extension", "sequence", "trigger", "namespace", "collection",
		"relationship", "struct", "interface", "protocol", "driver", "plugin", "procedure", "group",
		"permission", "scope", "feature", "reading", "invoke":
		return true
	}
	return false
}

// isCauseKey reports whether the value in name=value says what went wrong, and
// is no datum.
func isCauseKey(word string) bool {
	switch word {
	case "msg", "message", "cause", "op", "category", "severity", "action", "result", "outcome", "desc", "description",
		"detail", "details", "exception", "http", "grpc", "sqlstate", "errno", "err", "expression", "source", "component",
		"subsystem", "caller", "func", "hresult", "phase":
		return true
	}
	return isSchemaNoun(word) || isCodeNoun(word)
}

// isTerm reports whether a word of letters and digits is a term of the trade,
// in which the digits are no number.
func isTerm(word string) bool {
	switch word {
	case "utf8", "utf16", "utf32", "ucs2", "ucs4", "x509", "x86", "x64", "x86_64", "amd64", "arm64", "arm32", "i386", "i686", "win32", "win64",
		"int8", "int16", "int32", "int64", "int128", "uint8", "uint16", "uint32", "uint64", "uint128", "float16", "float32", "float64",
		"complex64", "complex128", "fixed32", "fixed64", "sint32", "sint64", "sfixed32", "sfixed64", "decimal128", "varchar2",
		"int2", "int4", "float4", "float8",
		"base32", "base58", "base64", "sha1", "sha2", "sha3", "sha224", "sha256", "sha384", "sha512", "md4", "md5", "crc32", "crc64", "hmac256",
		"es256", "es384", "es512", "rs256", "rs384", "rs512", "hs256", "hs384", "hs512", "ps256", "ed25519", "x25519", "aes128", "aes256", "rc4",
		"http1", "http2", "http3", "http11", "ipv4", "ipv6", "tcp4", "tcp6", "udp4", "udp6", "ip4", "ip6", "icmp6", "tls1", "tls10", "tls11", "tls12", "tls13", "ssl2", "ssl3",
		"sslv2", "sslv3", "tlsv1", "socks4", "socks5", "ssh1", "ssh2", "smb2", "smb3", "imap4", "pop3", "ntlmv2", "oauth1", "oauth2", "ldapv3",
		"s3", "ec2", "k8s", "i18n", "l10n", "log4j", "log4j2", "slf4j", "h264", "h265", "mp3", "mp4", "mpeg4", "ext2", "ext3", "ext4", "bzip2", "gzip2", "lz4", "7zip",
		"p12", "pkcs1", "pkcs7", "pkcs8", "pkcs11", "pkcs12", "db2", "neo4j", "web3", "es5", "es6", "css3", "html5", "xml11", "sqlite3", "python2", "python3", "php5", "php7", "php8",
		"rfc822", "rfc1123", "rfc3339", "rfc5424", "iso8601", "iso8859", "ascii7", "latin1", "cp1252", "avro1", "proto2", "proto3", "amqp091", "amqp10", "mqtt3", "mqtt5",
		"phase1", "phase2", "2fa", "mfa2", "o365", "m365", "d3", "4xx", "5xx", "1xx", "2xx", "3xx":
		return true
	}
	return false
}

// isDashTerm reports whether the word and a number with a dash or slash
// between are a term: utf-8, sha-256, http/2.
func isDashTerm(word string) bool {
	switch word {
	case "utf", "ucs", "sha", "iso", "aes", "md", "crc", "base", "rsa", "ed", "cp", "windows", "latin", "ipv", "tls", "ssl", "http", "https",
		"rfc", "mpeg", "x", "oauth", "es", "rs", "hs", "amqp", "mqtt", "ieee", "ecma", "ascii", "pkcs":
		return true
	}
	return false
}

// isFileExtension reports whether a word with a dot before it ends the name of
// a file, not of a host.
func isFileExtension(word string) bool {
	switch word {
	case "go", "py", "js", "mjs", "jsx", "ts", "tsx", "java", "kt", "scala", "rb", "rs", "php", "c", "cc", "cpp", "cxx", "h", "hpp", "cs", "fs", "swift",
		"m", "mm", "pl", "pm", "sh", "lua", "ex", "exs", "erl", "clj", "hs", "ml", "sql", "vue",
		"log", "csv", "tsv", "json", "jsonl", "ndjson", "xml", "yaml", "yml", "toml", "ini", "conf", "cfg", "properties", "txt", "md", "html", "htm", "css",
		"gz", "zip", "tar", "tgz", "bz2", "xz", "zst", "jar", "war", "dll", "exe", "so", "dylib", "sys", "bin", "dat", "db", "tmp", "bak", "lock", "pid", "sock",
		"parquet", "avro", "orc", "pdf", "png", "jpg", "jpeg", "gif", "svg", "docx", "xlsx", "pem", "crt", "key", "proto", "out", "err", "sqm", "rts", "map":
		return true
	}
	return false
}

// isCauseField reports whether a value of a JSON object is part of the cause.
func isCauseField(word string) bool {
	switch word {
	case "error", "errors", "message", "msg", "code", "status", "type", "reason", "errorcode", "error_code", "errormessage", "error_message",
		"error_description", "errordescription", "statuscode", "status_code", "title", "detail", "cause", "exception", "fault", "description", "field", "kind":
		return true
	}
	return false
}

// isMethod reports whether a word begins a request line of HTTP.
func isMethod(word string) bool {
	switch word {
	case "GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "CONNECT", "TRACE":
		return true
	}
	return false
}

// isDurationUnit and isSizeUnit know units as they stand after a number and,
// if spaced, after a blank too.
func isDurationUnit(word string, spaced bool) bool {
	switch word {
	case "sec", "secs", "second", "seconds", "min", "mins", "minute", "minutes", "hour", "hours", "hr", "hrs", "day", "days", "week", "weeks",
		"ms", "msec", "msecs", "millis", "millisecond", "milliseconds", "us", "usec", "microsecond", "microseconds", "µs", "μs",
		"ns", "nanosecond", "nanoseconds":
		return true
	case "h", "m", "s", "d", "w":
		return !spaced
	}
	return false
}

func isSizeUnit(word string, spaced bool) bool {
	switch word {
	case "b", "kb", "mb", "gb", "tb", "pb", "kib", "mib", "gib", "tib", "byte", "bytes", "kilobytes", "megabytes", "gigabytes", "bit", "bits", "kbit", "mbit":
		return true
	case "k", "g", "t":
		return !spaced
	}
	return false
}
