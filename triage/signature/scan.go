package signature

import (
	"bytes"
	"unicode"
	"unicode/utf8"
)

// The scanner goes once through the prepared text, from left to right. At each
// place it takes the longest thing that it recognises: a quotation, a URL, a
// path, a time, an address, a number, a word. Looking ahead is bounded by what
// is taken, so that the whole is linear.

// The placeholders. Those that redaction leaves (<email>, <id>, <q>) are among
// them, so that redacted and raw texts sign alike.
const (
	phNumber   = "<n>"
	phID       = "<id>"
	phUUID     = "<uuid>"
	phHex      = "<hex>"
	phAddr     = "<addr>"
	phHost     = "<host>"
	phTime     = "<time>"
	phDuration = "<dur>"
	phSize     = "<size>"
	phEmail    = "<email>"
	phQuoted   = "<q>"
	phPart     = "<*>"
	phPod      = "<pod>"
)

// Replacement is a part of a text that was replaced.
type Replacement struct {
	From string // as it stood in the text
	To   string // the placeholder, or what was kept of it
	Rule string // the rule, in a word or two
}

// scanner is the state of one scan. It is reused.
type scanner struct {
	b    []byte // what is scanned
	i    int    // the next byte
	out  []byte
	key  []byte
	prev [2]word // the last words that were written, the last one first

	explain bool
	made    []Replacement
	depth   int // of JSON
}

// word is a place in b. end is where it ended, zero for none.
type word struct{ start, end int }

const (
	clsOther = iota
	clsSpace
	clsLetter
	clsDigit
	clsQuote
	clsHigh // not ASCII
)

var class = func() (t [256]uint8) {
	for c := range t {
		switch {
		case c == ' ' || c == '\t' || c == '\n' || c == '\r':
			t[c] = clsSpace
		case c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z':
			t[c] = clsLetter
		case c >= '0' && c <= '9':
			t[c] = clsDigit
		case c == '"' || c == '\'' || c == '`':
			t[c] = clsQuote
		case c >= utf8.RuneSelf:
			t[c] = clsHigh
		}
	}
	return t
}()

func isDigit(c byte) bool  { return class[c] == clsDigit }
func isLetter(c byte) bool { return class[c] == clsLetter }
func isSpace(c byte) bool  { return class[c] == clsSpace }
func isHexDigit(c byte) bool {
	return isDigit(c) || c|0x20 >= 'a' && c|0x20 <= 'f'
}

// isWordByte reports whether c belongs to a word without punctuation.
func isWordByte(c byte) bool {
	return class[c] == clsLetter || class[c] == clsDigit || class[c] == clsHigh
}

// scan normalises b and appends the result to s.out.
func (s *scanner) scan(b []byte) {
	outer, at, prev := s.b, s.i, s.prev
	s.b, s.i, s.prev = b, 0, [2]word{}
	for s.i < len(b) {
		s.step()
	}
	s.b, s.i, s.prev = outer, at, prev
}

func (s *scanner) step() {
	b, i := s.b, s.i
	c := b[i]
	switch class[c] {
	case clsSpace:
		s.space()
		s.i++
	case clsQuote:
		s.quote()
	case clsDigit:
		if !s.value() {
			s.chunk()
		}
	case clsLetter:
		if !s.codePoint() && !s.simple() && !s.textual() {
			s.chunk()
		}
	case clsHigh:
		s.high()
	default:
		s.punctuation(c)
	}
}

// codePoint takes U+000B: which character it is that a document may not have
// says nothing of the cause.
func (s *scanner) codePoint() bool {
	b, i := s.b, s.i
	if b[i] != 'U' || s.at(i+1) != '+' {
		return false
	}
	j := i + 2
	for j < len(b) && isHexDigit(b[j]) {
		j++
	}
	if n := j - i - 2; n < 4 || n > 6 || j < len(b) && isWordByte(b[j]) {
		return false
	}
	s.put(j, "U+"+phHex, "code point")
	return true
}

