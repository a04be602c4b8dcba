package broker

import "hash/maphash"

const (
	indexBits = 10
	// indexMin is the least number of slots of a segment.
	indexMin = 8
)

// index finds records by id: open addressing with linear probing, split into
// segments that grow and shrink one by one, so that no single insertion moves
// more than a thousandth of it. A slot holds 32 bits of the hash and the
// record's number; the hash is random for each process, since ids come from
// outside.
type index struct {
	seed maphash.Seed
	seg  [1 << indexBits]segment
	// equal says whether record rec has this id.
	equal func(rec uint32, id []byte) bool
}

type segment struct {
	slot []uint64 // tag<<32 | record; 0 is empty
	n    uint32
}

func (x *index) hash(id []byte) uint64 { return maphash.Bytes(x.seed, id) }

// home is the slot at which a tag's probe begins.
func home(tag uint32, size int) int { return int(uint64(tag) * uint64(size) >> 32) }

// find returns the record with this id, or 0.
func (x *index) find(hash uint64, id []byte) uint32 {
	g := &x.seg[hash>>(64-indexBits)]
	if g.n == 0 {
		return 0
	}
	tag := uint32(hash)
	for i := home(tag, len(g.slot)); ; {
		s := g.slot[i]
		if s == 0 {
			return 0
		}
		if uint32(s>>32) == tag && x.equal(uint32(s), id) {
			return uint32(s)
		}
		if i++; i == len(g.slot) {
			i = 0
		}
	}
}

// insert adds rec under hash; no record with the same id may be there.
func (x *index) insert(hash uint64, rec uint32) {
	g := &x.seg[hash>>(64-indexBits)]
	if int(g.n)+1 > len(g.slot)*4/5 {
		size := indexMin
		if len(g.slot) > 0 {
			size = len(g.slot)*3/2 + 1
		}
		g.resize(size)
	}
	g.insert(hash<<32 | uint64(rec))
	g.n++
}

func (g *segment) insert(s uint64) {
	i := home(uint32(s>>32), len(g.slot))
	for g.slot[i] != 0 {
		if i++; i == len(g.slot) {
			i = 0
		}
	}
	g.slot[i] = s
}

func (g *segment) resize(size int) {
	old := g.slot
	g.slot = make([]uint64, size)
	for _, s := range old {
		if s != 0 {
			g.insert(s)
		}
	}
}

// locate returns the slot of rec, or -1.
func (g *segment) locate(tag, rec uint32) int {
	if g.n == 0 {
		return -1
	}
	want := uint64(tag)<<32 | uint64(rec)
	for i := home(tag, len(g.slot)); g.slot[i] != 0; {
		if g.slot[i] == want {
			return i
		}
		if i++; i == len(g.slot) {
			i = 0
		}
	}
	return -1
}

// replace lets the slot of record old name record rec, which has the same id.
func (x *index) replace(hash uint64, old, rec uint32) {
	g := &x.seg[hash>>(64-indexBits)]
	g.slot[g.locate(uint32(hash), old)] = hash<<32 | uint64(rec)
}

// remove takes rec out, if it is there.
func (x *index) remove(hash uint64, rec uint32) {
	g := &x.seg[hash>>(64-indexBits)]
	i := g.locate(uint32(hash), rec)
	if i < 0 {
		return
	}
	g.n--
	size := len(g.slot)
	// Shift back whatever would no longer be reached over the hole.
	for j := i; ; {
		if j++; j == size {
			j = 0
		}
		if g.slot[j] == 0 {
			break
		}
		h := home(uint32(g.slot[j]>>32), size)
		if i <= j && (h <= i || h > j) || i > j && h <= i && h > j {
			g.slot[i] = g.slot[j]
			i = j
		}
	}
	g.slot[i] = 0
	if size > 4*indexMin && int(g.n) < size/5 {
		g.resize(size / 2)
	}
}
