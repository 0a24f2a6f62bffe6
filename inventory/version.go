package inventory

import (
	"cmp"
	"strings"
)

// CompareVersions compares two versions as semantic versions: 10.18.7 is less
// than 10.24.0, whichever was built first, and 1.0.0-rc.1 is less than 1.0.0.
// v1.2.3, 1.2.3, name@1.2.3 and 1.2 are such versions; what follows a plus does
// not count. It reports false if one of them is not.
func CompareVersions(a, b string) (int, bool) {
	x, okX := parseVersion(a)
	y, okY := parseVersion(b)
	if !okX || !okY {
		return 0, false
	}
	for i := range x.numbers {
		if c := compareNumbers(x.numbers[i], y.numbers[i]); c != 0 {
			return c, true
		}
	}
	return comparePre(x.pre, y.pre), true
}

type version struct {
	numbers [3]string // without leading zeros
	pre     []string
}

func parseVersion(s string) (v version, ok bool) {
	s = strings.TrimPrefix(s[strings.LastIndexByte(s, '@')+1:], "v")
	s, _, _ = strings.Cut(s, "+")
	s, pre, hasPre := strings.Cut(s, "-")
	parts := strings.Split(s, ".")
	if len(parts) > len(v.numbers) {
		return version{}, false
	}
	// A whole number may be a version, but also a date or a build; a commit, too.
	if len(parts) == 1 && (hasPre || len(s) > 4) {
		return version{}, false
	}
	v.numbers = [3]string{"0", "0", "0"}
	for i, p := range parts {
		if !isNumber(p) {
			return version{}, false
		}
		v.numbers[i] = cmp.Or(strings.TrimLeft(p, "0"), "0")
	}
	if hasPre {
		v.pre = strings.Split(pre, ".")
		for _, p := range v.pre {
			if p == "" || strings.ContainsFunc(p, func(r rune) bool {
				return (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && r != '-'
			}) {
				return version{}, false
			}
		}
	}
	return v, true
}

func isNumber(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool { return r < '0' || r > '9' })
}

// compareNumbers compares numbers of any length.
func compareNumbers(a, b string) int {
	return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b))
}

// comparePre compares what makes a version a preliminary one. Without it, it is
// final, which is later.
func comparePre(a, b []string) int {
	switch {
	case len(a) == 0 && len(b) == 0:
		return 0
	case len(a) == 0:
		return 1
	case len(b) == 0:
		return -1
	}
	for i := range min(len(a), len(b)) {
		x, y := a[i], b[i]
		nx, ny := isNumber(x), isNumber(y)
		c := 0
		switch {
		case nx && ny:
			c = compareNumbers(cmp.Or(strings.TrimLeft(x, "0"), "0"), cmp.Or(strings.TrimLeft(y, "0"), "0"))
		case nx:
			c = -1
		case ny:
			c = 1
		default:
			c = cmp.Compare(x, y)
		}
		if c != 0 {
			return c
		}
	}
	return cmp.Compare(len(a), len(b))
}