// simple takes a word of letters with a blank or the like after it, which most
// are. What could be the name of a day or month is none.
func (s *scanner) simple() bool {
	b, i := s.b, s.i
	j := i + 1
	for j < len(b) && class[b[j]] == clsLetter {
		j++
	}
	if j < len(b) && !endsWord[b[j]] || timeNames[b[i]] {
		return false
	}
	if s.isPerson(j) {
		s.put(j, phQuoted, "name of a user")
		return true
	}
	s.plain(j)
	return true
}

// endsWord holds what can be after a simple word, and timeNames what names of
// days and months begin with.
var endsWord, timeNames = bytesOf(" ,;)]}>|"), bytesOf("MTWFSJAOND")

func bytesOf(s string) (t [256]bool) {
	for i := range len(s) {
		t[s[i]] = true
	}
	return t
}

func (s *scanner) space() {
	if n := len(s.out); n > 0 && s.out[n-1] != ' ' {
		s.out = append(s.out, ' ')
	}
}

// at returns the byte at i, or 0 outside of the text.
func (s *scanner) at(i int) byte {
	if i < 0 || i >= len(s.b) {
		return 0
	}
	return s.b[i]
}

// put writes a placeholder for b[s.i:end].
func (s *scanner) put(end int, placeholder, rule string) {
	s.note(end, placeholder, rule)
	s.out = append(s.out, placeholder...)
	s.i = end
}

// note records a replacement.
func (s *scanner) note(end int, to, rule string) {
	if s.explain {
		s.made = append(s.made, Replacement{From: string(s.b[s.i:end]), To: to, Rule: rule})
	}
}

// keep copies b[s.i:end] as a word.
func (s *scanner) keep(end int) {
	s.prev[1], s.prev[0] = s.prev[0], word{s.i, end}
	s.out = append(s.out, s.b[s.i:end]...)
	s.i = end
}

// lower writes b in lower case to buf, and cuts what is longer.
func lower(buf *[24]byte, b []byte) []byte {
	n := copy(buf[:], b)
	if len(b) > len(buf) {
		return buf[:0]
	}
	for i, c := range buf[:n] {
		if c >= 'A' && c <= 'Z' {
			buf[i] = c | 0x20
		}
	}
	return buf[:n]
}

// near reports whether only blanks and separators, at most four, stand between
// the end of a word and i.
func (s *scanner) near(w word, i int) bool {
	if w.end == 0 || i-w.end > 4 || i < w.end {
		return false
	}
	for _, c := range s.b[w.end:i] {
		switch c {
		case ' ', ':', '=', '(', '#', '"', '\'', '[':
		default:
			return false
		}
	}
	return true
}

// afterCodeNoun reports whether what begins at i is directly after a word such
// as status.
func (s *scanner) afterCodeNoun(i int) bool {
	w := s.prev[0]
	if !s.near(w, i) {
		return false
	}
	var buf [24]byte
	name := lower(&buf, s.b[w.start:w.end])
	if isCodeNoun(string(name)) || bytes.HasPrefix(name, []byte("http/")) {
		return true
	}
	if string(name) == "version" && s.prev[1].end > 0 && w.start-s.prev[1].end <= 2 {
		name = lower(&buf, s.b[s.prev[1].start:s.prev[1].end])
		return isVersioned(string(name))
	}
	return false
}

// answer keeps a status in a sentence that has no word for it: returned 503,
// failed with 404, exited with 137. Nothing may follow that is counted.
func (s *scanner) answer() bool {
	b, i := s.b, s.i
	w, v := s.prev[0], s.prev[1]
	if w.end == 0 || i-w.end != 1 && !(i-w.end == 2 && b[w.end] == ':') || w.end-w.start > 9 || fixedDigits(b, i, 3) < 0 {
		return false
	}
	var buf [24]byte
	verb := string(lower(&buf, b[w.start:w.end]))
	exited := false
	if verb == "with" && v.end > 0 && w.start-v.end == 1 {
		verb = string(lower(&buf, b[v.start:v.end]))
		exited = verb == "exited"
		if verb == "failed" {
			verb = "returned"
		}
	}
	switch verb {
	case "returned", "responded", "response", "answered", "replied", "exited":
	default:
		return false
	}
	if !exited && b[i] != '4' && b[i] != '5' {
		return false
	}
	switch c := s.at(i + 3); c {
	case 0, ':', ',', ';', ')', '"', '\'', '.':
		if c == '.' && isDigit(s.at(i+4)) {
			return false
		}
	case ' ': // a reason, or nothing that is counted
		if n := s.at(i + 4); n != '-' && n != '(' && n != '|' && (n < 'A' || n > 'Z') {
			return false
		}
	default:
		return false
	}
	s.keep(i + 3)
	return true
}

