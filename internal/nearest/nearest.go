// Package nearest finds what a mistyped name was meant to be.
package nearest

import (
	"strings"
	"unicode"
)

// To returns the one of known that name was most likely meant to be, and false
// if none is close. Case, dashes, underscores and spaces are not mistakes;
// besides them, a third of the letters may be wrong, but no more than three.
func To(name string, known []string) (string, bool) { return Within(name, known, 3) }

// Within is To with another number of letters that may be wrong.
func Within(name string, known []string, most int) (string, bool) {
	plain := fold(name)
	if len(plain) > 64 {
		return "", false // no name of ours is that long
	}
	most = min(most, (len(plain)+1)/3)
	best, found := "", false
	for _, k := range known {
		if d := distance(plain, fold(k)); d <= most && (!found || d < most) {
			best, most, found = k, d, true
		}
	}
	return best, found
}

func fold(s string) []rune {
	return []rune(strings.Map(func(r rune) rune {
		if strings.ContainsRune("-_ ", r) {
			return -1
		}
		return unicode.ToLower(r)
	}, s))
}

// distance counts the letters to insert, delete, replace, or swap with their
// neighbour.
func distance(a, b []rune) int {
	before, above, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range above {
		above[j] = j
	}
	for i := range a {
		row[0] = i + 1
		for j := range b {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			row[j+1] = min(above[j+1]+1, row[j]+1, above[j]+cost)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, above, row = above, row, before
	}
	return above[len(b)]
}
