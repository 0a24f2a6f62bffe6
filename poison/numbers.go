package poison

// number finds a card number, CPF or CNPJ that begins at i, which is the
// beginning of a word.
func (r *Redactor) number(sc scanner, i int) (match, bool) {
	s := sc.s
	if isDigit(s[i]) {
		if i > sc.from+1 && s[i-1] == '.' && isDigit(s[i-2]) {
			return match{}, false // the decimals of a number
		}
		minus := i > sc.from && s[i-1] == '-' && (i-1 == sc.from || !isAlnum(s[i-2]) && s[i-2] != '>')
		if !r.off[ruleCard] && !minus {
			if end := sc.card(i); end > 0 {
				return match{i, end, PlaceholderID, ruleCard}, true
			}
		}
		if r.on(ruleCPF) {
			if end := sc.cpf(i); end > 0 {
				return match{i, end, PlaceholderID, ruleCPF}, true
			}
		}
	}
	if r.on(ruleCNPJ) {
		if end := sc.cnpj(i); end > 0 {
			return match{i, end, PlaceholderID, ruleCNPJ}, true
		}
	}
	return match{}, false
}

// cardShapes are the groups in which card numbers are written.
var cardShapes = [...][5]int{
	{4, 4, 4, 4, 3}, {4, 4, 4, 4, 2}, {4, 4, 4, 4, 1}, {4, 4, 4, 4},
	{4, 4, 4, 3}, {4, 4, 4, 2}, {4, 4, 4, 1},
	{4, 6, 5}, {4, 6, 4},
}

// card returns the end of the card number at i, or 0. First digits other than
// 2 to 6 belong to no large card network; leaving them out keeps timestamps in
// milliseconds and nanoseconds, which begin with 1, from being taken for cards
// one time in ten.
func (sc scanner) card(i int) int {
	s := sc.s
	if s[i] < '2' || s[i] > '6' {
		return 0
	}
	n := digits(s, i)
	if n >= 13 && n <= 19 {
		if end := i + n; sc.numberEnd(end) && luhn(s[i:end]) {
			return end
		}
		return 0
	}
	if n != 4 || i+n >= len(s) || s[i+n] != ' ' && s[i+n] != '-' {
		return 0
	}
	sep := s[i+n]
	if sep == '-' && i > sc.from+1 && s[i-1] == '-' && isDigit(s[i-2]) {
		return 0 // inside of a longer number
	}
	for _, shape := range cardShapes {
		end := i
		fits := true
		for k, size := range shape {
			if size == 0 {
				break
			}
			if k > 0 {
				if fits = end < len(s) && s[end] == sep; !fits {
					break
				}
				end++
			}
			if fits = digits(s, end) >= size; !fits {
				break
			}
			end += size
		}
		if !fits || !sc.numberEnd(end) || !luhn(s[i:end]) {
			continue
		}
		if sep == '-' && end+1 < len(s) && s[end] == '-' && isDigit(s[end+1]) {
			continue
		}
		return end
	}
	return 0
}

// numberEnd reports whether a number may end before i: no letter, digit or
// decimal follows.
func (sc scanner) numberEnd(i int) bool {
	return sc.wordEnd(i) && !(i+1 < len(sc.s) && sc.s[i] == '.' && isDigit(sc.s[i+1]))
}

// luhn reports whether the last digit of s is right. It skips separators.
func luhn(s string) bool {
	sum, double := 0, false
	for i := len(s) - 1; i >= 0; i-- {
		if !isDigit(s[i]) {
			continue
		}
		d := int(s[i] - '0')
		if double {
			if d *= 2; d > 9 {
				d -= 9
			}
		}
		sum += d
		double = !double
	}
	return sum%10 == 0
}

// cpf returns the end of the CPF at i, as 52998224725 or 529.982.247-25, or 0.
func (sc scanner) cpf(i int) int {
	var v [11]int
	end := sc.layout(i, v[:], "ddd.ddd.ddd-dd")
	if end == 0 {
		end = sc.layout(i, v[:], "ddddddddddd")
	}
	if end == 0 || same(v[:]) {
		return 0
	}
	for n := 9; n <= 10; n++ {
		sum := 0
		for k := range n {
			sum += v[k] * (n + 1 - k)
		}
		if sum*10%11%10 != v[n] {
			return 0
		}
	}
	return end
}

// cnpj returns the end of the CNPJ at i, as 11222333000181 or
// 11.222.333/0001-81, or 0. Since 2026 the first twelve may be letters, which
// count with their distance from "0" in ASCII.
func (sc scanner) cnpj(i int) int {
	var v [14]int
	end := sc.layout(i, v[:], "xx.xxx.xxx/xxxx-dd")
	if end == 0 {
		end = sc.layout(i, v[:], "xxxxxxxxxxxxdd")
	}
	if end == 0 || same(v[:]) {
		return 0
	}
	for n := 12; n <= 13; n++ {
		sum, weight := 0, 2
		for k := n - 1; k >= 0; k-- {
			sum += v[k] * weight
			if weight++; weight > 9 {
				weight = 2
			}
		}
		check := 11 - sum%11
		if check >= 10 {
			check = 0
		}
		if check != v[n] {
			return 0
		}
	}
	return end
}

// layout reads the text at i as laid out: d is a digit, x a digit or capital
// letter, and the rest stands for itself. It fills v and returns the end, or 0
// if the text is different or goes on.
func (sc scanner) layout(i int, v []int, layout string) int {
	s := sc.s
	if len(s)-i < len(layout) {
		return 0
	}
	n := 0
	for k := range len(layout) {
		c := s[i+k]
		switch layout[k] {
		case 'd':
			if !isDigit(c) {
				return 0
			}
		case 'x':
			if !isDigit(c) && !isUpper(c) {
				return 0
			}
		default:
			if c != layout[k] {
				return 0
			}
			continue
		}
		v[n] = int(c - '0')
		n++
	}
	if end := i + len(layout); sc.numberEnd(end) {
		return end
	}
	return 0
}

// same reports whether all are equal; such numbers have right check digits,
// but are nobody's.
func same(v []int) bool {
	for _, d := range v {
		if d != v[0] {
			return false
		}
	}
	return true
}