// code keeps a code of up to six digits or letters with digits, after a word
// that announces one.
func (s *scanner) code() bool {
	b, i := s.b, s.i
	if !s.afterCodeNoun(i) {
		return false
	}
	j := i
	limit := 6
	if b[i] == '0' && s.at(i+1)|0x20 == 'x' { // codes of Windows are written so
		j, limit = i+2, 10
	}
	for j < len(b) && (isDigit(b[j]) || isLetter(b[j])) {
		j++
	}
	if j-i > limit || j < len(b) && (class[b[j]] == clsHigh || b[j] == '_') {
		return false
	}
	if c := s.at(j); (c == '.' || c == '-' || c == ':' || c == '/') && isDigit(s.at(j+1)) {
		return false
	}
	if c := s.at(j); c == ' ' { // an amount, such as error 5 times, is none: units say so
		k := j + 1
		for k < len(b) && isLetter(b[k]) {
			k++
		}
		var buf [24]byte
		unit := string(lower(&buf, b[j+1:k]))
		if isDurationUnit(unit, true) || isSizeUnit(unit, true) || unit == "times" {
			return false
		}
	}
	s.keep(j)
	return true
}

// secured keeps the version of a protocol that encrypts: a peer that refuses
// TLS 1.0 is another cause than one that refuses TLS 1.2.
func (s *scanner) secured() bool {
	b, i := s.b, s.i
	w := s.prev[0]
	if w.end == 0 || i-w.end != 1 || b[w.end] != ' ' || s.at(i+1) != '.' || !isDigit(s.at(i+2)) {
		return false
	}
	switch string(b[w.start:w.end]) {
	case "TLS", "SSL", "DTLS", "tls", "ssl", "dtls":
	default:
		return false
	}
	if c := s.at(i + 3); isDigit(c) || isLetter(c) || c == '_' || c == '.' && isDigit(s.at(i+4)) {
		return false
	}
	s.keep(i + 3)
	return true
}

// value takes what begins with a digit: a code, a time, an address, a number.
func (s *scanner) value() bool {
	b, i := s.b, s.i
	if s.code() || s.protocol() || s.secured() || s.answer() {
		return true
	}
	if end := uuidAt(b, i); end > i {
		s.put(end, phUUID, "uuid")
		return true
	}
	if end := timeAt(b, i); end > i {
		s.put(end, phTime, "time")
		return true
	}
	if end := addrAt(b, i); end > i {
		s.put(end, phAddr, "address")
		return true
	}
	if end := s.chunkEnd(i); end-i > 4 && bytes.IndexByte(b[i:end], '.') > 0 && s.dotted(end) {
		return true // a host such as 173-234-31-186.example.com
	}
	return s.number(i)
}

// protocol keeps the version in HTTP/1.1.
func (s *scanner) protocol() bool {
	w := s.prev[0]
	if s.at(s.i-1) != '/' || w.end != s.i-1 || w.end-w.start > 5 {
		return false
	}
	var buf [24]byte
	if !isDashTerm(string(lower(&buf, s.b[w.start:w.end]))) {
		return false
	}
	end := fraction(s.b, digitsAt(s.b, s.i))
	if end-s.i > 4 || isWordByte(s.at(end)) {
		return false
	}
	s.out = append(s.out, s.b[s.i:end]...)
	s.i, s.prev[0].end = end, end // a status may follow
	return true
}

