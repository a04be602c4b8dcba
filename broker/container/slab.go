package container

import "encoding/binary"

const (
	// slabSize is the size of a slab in bytes. An entry is always within one slab.
	slabSize = 1 << 20
	// entryHead is the size of the head of an entry: the record's number and the entry's
	// length.
	entryHead = 8
	// slabSlack is how many bytes may be wasted before a compaction is worth it.
	slabSlack = 8 << 20
	// Up to slabSpare empty slabs are kept for the next jobs, and one more for every slabShare
	// slabs in use: fresh pages cost more than the memory that empty slabs hold.
	slabSpare = 4
	slabShare = 16
)

// Slabs is an append-only store of bytes for records: entries of up to 1 MiB - 8 bytes, each
// at an offset in a numbered slab. A slab whose last entry is dropped is freed as a whole.
// If long-lived entries keep many slabs nearly empty, these entries are moved together. Each
// Drop moves the entries of at most one slab.
//
// Bytes that were returned stay unchanged until the next call of Settle, whatever is dropped
// or moved in between.
type Slabs struct {
	// Pages provides the memory of slabs. It must be set before the first entry.
	Pages  Pages
	all    []slab
	holes  []uint32 // numbers of slabs that were given back
	gone   []uint32 // slabs without entries, to be given back by Settle
	head   uint32   // the slab being filled
	live   int64    // bytes of live entries
	held   int64    // bytes of all slabs in use
	spare  [][]byte // empty slabs kept for later
	cursor uint32   // where the next search for a slab worth compacting starts
	// Lives reports whether the entry at this place still belongs to its record.
	Lives func(rec, slab, off uint32) bool
	// Place tells a record where its entry has moved.
	Place func(rec, slab, off uint32)
}

type slab struct {
	mem  []byte
	used uint32
	live uint32 // bytes of live entries
}

// Add stores parts side by side for record rec and returns their place.
func (s *Slabs) Add(rec uint32, a, b, c []byte) (slabNo, off uint32) {
	need := uint32(entryHead + len(a) + len(b) + len(c))
	no, at := s.room(need)
	m := s.all[no].mem[at : at+need]
	binary.LittleEndian.PutUint32(m, rec)
	binary.LittleEndian.PutUint32(m[4:], need)
	copy(m[entryHead:], a)
	if len(b) > 0 {
		copy(m[entryHead+len(a):], b)
	}
	copy(m[entryHead+len(a)+len(b):], c)
	return no, at + entryHead
}

// room reserves need bytes in the head slab, or in a new slab.
func (s *Slabs) room(need uint32) (no, at uint32) {
	if len(s.all) == 0 || s.all[s.head].mem == nil || s.all[s.head].used+need > slabSize {
		if len(s.all) > 0 && s.all[s.head].mem != nil && s.all[s.head].live == 0 {
			s.gone = append(s.gone, s.head)
		}
		if k := len(s.holes); k > 0 {
			s.head = s.holes[k-1]
			s.holes = s.holes[:k-1]
		} else {
			s.head = uint32(len(s.all))
			s.all = append(s.all, slab{})
		}
		s.all[s.head] = slab{mem: s.fresh()}
		s.held += slabSize
	}
	b := &s.all[s.head]
	at = b.used
	b.used += need
	b.live += need
	s.live += int64(need)
	return s.head, at
}

func (s *Slabs) fresh() []byte {
	if k := len(s.spare); k > 0 {
		m := s.spare[k-1]
		s.spare[k-1] = nil
		s.spare = s.spare[:k-1]
		return m
	}
	return s.Pages.Get(slabSize)
}

// Bytes returns the first n bytes of an entry, or n bytes from any offset in it.
func (s *Slabs) Bytes(no, off, n uint32) []byte { return s.all[no].mem[off : off+n : off+n] }

// Length returns the length of the entry whose payload begins at off.
func (s *Slabs) Length(no, off uint32) uint32 {
	return binary.LittleEndian.Uint32(s.all[no].mem[off-4:]) - entryHead
}

// Drop frees the entry whose payload begins at off. Before the call, Lives must have become
// false for this entry.
func (s *Slabs) Drop(no, off uint32) {
	b := &s.all[no]
	need := binary.LittleEndian.Uint32(b.mem[off-4:])
	b.live -= need
	s.live -= int64(need)
	if b.live == 0 && no != s.head {
		s.gone = append(s.gone, no)
		return
	}
	if s.held > 2*s.live+slabSlack {
		s.compactOne()
	}
}

// compactOne examines one slab and moves its entries to the head slab if less than half of
// it is live. It is called for every dropped entry while more than half of all slabs is
// wasted, which is often enough to find the slabs worth moving.
func (s *Slabs) compactOne() {
	s.cursor++
	if s.cursor >= uint32(len(s.all)) {
		s.cursor = 0
	}
	no := s.cursor
	b := s.all[no]
	if no == s.head || b.mem == nil || b.live == 0 || b.live > b.used/2 {
		return
	}
	for at := uint32(0); at < b.used; {
		rec := binary.LittleEndian.Uint32(b.mem[at:])
		need := binary.LittleEndian.Uint32(b.mem[at+4:])
		if s.Lives(rec, no, at+entryHead) {
			n, to := s.room(need)
			copy(s.all[n].mem[to:to+need], b.mem[at:at+need])
			s.Place(rec, n, to+entryHead)
			s.live -= int64(need)
			s.all[no].live -= need
		}
		at += need
	}
	s.gone = append(s.gone, no)
}

// Held returns how many bytes all slabs occupy, spare ones included.
func (s *Slabs) Held() int64 { return s.held + int64(len(s.spare))*slabSize }

// Settle frees the slabs that have become empty since the last call. Bytes that were returned
// before the call are no longer valid.
func (s *Slabs) Settle() {
	if len(s.all) > 0 {
		if h := &s.all[s.head]; h.live == 0 && h.used > 0 {
			if Checking {
				scribble(h.mem[:h.used])
			}
			h.used = 0
		}
	}
	if len(s.gone) == 0 {
		return
	}
	for _, no := range s.gone {
		if Checking {
			scribble(s.all[no].mem)
		}
		s.spare = append(s.spare, s.all[no].mem)
		s.all[no] = slab{}
		s.held -= slabSize
		s.holes = append(s.holes, no)
	}
	s.gone = s.gone[:0]
	for k := len(s.spare); k > slabSpare+int(s.held/slabSize/slabShare); k-- {
		s.Pages.Put(s.spare[k-1])
		s.spare[k-1] = nil
		s.spare = s.spare[:k-1]
	}
}
