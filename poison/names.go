package poison

import "strings"

// nameKind says what the name of a value tells about it.
type nameKind uint8

const (
	nameNone          nameKind = iota
	nameSecret                 // a secret beyond doubt: password, api_key
	nameWeak                   // a secret, or a word of prose: token, secret
	nameQuery                  // a secret in the query of a URL: key, sig
	nameQualified              // a secret if the word before says so: key, as in "api key"
	nameAuthorization          // an Authorization header
	nameCookie                 // a Cookie header
)

// secretSuffixes are the ends of names of secrets, in lower case and without
// separators, so that PGPASSWORD, db.password and "X-Api-Key" are found.
var secretSuffixes = [...]string{
	"password", "passwd", "passphrase", "passcode", "pwd", "senha", "passwordhash",
	"secret", "token",
	"apikey", "accesskey", "secretkey", "privatekey", "accountkey", "signingkey",
	"encryptionkey", "masterkey", "subscriptionkey", "authkey", "clientkey",
	"sharedaccesssignature", "amzsignature",
}

// nameBytes is how much of a name is looked at.
const nameBytes = 64

// classifyName says what a name tells. Separators and case do not matter.
func classifyName(name string) nameKind {
	if len(name) > nameBytes {
		name = name[len(name)-nameBytes:]
	}
	var buf [nameBytes]byte
	n := 0
	for i := range len(name) {
		c := name[i]
		if isUpper(c) {
			c += 'a' - 'A'
		}
		if isAlnum(c) {
			buf[n] = c
			n++
		}
	}
	b := buf[:n]
	switch string(b) {
	case "":
		return nameNone
	case "token", "secret", "credential", "credentials", "pass":
		return nameWeak
	case "key", "hash":
		return nameQualified
	case "sig", "signature", "auth", "sid", "session", "sessionid":
		return nameQuery
	case "cookie", "cookies", "setcookie":
		return nameCookie
	case "cvv", "cvv2", "cvc", "dbpass", "userpass", "smtppass":
		return nameSecret
	}
	// Nearly every name stops here.
	switch b[n-1] {
	case 'd', 'e', 'a', 'h', 't', 'n', 'y', 's':
	default:
		return nameNone
	}
	for _, suffix := range secretSuffixes {
		if hasSuffix(b, suffix) {
			return nameSecret
		}
	}
	switch {
	case hasSuffix(b, "authorization"):
		return nameAuthorization
	case endsWithFold(name, "_pass"), endsWithFold(name, "-pass"), endsWithFold(name, ".pass"):
		return nameWeak
	}
	return nameNone
}

func hasSuffix(b []byte, suffix string) bool {
	return len(b) >= len(suffix) && string(b[len(b)-len(suffix):]) == suffix
}

func endsWithFold(s, suffix string) bool {
	return len(s) >= len(suffix) && strings.EqualFold(s[len(s)-len(suffix):], suffix)
}

// hiddenHeader reports whether a header of this name holds credentials.
func hiddenHeader(name string) bool {
	switch classifyName(name) {
	case nameNone, nameQualified:
		for _, suffix := range [...]string{"-auth", "-session", "-session-id", "-credential", "-credentials", "-cookie"} {
			if endsWithFold(name, suffix) {
				return true
			}
		}
		return false
	case nameQuery:
		return !strings.EqualFold(name, "sig") && !strings.EqualFold(name, "signature") // of the payload: public, and needed to see what failed
	default:
		return true
	}
}

