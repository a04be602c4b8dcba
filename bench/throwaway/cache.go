package throwaway

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// Cached runs use on a directory that tests of all packages share, in Go's build cache,
// for things that take long to make and are the same every time. No other process of
// ours is there at the same time, so what use returns must not be in it.
func Cached(use func(dir string) error) error {
	out, err := exec.Command("go", "env", "GOCACHE").Output()
	if err != nil {
		return err
	}
	dir := filepath.Join(strings.TrimSpace(string(out)), "gloom", "throwaway")
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	lock, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return err
	}
	return use(dir)
}
