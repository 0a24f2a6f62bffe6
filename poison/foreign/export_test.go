package foreign

// Exceptions are the classes and natures of the exceptions that are known.
func Exceptions() map[string][2]string {
	m := map[string][2]string{}
	for name, k := range kinds {
		m[name] = [2]string{string(k.class), string(k.nature)}
	}
	return m
}

// Wrappers are the exceptions that are looked through.
func Wrappers() map[string]bool { return wrappers }
