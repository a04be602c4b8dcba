package broker

import (
	"bytes"
	"encoding/binary"
	"slices"
	"unsafe"

	"gloom/broker/container"
	"gloom/wire"
)

// pool is a set of types and the workers that joined with it.
//
// A pair is a type and a pool that serves it. It is in one of two heaps: the type's, ordered
// by how long the pool has had an idle worker, or the pool's, ordered by the type's best job.
// Once matching is done, there is never both a job that may run and an idle worker for it, so
// the pair is useless in one of the two heaps. When matching meets the pair there, it moves the
// pair to the other heap. A key may be out of date, but then it is better than the right key:
// the pair comes to the top too early, and its key is corrected there. So a job costs the
// logarithm of the number of ready jobs, however many types and pools there are.
type pool struct {
	number uint32
	// created orders types and pools by when they were made.
	created uint64
	key     string
	set     *set
	workers int
	idleLine
	ready   container.Heap // pairs, by the best job of their type; the other pairs are in the heaps of their types
	pairs   uint32         // the first pair in the list of the pool's pairs
	n       int            // pairs
	touched bool
	bytes   int64 // size of the pool in bytes without its pairs and its heap
}

// pair is a type and a pool that serves it.
type pair struct {
	kind, pool uint32
	pos        int32
	ready      bool // the pair is in the pool's heap, otherwise in the type's
	named      bool // the pool lists the type by name, so that no pattern is needed
	live       bool // the record is in use
	// kindPrev and kindNext link the pairs of its type, poolPrev and poolNext those of its
	// pool.
	kindPrev, kindNext, poolPrev, poolNext uint32
}

// set is the set of types that a worker asks for: those that match a name or pattern of
// types and none of except.
type set struct {
	types, except         [][]byte
	names, notNames       map[string]bool
	patterns, notPatterns []wire.Pattern
	allows                func(typ []byte) bool
}

// newSet makes a set from its key. The set refers to the memory of the key.
func newSet(key string, allows func(typ []byte) bool) *set {
	s := &set{names: map[string]bool{}, notNames: map[string]bool{}, allows: allows}
	rest := unsafe.Slice(unsafe.StringData(key), len(key))
	read := func(list *[][]byte, names map[string]bool, patterns *[]wire.Pattern) {
		for {
			n, size := binary.Uvarint(rest)
			name := rest[size : size+int(n) : size+int(n)]
			if rest = rest[size+int(n):]; n == 0 {
				return
			}
			*list = append(*list, name)
			if p := wire.NewPattern(name); p.Plain() {
				names[unsafe.String(&name[0], len(name))] = true
			} else {
				*patterns = append(*patterns, p)
			}
		}
	}
	read(&s.types, s.names, &s.patterns)
	read(&s.except, s.notNames, &s.notPatterns)
	return s
}

const (
	poolSize = int64(unsafe.Sizeof(pool{})+unsafe.Sizeof(set{})) + 256
	pairSize = int64(unsafe.Sizeof(pair{}))
	// nameSize is how many bytes a name takes in lists and maps besides its own bytes. likeSize is
	// the same for a pattern.
	nameSize = int64(unsafe.Sizeof([]byte{})) + 48
	likeSize = int64(unsafe.Sizeof([]byte{})+unsafe.Sizeof(wire.Pattern{})) + 16
)

// minPoolBytes is how many bytes pools may always occupy, however small MaxBytes is.
const minPoolBytes = 1 << 20

// maxPoolBytes returns the share of MaxBytes that pools may occupy, 0 for no limit.
func (c *Config) maxPoolBytes() int64 {
	if c.MaxBytes <= 0 {
		return 0
	}
	return max(c.MaxBytes/8, minPoolBytes)
}

func (s *set) serves(name []byte) bool {
	if s.notNames[string(name)] {
		return false
	}
	value := wire.Value(name)
	matches := func(p wire.Pattern) bool { return p.Fits(value) }
	return (s.names[string(name)] || slices.ContainsFunc(s.patterns, matches)) &&
		!slices.ContainsFunc(s.notPatterns, matches) &&
		(s.allows == nil || s.allows(name))
}

