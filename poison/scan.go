package poison

import (
	"encoding/base64"
	"strings"
)

// The scanner goes through a text once. A first look at each byte tells
// whether a rule can apply there; most rules are triggered by the punctuation
// in the middle of what they look for ("://", "=", "@") and look back for its
// beginning. Looking back and ahead is bounded, or ends where the next trigger
// begins, so that the whole is linear.

// trigger says which rules a byte can start.
type trigger uint8

const (
	triggerNone trigger = iota
	triggerColon
	triggerEqual
	triggerAt
	triggerPercent
	triggerQuote
	triggerDash
	triggerAngle
	triggerDigit
	triggerWord // first letter of a token with a known prefix
)

var triggers = func() (t [256]trigger) {
	t[':'], t['='], t['@'], t['%'], t['-'], t['>'] =
		triggerColon, triggerEqual, triggerAt, triggerPercent, triggerDash, triggerAngle
	t['"'], t['\''], t['`'] = triggerQuote, triggerQuote, triggerQuote
	for c := '0'; c <= '9'; c++ {
		t[c] = triggerDigit
	}
	t['e'], t['A'], t['B'], t['b'] = triggerWord, triggerWord, triggerWord, triggerWord
	for _, p := range tokenPrefixes {
		t[p.prefix[0]] = triggerWord
	}
	return t
}()

// tokenPrefixes are beginnings of API tokens that vendors made recognisable,
// with the least number of token characters that follow.
var tokenPrefixes = [...]struct {
	prefix string
	least  int
}{
	{"github_pat_", 20}, // GitHub
	{"ghp_", 20}, {"gho_", 20}, {"ghu_", 20}, {"ghs_", 20}, {"ghr_", 20},
	{"glpat-", 16},                                             // GitLab
	{"xoxb-", 10}, {"xoxp-", 10}, {"xoxa-", 10}, {"xoxs-", 10}, // Slack
	{"xapp-", 10},
	{"sk_live_", 16}, {"sk_test_", 16}, {"rk_live_", 16}, {"rk_test_", 16}, // Stripe
	{"AIza", 30},    // Google
	{"npm_", 30},    // npm
	{"hvs.", 20},    // Vault
	{"SG.", 30},     // SendGrid
	{"dop_v1_", 30}, // DigitalOcean
}

// match is a part of the text to be replaced.
type match struct {
	start, end  int
	placeholder string
	rule        ruleIndex
}

func (r *Redactor) pass(s string, stop int) (string, int, bool) {
	e := editor{src: s, stop: stop, newStop: -1}
	userAt := -1 // the "@" of a URL, which makes no e-mail address
	for i := 0; i < len(s); i++ {
		t := triggers[s[i]]
		if t == triggerNone && !(r.cnpj && isUpper(s[i])) {
			continue
		}
		sc := scanner{s: s, from: e.last}
		var m match
		var ok bool
		switch t {
		case triggerColon:
			if strings.HasPrefix(s[i:], "://") {
				if !r.off[ruleURL] {
					m, userAt, ok = sc.url(i, userAt)
				}
			} else {
				m, ok = sc.named(i)
			}
		case triggerEqual:
			m, ok = sc.named(i)
		case triggerAt, triggerPercent:
			if i == userAt {
				continue
			}
			if t == triggerAt && !r.off[ruleURL] {
				m, ok = sc.dsn(i)
			}
			if !ok && !r.off[ruleEmail] {
				m, ok = sc.email(i)
			}
		case triggerQuote:
			if m, ok = sc.invalidPort(i); !ok {
				m, ok = sc.quotedAfterName(i)
			}
		case triggerAngle:
			m, ok = sc.element(i)
		case triggerDash:
			if m, ok = sc.privateKey(i); !ok {
				m, ok = sc.flag(i)
			}
		case triggerWord:
			if sc.wordStart(i) {
				m, ok = sc.token(i)
			}
		}
		if !ok && isAlnum(s[i]) && sc.wordStart(i) {
			m, ok = r.number(sc, i)
		}
		if !ok || r.off[m.rule] {
			continue
		}
		e.replace(m.start, m.end, m.placeholder)
		r.hits[m.rule].Add(1)
		i = max(i, m.end-1)
	}
	return e.finish()
}

