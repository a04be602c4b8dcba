//go:build invariants

package container

import (
	"encoding/binary"
	"fmt"
)

// InvariantsEnabled reports whether invariants are checked: the build tag invariants is set.
const InvariantsEnabled = true

// overwrite overwrites memory that must not be read any more, so that a read of it is noticed.
func overwrite(m []byte) {
	for i := range m {
		m[i] = 0xA5
	}
}

// Check checks that the elements are in order, and that each element is at the position that SetPos
// was given.
func (h *Heap) Check(pos func(ref uint32) int32) error {
	for i := range h.n {
		if x := h.At(i); pos(x.Ref) != int32(i) {
			return fmt.Errorf("element %d has position %d", i, pos(x.Ref))
		} else if i > 0 && x.Before(h.At((i-1)/4)) {
			return fmt.Errorf("out of order at %d", i)
		}
	}
	return nil
}

// OwnBytes returns how many of the bytes in Bytes belong to this heap.
func (h *Heap) OwnBytes() (n int64) {
	for _, c := range h.chunks {
		n += int64(len(c)) * entrySize
	}
	return n
}

// Check checks that each chunk counts its records in use. It calls fn for every record; fn
// reports whether the record is in use.
func (t *Table[T]) Check(fn func(r uint32, x *T) bool) error {
	for n, c := range t.chunks {
		if c == nil {
			continue
		}
		live := 0
		for i := range c.records {
			if fn(uint32(n)<<tableShift|uint32(i), &c.records[i]) {
				live++
			}
		}
		if live != int(c.liveRecords) {
			return fmt.Errorf("chunk %d counts %d of %d live records", n, c.liveRecords, live)
		}
	}
	return nil
}

// Size returns the size of the entry at offset in bytes, 0 unless it is the live entry of this record.
func (s *Slabs) Size(rec, number, offset uint32) uint32 {
	if binary.LittleEndian.Uint32(s.slabs[number].mem[offset-entryHead:]) != rec {
		return 0
	}
	return entryHead + s.Length(rec)
}

// Check checks the counts of slabs, given the size of the live entries of each.
func (s *Slabs) Check(sizes map[uint32]uint32) error {
	total := int64(0)
	for number := range s.slabs {
		x, live := &s.slabs[number], sizes[uint32(number)]
		total += int64(live)
		if x.liveBytes != live || x.liveBytes > x.usedBytes || int(x.usedBytes) > len(x.mem) {
			return fmt.Errorf("slab %d counts %d live bytes of %d used ones of %d, has %d", number, x.liveBytes, x.usedBytes, len(x.mem), live)
		}
	}
	if s.liveBytes != total {
		return fmt.Errorf("slabs count %d live bytes, have %d", s.liveBytes, total)
	}
	return nil
}

// Check checks that the index has n ids, and that Find finds each id.
func (ix *Index) Check(n uint32) (err error) {
	at, ids := 0, uint32(0)
	ix.eachSegment(func(g *segment) {
		used := uint32(0)
		for _, s := range g.slots {
			if s == 0 {
				continue
			}
			used++
			if ix.segment(uint32(s>>32)) != g {
				err = fmt.Errorf("an id is not in the segment that its tag selects")
			}
		}
		ids += used
		if used != g.n {
			err = fmt.Errorf("a segment counts %d ids, has %d", g.n, used)
		}
		for range 1 << (ix.bits - g.bits) {
			if ix.directory[at] != g {
				err = fmt.Errorf("the directory names a segment outside its range")
			}
			at++
		}
	})
	switch {
	case at != len(ix.directory):
		err = fmt.Errorf("the directory has %d entries, its segments account for %d", len(ix.directory), at)
	case ids != n:
		err = fmt.Errorf("%d ids are there, want %d", ids, n)
	}
	return err
}