// key returns the key that identifies a set, and the size of a pool with it.
func (q *Joining) key() (text string, size int64) {
	var key []byte
	for _, list := range [][][]byte{q.Types, q.Except} {
		sorted := slices.Clone(list)
		slices.SortFunc(sorted, bytes.Compare)
		for _, name := range slices.CompactFunc(sorted, bytes.Equal) {
			key = binary.AppendUvarint(key, uint64(len(name)))
			key = append(key, name...)
			if size += nameSize; bytes.IndexByte(name, '*') >= 0 {
				size += likeSize - nameSize + int64(len(name))
			}
		}
		key = append(key, 0)
	}
	key = binary.AppendUvarint(key, q.Scope)
	return string(key), size + poolSize + int64(len(key))
}

// pairing is the chore that finds out which older pools serve a new type, or which older types
// a new pool serves.
type pairing struct {
	kind *jobType
	pool *pool
	// next is the index of the pool or type to continue from, pattern the index of the pattern.
	// fits reports whether an earlier pattern matches.
	next, pattern int
	fits          bool
}

// startPairing starts a pairing.
func (b *Broker) startPairing(g *pairing) {
	b.unpaired++
	b.chores.add(g)
}

// step tries one type with one pool. Until all of them have been tried, the workers do not yet
// get jobs of all their types.
func (g *pairing) step(b *Broker) (cost int, done bool) {
	k, p := g.kind, g.pool
	switch {
	case p != nil && p.workers > 0 && g.next < len(b.types.All()):
		k = b.types.All()[g.next]
	case k != nil && b.types.Has(k.number, k) && g.next < len(b.pools.All()):
		p = b.pools.All()[g.next]
	default:
		b.unpaired--
		return 1, true
	}
	if k == nil || p == nil || k.created > p.created == (g.pool != nil) || p.set.names[string(k.name)] {
		g.next++
		return 1, false
	}
	left := choreSteps
	if tried, serves := g.try(p.set, k.name, &left); tried {
		if serves {
			b.pairUp(k, p, false)
		}
		g.next, g.pattern, g.fits = g.next+1, 0, false
	}
	return 1 + choreSteps - left, false
}

// try tries patterns of s on a type's name, as many as fit in one step.
func (g *pairing) try(s *set, name []byte, steps *int) (done, serves bool) {
	value := wire.Value(name)
	for ; g.pattern < len(s.patterns)+len(s.notPatterns); g.pattern++ {
		if *steps <= 0 {
			return false, false
		}
		*steps -= 1 + len(name)/32
		switch n := g.pattern - len(s.patterns); {
		case n < 0 && s.patterns[g.pattern].Fits(value):
			g.fits = true
			g.pattern = len(s.patterns) - 1
		case n >= 0 && (!g.fits || s.notPatterns[n].Fits(value)):
			return true, false
		}
	}
	return true, g.fits && !s.notNames[string(name)] && (s.allows == nil || s.allows(name))
}

// poolFor returns the pool for workers that join like this, creating it if it does not
// exist, or the reason why it cannot be created.
func (b *Broker) poolFor(q *Joining) (*pool, Reason) {
	key, size := q.key()
	if p := b.poolsByKey[key]; p != nil {
		return p, Reason{}
	}
	if limit := b.cfg.maxPoolBytes(); limit > 0 && b.poolBytes+size > limit {
		return nil, Reason{Why: ManyPoolBytes, Have: b.poolBytes, Need: size, Limit: limit}
	}
	s := newSet(key, q.Allows)
	newTypes := 0
	for name := range s.names {
		if k := b.typesByName[name]; (k == nil || k.unusedLink.In()) && s.serves([]byte(name)) {
			newTypes++
		}
	}
	if b.tooManyTypes(newTypes) {
		return nil, b.manyTypes()
	}
	if limit := b.cfg.MaxPairs; limit > 0 && b.pairs.Len()+len(s.names) > limit {
		return nil, Reason{Why: ManyPairs, Have: int64(b.pairs.Len())}
	}
	p := &pool{key: key, set: s, bytes: size}
	p.ofPool = p
	b.poolBytes += size
	p.ready = container.Heap{Place: b.place.pair, Held: &b.heapBytes}
	p.number = b.pools.Add(p)
	b.poolsByKey[key] = p
	b.creations++
	p.created = b.creations
	for _, name := range s.types {
		if s.names[string(name)] && s.serves(name) {
			b.pairUp(b.typeNamed(name), p, true)
		}
	}
	if len(s.patterns) > 0 {
		b.startPairing(&pairing{pool: p})
	}
	return p, Reason{}
}

