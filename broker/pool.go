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
	// creationNumber numbers types and pools in the order in which they were made.
	creationNumber uint64
	key            string
	typeSet        *typeSet
	workers        int
	leavers        int // workers that have left
	idleLine
	readyPairs container.Heap // pairs, by the best job of their type; the other pairs are in the heaps of their types
	firstPair  uint32         // the first pair in the list of the pool's pairs
	pairCount  int            // pairs
	isMarked   bool
	bytes      int64 // size of the pool in bytes without its pairs and its heap
}

// pair is a type and a pool that serves it.
type pair struct {
	jobType, pool uint32
	pos           int32
	inPool        bool // the pair is in the pool's heap, otherwise in the type's
	byName        bool // the pool lists the type by name, so that no pattern is needed
	inUse         bool // the record is in use
	// typePrev and typeNext link the pairs of its type, poolPrev and poolNext those of its
	// pool.
	typePrev, typeNext, poolPrev, poolNext uint32
}

// typeSet is the set of types that a worker asks for: types that match a name or pattern of types,
// and no name or pattern of except.
type typeSet struct {
	types, except            [][]byte
	names, exceptNames       map[string]bool
	patterns, exceptPatterns []wire.Pattern
	allows                   func(typ []byte) bool
}

// newTypeSet makes a set from its key. The set refers to the memory of the key.
func newTypeSet(key string, allows func(typ []byte) bool) *typeSet {
	s := &typeSet{names: map[string]bool{}, exceptNames: map[string]bool{}, allows: allows}
	rest := unsafe.Slice(unsafe.StringData(key), len(key))
	read := func(list *[][]byte, names map[string]bool, patterns *[]wire.Pattern) {
		for {
			n, size := binary.Uvarint(rest)
			name := rest[size : size+int(n) : size+int(n)]
			rest = rest[size+int(n):]
			if n == 0 {
				return
			}
			*list = append(*list, name)
			if p := wire.NewPattern(name); p.IsPlain() {
				names[unsafe.String(&name[0], len(name))] = true
			} else {
				*patterns = append(*patterns, p)
			}
		}
	}
	read(&s.types, s.names, &s.patterns)
	read(&s.except, s.exceptNames, &s.exceptPatterns)
	return s
}

const (
	poolSize = int64(unsafe.Sizeof(pool{})+unsafe.Sizeof(typeSet{})) + 256
	pairSize = int64(unsafe.Sizeof(pair{}))
	// nameSize is the number of bytes that a name takes in lists and maps in addition to its own
	// bytes. patternSize is the same for a pattern.
	nameSize    = int64(unsafe.Sizeof([]byte{})) + 48
	patternSize = int64(unsafe.Sizeof([]byte{})+unsafe.Sizeof(wire.Pattern{})) + 16
)

// minPoolBytes is the memory, in bytes, that pools may always occupy. The limit on pools is an
// eighth of MaxBytes, but at least minPoolBytes.
const minPoolBytes = 1 << 20

func (s *typeSet) serves(name []byte) bool {
	if s.exceptNames[string(name)] {
		return false
	}
	value := wire.Value(name)
	matches := func(p wire.Pattern) bool { return p.Matches(value) }
	return (s.names[string(name)] || slices.ContainsFunc(s.patterns, matches)) &&
		!slices.ContainsFunc(s.exceptPatterns, matches) &&
		(s.allows == nil || s.allows(name))
}

// key returns the key that identifies a set, and the size of a pool with it.
func (r *JoinRequest) key() (text string, size int64) {
	var key []byte
	for _, list := range [][][]byte{r.Types, r.Except} {
		names := slices.Clone(list)
		slices.SortFunc(names, bytes.Compare)
		for _, name := range slices.CompactFunc(names, bytes.Equal) {
			key = binary.AppendUvarint(key, uint64(len(name)))
			key = append(key, name...)
			size += nameSize
			if bytes.IndexByte(name, '*') >= 0 {
				size += patternSize - nameSize + int64(len(name))
			}
		}
		key = append(key, 0)
	}
	key = binary.AppendUvarint(key, r.AllowsID)
	return string(key), size + poolSize + int64(len(key))
}

// pairing is the chore that finds out which older pools serve a new type, or which older types
// a new pool serves.
type pairing struct {
	jobType *jobType
	pool    *pool
	// next is the index of the pool or type to continue from, nextPattern the index of the
	// pattern. hasMatched reports whether an earlier pattern matches.
	next, nextPattern int
	hasMatched        bool
}

