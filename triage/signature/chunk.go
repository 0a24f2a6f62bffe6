package signature

import "bytes"

// chunkEnd returns the end of the letters, digits and joining marks at i.
func (s *scanner) chunkEnd(i int) int {
	b := s.b
	j := i
	for j < len(b) {
		switch c := b[j]; {
		case isWordByte(c), c == '_', c == '-', c == '.', c == '@', c == '$', c == '~':
			if c >= 0xE2 && isMark(b[j:]) {
				goto end
			}
			j++
		case c == '\'' && j > i && isLetter(b[j-1]) && j+1 < len(b) && isLetter(b[j+1]):
			j++ // can't
		case c == '+' && j > i && j+1 < len(b) && isLetter(b[j+1]) && bytes.IndexByte(b[j:min(j+40, len(b))], '@') > 0:
			j++ // anna+shop@example.com
		default:
			goto end
		}
	}
end:
	for j > i+1 && (b[j-1] == '.' || b[j-1] == '-' || b[j-1] == '@' || b[j-1] == '$' || b[j-1] == '~') {
		j--
	}
	return j
}

// isMark reports whether what is not ASCII is punctuation such as a dash or a
// quote: those of U+2000 to U+206F.
func isMark(b []byte) bool {
	return len(b) >= 3 && b[0] == 0xE2 && (b[1] == 0x80 || b[1] == 0x81)
}

// textual takes what begins with a letter and is no plain word: a URL, a time,
// an address, a path of Windows, a code.
func (s *scanner) textual() bool {
	b, i := s.b, s.i
	switch b[i] {
	case 'M', 'T', 'W', 'F', 'S', 'J', 'A', 'O', 'N', 'D':
		if end := namedTimeAt(b, i); end > i {
			s.put(end, phTime, "time")
			return true
		}
	}
	// The word as far as letters, digits and what schemes consist of.
	j := i + 1
	digits := false
	for j < len(b) && (isWordByte(b[j]) || b[j] == '.' || b[j] == '+' || b[j] == '-') {
		digits = digits || isDigit(b[j])
		j++
	}
	if byteAt(b, j) == ':' {
		if byteAt(b, j+1) == '/' && byteAt(b, j+2) == '/' {
			s.url(j)
			return true
		}
		if j == i+1 && (byteAt(b, j+1) == '\\' || byteAt(b, j+1) == '/') && b[i] >= 'A' && b[i] <= 'Z' {
			return s.windowsPath()
		}
		if j-i <= 4 && isHexDigit(b[i]) {
			if end := addrAt(b, i); end > i {
				s.put(end, phAddr, "address")
				return true
			}
		}
	}
	if digits {
		if end := uuidAt(b, i); end > i {
			s.put(end, phUUID, "uuid")
			return true
		}
		if s.code() {
			return true
		}
	}
	return false
}

// chunk takes a word with what is joined to it.
func (s *scanner) chunk() {
	b, i := s.b, s.i
	if end := uuidAt(b, i); end > i {
		s.put(end, phUUID, "uuid")
		return
	}
	end := s.chunkEnd(i)
	// What kind of bytes are there?
	digits, joined, at := 0, false, -1
	for k := i; k < end; k++ {
		switch c := b[k]; {
		case isDigit(c):
			digits++
		case isLetter(c):
		case c == '@':
			at = k
		default:
			joined = true
		}
	}
	if at > i && emailAt(b[i:end], at-i) {
		s.put(end, phEmail, "e-mail")
		return
	}
	if end-i >= 20 && isVendorToken(b[i:end]) {
		s.put(end, phID, "token")
		return
	}
	if s.isPeer(end) {
		stop := port(b, end)
		s.put(stop, phHost, "host")
		return
	}
	if s.isPerson(end) { // also test9
		s.put(end, phQuoted, "name of a user")
		return
	}
	if digits == 0 {
		s.plain(end)
		return
	}
	var buf [24]byte
	if isTerm(string(lower(&buf, b[i:end]))) {
		s.keep(end)
		return
	}
	if joined {
		if tail := podTail(b[i:end]); tail > 0 {
			start := i
			s.atoms(i + tail)
			s.i = i + tail
			s.put(end, "-"+phPod, "pod")
			s.prev[1], s.prev[0] = s.prev[0], word{start, end}
			return
		}
		if s.dotted(end) {
			return
		}
	}
	s.atoms(end)
}