// named finds the value of a named secret, where the "=" or ":" between them
// is at i.
func (sc scanner) named(i int) (match, bool) {
	s := sc.s
	begin, end, quotedName := sc.name(i)
	if begin == end {
		return match{}, false
	}
	kind := classifyName(s[begin:end])
	switch kind {
	case nameNone:
		return match{}, false
	case nameQuery, nameQualified:
		if begin > 0 && (s[begin-1] == '?' || s[begin-1] == '&') {
			if kind = nameSecret; strings.EqualFold(s[begin:end], "hash") {
				return match{}, false
			}
			break
		}
		if kind == nameQuery || begin <= sc.from || s[begin-1] != ' ' {
			return match{}, false
		}
		begin--
		for begin > sc.from && end-begin < nameBytes && isNameByte(s[begin-1]) {
			begin--
		}
		if kind = classifyName(s[begin:end]); kind != nameSecret {
			return match{}, false
		}
	}

	k := i + 1
	if s[i] == '=' && k < len(s) && s[k] == '>' {
		k++
	}
	blanks := k
	for k < len(s) && k-blanks < 4 && (s[k] == ' ' || s[k] == '\t') {
		k++
	}
	if k == len(s) {
		return match{}, false
	}
	// "password: " begins a sentence as often as a value, and so does a quoted
	// name that is followed by no JSON value.
	prose := s[i] == ':' && k > blanks &&
		(!quotedName || !isDigit(s[k]) && strings.IndexByte("\"'`\\[{-", s[k]) < 0)
	switch kind {
	case nameCookie:
		return sc.cookie(k)
	case nameAuthorization:
		if m, known, ok := sc.authorization(k); known {
			return m, ok
		}
	}
	return sc.value(k, valueContext{
		name:  s[begin:end],
		kind:  kind,
		prose: prose,
		colon: s[i] == ':',
		loose: prose || s[i] == ':' && !quotedName,
	})
}

// name returns where the name lies that ends before the separator at i, and
// whether it is in quotes.
func (sc scanner) name(i int) (begin, end int, quoted bool) {
	s := sc.s
	var prev, next byte
	if i > sc.from {
		prev = s[i-1]
	}
	if i+1 < len(s) {
		next = s[i+1]
	}
	j := i
	if s[i] == '=' {
		if next == '=' || next == '~' || prev != 0 && strings.IndexByte("=!<>~", prev) >= 0 {
			return 0, 0, false // a comparison
		}
		if prev == ':' {
			j--
		}
	} else if next == '=' || next == ':' || prev == ':' {
		return 0, 0, false
	}
	for n := 0; n < 4 && j > sc.from && (s[j-1] == ' ' || s[j-1] == '\t'); n++ {
		j--
	}
	if j > sc.from && s[j-1] == ']' {
		j--
	}
	if j > sc.from && isQuote(s[j-1]) {
		quoted = true
		j--
		for n := 0; n < 4 && j > sc.from && s[j-1] == '\\'; n++ {
			j--
		}
	}
	begin = j
	for begin > sc.from && j-begin < nameBytes && isNameByte(s[begin-1]) {
		begin--
	}
	return begin, j, quoted
}

// quotedAfterName finds the password in a sentence such as
// `wrong password "hunter2"`, whose opening quote is at i.
func (sc scanner) quotedAfterName(i int) (match, bool) {
	s := sc.s
	k := i
	for i-k < 4 && k > sc.from && s[k-1] == '\\' {
		k--
	}
	end := k - 1
	if end <= sc.from || s[end] != ' ' {
		return match{}, false
	}
	begin := end
	for begin > sc.from && end-begin < nameBytes && isNameByte(s[begin-1]) {
		begin--
	}
	// Of other secrets, the sentence quotes the name: secret "db" not found.
	if kind := classifyName(s[begin:end]); kind != nameSecret || endsWithFold(s[begin:end], "secret") || endsWithFold(s[begin:end], "token") {
		return match{}, false
	}
	return sc.value(k, valueContext{name: s[begin:end], kind: nameSecret})
}

// element finds the text of an XML element such as <password>, whose ">" is at i.
func (sc scanner) element(i int) (match, bool) {
	s := sc.s
	begin := i
	for begin > sc.from && i-begin < nameBytes && isNameByte(s[begin-1]) {
		begin--
	}
	if begin <= sc.from || s[begin-1] != '<' && s[begin-1] != ':' {
		return match{}, false
	}
	if kind := classifyName(s[begin:i]); kind != nameSecret && kind != nameWeak {
		return match{}, false
	}
	start := i + 1
	n := strings.IndexByte(s[start:min(len(s), start+textMargin)], '<')
	if n < 0 || !strings.HasPrefix(s[start+n:], "</") || notSecret(strings.TrimSpace(s[start:start+n])) {
		return match{}, false
	}
	return match{start, start + n, PlaceholderSecret, ruleSecret}, true
}

