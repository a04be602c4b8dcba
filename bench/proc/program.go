package proc

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// FindProgram finds a program of this repository: the one that a flag names, the one beside this
// program, or the one in PATH. Otherwise it builds the program from the source tree of the current
// directory.
func FindProgram(ctx context.Context, name, given, flag string) (string, error) {
	if given != "" {
		return filepath.Abs(given)
	}
	if exe, err := os.Executable(); err == nil {
		sibling := filepath.Join(filepath.Dir(exe), name)
		if st, err := os.Stat(sibling); err == nil && st.Mode().IsRegular() {
			return sibling, nil
		}
	}
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	// The go command does nothing if the program is up to date.
	path := filepath.Join(cache, "gloom-bench", name)
	out, err := exec.CommandContext(ctx, "go", "build", "-o", path, "gloom/cmd/"+name).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("no %s beside this program or in PATH, and building it failed (name one with %s): %w: %s",
			name, flag, err, bytes.TrimSpace(out))
	}
	return path, nil
}