// plain takes a word without digits.
func (s *scanner) plain(end int) {
	b, i := s.b, s.i
	if c := byteAt(b, end); c == ':' && isDigit(byteAt(b, end+1)) && isFile(b[i:end]) {
		s.keep(end)
		s.dropLine()
		return
	}
	s.keep(end)
	if n := end - i; (n == 6 || n == 5) && s.at(end) == ' ' { // Bearer and Basic
		var buf [24]byte
		if w := string(lower(&buf, b[i:end])); w == "bearer" || w == "basic" && s.authorizes() {
			s.out = append(s.out, ' ')
			s.i++
			if stop := s.secretEnd(s.i); stop > s.i && (w == "basic" || stop-s.i >= 8) {
				s.put(stop, phQuoted, "secret")
			}
		}
	}
}

// isPeer reports whether a name is that of the other side of a connection,
// whatever it is: it stands beside its own address, or a line begins with it
// and its port.
func (s *scanner) isPeer(end int) bool {
	b, i := s.b, s.i
	if bytes.IndexByte(b[i:end], '.') <= 0 || bytes.IndexByte(b[i:end], '$') >= 0 {
		return false
	}
	if i == 0 && s.depth <= 1 {
		if stop := port(b, end); stop > end && s.at(stop) == ' ' {
			return !isFile(b[i:end])
		}
	}
	j := end
	if s.at(j) == ' ' {
		j++
	}
	if c := s.at(j); (c == '[' || c == '(' || c == '/' && j == end) && ip4At(b, j+1) > j+1 {
		return true // ns.example.com [10.0.0.1]
	}
	n := len(s.out)
	return n >= 8 && s.at(end) == ')' && string(s.out[n-8:]) == phAddr+" (" // 10.0.0.1 (ns.example.com)
}

// isPerson reports whether a word is the name of an account, as in: invalid
// user anna; password for anna from 10.0.0.1.
func (s *scanner) isPerson(end int) bool {
	w := s.prev[0]
	if w.end == 0 || s.i-w.end != 1 || s.b[w.end] != ' ' {
		return false
	}
	switch n := w.end - w.start; n {
	case 3:
		return string(s.b[w.start:w.end]) == "for" && bytes.HasPrefix(s.b[end:], []byte(" from ")) && ip4At(s.b, end+6) > end+6
	case 4:
		if string(s.b[w.start:w.end]) != "user" {
			return false
		}
		v := s.prev[1]
		if v.end == 0 || w.start-v.end != 1 {
			return false
		}
		switch string(s.b[v.start:v.end]) {
		case "invalid", "Invalid", "illegal", "Illegal":
		default:
			return false
		}
		c := s.at(end)
		return c == 0 || c == ' ' && (s.at(end+1) == '[' || bytes.HasPrefix(s.b[end:], []byte(" from ")))
	}
	return false
}

// authorizes reports whether what stands before the word is an Authorization
// header: basic is a common word.
func (s *scanner) authorizes() bool {
	var buf [24]byte
	w := s.prev[1]
	return w.end > 0 && string(lower(&buf, s.b[w.start:w.end])) == "authorization"
}

// vendorPrefixes are beginnings of tokens that vendors made recognisable.
var vendorPrefixes = [...]string{"ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "xoxb-", "xoxp-", "xoxa-", "xoxs-", "xapp-",
	"sk_live_", "sk_test_", "rk_live_", "rk_test_", "AIza", "npm_", "hvs.", "SG.", "dop_v1_", "eyJ", "AKIA", "ASIA"}

// isVendorToken reports whether a word is such a token.
func isVendorToken(b []byte) bool {
	switch b[0] {
	case 'g', 'x', 's', 'r', 'A', 'n', 'h', 'S', 'd', 'e':
		for _, prefix := range vendorPrefixes {
			if len(b) > len(prefix) && string(b[:len(prefix)]) == prefix {
				return true
			}
		}
	}
	return false
}

// isFile reports whether a name ends like that of a file.
func isFile(name []byte) bool {
	dot := bytes.LastIndexByte(name, '.')
	if dot <= 0 {
		return false
	}
	var buf [24]byte
	return isFileExtension(string(lower(&buf, name[dot+1:])))
}

// dropLine leaves out the line and column after the name of a file.
func (s *scanner) dropLine() {
	end := s.i
	for range 2 {
		if s.at(end) != ':' {
			break
		}
		k := digitsAt(s.b, end+1)
		if k == end+1 {
			break
		}
		end = k
	}
	if end > s.i && !isWordByte(s.at(end)) {
		s.note(end, "", "line of a file")
		s.i = end
	}
}

