// Package journal keeps what clients added on this host's disk until a store has
// it. An append returns when its lines are synced; one sync serves all who wait.
// A reader reserves records from the front, and what it does not sync in time
// goes back there.
//
// A journal is a directory of segments, files of records in the text's format,
// each named for an id: those of the records in it are greater. A segment is
// written in one life of a daemon and never again, so that its name and an
// offset say for ever how far a store has read, whatever happened to the
// directory in between. Each begins with an empty record that says where the one
// before it ends: what stands behind that was refused and is nobody's.
//
// The package neither decides when to read nor knows stores.
package journal