// dropPool forgets a pool without workers.
func (b *Broker) dropPool(p *pool) {
	for p.pairs != 0 {
		b.unpair(p.pairs)
	}
	p.ready.Release()
	b.poolBytes -= p.bytes
	b.noteMoved(&p.idleLine)
	delete(b.poolsByKey, p.key)
	b.pools.Drop(p.number)
}

// pairUp adds the pair of a type and a pool that serves it.
func (b *Broker) pairUp(k *jobType, p *pool, named bool) {
	r, x := b.pairs.Take()
	x.kind, x.pool, x.named, x.live = k.number, p.number, named, true
	if x.kindNext = k.pairs; k.pairs != 0 {
		b.pairs.Get(k.pairs).kindPrev = r
	}
	if x.poolNext = p.pairs; p.pairs != 0 {
		b.pairs.Get(p.pairs).poolPrev = r
	}
	k.pairs, p.pairs = r, r
	p.n++
	if named {
		k.namedBy++
		b.typeUsed(k)
	}
	k.pools.Push(container.Entry{Ref: r})
	b.touch(k)
}

// unpair removes a pair.
func (b *Broker) unpair(r uint32) {
	x := b.pairs.Get(r)
	k, p := b.types.At(x.kind), b.pools.At(x.pool)
	if x.ready {
		p.ready.Remove(x.pos)
	} else {
		k.pools.Remove(x.pos)
	}
	if x.kindNext != 0 {
		b.pairs.Get(x.kindNext).kindPrev = x.kindPrev
	}
	if x.kindPrev != 0 {
		b.pairs.Get(x.kindPrev).kindNext = x.kindNext
	} else {
		k.pairs = x.kindNext
	}
	if x.poolNext != 0 {
		b.pairs.Get(x.poolNext).poolPrev = x.poolPrev
	}
	if x.poolPrev != 0 {
		b.pairs.Get(x.poolPrev).poolNext = x.poolNext
	} else {
		p.pairs = x.poolNext
	}
	if x.named {
		k.namedBy--
		b.typeUnused(k)
	}
	p.n--
	b.pairs.Put(r)
}

func (b *Broker) placePair(r uint32, pos int32) { b.pairs.Get(r).pos = pos }

// longestIdle returns the worker that serves k and has been idle longest, or nil. at is the key
// of the type's best job that may run.
func (b *Broker) longestIdle(k *jobType, at container.Entry) *worker {
	w := k.idle.First()
	for k.pools.Len() > 0 {
		top := *k.pools.Top()
		x := b.pairs.Get(top.Ref)
		p := b.pools.At(x.pool)
		o := p.idle.First()
		switch {
		case o == nil:
			k.pools.Remove(0)
			x.ready = true
			if k.worstKey.Before(&at) {
				k.worstKey = at
			}
			at.Ref = top.Ref
			p.ready.Push(at)
		case o.line != top.A:
			k.pools.Fix(0, container.Entry{A: o.line, Ref: top.Ref})
		case w == nil || o.line < w.line:
			return o
		default:
			return w
		}
	}
	return w
}

// bestOf returns the queue with the best job for a pool with an idle worker, and the job's
// key. The queue is nil if there is none.
func (b *Broker) bestOf(p *pool) (*queue, container.Entry) {
	for p.ready.Len() > 0 {
		top := *p.ready.Top()
		x := b.pairs.Get(top.Ref)
		k := b.types.At(x.kind)
		q := b.runnable(k)
		if b.unfinished {
			break
		}
		if q == nil {
			p.ready.Remove(0)
			x.ready = false
			k.pools.Push(container.Entry{A: p.idle.First().line, Ref: top.Ref})
			continue
		}
		at := b.best(q)
		if at.Ties(&top) {
			return q, at
		}
		if k.worstKey.Before(&at) {
			k.worstKey = at
		}
		at.Ref = top.Ref
		p.ready.Fix(0, at)
	}
	return nil, container.Entry{}
}

// raiseKeys improves the keys of a type's pairs in their pools, after the type's best job has
// become better.
func (b *Broker) raiseKeys(k *jobType, at container.Entry) {
	if k.pairs == 0 || !at.Before(&k.worstKey) {
		return
	}
	k.worstKey = at
	for r := k.pairs; r != 0; {
		x := b.pairs.Get(r)
		if x.ready {
			if h := &b.pools.At(x.pool).ready; at.Before(h.At(int(x.pos))) {
				at.Ref = r
				h.Fix(x.pos, at)
			}
		}
		r = x.kindNext
	}
}
