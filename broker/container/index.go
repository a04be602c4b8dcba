package container

import (
	"hash/maphash"
	"unsafe"
)

const (
	// segmentSlots is the size of a segment (2 KiB with its head), segmentFull how
	// many entries split it, segmentFew with how many it looks whether it can be
	// joined with its twin, and segmentJoined how many the two may then have.
	segmentSlots  = 255
	segmentFull   = segmentSlots * 4 / 5
	segmentFew    = segmentSlots / 10
	segmentJoined = segmentSlots / 5
	// indexBits is the most bits of a tag that choose a segment. More than a
	// billion entries need them all.
	indexBits = 24
)

// Index finds records by id. A directory names a segment by the first bits of a
// hash; in a segment, entries lie by open addressing with linear probing. A full
// segment splits in two, two empty ones join, so that no insertion moves more
// than a few hundred entries, and what the index takes follows what is in it.
//
// A slot holds 32 bits of the hash, its tag, and the record's number. The hash
// is random for each process, since ids come from outside.
//
// To find, insert and remove cost O(1), but for a split or a join of segments.
type Index struct {
	// Seed and Equal must be set before the first id.
	Seed maphash.Seed
	// dir has 1<<bits entries; a segment that shares fewer bits stands in it
	// several times.
	dir  []*segment
	bits uint8
	// sharing counts segments by the bits they share.
	sharing [indexBits + 1]int
	// Equal says whether record rec has this id.
	Equal func(rec uint32, id []byte) bool
}

type segment struct {
	n    uint32
	bits uint8                // the tags of all its entries begin with the same ones
	slot [segmentSlots]uint64 // tag<<32 | record; 0 is empty
}

// Hash is the hash of an id, which the other methods take.
func (x *Index) Hash(id []byte) uint64 { return maphash.Bytes(x.Seed, id) }

// tagOf is the part of a hash that the index keeps.
func tagOf(hash uint64) uint32 { return uint32(hash >> 32) }

// home is the slot at which a tag's probe begins. Tags that share a segment begin
// alike, so the others of their bits are spread first.
func home(tag uint32) int {
	return int(uint64(tag*0x9e3779b1) * segmentSlots >> 32)
}

// Held is the bytes that the index occupies.
func (x *Index) Held() int64 {
	n := int64(len(x.dir)) * 8
	for _, segments := range x.sharing {
		n += int64(segments) * int64(unsafe.Sizeof(segment{}))
	}
	return n
}

// each calls f with every segment once.
func (x *Index) each(f func(*segment)) {
	for i := 0; i < len(x.dir); i += 1 << (x.bits - x.dir[i].bits) {
		f(x.dir[i])
	}
}

// segment is the one for a tag, nil while there is none.
func (x *Index) segment(tag uint32) *segment {
	if len(x.dir) == 0 {
		return nil
	}
	return x.dir[uint64(tag)>>(32-x.bits)]
}

// Find returns the record with this id, or 0.
func (x *Index) Find(hash uint64, id []byte) uint32 {
	tag := tagOf(hash)
	g := x.segment(tag)
	if g == nil {
		return 0
	}
	for i := home(tag); ; {
		s := g.slot[i]
		if s == 0 {
			return 0
		}
		if uint32(s>>32) == tag && x.Equal(uint32(s), id) {
			return uint32(s)
		}
		if i++; i == segmentSlots {
			i = 0
		}
	}
}

// Insert adds rec under hash; no record with the same id may be there.
func (x *Index) Insert(hash uint64, rec uint32) {
	tag := tagOf(hash)
	if len(x.dir) == 0 {
		x.dir = []*segment{{}}
		x.sharing[0] = 1
	}
	g := x.segment(tag)
	for g.n >= segmentFull && g.bits < indexBits {
		x.split(g, tag)
		g = x.segment(tag)
	}
	g.insert(uint64(tag)<<32 | uint64(rec))
}

