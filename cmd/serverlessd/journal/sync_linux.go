package journal

import "golang.org/x/sys/unix"

// Sync is fdatasync, which writes the size too, but no times.
func (f file) Sync() error {
	for {
		if err := unix.Fdatasync(int(f.Fd())); err != unix.EINTR {
			return err
		}
	}
}
