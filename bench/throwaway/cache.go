package throwaway

import (
	"os"
	"path/filepath"
	"syscall"
)

// CacheDir returns a directory of the user's cache that all packages share. It is for files that take
// long to make and are always the same.
func CacheDir(name string) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil { // no home
		cache = os.TempDir()
	}
	dir := filepath.Join(cache, "gloom-throwaway", name)
	return dir, os.MkdirAll(dir, 0o777)
}

// WithCacheDir calls use with a CacheDir. Only one process has a directory at a time, so use must copy
// what may change later.
func WithCacheDir(name string, use func(dir string) error) error {
	dir, err := CacheDir(name)
	if err != nil {
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
