// Package journal keeps the lines that clients have added on this host's disk until a store has
// them. An append returns when its lines are synced; one sync serves all appends that wait. A
// reader reserves records from the front. Records that it does not sync in time go back to the
// front.
//
// A journal is a directory of segments: files of records in a text format. A segment is named by an
// id, and all ids in it are greater. It is written by one process of the daemon and never again. So its
// name and an offset always say how far a store has read, whatever happens to the directory. Each
// segment begins with an empty record that says where the one before it ends: anything after that
// end was refused.
//
// The package does not decide when to read, and knows no stores.
package journal
