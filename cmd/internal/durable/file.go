// Package durable writes files and directories whose names and contents survive a crash of the
// machine.
package durable

import (
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
)

// UnfinishedSuffix is the end of the name under which WriteFile writes a file. A process that is
// killed may leave such a file.
const UnfinishedSuffix = ".new"

// WriteFile replaces the content of a file: if it returns nil, the new content is on the disk under
// its name; otherwise the file is either old or new. The file's mode is 0600. WriteFile first
// writes path.new, so only one goroutine at a time may write a path.
func WriteFile(path string, data []byte) error {
	temp := path + UnfinishedSuffix
	f, err := os.OpenFile(temp, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if _, err = f.Write(data); err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(temp, path)
	}
	if err != nil {
		_ = os.Remove(temp)
		return err
	}
	return SyncDir(filepath.Dir(path))
}

// MakeDir makes a directory and its missing parents, and syncs their names so that they survive a
// loss of power. An earlier process may have made some parents and ended before it synced their
// names. So the names of all directories in the path are synced; for directories that existed
// before, errors are ignored.
func MakeDir(path string, mode os.FileMode) error {
	path, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	existing := filepath.Dir(path)
	for _, err := os.Stat(existing); err != nil && existing != filepath.Dir(existing); _, err = os.Stat(existing) {
		existing = filepath.Dir(existing)
	}
	if err := os.MkdirAll(path, mode); err != nil {
		return err
	}
	for parent := filepath.Dir(path); ; parent = filepath.Dir(parent) {
		if err := SyncDir(parent); err != nil && len(parent) >= len(existing) {
			return err
		}
		if parent == filepath.Dir(parent) {
			return nil
		}
	}
}

// syncObserver is called with each directory that is synced; nil except in tests.
var syncObserver atomic.Pointer[func(dir string)]

// ObserveSyncs makes SyncDir call f with each directory, until stop is called. It is for tests.
func ObserveSyncs(f func(dir string)) (stop func()) {
	syncObserver.Store(&f)
	return func() { syncObserver.Store(nil) }
}

// SyncDir syncs the names in a directory to the disk.
func SyncDir(dir string) error {
	if f := syncObserver.Load(); f != nil {
		(*f)(dir)
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
