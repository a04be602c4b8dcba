package cli

import "runtime/debug"

// version is set by the linker: -X gloom/cmd/internal/cli.version=v1.2.3
var version string

// Version returns the version stamped by the build, else the module's version, else one made from
// the commit's hash.
func Version() string {
	if version != "" {
		return version
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "devel"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && len(s.Value) >= 12 {
			return "devel-" + s.Value[:12]
		}
	}
	return "devel"
}