// dotted takes names with dots and digits: of files, whose digits are dealt
// with one by one, and of hosts.
func (s *scanner) dotted(end int) bool {
	b, i := s.b, s.i
	name := b[i:end]
	dot := bytes.LastIndexByte(name, '.')
	if dot <= 0 {
		return false
	}
	if isFile(name) {
		s.atoms(end)
		s.dropLine()
		return true
	}
	// A host: its last label is a word in lower case, and a digit is in another.
	last := name[dot+1:]
	for _, c := range last {
		if c < 'a' || c > 'z' {
			return false
		}
	}
	if len(last) < 2 || bytes.IndexByte(name, '_') >= 0 || bytes.IndexByte(name, '$') >= 0 || bytes.IndexByte(name, '@') >= 0 {
		return false
	}
	if bytes.Count(name, []byte(".")) < 2 && s.at(end) != ':' {
		return false
	}
	if !variableLabel(name[:dot]) {
		return false
	}
	stop := port(b, end)
	s.put(stop, phHost, "host")
	return true
}

// variableLabel reports whether a label has a digit that is not part of a
// version such as v2.
func variableLabel(name []byte) bool {
	for label := range bytes.SplitSeq(name, []byte(".")) {
		var buf [24]byte
		if bytes.ContainsAny(label, "0123456789") && !isTerm(string(lower(&buf, label))) && !isVersion(label) {
			return true
		}
	}
	return false
}

// isVersion recognises v1 and v12.
func isVersion(b []byte) bool {
	return len(b) >= 2 && len(b) <= 3 && b[0]|0x20 == 'v' && digitsAt(b, 1) == len(b)
}

// emailAt recognises an address whose sign is at the given place.
func emailAt(b []byte, at int) bool {
	domain := b[at+1:]
	dot := bytes.LastIndexByte(domain, '.')
	if dot <= 0 || len(domain)-dot < 3 {
		return false
	}
	for _, c := range domain[dot+1:] {
		if !isLetter(c) && class[c] != clsHigh {
			return false
		}
	}
	return bytes.IndexByte(b[:at], '$') < 0
}

// podTail returns where the tail of the name of a pod begins, -7d9f8b6c5d-x2x4q:
// Kubernetes draws its characters from those that make no words.
func podTail(b []byte) int {
	n := len(b)
	if n < 16 || b[n-6] != '-' {
		return 0
	}
	digits := false
	for _, c := range b[n-5:] {
		if !isPodByte(c) {
			return 0
		}
		digits = digits || isDigit(c)
	}
	k := n - 7
	for k >= 0 && b[k] != '-' {
		if c := b[k]; !isPodByte(c) && !isHexDigit(c) || c >= 'A' && c <= 'Z' {
			return 0
		}
		digits = digits || isDigit(b[k])
		k--
	}
	if k <= 0 || n-6-k-1 < 8 || n-6-k-1 > 10 || !digits {
		return 0
	}
	return k
}

func isPodByte(c byte) bool {
	return bytes.IndexByte([]byte("bcdfghjklmnpqrstvwxz2456789"), c) >= 0
}

// atoms writes b[s.i:end] part by part: what stands between the joining marks.
func (s *scanner) atoms(end int) {
	b, start := s.b, s.i
	mark, made, joints := len(s.out), len(s.made), 0
	replaced := 0
	letters := false
	var before []byte // the part before, if it was letters
	for s.i < end {
		i := s.i
		if c := b[i]; !isWordByte(c) {
			// A sign between a mark and digits.
			if c == '-' && i > start && b[i-1] == '_' && isDigit(byteAt(b, i+1)) {
				s.i++
				continue
			}
			if c != '-' && c != '.' {
				before = nil
			}
			if c != '.' {
				joints++
			}
			s.out = append(s.out, c)
			s.i++
			continue
		}
		j := i
		digits, runs, alpha, hexa, lowers := 0, 0, 0, true, false
		for j < end && isWordByte(b[j]) {
			c := b[j]
			if isDigit(c) {
				if digits++; j == i || !isDigit(b[j-1]) {
					runs++
				}
			} else {
				alpha++
				letters = true
				hexa = hexa && isHexDigit(c)
				lowers = lowers || c >= 'a' && c <= 'z'
			}
			j++
		}
		atom := b[i:j]
		switch {
		case digits == 0:
			s.out = append(s.out, atom...)
			s.i = j
			before = atom
			continue
		case alpha == 0:
			if before != nil && i > start && (b[i-1] == '-' || b[i-1] == '.') && s.dashTerm(before) {
				s.out = append(s.out, atom...)
				s.i = j
				continue
			}
			if before != nil && b[i-1] == '-' && j == end && isErrorCode(b, start, j) {
				s.out = append(s.out, atom...)
				s.i = j
				continue
			}
			s.put(j, phNumber, "number")
			replaced++
		default:
			if s.mixed(atom, j, replaced > 0, i > start || j < end, digits, runs, alpha, hexa, lowers) {
				replaced++
			}
		}
		before = nil
	}
	// A name with several numbers in it was made by a machine.
	if replaced >= 2 && joints > 0 && letters {
		s.out, s.made, s.i = s.out[:mark], s.made[:made], start
		s.put(end, phID, "id")
	}
	s.prev[1], s.prev[0] = s.prev[0], word{start, end}
}

