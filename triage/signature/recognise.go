package signature

import "bytes"

// The functions of this file recognise one thing at a place of the text, and
// return its end, or the place itself if it is not there.

// digitsAt returns the end of the digits at i.
func digitsAt(b []byte, i int) int {
	for i < len(b) && isDigit(b[i]) {
		i++
	}
	return i
}

// fixedDigits returns the end of exactly n digits at i, or -1.
func fixedDigits(b []byte, i, n int) int {
	if j := digitsAt(b, i); j-i == n {
		return j
	}
	return -1
}

func byteAt(b []byte, i int) byte {
	if i < 0 || i >= len(b) {
		return 0
	}
	return b[i]
}

// timeAt recognises dates and times of day that begin with a digit.
func timeAt(b []byte, i int) int {
	if isDigit(byteAt(b, i-1)) {
		return i
	}
	j := digitsAt(b, i)
	switch n := j - i; n {
	case 4: // 2006-01-02, 2006/1/2, 2006.01.02
		sep := byteAt(b, j)
		if sep != '-' && sep != '/' && sep != '.' {
			return i
		}
		k := digitsAt(b, j+1)
		if k == j+1 || k-j > 3 || byteAt(b, k) != sep {
			return i
		}
		end := digitsAt(b, k+1)
		if end == k+1 || end-k > 3 || isLetter(byteAt(b, end)) && byteAt(b, end) != 'T' && byteAt(b, end) != 't' {
			return i
		}
		return withClock(b, end)
	case 8: // 20060102T150405
		if byteAt(b, j) == 'T' {
			if k := fixedDigits(b, j+1, 6); k > 0 {
				return zone(b, fraction(b, k))
			}
		}
		return i
	case 1, 2:
		switch sep := byteAt(b, j); sep {
		case ':':
			if end := clockAt(b, i); end > i {
				return end
			}
		case '/', '-', ' ': // 02/Jan/2006:15:04:05, 02 Jan 2006, 1/2/2006
			k := monthAt(b, j+1)
			if k > j+1 && byteAt(b, k) == sep {
				if end := fixedDigits(b, k+1, 4); end > 0 {
					return withClock(b, end)
				}
			}
			if sep == '/' {
				if k := digitsAt(b, j+1); k > j+1 && k-j <= 3 && byteAt(b, k) == '/' {
					if end := digitsAt(b, k+1); (end-k == 3 || end-k == 5) && !isLetter(byteAt(b, end)) {
						return withClock(b, end)
					}
				}
			}
		}
	}
	return i
}

// withClock extends a date by the time of day that follows.
func withClock(b []byte, date int) int {
	i := date
	switch byteAt(b, i) {
	case 'T', 't', ' ', ':', '_', '-':
		i++
	case ',':
		if byteAt(b, i+1) == ' ' {
			i += 2
		}
	default:
		return date
	}
	if end := clockAt(b, i); end > i {
		return end
	}
	if byteAt(b, i-1) == '-' { // 2006-01-02-15.04.05.000000
		j := i
		for n := 0; n < 3; n++ {
			k := fixedDigits(b, j, 2)
			if k < 0 {
				return date
			}
			if j = k; n < 2 {
				if byteAt(b, j) != '.' {
					return date
				}
				j++
			}
		}
		return fraction(b, j)
	}
	return date
}

// clockAt recognises 15:04, 15:04:05 and 15:04:05.000 with a zone.
func clockAt(b []byte, i int) int {
	j := digitsAt(b, i)
	if j == i || j-i > 2 || byteAt(b, j) != ':' {
		return i
	}
	j = fixedDigits(b, j+1, 2)
	if j < 0 || isHexDigit(byteAt(b, j)) {
		return i
	}
	if byteAt(b, j) == ':' {
		if k := fixedDigits(b, j+1, 2); k > 0 {
			if byteAt(b, k) == ':' && isHexDigit(byteAt(b, k+1)) {
				return i // an address of hardware
			}
			j = k
		} else if isHexDigit(byteAt(b, j+1)) {
			return i
		}
	}
	end := zone(b, fraction(b, j))
	if isLetter(byteAt(b, end)) {
		return i
	}
	return end
}

// fraction extends a time by the decimals that follow.
func fraction(b []byte, i int) int {
	if c := byteAt(b, i); c == '.' || c == ',' {
		if end := digitsAt(b, i+1); end > i+1 {
			return end
		}
	}
	return i
}

