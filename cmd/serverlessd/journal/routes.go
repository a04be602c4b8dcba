package journal

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// Routes reads the notes of a journal's directory, and returns what writes them.
func Routes(dir string) (notes []Note, save func([]Note) error, err error) {
	path := filepath.Join(dir, "routes.json")
	text, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(text, &notes)
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, nil, fmt.Errorf("%s, which says what of the journal went to which store: %w", path, err)
	}
	return notes, func(notes []Note) error { return replace(path, notes) }, nil
}

// replace writes a file so that it is there whole or as it was.
func replace(path string, content any) error {
	text, err := json.Marshal(content)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path+".new", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(text, '\n'))
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		os.Remove(path + ".new")
		return err
	}
	return syncDirectory(filepath.Dir(path))
}
