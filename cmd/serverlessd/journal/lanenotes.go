package journal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"gloom/broker/guard"
	"gloom/cmd/internal/durable"
)

// LoadLaneNotes reads the notes from their file in the journal's directory. save replaces that
// file.
func LoadLaneNotes(dir string) (notes []LaneNote, save func([]LaneNote) error, err error) {
	path := filepath.Join(dir, "routes.json")
	text, err := guard.ReadFile(path)
	if err == nil {
		if jsonErr := json.Unmarshal(text, &notes); jsonErr != nil {
			return nil, nil, fmt.Errorf("%s is damaged: %w; it says which store gets which part of the journal; remove it: with one --store nothing is lost or run twice, with several all jobs in the journal go to the first, also those that another store has", path, jsonErr)
		}
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, nil, err
	}
	// replace needs a second file beside the notes. Both files are created now, while the disk has room.
	if errors.Is(err, os.ErrNotExist) {
		_ = replace(path, []LaneNote{})
	}
	if _, err := os.Stat(path + ".new"); errors.Is(err, os.ErrNotExist) {
		_ = os.WriteFile(path+".new", bytes.Repeat([]byte{'\n'}, blockSize), 0o600)
	}
	return notes, func(notes []LaneNote) error { return replace(path, notes) }, nil
}

// blockSize is the unit in bytes to which the size of the files is rounded up.
const blockSize = 4096

// replace replaces the content of a file so that after a crash it has either the old or the new
// content. The old file is kept beside it and overwritten the next time, so that it needs no room
// on a full disk.
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
		size := (max(int64(len(text)+1), info.Size()) + blockSize - 1) / blockSize * blockSize
		text = append(text, bytes.Repeat([]byte{'\n'}, int(size)-len(text))...)
		_, err = f.WriteAt(text, 0)
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = swapOrRename(path+".new", path)
	}
	if err != nil {
		return err
	}
	return durable.SyncDir(filepath.Dir(path))
}
