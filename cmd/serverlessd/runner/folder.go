package runner

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
)

// The contexts' directories stand in a folder with a name and a mark that nothing else
// has. Nothing is removed but what such a folder holds.
const (
	folderPrefix = "contexts-"
	folderMark   = "serverlessd-contexts.mark"
	folderText   = "Directories of handlers' processes; the next start of serverlessd removes them when their daemon is gone.\n"
)

// makeFolder makes one in a directory, which this daemon alone has, and removes those
// that killed daemons have left there. Others may pass it, to what is theirs below, not
// look.
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
	if dir, err = os.MkdirTemp(dir, folderPrefix); err != nil {
		return "", err
	}
	if err = os.WriteFile(filepath.Join(dir, folderMark), []byte(folderText), 0o600); err == nil {
		err = os.Chmod(dir, 0o711)
	}
	return dir, err
}

// removeFolder removes a folder that has the mark, the mark last.
func removeFolder(dir string) error {
	mark := filepath.Join(dir, folderMark)
	if text, err := os.ReadFile(mark); err != nil || string(text) != folderText {
		return nil // somebody else's
	}
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if e.Name() != folderMark {
			err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
		}
	}
	if err == nil {
		err = errors.Join(os.Remove(mark), os.Remove(dir))
	}
	return err
}
