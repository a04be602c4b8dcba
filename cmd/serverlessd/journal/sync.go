package journal

import (
	"os"

	"golang.org/x/sys/unix"
)

// sync calls fdatasync, which writes the size of the file, too, but not its times.
func (f file) sync() error {
	for {
		if err := unix.Fdatasync(int(f.Fd())); err != unix.EINTR {
			return err
		}
	}
}

// swapOrRename swaps the names of two files atomically. If there is no second file, or the file
// system cannot swap names, it renames the first.
func swapOrRename(from, to string) error {
	if unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_EXCHANGE) == nil {
		return nil
	}
	return os.Rename(from, to)
}