// scanner looks at one place of a text. Nothing before from may be replaced.
type scanner struct {
	s    string
	from int
}

// wordStart reports whether a token may begin at i.
func (sc scanner) wordStart(i int) bool {
	return i == sc.from || !isWord(sc.s[i-1])
}

// wordEnd reports whether a token may end before i.
func (sc scanner) wordEnd(i int) bool { return i >= len(sc.s) || !isWord(sc.s[i]) }

// url finds the password in the URL whose "://" is at i, and the "@" after its
// user, or userAt if there is none.
func (sc scanner) url(i, userAt int) (match, int, bool) {
	s := sc.s
	begin := i
	for begin > sc.from && i-begin < 32 && isScheme(s[begin-1]) {
		begin--
	}
	scheme := s[begin:i]
	quoted := begin > 0 && s[begin-1] == '"'
	host := i + len("://")
	end := sc.urlEnd(host, false)
	authority := host
	for authority < end && !strings.ContainsRune(`/?#\`, rune(s[authority])) {
		authority++
	}
	at := strings.LastIndexByte(s[host:authority], '@')
	if at < 0 && badPort(s[host:authority]) {
		// net/url reports URLs whose password has characters that must be
		// escaped by printing them.
		wide := end
		if quoted {
			wide = sc.urlEnd(host, true)
		}
		if at = strings.LastIndexByte(s[host:wide], '@'); at < 0 {
			// The text ends, or was cut, inside the password.
			colon := host + strings.IndexByte(s[host:authority], ':') + 1
			stop := trimTrailing(s, colon, end)
			if secret := s[colon:stop]; secret == "" || isPlaceholder(secret) || isTemplate(secret) {
				return match{}, userAt, false
			}
			return match{colon, stop, PlaceholderSecret, ruleURL}, userAt, true
		}
	}
	if at < 0 {
		return match{}, userAt, false
	}
	at += host
	secret := host
	if !strings.EqualFold(scheme, "http") && !strings.EqualFold(scheme, "https") {
		colon := strings.IndexByte(s[host:at], ':')
		if colon < 0 {
			return match{}, at, false
		}
		secret += colon + 1
	}
	if secret == at || isPlaceholder(s[secret:at]) {
		return match{}, at, false
	}
	return match{secret, at, PlaceholderSecret, ruleURL}, at, true
}

// urlEnd returns where the URL that goes on at i ends: at blanks, unless they
// are inside of quotes, at a quote that is not escaped, or at the next URL.
func (sc scanner) urlEnd(i int, blanks bool) int {
	limit := min(len(sc.s), i+textMargin)
	for ; i < limit; i++ {
		switch c := sc.s[i]; {
		case c == '\n' || c == '\r' || c == '`' || c == '"':
			return i
		case (c == ' ' || c == '\t') && !blanks:
			return i
		case c == '\\' && i+1 < limit && (sc.s[i+1] == '"' || sc.s[i+1] == '\\') && blanks:
			i++
		case c == ':' && strings.HasPrefix(sc.s[i:], "://"):
			return i
		}
	}
	return limit
}

// badPort reports whether what follows the host of a URL cannot be a port.
func badPort(authority string) bool {
	if strings.HasPrefix(authority, "[") {
		_, authority, _ = strings.Cut(authority, "]")
	}
	_, port, found := strings.Cut(authority, ":")
	if !found || port == "" {
		return false
	}
	n := digits(port, 0)
	return n == 0 || n > 5 || n < len(port) && isWord(port[n])
}

// isTemplate reports whether a text stands for a value instead of being one.
func isTemplate(s string) bool {
	if s == "" {
		return false
	}
	return strings.IndexByte("{$%<[", s[0]) >= 0 || strings.EqualFold(s, "port") || strings.EqualFold(s, "password")
}