// startPairing adds a pairing to the chores.
func (b *Broker) startPairing(g *pairing) {
	b.pairingsInProgress++
	b.chores.add(g)
}

// step tries one type with one pool. Until all of them have been tried, the workers do not yet
// get jobs of all their types.
func (g *pairing) step(b *Broker) (cost int, done bool) {
	jt, p := g.jobType, g.pool
	switch {
	case p != nil && p.workers > 0 && g.next < len(b.types.All()):
		jt = b.types.All()[g.next]
	case jt != nil && b.types.Has(jt.number, jt) && g.next < len(b.pools.All()):
		p = b.pools.All()[g.next]
	default:
		b.pairingsInProgress--
		return 1, true
	}
	if jt == nil || p == nil || jt.creationNumber > p.creationNumber == (g.pool != nil) || p.typeSet.names[string(jt.name)] {
		g.advance()
		return 1, false
	}
	visitsLeft := choreSteps
	if tried, serves := g.tryPatterns(p.typeSet, jt.name, &visitsLeft); tried {
		if serves {
			b.pairUp(jt, p, false)
		}
		g.advance()
	}
	return 1 + choreSteps - visitsLeft, false
}

// advance goes on to the next pool or type. The one before may have been dropped between two of its
// patterns.
func (g *pairing) advance() { g.next, g.nextPattern, g.hasMatched = g.next+1, 0, false }

// tryPatterns tries patterns of s on a type's name, as many as fit in one step.
func (g *pairing) tryPatterns(s *typeSet, name []byte, steps *int) (done, serves bool) {
	value := wire.Value(name)
	for ; g.nextPattern < len(s.patterns)+len(s.exceptPatterns); g.nextPattern++ {
		if *steps <= 0 {
			return false, false
		}
		*steps -= 1 + len(name)/32
		switch n := g.nextPattern - len(s.patterns); {
		case n < 0 && s.patterns[g.nextPattern].Matches(value):
			g.hasMatched = true
			g.nextPattern = len(s.patterns) - 1
		case n >= 0 && (!g.hasMatched || s.exceptPatterns[n].Matches(value)):
			return true, false
		}
	}
	return true, g.hasMatched && !s.exceptNames[string(name)] && (s.allows == nil || s.allows(name))
}

// poolFor returns the pool for workers that send this request. It creates the pool if it does not
// exist, or returns the reason why it cannot.
func (b *Broker) poolFor(req *JoinRequest) (*pool, Reason) {
	key, size := req.key()
	if p := b.poolsByKey[key]; p != nil {
		return p, Reason{}
	}
	if limit := max(b.cfg.MaxBytes/8, minPoolBytes); b.cfg.MaxBytes > 0 && b.poolBytes+size > limit {
		return nil, Reason{Why: WhyTooManyPoolBytes, Have: b.poolBytes, Need: size, Limit: limit}
	}
	s := newTypeSet(key, req.Allows)
	newTypes := 0
	for name := range s.names {
		if jt := b.typesByName[name]; (jt == nil || jt.unusedRing != nil) && s.serves([]byte(name)) {
			newTypes++
		}
	}
	if b.hasNoRoomForTypes(newTypes) {
		return nil, b.tooManyTypes()
	}
	if limit := b.cfg.MaxPairs; limit > 0 && b.pairs.Len()+len(s.names) > limit {
		return nil, Reason{Why: WhyTooManyPairs, Have: int64(b.pairs.Len())}
	}
	p := &pool{key: key, typeSet: s, bytes: size}
	p.pool = p
	b.poolBytes += size
	p.readyPairs = container.Heap{SetPos: b.posSetters.pair, Bytes: &b.heapBytes}
	p.number = b.pools.Add(p)
	b.poolsByKey[key] = p
	b.lastCreation++
	p.creationNumber = b.lastCreation
	for _, name := range s.types {
		if s.names[string(name)] && s.serves(name) {
			b.pairUp(b.typeFor(name), p, true)
		}
	}
	if len(s.patterns) > 0 {
		b.startPairing(&pairing{pool: p})
	}
	return p, Reason{}
}

// dropPool forgets a pool without workers.
func (b *Broker) dropPool(p *pool) {
	for p.firstPair != 0 {
		b.unpair(p.firstPair)
	}
	p.readyPairs.Release()
	b.poolBytes -= p.bytes
	b.noteChange(&p.idleLine)
	delete(b.poolsByKey, p.key)
	b.pools.Drop(p.number)
}

