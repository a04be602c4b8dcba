package container

import (
	"hash/maphash"
	"unsafe"
)

const (
	// segmentSlots is the number of slots in a segment (2,304 bytes with its head). A segment with
	// segmentFull entries is split. A segment with segmentSparse entries is joined with its twin
	// if both together have at most segmentJoined.
	segmentSlots  = 287
	segmentFull   = segmentSlots * 9 / 10
	segmentSparse = segmentSlots / 10
	segmentJoined = segmentSlots / 5
	// indexBits is the largest number of bits of a tag that choose a segment. Only more than
	// a billion entries need them all.
	indexBits = 24
)

// Index finds records by id. The first bits of a hash choose a segment in a directory; in a
// segment, entries are found by open addressing with linear probing. A full segment is
// split, and two nearly empty ones are joined. So no insertion moves more than a few hundred
// entries, and memory is proportional to the number of entries.
//
// A slot holds the tag, which is 32 bits of the hash, and the record's number. The hash is
// seeded at random in each process, since ids come from outside.
//
// Find, Insert and Remove cost O(1) apart from splits and joins.
type Index struct {
	// Seed and Equal must be set before the first id.
	Seed maphash.Seed
	// directory has 1<<bits entries. A segment with fewer bits is in directory several times.
	directory []*segment
	bits      uint8
	// countByBits counts segments by their bits.
	countByBits [indexBits + 1]int
	// Equal reports whether record rec has this id.
	Equal func(rec uint32, id []byte) bool
}

// segment is a hash table of the entries whose tags begin alike.
type segment struct {
	n     uint32
	bits  uint8                // how many leading bits the tags of all its entries share
	slots [segmentSlots]uint64 // tag<<32 | record; 0 is empty
}

// Hash returns the hash of an id, which the other methods take.
func (ix *Index) Hash(id []byte) uint64 { return maphash.Bytes(ix.Seed, id) }

// tagOf returns the part of a hash that the index keeps.
func tagOf(hash uint64) uint32 { return uint32(hash >> 32) }

// homeSlot returns the slot at which the probe for a tag begins. Tags in a segment begin alike, so
// their other bits are mixed first.
func homeSlot(tag uint32) int {
	return int(uint64(tag*0x9e3779b1) * segmentSlots >> 32)
}

// HeldBytes returns how many bytes the index occupies.
func (ix *Index) HeldBytes() int64 {
	n := int64(len(ix.directory)) * 8
	for _, segments := range ix.countByBits {
		n += int64(segments) * int64(unsafe.Sizeof(segment{}))
	}
	return n
}

// eachSegment calls f with every segment once.
func (ix *Index) eachSegment(f func(*segment)) {
	for i := 0; i < len(ix.directory); i += 1 << (ix.bits - ix.directory[i].bits) {
		f(ix.directory[i])
	}
}

// segment returns the segment for a tag, nil if there is none.
func (ix *Index) segment(tag uint32) *segment {
	if len(ix.directory) == 0 {
		return nil
	}
	return ix.directory[uint64(tag)>>(32-ix.bits)]
}

// Prefetch reads the slot at which the search for an id begins, and returns a
// meaningless value. If it is called for several ids one after the other, their memory is fetched
// at the same time.
//
//go:noinline
func (ix *Index) Prefetch(hash uint64) uint64 {
	tag := tagOf(hash)
	if g := ix.segment(tag); g != nil {
		return g.slots[homeSlot(tag)]
	}
	return 0
}

// Find returns the record with this id, or 0.
func (ix *Index) Find(hash uint64, id []byte) uint32 {
	tag := tagOf(hash)
	g := ix.segment(tag)
	if g == nil {
		return 0
	}
	for i := homeSlot(tag); ; {
		s := g.slots[i]
		if s == 0 {
			return 0
		}
		if uint32(s>>32) == tag && ix.Equal(uint32(s), id) {
			return uint32(s)
		}
		if i++; i == segmentSlots {
			i = 0
		}
	}
}