// zone extends a time by its zone, and by what Go prints of its monotonic clock.
func zone(b []byte, i int) int {
	switch c := byteAt(b, i); c {
	case 'Z', 'z':
		i++
	case '+', '-':
		i = offset(b, i)
	case ' ':
		j := i + 1
		if c := byteAt(b, j); c == '+' || c == '-' {
			if k := offset(b, j); k > j {
				i = k
			}
		}
		if k := zoneName(b, i); k > i {
			i = k
		}
	}
	if rest := b[i:]; bytes.HasPrefix(rest, []byte(" m=+")) || bytes.HasPrefix(rest, []byte(" m=-")) {
		if end := fraction(b, digitsAt(b, i+4)); end > i+4 {
			return end
		}
	}
	return i
}

// offset recognises +02:00 and +0200.
func offset(b []byte, i int) int {
	if j := fixedDigits(b, i+1, 4); j > 0 {
		return j
	}
	if j := fixedDigits(b, i+1, 2); j > 0 && byteAt(b, j) == ':' {
		if k := fixedDigits(b, j+1, 2); k > 0 {
			return k
		}
	}
	return i
}

// zoneName recognises a blank and the name of a zone.
func zoneName(b []byte, i int) int {
	j := i + 1
	for j < len(b) && b[j] >= 'A' && b[j] <= 'Z' {
		j++
	}
	if byteAt(b, i) != ' ' || isWordByte(byteAt(b, j)) {
		return i
	}
	switch name := string(b[min(i+1, len(b)):j]); name {
	case "UTC", "GMT", "CET", "CEST", "EST", "EDT", "CST", "CDT", "MST", "MDT", "PST", "PDT", "MSK", "IST", "JST", "BST", "WET", "EET", "EEST", "AM", "PM", "BRT":
		return j
	}
	return i
}

// nameIn3 recognises one of the names of three letters that all holds.
func nameIn3(b []byte, i int, all string) bool {
	if i+3 > len(b) {
		return false
	}
	for k := 0; k+3 <= len(all); k += 3 {
		if b[i] == all[k] && b[i+1] == all[k+1] && b[i+2] == all[k+2] {
			return true
		}
	}
	return false
}

// monthAt recognises the short name of a month.
func monthAt(b []byte, i int) int {
	if nameIn3(b, i, "JanFebMarAprMayJunJulAugSepOctNovDec") && !isWordByte(byteAt(b, i+3)) {
		return i + 3
	}
	return i
}

// namedTimeAt recognises dates that begin with the name of a day or a month:
// Mon, 02 Jan 2006 15:04:05 MST; Mon Jan _2 15:04:05 MST 2006; Jan _2 15:04:05.
func namedTimeAt(b []byte, i int) int {
	j := i
	if nameIn3(b, i, "MonTueWedThuFriSatSun") {
		j += 3
		for isLetter(byteAt(b, j)) { // Monday
			j++
		}
		if byteAt(b, j) == ',' {
			j++
		}
		if byteAt(b, j) != ' ' {
			return i
		}
		j++
		if isDigit(byteAt(b, j)) {
			if end := timeAt(b, j); end > j {
				return end
			}
			return i
		}
	}
	k := monthAt(b, j)
	if k == j || byteAt(b, k) != ' ' {
		return i
	}
	for byteAt(b, k) == ' ' && k-j < 5 {
		k++
	}
	day := digitsAt(b, k)
	if day == k || day-k > 2 {
		return i
	}
	if byteAt(b, day) == ',' {
		day++
	}
	if byteAt(b, day) != ' ' {
		return i
	}
	if end := fixedDigits(b, day+1, 4); end > 0 { // Jan 2, 2006
		return withClock(b, end)
	}
	end := clockAt(b, day+1)
	if end == day+1 {
		return i
	}
	if k := zoneName(b, end); k > end {
		end = k
	}
	if byteAt(b, end) == ' ' {
		if year := fixedDigits(b, end+1, 4); year > 0 && !isWordByte(byteAt(b, year)) {
			return year
		}
	}
	return end
}

// addrAt recognises IP addresses, with their port, and addresses of hardware.
func addrAt(b []byte, i int) int {
	if end := pciAt(b, i); end > i {
		return end
	}
	if end := ip4At(b, i); end > i {
		if byteAt(b, end) == '/' {
			if k := digitsAt(b, end+1); k > end+1 && k-end <= 3 && !isWordByte(byteAt(b, k)) && byteAt(b, k) != '.' {
				return k // a network
			}
		}
		return port(b, end)
	}
	return ip6At(b, i)
}

