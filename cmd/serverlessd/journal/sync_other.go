//go:build !linux

package journal

// Sync writes the content to the disk.
func (f file) Sync() error { return f.File.Sync() }