// number takes a number that begins at digits, where s.i may be its sign: with
// decimals, groups, exponent, percent sign or unit.
func (s *scanner) number(digits int) bool {
	b := s.b
	if s.at(digits) == '0' && s.at(digits+1)|0x20 == 'x' {
		j := digits + 2
		for j < len(b) && isHexDigit(b[j]) {
			j++
		}
		if j > digits+2 && !isWordByte(s.at(j)) {
			s.put(j, phHex, "hexadecimal")
			return true
		}
	}
	j := digits
	for {
		for j < len(b) && isDigit(b[j]) {
			j++
		}
		c := s.at(j)
		if (c == '.' || c == ',') && isDigit(s.at(j+1)) {
			if c == ',' && !s.grouped(j) {
				break
			}
			j++
			continue
		}
		if c == '_' && s.at(j+4) != '_' && isDigit(s.at(j+1)) && isDigit(s.at(j+2)) && isDigit(s.at(j+3)) && !isWordByte(s.at(j+4)) && j-digits <= 3 {
			j++
			continue
		}
		break
	}
	end := j
	if c := s.at(j); c|0x20 == 'e' { // 1.5e+10
		k := j + 1
		if s.at(k) == '+' || s.at(k) == '-' {
			k++
		}
		if isDigit(s.at(k)) {
			for k < len(b) && isDigit(b[k]) {
				k++
			}
			if !isWordByte(s.at(k)) {
				s.put(k, phNumber, "number")
				return true
			}
		}
	}
	if s.at(j) == '%' {
		s.put(j+1, phNumber, "number")
		return true
	}
	// A unit, glued or after a blank.
	u := j
	if s.at(u) == ' ' {
		u++
	}
	k := u
	for k < len(b) && (isLetter(b[k]) || class[b[k]] == clsHigh) {
		k++
	}
	if k > u && k-u <= 12 && !isDigit(s.at(k)) && s.at(k) != '_' {
		var buf [24]byte
		unit := string(lower(&buf, b[u:k]))
		switch {
		case isDurationUnit(unit, u > j):
			s.put(k, phDuration, "duration")
			return true
		case isSizeUnit(unit, u > j):
			if s.at(k) == '/' && s.at(k+1) == 's' && !isWordByte(s.at(k+2)) {
				k += 2
			}
			s.size(k)
			return true
		}
	}
	if end := durationAt(b, digits); end > digits {
		s.put(end, phDuration, "duration")
		return true
	}
	if s.glued(end) {
		return false
	}
	s.put(end, phNumber, "number")
	return true
}

// size takes a size that ends at k. In brackets behind another one it is the
// same in another unit: 1190 bytes (1.16 KB).
func (s *scanner) size(k int) {
	const again = phSize + " ("
	if n := len(s.out); s.at(k) != ')' || n < len(again) || string(s.out[n-len(again):]) != again {
		s.put(k, phSize, "size")
		return
	}
	s.out = s.out[:len(s.out)-len(" (")]
	s.note(k, "", "size again")
	s.i = k + 1
}

// glued reports whether a letter or an underscore stands at i.
func (s *scanner) glued(i int) bool {
	c := s.at(i)
	if class[c] == clsHigh {
		r, _ := utf8.DecodeRune(s.b[i:])
		return unicode.IsLetter(r) || unicode.IsMark(r)
	}
	return isWordByte(c) || c == '_'
}

// grouped reports whether the comma at j stands within a number: before three
// digits, or as the decimal comma, and not in a list.
func (s *scanner) grouped(j int) bool {
	n := 0
	for k := j + 1; isDigit(s.at(k)); k++ {
		n++
	}
	return n <= 3
}

