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
	// insidePrefix is the prefix of the lanes of stores that are in the journal's own directory, which
	// may be moved or mounted elsewhere.
	insidePrefix = sqlitePrefix + "DIR/"
	// outsidePrefix is the prefix of the lanes of stores in other files.
	outsidePrefix = sqlitePrefix + "FILE/"
	// ownFile is the file of a directory's default store.
	ownFile = "store.db"
)

// OwnStore returns the address of a directory's default store.
func OwnStore(dir string) string { return sqlitePrefix + dir + "/" + ownFile }

// laneOf returns the name of a store's lane in the notes of a directory's journal.
func laneOf(dir, store string) string {
	path, ok := strings.CutPrefix(store, sqlitePrefix)
	dir, err := filepath.Abs(dir)
	path, err2 := filepath.Abs(path)
	if !ok || errors.Join(err, err2) != nil {
		return store
	}
	if rel, err := filepath.Rel(dir, path); err == nil && filepath.IsLocal(rel) {
		return insidePrefix + rel
	}
	return outsidePrefix + path
}

// renameLanes converts the names of lanes in the notes of an earlier version, which used the address of
// the store as it was given. A directory's default store keeps its lane when the directory is
// moved.
func renameLanes(dir string, lanes []string, notes []journal.Note) []journal.Note {
	earlier := len(notes) > 0
	for i, n := range notes {
		if strings.HasPrefix(n.Lane, insidePrefix) || strings.HasPrefix(n.Lane, outsidePrefix) {
			earlier = false
		} else {
			notes[i].Lane = laneOf(dir, n.Lane)
		}
	}
	if !earlier || !slices.Contains(lanes, insidePrefix+ownFile) {
		return notes
	}
	old := notes[0].Lane
	others := slices.ContainsFunc(notes, func(n journal.Note) bool { return n.Lane != old })
	_, err := os.Stat(filepath.Join(dir, ownFile))
	if others || err != nil || slices.Contains(lanes, old) || strings.HasPrefix(old, insidePrefix) || filepath.Base(old) != ownFile {
		return notes
	}
	for i := range notes {
		notes[i].Lane = insidePrefix + ownFile
	}
	return notes
}
