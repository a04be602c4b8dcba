package throwaway

import (
	"os"
	"path/filepath"
	"syscall"
)

// WithCacheDir calls use with a directory of the user's cache that all packages share. The directory is
// for files that take long to make and are always the same. Only one process has it at a time, so
// use must copy what the caller needs later.
func WithCacheDir(use func(dir string) error) error {
	cache, err := os.UserCacheDir()
	if err != nil { // no home
		cache = os.TempDir()
	}
	dir := filepath.Join(cache, "gloom-throwaway")
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
