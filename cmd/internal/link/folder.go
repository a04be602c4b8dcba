package link

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// socketFolder is the directory of the embedded broker's sockets. It has a unique name, and a file,
// the mark, that identifies it. Only files that belong to such a folder are ever removed from
// it.
type socketFolder struct {
	dir  string
	lock *os.File // locked while the daemon lives
}

const (
	folderPrefix = "gloom-sockets-"
	markName     = "gloom-sockets.mark"
	markText     = "Sockets of the broker inside a Gloom daemon. A later start removes them once that daemon has gone.\n"
	submitName   = "submit"
	workName     = "work"
	httpName     = "http"

	staleAge = time.Minute // least age at which a killed daemon's folder is removed
)

// makeFolder makes a folder that only this user can reach.
func makeFolder() (*socketFolder, error) {
	dir, err := os.MkdirTemp("", folderPrefix)
	if err != nil {
		return nil, err
	}
	f := &socketFolder{dir: dir}
	f.lock, err = os.OpenFile(filepath.Join(dir, markName), os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err == nil {
		err = syscall.Flock(int(f.lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	}
	if err == nil {
		_, err = f.lock.WriteString(markText)
	}
	if err != nil {
		f.remove()
		return nil, err
	}
	return f, nil
}

// socket returns the address of the folder's socket with this name.
func (f *socketFolder) socket(name string) string { return "unix:" + filepath.Join(f.dir, name) }

// remove removes the folder and the files that belong to it, the mark last.
func (f *socketFolder) remove() {
	for _, name := range []string{submitName, workName, httpName, markName} {
		_ = os.Remove(filepath.Join(f.dir, name))
	}
	_ = os.Remove(f.dir)
	if f.lock != nil {
		f.lock.Close()
	}
}

// removeStale removes the folders of killed daemons in a directory.
func removeStale(parent string) {
	entries, _ := os.ReadDir(parent)
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), folderPrefix) {
			continue
		}
		if f, err := lockAbandoned(filepath.Join(parent, e.Name())); err == nil {
			f.remove()
		}
	}
}

var errForeignFolder = errors.New("not the socket folder of a dead daemon")

// lockAbandoned locks a folder whose daemon is gone. The folder must be a directory of this user
// that has the mark, and only files that belong to such a folder.
func lockAbandoned(dir string) (_ *socketFolder, err error) {
	if info, err := os.Lstat(dir); err != nil || !info.IsDir() || !isOwn(info) {
		return nil, errForeignFolder
	}
	f := &socketFolder{dir: dir}
	if f.lock, err = os.OpenFile(filepath.Join(dir, markName), os.O_RDWR|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0); err != nil {
		return nil, err
	}
	if !f.isAbandoned() {
		f.lock.Close()
		return nil, errForeignFolder
	}
	return f, nil
}

func (f *socketFolder) isAbandoned() bool {
	// The daemon of a young folder may not have locked it yet.
	if info, err := f.lock.Stat(); err != nil || !info.Mode().IsRegular() || !isOwn(info) || time.Since(info.ModTime()) < staleAge {
		return false
	}
	if syscall.Flock(int(f.lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
		return false // its daemon lives
	}
	text := make([]byte, len(markText)+1)
	if n, _ := f.lock.ReadAt(text, 0); string(text[:n]) != markText {
		return false
	}
	entries, err := os.ReadDir(f.dir)
	return err == nil && !slices.ContainsFunc(entries, func(e fs.DirEntry) bool {
		switch e.Name() {
		case submitName, workName, httpName:
			return e.Type() != fs.ModeSocket
		}
		return e.Name() != markName
	})
}

func isOwn(info fs.FileInfo) bool {
	s, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(s.Uid) == os.Geteuid()
}
