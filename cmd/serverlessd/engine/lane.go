package engine

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"gloom/cmd/serverlessd/journal"
)

const (
	sqlitePrefix = "sqlite:"
	// inside begins the lanes of stores that are in the journal's own directory, wherever it is
	// moved or mounted.
	inside = sqlitePrefix + "DIR/"
	// outside begins the lanes of stores in other files.
	outside = sqlitePrefix + "FILE/"
	// ownFile is the store that a daemon makes there by default.
	ownFile = "store.db"
)

// OwnStore is the address of the store that a directory has by default.
func OwnStore(dir string) string { return sqlitePrefix + dir + "/" + ownFile }

// laneOf is the name of a store in the notes of a directory's journal.
func laneOf(dir, store string) string {
	path, ok := strings.CutPrefix(store, sqlitePrefix)
	dir, err := filepath.Abs(dir)
	path, err2 := filepath.Abs(path)
	if !ok || errors.Join(err, err2) != nil {
		return store
	}
	if rel, err := filepath.Rel(dir, path); err == nil && filepath.IsLocal(rel) {
		return inside + rel
	}
	return outside + path
}

// renamed changes the lanes in the notes of an earlier version, which named stores by their
// address as it was given. The default store of a directory stays in it when the directory is
// moved.
func renamed(dir string, lanes []string, notes []journal.Note) []journal.Note {
	earlier := len(notes) > 0
	for i, n := range notes {
		if strings.HasPrefix(n.Lane, inside) || strings.HasPrefix(n.Lane, outside) {
			earlier = false
		} else {
			notes[i].Lane = laneOf(dir, n.Lane)
		}
	}
	if !earlier || !slices.Contains(lanes, inside+ownFile) {
		return notes
	}
	old := notes[0].Lane
	others := slices.ContainsFunc(notes, func(n journal.Note) bool { return n.Lane != old })
	_, err := os.Stat(filepath.Join(dir, ownFile))
	if others || err != nil || slices.Contains(lanes, old) || strings.HasPrefix(old, inside) || filepath.Base(old) != ownFile {
		return notes
	}
	for i := range notes {
		notes[i].Lane = inside + ownFile
	}
	return notes
}