// invalidPort finds the password that net/url takes for a port, in its error
// `invalid port ":secret" after host`.
func (sc scanner) invalidPort(i int) (match, bool) {
	s := sc.s
	if s[i] != '"' || !strings.HasSuffix(strings.TrimRight(s[max(0, i-20):i], `\`), "invalid port ") ||
		!strings.HasPrefix(s[i+1:], ":") {
		return match{}, false
	}
	start := i + 2
	end := start
	for end < len(s) && s[end] != '"' && s[end] != '\n' {
		if s[end] == '\\' && end+1 < len(s) && s[i-1] != '\\' {
			end++
		}
		end++
	}
	end = min(end, len(s))
	if s[i-1] == '\\' && end > start && s[end-1] == '\\' {
		end--
	}
	if secret := s[start:end]; digits(secret, 0) == len(secret) || isPlaceholder(secret) {
		return match{}, false
	}
	return match{start, end, PlaceholderSecret, ruleURL}, true
}

// dsn finds the password of user:password@host, without a scheme, whose "@"
// is at i.
func (sc scanner) dsn(i int) (match, bool) {
	s := sc.s
	rest := s[i+1 : min(len(s), i+1+256)]
	n := 0
	for n < len(rest) && (isAlnum(rest[n]) || rest[n] == '.' || rest[n] == '-') {
		n++
	}
	switch { // what follows must be an address, as in @tcp(, @/ and @host:5432
	case strings.HasPrefix(rest, "sha256:"), strings.HasPrefix(rest, "sha512:"):
		return match{}, false // an image digest
	case n == len(rest):
		if rest != "localhost" {
			return match{}, false
		}
	case rest[n] == '/', rest[n] == '(' && n > 0:
	case rest[n] == ':' && n > 0 && n+1 < len(rest) && isDigit(rest[n+1]):
	case rest[:n] == "localhost":
	default:
		return match{}, false
	}
	begin := i
	for begin > sc.from && i-begin < 256 && strings.IndexByte(" \t\r\n\"'`", s[begin-1]) < 0 {
		begin--
	}
	colon := strings.IndexByte(s[begin:i], ':')
	if colon <= 0 {
		return match{}, false
	}
	user, secret := s[begin:begin+colon], s[begin+colon+1:i]
	if secret == "" || strings.HasPrefix(secret, "//") || isPlaceholder(secret) || !isNameByte(user[len(user)-1]) {
		return match{}, false
	}
	return match{begin + colon + 1, i, PlaceholderSecret, ruleURL}, true
}

// email finds the address whose "@", or "%40", is at i.
func (sc scanner) email(i int) (match, bool) {
	s := sc.s
	domain := i + 1
	if s[i] == '%' {
		if !strings.HasPrefix(s[i:], "%40") {
			return match{}, false
		}
		domain = i + 3
	}
	begin := i
	for begin > sc.from && i-begin < 64 && isLocal(s[begin-1]) {
		begin--
	}
	for begin < i && strings.IndexByte(".-%+", s[begin]) >= 0 {
		begin++
	}
	if begin == i {
		return match{}, false
	}
	end := domain
	for end < len(s) && end-domain < 255 && (isAlnum(s[end]) || s[end] == '.' || s[end] == '-' || s[end] >= 0x80) {
		end++
	}
	for end > domain && (s[end-1] == '.' || s[end-1] == '-') {
		end--
	}
	host := s[domain:end]
	dot := strings.LastIndexByte(host, '.')
	if dot <= 0 || len(host)-dot-1 < 2 || host[0] == '.' || host[0] == '-' {
		return match{}, false
	}
	for _, c := range []byte(host[dot+1:]) {
		if isDigit(c) && !strings.HasPrefix(host[dot+1:], "xn--") {
			return match{}, false // an address or a version
		}
	}
	// module@v1.2.3-rc.beta and package@18.0.0-next.final are versions.
	v := strings.TrimPrefix(host, "v")
	if n := digits(v, 0); n > 0 && n+1 < len(v) && v[n] == '.' && isDigit(v[n+1]) {
		return match{}, false
	}
	return match{begin, end, PlaceholderEmail, ruleEmail}, true
}

// privateKey finds the PEM block that begins at i. A block without an end goes
// to the end of the text.
func (sc scanner) privateKey(i int) (match, bool) {
	const head, tail, line = "-----BEGIN ", "-----END ", "PRIVATE KEY"
	s := sc.s
	if !strings.HasPrefix(s[i:], head) {
		return match{}, false
	}
	label := s[i+len(head) : min(len(s), i+len(head)+40)]
	n := strings.Index(label, line)
	if n < 0 || strings.Contains(label[:n], "-") {
		return match{}, false
	}
	end := len(s)
	if at := strings.Index(s[i+len(head):], tail); at >= 0 {
		end = i + len(head) + at + len(tail)
		if dashes := strings.Index(s[end:min(len(s), end+64)], "-----"); dashes >= 0 {
			end += dashes + len("-----")
		} else {
			end = len(s)
		}
	}
	return match{i, end, PlaceholderSecret, rulePrivateKey}, true
}

// token finds a token with a known beginning at i, or the credentials after
// an authorization scheme.
func (sc scanner) token(i int) (match, bool) {
	s := sc.s
	switch s[i] {
	case 'e':
		return sc.jwt(i)
	case 'B', 'b':
		return sc.credentials(i)
	case 'A':
		if end := i + 20; end <= len(s) && sc.wordEnd(end) && awsKeyID(s[i:end]) {
			return match{i, end, PlaceholderID, ruleAWSKey}, true
		}
	}
	for _, p := range tokenPrefixes {
		if s[i] != p.prefix[0] || !strings.HasPrefix(s[i:], p.prefix) {
			continue
		}
		end := i + len(p.prefix)
		for end < len(s) && (isWord(s[end]) && s[end] < 0x80 || s[end] == '-' || s[end] == '.') {
			end++
		}
		for s[end-1] == '.' {
			end--
		}
		if end-i-len(p.prefix) >= p.least {
			return match{i, end, PlaceholderID, ruleToken}, true
		}
	}
	return match{}, false
}

func awsKeyID(s string) bool {
	switch s[:4] {
	case "AKIA", "ASIA", "ABIA", "ACCA", "AGPA", "AIDA", "AIPA", "ANPA", "ANVA", "AROA", "APKA":
	default:
		return false
	}
	for _, c := range []byte(s[4:]) {
		if !isUpper(c) && !isDigit(c) {
			return false
		}
	}
	return true
}

// jwt finds a JSON web token at i: base64 of a JSON object and at least one
// more part. A first part that can only be a token's header is enough, because
// texts are cut.
func (sc scanner) jwt(i int) (match, bool) {
	s := sc.s
	if !strings.HasPrefix(s[i:], "eyJ") || i > sc.from && s[i-1] == '-' {
		return match{}, false
	}
	end, dots, part := i, 0, 0
	for ; end < len(s); end++ {
		if c := s[end]; c == '.' && part > 0 && dots < 4 {
			dots, part = dots+1, 0
			continue
		} else if !isAlnum(c) && c != '-' && c != '_' {
			break
		}
		part++
	}
	for s[end-1] == '.' {
		end--
		dots--
	}
	token := s[i:end]
	head, _, _ := strings.Cut(token, ".")
	if dots > 0 && len(head) >= 12 ||
		len(head) >= 16 && (strings.HasPrefix(head, "eyJhbGci") || strings.HasPrefix(head, "eyJ0eXAi") || strings.HasPrefix(head, "eyJraWQi")) {
		return match{i, end, PlaceholderID, ruleJWT}, true
	}
	return match{}, false
}

// credentials finds what follows the words Bearer and Basic at i, where it
// cannot be prose.
func (sc scanner) credentials(i int) (match, bool) {
	s := sc.s
	scheme, n := authScheme(s[i:])
	if scheme != schemeBearer && scheme != schemeBasic {
		return match{}, false
	}
	start := i + n
	end := tokenEnd(s, start)
	token := s[start:end]
	if isPlaceholder(token) || len(token) < 8 || end < len(s) && s[end] == '=' {
		return match{}, false
	}
	hasDigit, hasCase := false, false
	for k, c := range []byte(token) {
		hasDigit = hasDigit || isDigit(c)
		hasCase = hasCase || k > 0 && isUpper(c)
	}
	if scheme == schemeBasic {
		if !(hasDigit || hasCase || strings.HasSuffix(token, "=")) || !isBasic(token) {
			return match{}, false
		}
	} else if !hasDigit && !hasCase && (len(token) < 16 || strings.ContainsAny(token, "-.")) {
		return match{}, false
	}
	return match{start, end, PlaceholderID, ruleAuthorization}, true
}

// isBasic reports whether token is base64 of user:password, or of its
// beginning.
func isBasic(token string) bool {
	token = strings.TrimRight(token, "=")
	var in, out [512]byte
	n := copy(in[:], token)
	if n%4 == 1 {
		n--
	}
	// An error leaves what was decoded before it, which is enough to judge by.
	m, _ := base64.RawStdEncoding.Decode(out[:], in[:n])
	for _, c := range out[:m] {
		if c == ':' {
			return true
		}
		if c < ' ' || c == 0x7f {
			return false
		}
	}
	return false
}

type scheme uint8

const (
	schemeNone   scheme = iota
	schemeBearer        // and others that are followed by one token
	schemeBasic
	schemeToken
	schemeParams // followed by parameters up to the end of the line
)

var authSchemes = [...]struct {
	name string
	scheme
}{
	{"bearer", schemeBearer}, {"basic", schemeBasic},
	{"token", schemeToken}, {"apikey", schemeToken}, {"negotiate", schemeToken}, {"ntlm", schemeToken}, {"sharedkey", schemeToken},
	{"digest", schemeParams}, {"aws4-hmac-sha256", schemeParams}, {"hawk", schemeParams}, {"oauth", schemeParams},
	{"signature", schemeParams}, {"sharedaccesssignature", schemeParams},
}

// authScheme returns the authorization scheme that s begins with, and where
// its credentials begin.
func authScheme(s string) (scheme, int) {
	for _, a := range authSchemes {
		if len(s) <= len(a.name) || !strings.EqualFold(s[:len(a.name)], a.name) {
			continue
		}
		n := len(a.name)
		for n < len(s) && s[n] == ' ' {
			n++
		}
		for strings.HasPrefix(s[n:], "%20") {
			n += 3
		}
		if n > len(a.name) && n < len(s) {
			return a.scheme, n
		}
	}
	return schemeNone, 0
}

// tokenEnd returns where the credentials that begin at i end.
func tokenEnd(s string, i int) int {
	if n := placeholderAt(s[i:]); n > 0 {
		return i + n
	}
	end := i
	for end < len(s) && (isAlnum(s[end]) || strings.IndexByte("-._~+/:%|", s[end]) >= 0) {
		end++
	}
	padded := end
	for padded < len(s) && s[padded] == '=' {
		padded++
	}
	if padded > end && (padded == len(s) || !isAlnum(s[padded]) && s[padded] != '"') {
		return padded
	}
	return trimTrailing(s, i, end)
}

// trimTrailing moves end back over punctuation that ends the sentence or
// closes the brackets around a value, but never into a placeholder.
func trimTrailing(s string, start, end int) int {
	for end > start && strings.IndexByte(".,:;)]}", s[end-1]) >= 0 {
		end--
	}
	return end
}

func placeholderAt(s string) int {
	for _, p := range [...]string{PlaceholderSecret, PlaceholderID, PlaceholderEmail} {
		if strings.HasPrefix(s, p) {
			return len(p)
		}
	}
	return 0
}

func isPlaceholder(s string) bool {
	return s == PlaceholderSecret || s == PlaceholderID || s == PlaceholderEmail
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }
func isUpper(c byte) bool { return 'A' <= c && c <= 'Z' }
func isLower(c byte) bool { return 'a' <= c && c <= 'z' }
func isAlnum(c byte) bool { return isDigit(c) || isUpper(c) || isLower(c) }

// isWord takes parts of letters outside of ASCII for no letters: a number
// after one is still looked at.
func isWord(c byte) bool { return isAlnum(c) || c == '_' }

func isNameByte(c byte) bool { return isWord(c) || c == '-' || c == '.' }
func isScheme(c byte) bool   { return isAlnum(c) || c == '+' || c == '-' || c == '.' }
func isLocal(c byte) bool {
	return isNameByte(c) || c == '+' || c == '%' || c >= 0x80
}

// digits returns how many digits follow each other in s from i.
func digits(s string, i int) int {
	n := 0
	for i+n < len(s) && isDigit(s[i+n]) {
		n++
	}
	return n
}
