package envelope

// Optional gives tests the table that the order of shrinking is frozen by.
func Optional() []string { return append([]string(nil), optional...) }

// CutRunes is what all texts are cut by, without what else is done to them.
func CutRunes(s string, limit int) (text string, cut bool) {
	return clean(s, limit, func(r rune) rune { return r })
}
