package envelope

// Optional gives tests the table that the order of shrinking is frozen by.
func Optional() []string { return append([]string(nil), optional...) }
