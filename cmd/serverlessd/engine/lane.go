package engine

import (
	"errors"
	"path/filepath"
	"strings"
)

const (
	sqlitePrefix = "sqlite:"
	// ownLanePrefix begins the lanes of stores in the journal's own directory, which may be moved
	// or mounted elsewhere.
	ownLanePrefix = sqlitePrefix + "DIR/"
	// fileLanePrefix begins the lanes of stores in other files.
	fileLanePrefix = sqlitePrefix + "FILE/"
)

// DefaultStore returns the address of the store that a directory has by default.
func DefaultStore(dir string) string { return sqlitePrefix + dir + "/store.db" }

// laneOf returns the name of a store's lane in the notes of a directory's journal.
func laneOf(dir, store string) string {
	path, ok := strings.CutPrefix(store, sqlitePrefix)
	dir, err := filepath.Abs(dir)
	path, err2 := filepath.Abs(path)
	if !ok || errors.Join(err, err2) != nil {
		return store
	}
	if rel, err := filepath.Rel(dir, path); err == nil && filepath.IsLocal(rel) {
		return ownLanePrefix + rel
	}
	return fileLanePrefix + path
}
