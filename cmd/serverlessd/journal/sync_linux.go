package journal

import (
	"os"

	"golang.org/x/sys/unix"
)

// Sync is fdatasync, which writes the size too, but no times.
func (f file) Sync() error {
	for {
		if err := unix.Fdatasync(int(f.Fd())); err != unix.EINTR {
			return err
		}
	}
}

// exchange gives two files each other's name, at once; where there is no second one,
// or the filesystem cannot, it renames the first.
func exchange(from, to string) error {
	if unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_EXCHANGE) == nil {
		return nil
	}
	return os.Rename(from, to)
}
