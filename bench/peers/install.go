package peers

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
)

var installing sync.Mutex

// program finds the kind's program, installing its package if need be. The
// package's own service is kept from starting: we run it on ports of our own.
func (k *Kind) program(ctx context.Context) (string, error) {
	installing.Lock()
	defer installing.Unlock()
	if path, ok := find(k.Program); ok {
		return path, nil
	}
	hint := fmt.Errorf("%s is not installed (apt-get install %s)", k.Program, k.Package)
	if os.Geteuid() != 0 {
		return "", hint
	}
	const policy = "/usr/sbin/policy-rc.d"
	if _, err := os.Stat(policy); os.IsNotExist(err) {
		if os.WriteFile(policy, []byte("#!/bin/sh\nexit 101\n"), 0o755) == nil {
			defer os.Remove(policy)
		}
	}
	for _, args := range [][]string{{"update", "-qq"}, {"install", "-y", "-qq", "--no-install-recommends", k.Package}} {
		cmd := exec.CommandContext(ctx, "apt-get", args...)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		if out, err := cmd.CombinedOutput(); err != nil && args[0] == "install" {
			return "", fmt.Errorf("%w: %v: %s", hint, err, lastLine(out))
		}
	}
	if path, ok := find(k.Program); ok {
		return path, nil
	}
	return "", hint
}

// find looks in PATH and where daemons live.
func find(program string) (string, bool) {
	if path, err := exec.LookPath(program); err == nil {
		return path, true
	}
	for _, dir := range []string{"/usr/sbin/", "/usr/local/sbin/"} {
		if path, err := exec.LookPath(dir + program); err == nil {
			return path, true
		}
	}
	return "", false
}

func lastLine(out []byte) string {
	s := strings.TrimSpace(string(out))
	return s[strings.LastIndexByte(s, '\n')+1:]
}

// version asks a program for its version and keeps the first line.
func version(ctx context.Context, path string, args ...string) string {
	out, err := exec.CommandContext(ctx, path, args...).CombinedOutput()
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	return line
}
