// Package journal keeps the lines that clients have added on this host's disk until a store has
// them. An append returns when its lines are synced; one sync serves all waiting appends. A reader
// reserves records at the front of the journal, and calls Sync once a store has them. If it does
// not do so in time, the records return to the front.
//
// A journal is a directory of segments: files of records in a text format. A segment's name is an
// id, and all ids in the segment are greater. Only one process of the daemon ever writes to a
// segment. So a name and an offset always say how far a store has read, whatever happens to the
// directory. Each segment begins with an empty record that holds the end of the segment before it:
// lines after that end were refused.
//
// The package does not decide when records are read, and does not know the stores.
package journal
