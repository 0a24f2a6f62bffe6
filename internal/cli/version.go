package cli

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
)

func versionVerb() verb {
	return verb{
		name:    "version",
		summary: "print the version of this command",
		formats: []string{"table", "json", "jsonl"},
		setup: noFlags(func(_ context.Context, c *call) error {
			v := version()
			if c.output != "table" {
				return c.json(v)
			}
			fmt.Fprintln(c.out, strings.Join(strings.Fields(fmt.Sprintf("spillway %s %s %s %s", v.Version, v.Revision, v.Go, v.Platform)), " "))
			return nil
		}),
	}
}

type versionJSON struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func version() versionJSON {
	v := versionJSON{Version: "unknown", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	if info.Main.Version != "" {
		v.Version = info.Main.Version
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			v.Revision = s.Value[:min(len(s.Value), 12)]
		}
	}
	return v
}