// flag finds the value of a command line's --flag at i.
func (sc scanner) flag(i int) (match, bool) {
	s := sc.s
	if !strings.HasPrefix(s[i:], "--") || i > 0 && isNameByte(s[i-1]) {
		return match{}, false
	}
	end := i + 2
	for end < len(s) && end-i < nameBytes && isNameByte(s[end]) {
		end++
	}
	if end+1 >= len(s) || s[end] != ' ' || s[end+1] == '-' {
		return match{}, false
	}
	kind := classifyName(s[i+2 : end])
	if kind != nameSecret && kind != nameWeak {
		return match{}, false
	}
	return sc.value(end+1, valueContext{name: s[i+2 : end], kind: nameWeak, prose: true, loose: true})
}

// authorization finds the credentials of the header value at k. known is false
// if the value names no authorization scheme.
func (sc scanner) authorization(k int) (m match, known, ok bool) {
	s := sc.s
	k, end := sc.headerValue(k)
	scheme, n := authScheme(s[k:])
	start := k + n
	switch {
	case scheme == schemeNone || start >= end:
		return match{}, false, false
	case scheme != schemeParams:
		if end = tokenEnd(s, start); end == start || isPlaceholder(s[start:end]) {
			return match{}, true, false
		}
		return match{start, end, PlaceholderID, ruleAuthorization}, true, true
	}
	if isPlaceholder(s[start:end]) {
		return match{}, true, false
	}
	return match{start, end, PlaceholderSecret, ruleAuthorization}, true, true
}

// cookie finds the value of the cookie header that begins at k.
func (sc scanner) cookie(k int) (match, bool) {
	if !strings.Contains(sc.s[k:min(len(sc.s), k+2*nameBytes)], "=") {
		return match{}, false
	}
	k, end := sc.headerValue(k)
	value := sc.s[k:end]
	if isPlaceholder(value) || !strings.Contains(value, "=") {
		return match{}, false
	}
	return match{k, end, PlaceholderSecret, ruleSecret}, true
}

// headerValue returns where the header value at k begins inside of quotes and
// brackets, and where it ends: with them, or with the line.
func (sc scanner) headerValue(k int) (start, end int) {
	s := sc.s
	bracket := false
	if s[k] == '[' && k+1 < len(s) {
		bracket = true
		k++
	}
	if start, q, escaped := opening(s, k); q != 0 {
		return start, quotedEnd(s, start, q, escaped)
	}
	end = k
	for end < len(s) && s[end] != '\n' && s[end] != '\r' && !(bracket && s[end] == ']') {
		end++
	}
	return k, trimTrailing(s, k, end)
}

// valueContext is what is known of a value before looking at it.
type valueContext struct {
	name  string
	kind  nameKind
	prose bool // may as well be a sentence
	loose bool // not in a form that only machines write
	colon bool
}

// value finds the secret in the value that begins at k.
func (sc scanner) value(k int, vc valueContext) (match, bool) {
	s := sc.s
	if start, q, escaped := opening(s, k); q != 0 {
		if vc.prose && vc.kind == nameWeak && !looksSecret(s[start:plainEnd(s, start)]) {
			return match{}, false // unexpected token: "}"
		}
		end := quotedEnd(s, start, q, escaped)
		if notSecret(s[start:end]) {
			return match{}, false
		}
		return match{start, end, PlaceholderSecret, ruleSecret}, true
	}
	if (s[k] == '{' || s[k] == '[') && !vc.prose {
		closing := byte('}')
		if s[k] == '[' {
			closing = ']'
		}
		if n := strings.IndexByte(s[k+1:min(len(s), k+1+textMargin)], closing); n > 0 {
			if notSecret(s[k+1 : k+1+n]) {
				return match{}, false
			}
			return match{k + 1, k + 1 + n, PlaceholderSecret, ruleSecret}, true
		}
	}
	end := valueEnd(s, k)
	value := s[k:end]
	switch {
	case notSecret(value):
		return match{}, false
	case vc.prose && (!looksSecret(value) || strings.HasPrefix(s[end:], ": ")):
		return match{}, false // token: oauth2: cannot fetch
	case vc.loose && vc.colon && len(value) < 4 && digits(value, 0) == len(value):
		return match{}, false // token:17 is a position
	case value[0] == '/' && len(vc.name) <= len("oldpwd") && endsWithFold(vc.name, "pwd"):
		return match{}, false // the working directory
	case endsWithFold(vc.name, "pass") && digits(value, 0) == len(value):
		return match{}, false // pass=12 fail=1
	}
	return match{k, end, PlaceholderSecret, ruleSecret}, true
}

