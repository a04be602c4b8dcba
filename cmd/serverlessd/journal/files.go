package journal

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/gofrs/flock"
	"golang.org/x/sys/unix"

	"gloom/cmd/internal/durable"
)

// Files is the directory of a journal. Tests use one that fails and loses unsynced data.
type Files interface {
	// List returns the names in the directory. The names of directories end in a slash, so they are
	// not taken for files.
	List() ([]string, error)
	// Create creates a file. It fails if the file exists.
	Create(name string) (File, error)
	Open(name string) (File, error)
	Remove(name string) error
	// Sync makes the names of the files durable.
	Sync() error
	// Space returns the number of bytes of the disk, and the number of bytes that this process can
	// use.
	Space() (size, free int64, err error)
	Close() error
}

// File is a file of the journal.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	Size() (int64, error)
	Truncate(size int64) error
	// Sync makes the content of the file durable. It fails if the file no longer has its name:
	// nobody would find the content once this process has ended. It also fails if another process
	// uses the directory.
	Sync() error
}

// ErrLocked means that another daemon uses the directory.
var ErrLocked = errors.New("another daemon uses this directory")

// directory implements Files with a directory of the file system.
type directory struct {
	path     string
	lock     *flock.Flock
	lockInfo os.FileInfo // describes the file that is locked
}

// Directory returns dir/journal, which it creates if necessary, and locks dir.
func Directory(dir string) (Files, error) {
	path := filepath.Join(dir, "journal")
	if err := durable.MakeDir(path, 0o700); err != nil {
		return nil, err
	}
	d := &directory{path: path, lock: flock.New(filepath.Join(dir, "lock"))}
	ok, err := d.lock.TryLock()
	if err == nil && !ok {
		err = fmt.Errorf("%s: %w", dir, ErrLocked)
	}
	if err == nil {
		d.lockInfo, err = d.lock.Stat()
	}
	if err != nil {
		d.lock.Close()
		return nil, err
	}
	return d, nil
}

var errLockTaken = errors.New("the file lock was replaced, and another daemon uses this directory; stop both, and start one again")

// checkLock returns errLockTaken if the lock file was removed, and another process has made a new
// lock file.
func (d *directory) checkLock() error {
	if current, err := os.Stat(d.lock.Path()); err == nil && !os.SameFile(current, d.lockInfo) {
		return errLockTaken
	}
	return nil
}

func (d *directory) List() ([]string, error) {
	entries, err := os.ReadDir(d.path)
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
		if info, err := os.Stat(filepath.Join(d.path, names[i])); err == nil && info.IsDir() {
			names[i] += "/"
		}
	}
	return names, err
}

func (d *directory) Create(name string) (File, error) {
	return d.open(name, os.O_RDWR|os.O_CREATE|os.O_EXCL)
}

func (d *directory) Open(name string) (File, error) {
	return d.open(name, os.O_RDWR)
}

func (d *directory) Remove(name string) error { return os.Remove(filepath.Join(d.path, name)) }
func (d *directory) Sync() error              { return durable.SyncDir(d.path) }
func (d *directory) Close() error             { return d.lock.Close() }

type file struct {
	*os.File
	dir *directory
}

func (d *directory) open(name string, flags int) (File, error) {
	f, err := os.OpenFile(filepath.Join(d.path, name), flags, 0o600)
	if err != nil {
		return nil, err
	}
	return file{f, d}, nil
}

var errRemoved = errors.New("the file was removed, moved or replaced")

func (f file) Sync() error {
	if err := f.sync(); err != nil {
		return err
	}
	openInfo, err := f.Stat()
	if err != nil {
		return err
	}
	if namedInfo, err := os.Stat(f.Name()); errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(openInfo, namedInfo) {
		return errRemoved
	}
	return f.dir.checkLock()
}

func (f file) Size() (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

func (d *directory) Space() (size, free int64, err error) {
	var s unix.Statfs_t
	if err := unix.Statfs(d.path, &s); err != nil {
		return 0, 0, err
	}
	return int64(s.Blocks) * int64(s.Bsize), int64(s.Bavail) * int64(s.Bsize), nil
}
