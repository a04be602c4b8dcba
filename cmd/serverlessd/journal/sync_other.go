//go:build !linux

package journal

import "os"

// Sync writes the content to the disk.
func (f file) Sync() error { return f.File.Sync() }

// exchange gives a file another's name.
func exchange(from, to string) error { return os.Rename(from, to) }
