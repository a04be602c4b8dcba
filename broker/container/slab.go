package container

import "encoding/binary"

const (
	// slabSize is the size of a slab in bytes. An entry is always within one slab.
	slabSize = 1 << 20
	// entryHead is the size of the head of an entry. The head of a live entry is the number of its
	// record, that of a dropped one deadEntry plus its size with the head.
	entryHead = 4
	deadEntry = 1 << 31
	// slabSlack is how many bytes may be wasted before a compaction is worth it.
	slabSlack = 8 << 20
	// Up to slabSpare empty slabs are kept for the next jobs, and one more for every slabShare
	// slabs in use: fresh pages cost more than the memory that empty slabs hold.
	slabSpare = 4
	slabShare = 16
)

// Slabs is an append-only store of bytes for records with numbers below 1<<31: entries of up to 1
// MiB - 4 bytes, each at an offset in a numbered slab. A slab whose last entry is dropped is freed
// as a whole. If long-lived entries keep many slabs nearly empty, these entries are moved together.
// Each Drop moves the entries of at most one slab.
//
// Bytes that were returned stay unchanged until the next call of FreeEmpty, whatever is dropped
// or moved in between.
type Slabs struct {
	// Pages provides the memory of slabs. It must be set before the first entry.
	Pages           Pages
	slabs           []slab
	freeSlabNumbers []uint32 // numbers of slabs that were given back
	emptySlabs      []uint32 // slabs without entries, to be given back by FreeEmpty
	headSlab        uint32   // the slab being filled
	liveBytes       int64    // bytes of live entries
	heldBytes       int64    // bytes of all slabs in use
	spareSlabs      [][]byte // empty slabs kept for later
	cursor          uint32   // where the next search for a slab worth compacting starts
	// Length returns how many bytes a record has in its entry.
	Length func(rec uint32) uint32
	// SetPos tells a record where its entry has moved.
	SetPos func(rec, slab, offset uint32)
}

// slab is one piece of memory, which is filled from the front.
type slab struct {
	mem       []byte
	usedBytes uint32
	liveBytes uint32 // bytes of live entries
}

// Add stores parts side by side for record rec and returns their place.
func (s *Slabs) Add(rec uint32, a, b, c []byte) (slabNo, offset uint32) {
	size := uint32(entryHead + len(a) + len(b) + len(c))
	number, at := s.reserve(size)
	m := s.slabs[number].mem[at : at+size]
	binary.LittleEndian.PutUint32(m, rec)
	copy(m[entryHead:], a)
	if len(b) > 0 {
		copy(m[entryHead+len(a):], b)
	}
	copy(m[entryHead+len(a)+len(b):], c)
	return number, at + entryHead
}

// reserve reserves a number of bytes in the head slab, or in a new slab.
func (s *Slabs) reserve(size uint32) (number, at uint32) {
	if len(s.slabs) == 0 || s.slabs[s.headSlab].mem == nil || s.slabs[s.headSlab].usedBytes+size > slabSize {
		if len(s.slabs) > 0 && s.slabs[s.headSlab].mem != nil && s.slabs[s.headSlab].liveBytes == 0 {
			s.emptySlabs = append(s.emptySlabs, s.headSlab)
		}
		if k := len(s.freeSlabNumbers); k > 0 {
			s.headSlab = s.freeSlabNumbers[k-1]
			s.freeSlabNumbers = s.freeSlabNumbers[:k-1]
		} else {
			s.headSlab = uint32(len(s.slabs))
			s.slabs = append(s.slabs, slab{})
		}
		s.slabs[s.headSlab] = slab{mem: s.newPage()}
		s.heldBytes += slabSize
	}
	b := &s.slabs[s.headSlab]
	at = b.usedBytes
	b.usedBytes += size
	b.liveBytes += size
	s.liveBytes += int64(size)
	return s.headSlab, at
}

func (s *Slabs) newPage() []byte {
	if k := len(s.spareSlabs); k > 0 {
		m := s.spareSlabs[k-1]
		s.spareSlabs[k-1] = nil
		s.spareSlabs = s.spareSlabs[:k-1]
		return m
	}
	return s.Pages.Get(slabSize)
}

// Bytes returns the first n bytes of an entry, or n bytes from any offset in it.
func (s *Slabs) Bytes(number, offset, n uint32) []byte {
	return s.slabs[number].mem[offset : offset+n : offset+n]
}

// Drop frees the entry with n bytes at offset.
func (s *Slabs) Drop(number, offset, n uint32) {
	b := &s.slabs[number]
	size := entryHead + n
	binary.LittleEndian.PutUint32(b.mem[offset-entryHead:], deadEntry|size)
	b.liveBytes -= size
	s.liveBytes -= int64(size)
	if b.liveBytes == 0 && number != s.headSlab {
		s.emptySlabs = append(s.emptySlabs, number)
		return
	}
	if s.heldBytes > 2*s.liveBytes+slabSlack {
		s.compactSlab()
	}
}

// compactSlab examines one slab and moves its entries to the head slab if less than half of
// it is live. It is called for every dropped entry while more than half of all slabs is
// wasted, which is often enough to find the slabs worth moving.
func (s *Slabs) compactSlab() {
	s.cursor++
	if s.cursor >= uint32(len(s.slabs)) {
		s.cursor = 0
	}
	number := s.cursor
	b := s.slabs[number]
	if number == s.headSlab || b.mem == nil || b.liveBytes == 0 || b.liveBytes > b.usedBytes/2 {
		return
	}
	for at := uint32(0); at < b.usedBytes; {
		rec := binary.LittleEndian.Uint32(b.mem[at:])
		size := rec &^ deadEntry
		if rec < deadEntry {
			size = entryHead + s.Length(rec)
			n, to := s.reserve(size)
			copy(s.slabs[n].mem[to:to+size], b.mem[at:at+size])
			s.SetPos(rec, n, to+entryHead)
			s.liveBytes -= int64(size)
			s.slabs[number].liveBytes -= size
		}
		at += size
	}
	s.emptySlabs = append(s.emptySlabs, number)
}

// HeldBytes returns how many bytes all slabs occupy, spare ones included.
func (s *Slabs) HeldBytes() int64 { return s.heldBytes + int64(len(s.spareSlabs))*slabSize }

// FreeEmpty frees the slabs that have become empty since the last call. Bytes that were returned
// before the call are no longer valid.
func (s *Slabs) FreeEmpty() {
	if len(s.slabs) > 0 {
		if h := &s.slabs[s.headSlab]; h.liveBytes == 0 && h.usedBytes > 0 {
			if InvariantsEnabled {
				overwrite(h.mem[:h.usedBytes])
			}
			h.usedBytes = 0
		}
	}
	if len(s.emptySlabs) == 0 {
		return
	}
	for _, number := range s.emptySlabs {
		if InvariantsEnabled {
			overwrite(s.slabs[number].mem)
		}
		s.spareSlabs = append(s.spareSlabs, s.slabs[number].mem)
		s.slabs[number] = slab{}
		s.heldBytes -= slabSize
		s.freeSlabNumbers = append(s.freeSlabNumbers, number)
	}
	s.emptySlabs = s.emptySlabs[:0]
	for k := len(s.spareSlabs); k > slabSpare+int(s.heldBytes/slabSize/slabShare); k-- {
		s.Pages.Put(s.spareSlabs[k-1])
		s.spareSlabs[k-1] = nil
		s.spareSlabs = s.spareSlabs[:k-1]
	}
}