func (s *scanner) dashTerm(before []byte) bool {
	var buf [24]byte
	return isDashTerm(string(lower(&buf, before)))
}

// isErrorCode recognises codes as ORA-00942: letters in upper case, up to six
// digits, a colon and a blank.
func isErrorCode(b []byte, start, end int) bool {
	if byteAt(b, end) != ':' || byteAt(b, end+1) != ' ' || end-start > 15 {
		return false
	}
	digits := 0
	for k := start; k < end; k++ {
		switch c := b[k]; {
		case c >= 'A' && c <= 'Z' && digits == 0, c == '-' && digits == 0 && k > start:
		case isDigit(c):
			digits++
		default:
			return false
		}
	}
	return digits >= 2 && digits <= 6
}

// mixed writes a part of letters and digits, and reports whether it replaced
// something in it.
func (s *scanner) mixed(atom []byte, end int, replaced, joined bool, digits, runs, letters int, hexa, lowers bool) bool {
	var buf [24]byte
	first := isDigit(atom[0])
	last := isDigit(atom[len(atom)-1])
	keep := func() bool {
		s.out = append(s.out, atom...)
		s.i = end
		return false
	}
	switch {
	case isTerm(string(lower(&buf, atom))):
		return keep()
	case hexa && len(atom) >= 7:
		s.put(end, phHex, "hexadecimal")
	case !first && last && runs == 1: // part3: a name with a number
		if !replaced && (letters == 1 && digits == 1 && !joined || isVersion(atom)) {
			return keep()
		}
		if joined && letters <= 2 { // the A8 of rack_A8
			s.put(end, phID, "id")
			break
		}
		if isErrorCode(s.b, s.i, end) {
			return keep()
		}
		if digits >= 3 && len(atom) >= 20 { // no name is as long as that
			s.put(end, phID, "id")
			break
		}
		n := letters
		s.out = append(s.out, atom[:n]...)
		s.i += n
		s.put(end, phNumber, "number of a name")
	case first && !last && runs == 1 && !(len(atom) >= 8 && digits >= 3): // 3rd, 64bit
		n := digits
		s.put(s.i+n, phNumber, "number")
		s.out = append(s.out, atom[n:]...)
		s.i = end
	case !first && !last && runs == 1 && digits <= 2 && letters >= 3 && lowers && !replaced: // HttpServer2Filter
		return keep()
	default:
		s.put(end, phID, "id")
	}
	return true
}

// url writes scheme and host of a URL, whose colon is at the given place.
func (s *scanner) url(colon int) {
	b, start := s.b, s.i
	j := colon + 3
	host, end := j, j
	inHost := true
	hostEnd := -1
	for end < len(b) {
		c := b[end]
		if c == '<' {
			if k := placeholderAt(b, end); k > end {
				end = k
				continue
			}
			break
		}
		if isSpace(c) || c == '"' || c == '\'' || c == '`' || c == ')' || c == ']' && bytes.IndexByte(b[host:end], '[') < 0 || c == '}' || c == '>' || c == ',' || c == ';' || c == '|' {
			break
		}
		if inHost {
			switch c {
			case '/', '?', '#':
				inHost, hostEnd = false, end
			case '@':
				host = end + 1
			}
		}
		end++
	}
	for end > j && (b[end-1] == '.' || b[end-1] == ':' || b[end-1] == '!' || b[end-1] == '?') {
		end--
	}
	if hostEnd < 0 || hostEnd > end {
		hostEnd = end
	}
	if host > hostEnd {
		host = hostEnd
	}
	name := b[host:hostEnd]
	if k := bytes.LastIndexByte(name, ':'); k >= 0 && bytes.IndexByte(name[k:], ']') < 0 {
		name = name[:k]
	}
	mark := len(s.out)
	s.out = append(s.out, b[start:colon+3]...)
	for _, c := range name {
		if isDigit(c) || c == '[' || c == '<' {
			s.out = append(s.out, phHost...)
			name = nil
			break
		}
	}
	s.out = append(s.out, name...)
	if len(name) > 0 && len(s.out)-mark == end-start {
		s.i = end
		return // as it was
	}
	s.note(end, string(s.out[mark:]), "URL")
	s.i = end
	if host == hostEnd && s.at(hostEnd) == '/' { // file:///data
		s.i = hostEnd
		if !s.path() {
			s.i = end
		}
	}
}

