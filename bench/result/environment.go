package result

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/prometheus/procfs"
)

// Environment says where and when figures were measured.
type Environment struct {
	Started time.Time `json:"started"`
	Host    Host      `json:"host"`
	Build   Build     `json:"build"`
}

// CurrentEnvironment returns the environment of figures that are measured now.
func CurrentEnvironment() Environment { return Environment{time.Now(), CurrentHost(), CurrentBuild()} }

// Host describes the machine that ran the measurement.
type Host struct {
	CPU        string `json:"cpu"`
	Processors int    `json:"processors"` // processors that this process may use
	Kernel     string `json:"kernel"`
	OS         string `json:"os"`
	Memory     int64  `json:"memory_bytes"`
}

// CurrentHost describes the machine that this program runs on; unknown fields stay empty.
func CurrentHost() Host {
	h := Host{Processors: runtime.NumCPU(), OS: osName()}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		h.Kernel = cString(u.Sysname[:]) + " " + cString(u.Release[:]) + " " + cString(u.Machine[:])
	}
	if fs, err := procfs.NewDefaultFS(); err == nil {
		if cpus, err := fs.CPUInfo(); err == nil && len(cpus) > 0 {
			h.CPU = cpus[0].ModelName
		}
		if m, err := fs.Meminfo(); err == nil && m.MemTotalBytes != nil {
			h.Memory = int64(*m.MemTotalBytes)
		}
	}
	return h
}

func cString(field []byte) string {
	field, _, _ = bytes.Cut(field, []byte{0})
	return string(field)
}

func osName() string {
	release, err := os.ReadFile("/etc/os-release")
	if err != nil {
		return runtime.GOOS
	}
	for line := range strings.Lines(string(release)) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), "PRETTY_NAME="); ok {
			return strings.Trim(v, `"`)
		}
	}
	return runtime.GOOS
}

// Build describes how a program was built.
type Build struct {
	Commit   string `json:"commit,omitempty"` // "" when it is unknown
	Modified bool   `json:"modified,omitempty"`
	Go       string `json:"go"`
}

// commit may be set by the linker (-X gloom/bench/result.commit=…), for builds
// outside a checkout.
var commit string

// CurrentBuild describes this program: from its build information, or otherwise from the git
// checkout in which it runs.
func CurrentBuild() Build {
	b := Build{Go: runtime.Version(), Commit: commit}
	if info, ok := debug.ReadBuildInfo(); ok {
		b.read(info)
	}
	if b.Commit == "" {
		b.askGit()
	}
	return b
}

// BuildOf describes the Go program in a file. It returns nil if the file is no Go program.
func BuildOf(path string) *Build {
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return nil
	}
	b := &Build{Go: info.GoVersion}
	b.read(info)
	return b
}

func (b *Build) read(info *debug.BuildInfo) {
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
}

func (b *Build) askGit() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, "git", "rev-parse", "HEAD").Output()
	if err != nil {
		return
	}
	b.Commit = strings.TrimSpace(string(out))
	status, err := exec.CommandContext(ctx, "git", "status", "--porcelain").Output()
	b.Modified = err != nil || len(bytes.TrimSpace(status)) > 0
}
