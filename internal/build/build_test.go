package build_test

import (
	"runtime/debug"
	"testing"

	"github.com/spillway-mq/spillway/internal/build"
)

func TestVersion(t *testing.T) {
	t.Parallel()
	revision := debug.BuildSetting{Key: "vcs.revision", Value: "0123456789abcdef0123456789abcdef01234567"}
	for _, tc := range []struct {
		name     string
		version  string
		settings []debug.BuildSetting
		want     string
	}{
		{"released", "v1.2.3", []debug.BuildSetting{revision}, "v1.2.3"},
		{"of a revision", "(devel)", []debug.BuildSetting{revision, {Key: "vcs.modified", Value: "false"}}, "0123456789ab"},
		{"of changed files", "", []debug.BuildSetting{{Key: "vcs.modified", Value: "true"}, revision}, "0123456789ab+dirty"},
		{"of a short revision", "", []debug.BuildSetting{{Key: "vcs.revision", Value: "42"}}, "42"},
		{"without version control", "(devel)", []debug.BuildSetting{{Key: "vcs.modified", Value: "true"}}, ""},
	} {
		info := &debug.BuildInfo{Main: debug.Module{Version: tc.version}, Settings: tc.settings}
		if got := build.Of(info); got != tc.want {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
}
