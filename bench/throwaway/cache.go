package throwaway

import (
	"os"
	"path/filepath"
	"syscall"
)

// Cached runs use on a directory that all packages share, in the user's cache, for things
// that take long to make and are the same every time. Only one process is there at a time,
// so what use keeps must be a copy.
func Cached(use func(dir string) error) error {
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