// maxSegments is how many segments of a path are kept.
const maxSegments = 6

// path writes a path segment by segment: what has a digit, an @ or more than 40
// characters varies.
func (s *scanner) path() bool {
	b, i := s.b, s.i
	if p := s.at(i - 1); isWordByte(p) || p == '>' || p == '/' {
		return false
	}
	j := i
	if b[j] != '/' { // ~/ ./ ../
		for j < len(b) && b[j] != '/' {
			j++
		}
	}
	n := s.at(j + 1)
	if !isWordByte(n) && n != '_' && n != '.' && n != '-' && n != '<' && n != '$' && n != '{' && n != ':' {
		return false
	}
	if addrAt(b, j+1) > j+1 {
		return false
	}
	s.segments(j, '/')
	return true
}

// windowsPath writes a path such as C:\data\in.
func (s *scanner) windowsPath() bool {
	s.segments(s.i+2, s.b[s.i+2])
	return true
}

// segments writes b[s.i:from] as it is, and then the segments that begin there.
func (s *scanner) segments(from int, sep byte) {
	b, start := s.b, s.i
	mark := len(s.out)
	s.out = append(s.out, b[start:from]...)
	kept, variable, home := 0, false, false
	i := from
	for i < len(b) && b[i] == sep {
		begin := i + 1
		varies := false
		j := begin
	segment:
		for j < len(b) {
			switch c := b[j]; {
			case c == sep || isSpace(c):
				break segment
			case c == '<':
				k := placeholderAt(b, j)
				if k == j {
					break segment
				}
				varies = true
				j = k
				continue
			case c == ':':
				if d := s.at(j + 1); !isWordByte(d) && d != '-' && d != '_' && d != '{' {
					break segment
				}
			case c == '"' || c == '\'' || c == '`' || c == ')' || c == ']' || c == '>' || c == ',' || c == ';' || c == '|' || c == '?' || c == '#' || c == '(' || c == '[':
				break segment
			}
			j++
		}
		end := j
		if end == len(b) || b[end] != sep {
			for end > begin && (b[end-1] == '.' || b[end-1] == ':') {
				end--
			}
		}
		segment := b[begin:end]
		if k := bytes.IndexByte(segment, ':'); k > 0 && isDigit(byteAt(segment, k+1)) && isFile(segment[:k]) {
			segment = segment[:k] // handler.go:118
		}
		if len(segment) > 40 {
			varies = true
		}
		for _, c := range segment {
			if isDigit(c) || c == '@' {
				varies = true
				break
			}
		}
		if varies && isVersion(segment) {
			varies = false
		}
		switch {
		case varies || home || kept == maxSegments && len(segment) > 0:
			if !variable {
				s.out = append(s.out, sep)
				s.out = append(s.out, phPart...)
			}
			variable = true
		default:
			s.out = append(s.out, sep)
			s.out = append(s.out, segment...)
			home = kept == 0 && isHome(segment)
			kept++
			variable = false
		}
		i = end
		if end < j {
			break
		}
	}
	// A query or a fragment varies.
	if c := s.at(i); c == '?' && isWordByte(s.at(i+1)) || c == '#' && isWordByte(s.at(i+1)) {
		for i < len(b) && !isSpace(b[i]) && b[i] != '"' && b[i] != '\'' && b[i] != ')' && b[i] != ',' && b[i] != ';' {
			i++
		}
	}
	if s.explain && string(s.out[mark:]) != string(b[start:i]) {
		s.note(i, string(s.out[mark:]), "path")
	}
	s.prev[1], s.prev[0] = s.prev[0], word{start, i}
	s.i = i
}

// isHome reports whether what lies below a directory is somebody's own.
func isHome(segment []byte) bool {
	switch string(segment) {
	case "home", "Users", "users", "user", "tmp", "scratch":
		return true
	}
	return false
}
