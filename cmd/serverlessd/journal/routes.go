package journal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"gloom/cmd/internal/durable"
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
	// Both files that replace writes in turn, while there is room for them.
	if errors.Is(err, os.ErrNotExist) {
		_ = replace(path, []Note{})
	}
	if _, err := os.Stat(path + ".new"); errors.Is(err, os.ErrNotExist) {
		_ = os.WriteFile(path+".new", bytes.Repeat([]byte{'\n'}, block), 0o600)
	}
	return notes, func(notes []Note) error { return replace(path, notes) }, nil
}

// block is what files are made larger by, in bytes.
const block = 4096

// replace writes a file so that it is there whole or as it was. The one before stays
// beside it, and is written over the next time: that takes no room, which a full disk
// has none of.
func replace(path string, content any) error {
	text, err := json.Marshal(content)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path+".new", os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err == nil {
		size := (max(int64(len(text)+1), info.Size()) + block - 1) / block * block
		text = append(text, bytes.Repeat([]byte{'\n'}, int(size)-len(text))...)
		_, err = f.WriteAt(text, 0)
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = exchange(path+".new", path)
	}
	if err != nil {
		return err
	}
	return durable.SyncDir(filepath.Dir(path))
}
