//go:build !linux

package journal

import "os"

// sync writes the content to the disk.
func (f file) sync() error { return f.File.Sync() }

// swapOrRename renames the first file.
func swapOrRename(from, to string) error { return os.Rename(from, to) }
