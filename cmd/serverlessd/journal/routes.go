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

// Routes reads the notes of a journal's directory, and returns the function that writes them.
func Routes(dir string) (notes []Note, save func([]Note) error, err error) {
	path := filepath.Join(dir, "routes.json")
	text, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(text, &notes)
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, nil, fmt.Errorf("%s, which says which part of the journal went to which store: %w", path, err)
	}
	// replace writes to two files in turn. Create them now, while the disk has room.
	if errors.Is(err, os.ErrNotExist) {
		_ = replace(path, []Note{})
	}
	if _, err := os.Stat(path + ".new"); errors.Is(err, os.ErrNotExist) {
		_ = os.WriteFile(path+".new", bytes.Repeat([]byte{'\n'}, block), 0o600)
	}
	return notes, func(notes []Note) error { return replace(path, notes) }, nil
}

// block is the number of bytes by which files grow.
const block = 4096

// replace writes a file so that either the old or the new content is there. The old file stays
// beside it and is overwritten the next time: that takes no room, which a full disk does not have.
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
