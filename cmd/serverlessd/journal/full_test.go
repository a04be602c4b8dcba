package journal_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	. "gloom/cmd/serverlessd/journal"
)

// TestFullDiskDrains: on a full disk no line is accepted, even after a restart. Room comes when the
// journal's jobs have been written to a store.
func TestFullDiskDrains(t *testing.T) {
	for _, restart := range []bool{false, true} {
		t.Run(fmt.Sprint("restart ", restart), func(t *testing.T) {
			d := newDisk()
			d.free = 100_000
			j := open(t, d)
			put := func() error {
				_, err := j.Append(t.Context(), []Batch{batch("a-x", strings.Repeat("x", 1000))})
				return err
			}
			n := 0
			for err := error(nil); err == nil; n++ {
				if err = put(); err != nil && !errors.Is(err, ErrFull) {
					t.Fatal(err)
				}
			}
			d.mu.Lock()
			d.names["filler"] = &inode{data: make([]byte, d.free-d.used())} // the filler leaves no byte free
			d.mu.Unlock()
			if restart {
				j.Close()
				d = d.restart(false, nil)
				j = open(t, d)
			}
			if err := put(); !errors.Is(err, ErrFull) {
				t.Fatalf("on a full disk: %v", err)
			}
			equal(t, "lines", len(readRest(t, j)), n-1)
			for range 3 {
				if err := put(); err != nil {
					t.Fatalf("with room: %v", err)
				}
			}
			equal(t, "lines", len(readRest(t, j)), 3)
			j.Close()
			equal(t, "damaged", open(t, d.restart(false, nil)).Stats().DamagedBytes, 0)
		})
	}
}

// TestRequestLargerThanRest: a request that is too large for the rest of Max is refused, but the
// journal counts as full only if an ordinary request would be refused, too.
func TestRequestLargerThanRest(t *testing.T) {
	for _, c := range []struct {
		max    int64
		isFull bool
	}{{500_000, false}, {1_000, true}} {
		j := open(t, newDisk(), func(o *Options) { o.MaxBytes = c.max })
		if _, err := j.Append(t.Context(), []Batch{batch("a-x", strings.Repeat("x", 600_000))}); !errors.Is(err, ErrFull) {
			t.Fatalf("too large: %v", err)
		}
		equal(t, "refuses", j.LastRefusal() != nil, c.isFull)
		if _, err := j.Append(t.Context(), []Batch{batch("a-x", strings.Repeat("x", 2_000))}); errors.Is(err, ErrFull) != c.isFull {
			t.Errorf("an ordinary one: %v", err)
		}
		equal(t, "refuses", j.LastRefusal() != nil, c.isFull)
	}
}

// TestNotesOnAFullDisk: a journal opens even if its notes cannot be saved, and reads the notes that
// were saved before.
func TestNotesOnAFullDisk(t *testing.T) {
	d := newDisk()
	var saved []LaneNote
	lanes := func(names ...string) func(*Options) {
		return func(o *Options) {
			o.Lanes, o.Notes = names, saved
			o.SaveNotes = func(n []LaneNote) error { saved = n; return nil }
		}
	}
	j := open(t, d, lanes("a"))
	add(t, j, batch("a-x", "1"), batch("a-x", "2"))
	j.Close()
	full := true
	failing := func(names ...string) func(*Options) {
		return func(o *Options) {
			lanes(names...)(o)
			save := o.SaveNotes
			o.SaveNotes = func(n []LaneNote) error {
				if full {
					return errors.New("no space left")
				}
				return save(n)
			}
		}
	}
	d = d.restart(false, nil)
	j = open(t, d, failing("b", "a")) // another lane gets the remaining lines
	r, err := j.Reserve(cancelled(t), "a", 100, longTime)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "read", text(r.Read()), "a-x:1 a-x:2")
	if err := r.Sync(); err != nil {
		t.Fatal(err)
	}
	add(t, j, batch("a-x", "3"))
	if r, err := j.Reserve(cancelled(t), "b", 100, longTime); err == nil {
		t.Fatalf("%v was handed out, and nothing says to whom", text(r.Read()))
	}
	full = false
	if r, err = j.Reserve(cancelled(t), "b", 100, longTime); err != nil {
		t.Fatal(err)
	}
	equal(t, "read", text(r.Read()), "a-x:3")
	equal(t, "noted", saved[len(saved)-1].Lane, "b")
}