// opening returns where a quoted text begins whose opening quote is at k, the
// quote, and how many backslashes escape it; q is 0 if there is none.
func opening(s string, k int) (start int, q byte, escaped int) {
	for k < len(s) && s[k] == '\\' && escaped < 4 {
		escaped++
		k++
	}
	if k < len(s) && isQuote(s[k]) {
		return k + 1, s[k], escaped
	}
	return 0, 0, 0
}

// quotedEnd returns where the text that begins at start, after an opening
// quote, ends: before the closing quote, or with the line if there is none.
func quotedEnd(s string, start int, q byte, escaped int) int {
	for j := start; j < len(s); j++ {
		if s[j] == '\\' {
			run := 1
			for j+run < len(s) && s[j+run] == '\\' {
				run++
			}
			if j+run < len(s) && s[j+run] == q && escaped > 0 && run <= escaped {
				return j
			}
			if escaped > 0 || run%2 == 1 {
				j += run // and the character it escapes
			} else {
				j += run - 1
			}
			continue
		}
		if s[j] != q {
			continue
		}
		if escaped == 0 && q != '`' && j > start && j+1 < len(s) && s[j+1] == q {
			j++ // doubled, as SQL and ODBC do it
			continue
		}
		return j
	}
	if n := strings.IndexAny(s[start:], "\r\n"); n >= 0 {
		return start + n
	}
	return len(s)
}

// valueEnd returns where the unquoted value at k ends. Passwords may contain
// what separates values elsewhere, so a separator counts only if it is followed
// by a blank, an end, or another name.
func valueEnd(s string, k int) int {
	end := k + placeholderAt(s[k:])
	for ; end < len(s); end++ {
		switch c := s[end]; c {
		case ' ', '\t', '\n', '\r':
			return trimTrailing(s, k, end)
		case '"', '\'', '`':
			if end+1 == len(s) || strings.IndexByte(" \t\r\n,;:)]}.\\", s[end+1]) >= 0 {
				return end
			}
		case '\\':
			if end+1 < len(s) && isQuote(s[end+1]) || strings.HasPrefix(s[end:], `\u0026`) {
				return end
			}
		case '&', ';', ',', '#':
			if separates(s, end) {
				return end
			}
		}
	}
	return trimTrailing(s, k, end)
}

func separates(s string, i int) bool {
	j := i + 1
	if j == len(s) || strings.IndexByte(" \t\r\n\"'`", s[j]) >= 0 {
		return true
	}
	for j < len(s) && j-i < nameBytes && (isNameByte(s[j]) || s[j] == ' ' && s[i] == ';') {
		j++ // names in ADO connection strings have blanks
	}
	return j > i+1 && j < len(s) && (s[j] == '=' || s[j] == ':')
}

// plainEnd returns where a word ends.
func plainEnd(s string, k int) int {
	end := k
	for end < len(s) && end-k < nameBytes && strings.IndexByte(" \t\r\n\"'`", s[end]) < 0 {
		end++
	}
	return end
}

// notSecret reports whether a value is none, or was taken out already.
func notSecret(value string) bool {
	switch value {
	case "", PlaceholderSecret, PlaceholderID, PlaceholderEmail,
		"<nil>", "<empty>", "<none>", "<redacted>", "[REDACTED]", "[redacted]", "REDACTED":
		return true
	}
	if strings.Trim(value, "*") == "" {
		return true
	}
	if value[0] == '$' && len(value) > 1 && value[1] == '{' || value[0] == '%' && len(value) == 2 {
		return true // ${DB_PASSWORD}, %s
	}
	for _, word := range [...]string{"true", "false", "nil", "null", "none", "undefined", "empty", "missing", "required", "redacted"} {
		if strings.EqualFold(value, word) {
			return true
		}
	}
	return false
}

// looksSecret reports whether a word in a place where prose is usual is none.
func looksSecret(word string) bool {
	word = word[:trimTrailing(word, 0, len(word))]
	if len(word) < 5 || strings.HasPrefix(word, "%!") {
		return false
	}
	for i := range len(word) {
		if isDigit(word[i]) || strings.IndexByte("!#$%^&*+=~@", word[i]) >= 0 {
			return true
		}
	}
	return len(word) >= 20 && !strings.ContainsAny(word, "./:()[]_")
}

func isQuote(c byte) bool { return c == '"' || c == '\'' || c == '`' }
