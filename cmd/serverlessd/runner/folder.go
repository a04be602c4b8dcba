package runner

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// The directories of handler processes are in a folder with a unique name and a marker file. The
// runner removes only folders that have such a name and the marker file.
const (
	folderPrefix = "contexts-"
	markFile     = "serverlessd-contexts.mark"
	folderText   = "Directories of handlers' processes. A later start of serverlessd removes them once their daemon has gone.\n"
)

// makeFolder makes a folder in the daemon's directory, and removes the folders that killed daemons
// have left there. If the disk is full, it makes the folder among the system's temporary files, so
// that waiting jobs can still run.
func makeFolder(dir string) (string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", err
	}
	for _, e := range entries {
		if e.IsDir() && strings.HasPrefix(e.Name(), folderPrefix) {
			err = errors.Join(err, removeFolder(filepath.Join(dir, e.Name())))
		}
	}
	if err != nil {
		return "", err
	}
	path, err := markedFolder(dir)
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return markedFolder(os.TempDir())
	}
	return path, err
}

// markedFolder makes a folder with a mark. If it fails, it leaves nothing behind. Other users may
// reach their own files in the folder, but not list it.
func markedFolder(parent string) (string, error) {
	dir, err := os.MkdirTemp(parent, folderPrefix)
	if err != nil {
		return "", err
	}
	mark := filepath.Join(dir, markFile)
	if err = os.WriteFile(mark, []byte(folderText), 0o600); err == nil {
		err = os.Chmod(dir, 0o711)
	}
	if err != nil {
		_ = os.Remove(mark)
		_ = os.Remove(dir)
	}
	return dir, err
}

// removeFolder removes a folder that has the mark. It removes the mark last.
func removeFolder(dir string) error {
	mark := filepath.Join(dir, markFile)
	if text, err := os.ReadFile(mark); err != nil || string(text) != folderText {
		return nil // another user owns the folder
	}
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if e.Name() != markFile {
			err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
		}
	}
	if err == nil {
		err = errors.Join(os.Remove(mark), os.Remove(dir))
	}
	return err
}