// pciAt recognises addresses on a PCI bus: 0000:00:1d.0, and 00:1d.0 if it is no
// clock time.
func pciAt(b []byte, i int) int {
	k, letters := i, false
	if byteAt(b, i+4) == ':' {
		if byteAt(b, i+7) != ':' || !areHex(b, i, 4) {
			return i
		}
		k, letters = i+5, true
	}
	if byteAt(b, k+2) != ':' || byteAt(b, k+5) != '.' || !areHex(b, k, 2) || !areHex(b, k+3, 2) {
		return i
	}
	for _, c := range b[k : k+5] {
		letters = letters || isLetter(c)
	}
	if c := byteAt(b, k+6); !letters || c < '0' || c > '7' || isWordByte(byteAt(b, k+7)) {
		return i
	}
	return k + 7
}

func areHex(b []byte, i, n int) bool {
	for k := range n {
		if !isHexDigit(byteAt(b, i+k)) {
			return false
		}
	}
	return true
}

func ip4At(b []byte, i int) int {
	j := i
	for n := range 4 {
		k := digitsAt(b, j)
		if k == j || k-j > 3 {
			return i
		}
		if j = k; n < 3 {
			if byteAt(b, j) != '.' {
				return i
			}
			j++
		}
	}
	if c := byteAt(b, j); isWordByte(c) || c == '.' && isWordByte(byteAt(b, j+1)) {
		return i
	}
	return j
}

func port(b []byte, i int) int {
	if byteAt(b, i) == ':' {
		if end := digitsAt(b, i+1); end > i+1 && end-i <= 6 && !isWordByte(byteAt(b, end)) {
			return end
		}
	}
	return i
}

// ip6At recognises groups of hexadecimal digits with colons between: IPv6 of
// at least three groups, and addresses of hardware.
func ip6At(b []byte, i int) int {
	j, groups, double, digits := i, 0, false, false
	if byteAt(b, j) == ':' {
		if byteAt(b, j+1) != ':' || byteAt(b, j+2) == ':' || !isHexDigit(byteAt(b, j+2)) || isWordByte(byteAt(b, i-1)) {
			return i
		}
		j, double = j+2, true
	}
	for groups < 32 {
		k := j
		for k < len(b) && k-j <= 4 && isHexDigit(b[k]) {
			digits = digits || isDigit(b[k])
			k++
		}
		if k == j || k-j > 4 {
			break
		}
		j, groups = k, groups+1
		if byteAt(b, j) != ':' {
			break
		}
		if byteAt(b, j+1) == ':' {
			if double {
				break
			}
			double = true
			if j += 2; !isHexDigit(byteAt(b, j)) {
				break
			}
			continue
		}
		if !isHexDigit(byteAt(b, j+1)) {
			break
		}
		j++
	}
	if byteAt(b, j-1) == ':' && !double {
		j--
	}
	if isWordByte(byteAt(b, j)) || !digits {
		return i
	}
	if groups >= 6 || double && groups >= 1 && j-i >= 3 {
		if byteAt(b, j) == '%' { // a zone
			j++
			for j < len(b) && isWordByte(b[j]) {
				j++
			}
		}
		if byteAt(b, j) == '/' {
			if k := digitsAt(b, j+1); k > j+1 && k-j <= 4 {
				return k
			}
		}
		return j
	}
	return i
}

// addr6InBrackets recognises [::1]:5432.
func addr6InBrackets(b []byte, i int) int {
	if byteAt(b, i) != '[' {
		return i
	}
	end := ip6At(b, i+1)
	if end == i+1 || byteAt(b, end) != ']' {
		return i
	}
	if p := port(b, end+1); p > end+1 {
		return p
	}
	return i // brackets around an address without a port are brackets
}

// durationAt recognises durations as Go prints them: 2m30.5s. Long units come
// before short ones, because m begins ms.
func durationAt(b []byte, i int) int {
	j := i
	for {
		k := fraction(b, digitsAt(b, j))
		if k == j {
			break
		}
		u := unitAt(b, k)
		if u == k {
			return i
		}
		j = u
	}
	if j == i || isWordByte(byteAt(b, j)) || byteAt(b, j) == '_' {
		return i
	}
	return j
}

var durationUnits = [...]string{"ms", "us", "µs", "μs", "ns", "h", "m", "s", "d"}

func unitAt(b []byte, i int) int {
	for _, u := range durationUnits {
		if len(b)-i >= len(u) && string(b[i:i+len(u)]) == u {
			return i + len(u)
		}
	}
	return i
}

// uuidAt recognises 8-4-4-4-12 hexadecimal digits.
func uuidAt(b []byte, i int) int {
	if len(b)-i < 36 || b[i+8] != '-' || b[i+13] != '-' || b[i+18] != '-' || b[i+23] != '-' {
		return i
	}
	for k, c := range b[i : i+36] {
		if k == 8 || k == 13 || k == 18 || k == 23 {
			continue
		}
		if !isHexDigit(c) {
			return i
		}
	}
	if isWordByte(byteAt(b, i+36)) {
		return i
	}
	return i + 36
}