// pairUp adds the pair of a type and a pool that serves it.
func (b *Broker) pairUp(jt *jobType, p *pool, named bool) {
	rec, pair := b.pairs.Take()
	pair.jobType, pair.pool, pair.byName, pair.inUse = jt.number, p.number, named, true
	pair.typeNext = jt.firstPair
	if jt.firstPair != 0 {
		b.pairs.Get(jt.firstPair).typePrev = rec
	}
	pair.poolNext = p.firstPair
	if p.firstPair != 0 {
		b.pairs.Get(p.firstPair).poolPrev = rec
	}
	jt.firstPair, p.firstPair = rec, rec
	p.pairCount++
	if named {
		jt.namingPools++
		b.updateUnusedRing(jt)
	}
	jt.idlePairs.Push(container.Entry{Ref: rec})
	b.markForMatching(jt)
}

// unpair removes a pair.
func (b *Broker) unpair(rec uint32) {
	pair := b.pairs.Get(rec)
	jt, p := b.types.At(pair.jobType), b.pools.At(pair.pool)
	if pair.inPool {
		p.readyPairs.Remove(pair.pos)
	} else {
		jt.idlePairs.Remove(pair.pos)
	}
	if pair.typeNext != 0 {
		b.pairs.Get(pair.typeNext).typePrev = pair.typePrev
	}
	if pair.typePrev != 0 {
		b.pairs.Get(pair.typePrev).typeNext = pair.typeNext
	} else {
		jt.firstPair = pair.typeNext
	}
	if pair.poolNext != 0 {
		b.pairs.Get(pair.poolNext).poolPrev = pair.poolPrev
	}
	if pair.poolPrev != 0 {
		b.pairs.Get(pair.poolPrev).poolNext = pair.poolNext
	} else {
		p.firstPair = pair.poolNext
	}
	if pair.byName {
		jt.namingPools--
		b.updateUnusedRing(jt)
	}
	p.pairCount--
	b.pairs.Put(rec)
}

func (b *Broker) setPairPos(rec uint32, pos int32) { b.pairs.Get(rec).pos = pos }

// longestIdle returns the worker of type jt that has been idle longest, or nil. key is the key of
// the type's best job that may run.
func (b *Broker) longestIdle(jt *jobType, key container.Entry) *worker {
	w := jt.idleWorkers.First()
	for jt.idlePairs.Len() > 0 {
		top := *jt.idlePairs.Top()
		pair := b.pairs.Get(top.Ref)
		p := b.pools.At(pair.pool)
		first := p.idleWorkers.First()
		switch {
		case first == nil:
			jt.idlePairs.Remove(0)
			pair.inPool = true
			if jt.worstKey.Before(&key) {
				jt.worstKey = key
			}
			key.Ref = top.Ref
			p.readyPairs.Push(key)
		case first.idleNumber != top.Major:
			jt.idlePairs.Fix(0, container.Entry{Major: first.idleNumber, Ref: top.Ref})
		case w == nil || first.idleNumber < w.idleNumber:
			return first
		default:
			return w
		}
	}
	return w
}

// bestReadyQueue returns the queue with the best job for a pool with an idle worker, and the job's
// key. The queue is nil if there is none.
func (b *Broker) bestReadyQueue(p *pool) (*queue, container.Entry) {
	for p.readyPairs.Len() > 0 {
		top := *p.readyPairs.Top()
		pair := b.pairs.Get(top.Ref)
		jt := b.types.At(pair.jobType)
		q := b.runnableQueue(jt)
		if b.workLeft {
			break
		}
		if q == nil {
			p.readyPairs.Remove(0)
			pair.inPool = false
			jt.idlePairs.Push(container.Entry{Major: p.idleWorkers.First().idleNumber, Ref: top.Ref})
			continue
		}
		key := b.bestKey(q)
		if key.Ties(&top) {
			return q, key
		}
		if jt.worstKey.Before(&key) {
			jt.worstKey = key
		}
		key.Ref = top.Ref
		p.readyPairs.Fix(0, key)
	}
	return nil, container.Entry{}
}

// improvePairKeys improves the keys of a type's pairs in their pools, after the type's best job has
// become better.
func (b *Broker) improvePairKeys(jt *jobType, key container.Entry) {
	if jt.firstPair == 0 || !key.Before(&jt.worstKey) {
		return
	}
	jt.worstKey = key
	for rec := jt.firstPair; rec != 0; {
		pair := b.pairs.Get(rec)
		if pair.inPool {
			if heap := &b.pools.At(pair.pool).readyPairs; key.Before(heap.At(int(pair.pos))) {
				key.Ref = rec
				heap.Fix(pair.pos, key)
			}
		}
		rec = pair.typeNext
	}
}
