// Package build knows from which source the running program was built.
package build

import "runtime/debug"

// Version is the version of the running program as [Of] makes it of its build
// info; empty if that is not known.
func Version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	return Of(info)
}

// Of is the module version of a released build, else the first 12 characters of
// the revision that it was built from, with +dirty if files were changed; empty
// if it has neither, as under go run.
func Of(info *debug.BuildInfo) string {
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	var revision, modified string
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			revision = s.Value[:min(len(s.Value), 12)]
		case "vcs.modified":
			if s.Value == "true" {
				modified = "+dirty"
			}
		}
	}
	if revision == "" {
		return ""
	}
	return revision + modified
}