// punctuation deals with a byte of ASCII that is no letter, digit, quote or
// blank.
func (s *scanner) punctuation(c byte) {
	b, i := s.b, s.i
	next := s.at(i + 1)
	switch c {
	case '<':
		if end := placeholderAt(b, i); end > i {
			s.fixed(end)
			return
		}
		if isDigit(next) { // <1 sec
			s.i++
			return
		}
	case '/':
		if s.path() {
			return
		}
	case '~', '.':
		if (next == '/' || c == '.' && next == '.' && s.at(i+2) == '/') && !isWordByte(s.at(i-1)) && s.path() {
			return
		}
	case '-', '+':
		if next == '-' && s.secretFlag() {
			return
		}
		// A sign, if no word stands before it.
		if p := s.at(i - 1); isDigit(next) && !isWordByte(p) && p != ')' && p != ']' && p != '-' && p != '>' {
			if p != ':' && p != '=' && p != ' ' && s.afterCodeNoun(i) {
				break
			}
			s.i++
			if s.value() {
				return
			}
			s.i--
		}
	case '[', '{':
		if end := addr6InBrackets(b, i); end > i {
			s.put(end, phAddr, "address")
			return
		}
		if s.json() {
			return
		}
	case ':':
		if end := addrAt(b, i); end > i { // ::1
			s.put(end, phAddr, "address")
			return
		}
		if s.secretAfterColon() {
			return
		}
	case '=':
		s.out = append(s.out, '=')
		s.i++
		s.assigned()
		return
	case '\\':
		if next == '\\' || isLetter(next) { // a path of Windows from its share, or an escape
			s.i++
			s.out = append(s.out, '\\')
			return
		}
	}
	// Runs of the same mark draw lines.
	if next == c && s.at(i+2) == c && c != '<' && c != '>' {
		j := i
		for j < len(b) && b[j] == c {
			j++
		}
		s.i = j
		s.space()
		return
	}
	s.out = append(s.out, c)
	s.i++
}

// high deals with what is not ASCII: letters, digits, quotes, marks.
func (s *scanner) high() {
	r, size := utf8.DecodeRune(s.b[s.i:])
	switch {
	case r == '“' || r == '«' || r == '„' || r == '‘' || r == '‹':
		s.quote()
	case unicode.IsDigit(r):
		s.wideNumber()
	case unicode.IsLetter(r) || unicode.IsMark(r):
		s.chunk()
	case unicode.IsSpace(r):
		s.space()
		s.i += size
	default:
		s.out = append(s.out, s.b[s.i:s.i+size]...)
		s.i += size
	}
}

// wideNumber takes a number in digits that are not ASCII.
func (s *scanner) wideNumber() {
	j := s.i
	for j < len(s.b) {
		r, size := utf8.DecodeRune(s.b[j:])
		if unicode.IsDigit(r) || (r == '.' || r == ',' || r == '٬' || r == '٫') && s.wideDigit(j+size) {
			j += size
			continue
		}
		break
	}
	s.put(j, phNumber, "number")
}

func (s *scanner) wideDigit(i int) bool {
	if i >= len(s.b) {
		return false
	}
	r, _ := utf8.DecodeRune(s.b[i:])
	return unicode.IsDigit(r)
}

// placeholderAt returns the end of a placeholder that already stands in the text.
func placeholderAt(b []byte, i int) int {
	for j := i + 1; j < len(b) && j < i+8; j++ {
		if b[j] == '>' {
			switch string(b[i : j+1]) {
			case phNumber, phID, phUUID, phHex, phAddr, phHost, phTime, phDuration, phSize, phEmail, phQuoted, phPart, phPod:
				return j + 1
			}
			return i
		}
	}
	return i
}

// fixed copies a placeholder that stands in the text.
func (s *scanner) fixed(end int) {
	s.out = append(s.out, s.b[s.i:end]...)
	s.i = end
}

// assigned deals with what stands after the equals sign of name=value: a datum,
// unless its name says that it is a cause.
func (s *scanner) assigned() {
	b, i := s.b, s.i
	if i >= len(b) || i < 2 {
		return
	}
	// The name goes back to the last separator.
	k := i - 1
	for k > 0 && (isWordByte(b[k-1]) || b[k-1] == '_' || b[k-1] == '-' || b[k-1] == '.') && i-k < 40 {
		k--
	}
	nameStart := k
	for j := k; j < i-1; j++ {
		if b[j] == '.' {
			nameStart = j + 1
		}
	}
	if nameStart >= i-1 || !isLetter(b[nameStart]) {
		return
	}
	var buf [24]byte
	name := lower(&buf, b[nameStart:i-1])
	if isSecretName(name) {
		if end := s.secretEnd(i); end > i {
			s.put(end, phQuoted, "secret")
		}
		return
	}
	if isCauseKey(string(name)) {
		return
	}
	// A value of one word, up to the next separator.
	j := i
	for j < len(b) && (isWordByte(b[j]) || b[j] == '_' || b[j] == '-' || b[j] == '.' || b[j] == '/' || b[j] == '$' || b[j] == '@') {
		j++
	}
	for j > i && (b[j-1] == '.' || b[j-1] == '-') {
		j--
	}
	if j == i || !isLetter(b[i]) {
		return // a number, a quotation, a list: they have rules of their own
	}
	switch string(lower(&buf, b[i:j])) {
	case "true", "false", "null", "nil", "none", "yes", "no", "on", "off":
		return // a state rather than a datum
	case "root", "admin", "administrator", "guest", "nobody", "anonymous", "system", "test", "daemon":
		return // an account that comes with the system, and nobody's name
	}
	switch c := s.at(j); c {
	case 0, ' ', ',', ';', ')', ']', '}', '"', '\'', '&', '>', '|', '.':
		s.put(j, phQuoted, "name=value")
	}
}