// Insert adds rec under hash. There must be no record with the same id.
func (ix *Index) Insert(hash uint64, rec uint32) {
	tag := tagOf(hash)
	if len(ix.directory) == 0 {
		ix.directory = []*segment{{}}
		ix.countByBits[0] = 1
	}
	g := ix.segment(tag)
	for g.n >= segmentFull && g.bits < indexBits {
		ix.split(g, tag)
		g = ix.segment(tag)
	}
	g.insert(uint64(tag)<<32 | uint64(rec))
}

// split moves those of g's entries whose tags have the next bit set, about half of them, to a
// new segment. tag is one of g's tags.
func (ix *Index) split(g *segment, tag uint32) {
	if g.bits == ix.bits {
		directory := make([]*segment, 2*len(ix.directory))
		for i, g := range ix.directory {
			directory[2*i], directory[2*i+1] = g, g
		}
		ix.directory = directory
		ix.bits++
	}
	ix.countByBits[g.bits]--
	g.bits++
	ix.countByBits[g.bits] += 2
	upper := &segment{bits: g.bits}
	oldSlots := g.slots
	g.slots, g.n = [segmentSlots]uint64{}, 0
	for _, s := range oldSlots {
		switch {
		case s == 0:
		case s>>(64-g.bits)&1 == 0:
			g.insert(s)
		default:
			upper.insert(s)
		}
	}
	ix.setSegment(upper, tag|1<<(32-g.bits))
}

// setSegment enters g in the directory for all tags whose leading g.bits bits are those of tag.
func (ix *Index) setSegment(g *segment, tag uint32) {
	n := 1 << (ix.bits - g.bits)
	from := int(uint64(tag)>>(32-g.bits)) * n
	for i := range n {
		ix.directory[from+i] = g
	}
}

func (g *segment) insert(s uint64) {
	if g.n == segmentSlots-1 {
		panic("index: hundreds of ids have hashes that begin alike")
	}
	i := homeSlot(uint32(s >> 32))
	for g.slots[i] != 0 {
		if i++; i == segmentSlots {
			i = 0
		}
	}
	g.slots[i] = s
	g.n++
}

// locate returns the slot of rec, or -1.
func (g *segment) locate(tag, rec uint32) int {
	if g == nil {
		return -1
	}
	want := uint64(tag)<<32 | uint64(rec)
	for i := homeSlot(tag); g.slots[i] != 0; {
		if g.slots[i] == want {
			return i
		}
		if i++; i == segmentSlots {
			i = 0
		}
	}
	return -1
}

// Remove removes rec if it is there.
func (ix *Index) Remove(hash uint64, rec uint32) {
	tag := tagOf(hash)
	g := ix.segment(tag)
	i := g.locate(tag, rec)
	if i < 0 {
		return
	}
	g.remove(i)
	if g.n <= segmentSparse && g.bits > 0 {
		ix.join(g, tag)
	}
}

// remove removes the entry in slot i.
func (g *segment) remove(i int) {
	g.n--
	// Then move back the entries that a probe would no longer find, because it stops at the
	// empty slot.
	for j := i; ; {
		if j++; j == segmentSlots {
			j = 0
		}
		if g.slots[j] == 0 {
			break
		}
		h := homeSlot(uint32(g.slots[j] >> 32))
		if i <= j && (h <= i || h > j) || i > j && h <= i && h > j {
			g.slots[i] = g.slots[j]
			i = j
		}
	}
	g.slots[i] = 0
}

// join joins g, whose tags begin like tag, with its twin while both have few entries. The
// twin's tags differ from those of g in the last bit that g's tags share.
func (ix *Index) join(g *segment, tag uint32) {
	for g.bits > 0 && g.n <= segmentSparse {
		twin := ix.segment(tag ^ 1<<(32-g.bits))
		if twin.bits != g.bits || g.n+twin.n > segmentJoined {
			break
		}
		for _, s := range twin.slots {
			if s != 0 {
				g.insert(s)
			}
		}
		ix.countByBits[g.bits] -= 2
		g.bits--
		ix.countByBits[g.bits]++
		ix.setSegment(g, tag)
	}
	for ix.bits > 0 && ix.countByBits[ix.bits] == 0 {
		directory := make([]*segment, len(ix.directory)/2)
		for i := range directory {
			directory[i] = ix.directory[2*i]
		}
		ix.directory = directory
		ix.bits--
	}
}