// split gives the half of g's tags that have a further bit set, tag being one of
// all of them, to a new segment.
func (x *Index) split(g *segment, tag uint32) {
	if g.bits == x.bits {
		twice := make([]*segment, 2*len(x.dir))
		for i, g := range x.dir {
			twice[2*i], twice[2*i+1] = g, g
		}
		x.dir = twice
		x.bits++
	}
	x.sharing[g.bits]--
	g.bits++
	x.sharing[g.bits] += 2
	upper := &segment{bits: g.bits}
	old := g.slot
	g.slot, g.n = [segmentSlots]uint64{}, 0
	for _, s := range old {
		switch {
		case s == 0:
		case s>>(64-g.bits)&1 == 0:
			g.insert(s)
		default:
			upper.insert(s)
		}
	}
	x.name(upper, tag|1<<(32-g.bits))
}

// name enters g in the directory wherever tags begin with g's bits of tag.
func (x *Index) name(g *segment, tag uint32) {
	n := 1 << (x.bits - g.bits)
	from := int(uint64(tag)>>(32-g.bits)) * n
	for i := range n {
		x.dir[from+i] = g
	}
}

func (g *segment) insert(s uint64) {
	if g.n == segmentSlots-1 {
		panic("index: hundreds of ids have hashes that begin alike")
	}
	i := home(uint32(s >> 32))
	for g.slot[i] != 0 {
		if i++; i == segmentSlots {
			i = 0
		}
	}
	g.slot[i] = s
	g.n++
}

// locate returns the slot of rec, or -1.
func (g *segment) locate(tag, rec uint32) int {
	if g == nil {
		return -1
	}
	want := uint64(tag)<<32 | uint64(rec)
	for i := home(tag); g.slot[i] != 0; {
		if g.slot[i] == want {
			return i
		}
		if i++; i == segmentSlots {
			i = 0
		}
	}
	return -1
}

// Replace lets the slot of record old name record rec, which has the same id.
func (x *Index) Replace(hash uint64, old, rec uint32) {
	tag := tagOf(hash)
	g := x.segment(tag)
	g.slot[g.locate(tag, old)] = uint64(tag)<<32 | uint64(rec)
}

// Remove takes rec out, if it is there.
func (x *Index) Remove(hash uint64, rec uint32) {
	tag := tagOf(hash)
	g := x.segment(tag)
	i := g.locate(tag, rec)
	if i < 0 {
		return
	}
	g.remove(i)
	if g.n <= segmentFew && g.bits > 0 {
		x.join(g, tag)
	}
}

// remove empties slot i.
func (g *segment) remove(i int) {
	g.n--
	// Shift back whatever would no longer be reached over the hole.
	for j := i; ; {
		if j++; j == segmentSlots {
			j = 0
		}
		if g.slot[j] == 0 {
			break
		}
		h := home(uint32(g.slot[j] >> 32))
		if i <= j && (h <= i || h > j) || i > j && h <= i && h > j {
			g.slot[i] = g.slot[j]
			i = j
		}
	}
	g.slot[i] = 0
}

// join takes g, in which tags begin like tag, together with its twin, while both
// have few entries.
func (x *Index) join(g *segment, tag uint32) {
	for g.bits > 0 && g.n <= segmentFew {
		twin := x.segment(tag ^ 1<<(32-g.bits))
		if twin.bits != g.bits || g.n+twin.n > segmentJoined {
			break
		}
		for _, s := range twin.slot {
			if s != 0 {
				g.insert(s)
			}
		}
		x.sharing[g.bits] -= 2
		g.bits--
		x.sharing[g.bits]++
		x.name(g, tag)
	}
	for x.bits > 0 && x.sharing[x.bits] == 0 {
		half := make([]*segment, len(x.dir)/2)
		for i := range half {
			half[i] = x.dir[2*i]
		}
		x.dir = half
		x.bits--
	}
}