// secretAfterColon takes the secret in password: hunter2, which a sentence that
// begins in the same way does not have, and that in app:hunter2@tcp(.
func (s *scanner) secretAfterColon() bool {
	b, i := s.b, s.i
	w := s.prev[0]
	if w.end != i {
		return false
	}
	from := i + 1
	end := from
	if s.at(from) != ' ' {
		end = s.secretEnd(from)
	}
	if k := bytes.IndexByte(b[from:end], '@'); k > 0 {
		host := s.chunkEnd(from + k + 1)
		if c := s.at(host); c == '(' && host > from+k+1 || c == '/' || c == ':' && isDigit(s.at(host+1)) {
			s.out = append(s.out, ':')
			s.i = from
			s.put(from+k, phQuoted, "secret")
			return true
		}
	}
	if s.at(from) != ' ' {
		return false
	}
	var buf [24]byte
	name := lower(&buf, b[w.start:w.end])
	if from++; !isSecretName(name) || string(name) == "token" || string(name) == "secret" || string(name) == "pass" {
		return false
	}
	if end = s.secretEnd(from); end == from || countDigits(b[from:end]) == 0 {
		return false
	}
	s.out = append(s.out, ": "...)
	s.i = from
	s.put(end, phQuoted, "secret")
	return true
}

// secretFlag takes the secret in --password hunter2.
func (s *scanner) secretFlag() bool {
	b, i := s.b, s.i
	end := s.chunkEnd(i + 2)
	if i > 0 && b[i-1] != ' ' || end-i > 26 || s.at(end) != ' ' {
		return false
	}
	var buf [24]byte
	if !isSecretName(lower(&buf, b[i+2:end])) {
		return false
	}
	stop := s.secretEnd(end + 1)
	if stop == end+1 {
		return false
	}
	s.out = append(s.out, b[i:end+1]...)
	s.i = end + 1
	s.put(stop, phQuoted, "secret")
	return true
}

// secretEnd is the end of a secret without quotes.
func (s *scanner) secretEnd(i int) int {
	if c := s.at(i); c == '"' || c == '\'' || c == '<' {
		return i // quotations and placeholders are replaced anyway
	}
	j := i
	for j < len(s.b) {
		switch s.b[j] {
		case ' ', ',', ';', '&', ')', ']', '}', '"', '\'', '>', '|':
			return j
		}
		j++
	}
	return j
}

// isSecretName reports whether the value of a name in lower case is a secret.
func isSecretName(name []byte) bool {
	if len(name) < 3 {
		return false
	}
	var ends []string // by the last letter, because nearly all words are no such name
	switch name[len(name)-1] {
	case 'd':
		ends = secretsInD
	case 'y':
		ends = secretsInY
	case 't', 'n', 'e', 's':
		ends = otherSecrets
	}
	for _, end := range ends {
		if len(name) >= len(end) && string(name[len(name)-len(end):]) == end {
			return true
		}
	}
	return false
}

var (
	secretsInD   = []string{"password", "passwd", "pwd"}
	secretsInY   = []string{"apikey", "api_key", "api-key", "access_key", "secret_key", "private_key", "accesskey", "secretkey"}
	otherSecrets = []string{"secret", "token", "passphrase", "pass"}
)
