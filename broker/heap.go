package broker

import "unsafe"

// entry is an element of a heap: ordered by a, then b, smaller first, then c, a
// number that wraps around.
type entry struct {
	a, b uint64
	ref  uint32
	c    uint32
}

func (x *entry) before(y *entry) bool {
	return x.a < y.a || x.a == y.a && (x.b < y.b || x.b == y.b && int32(x.c-y.c) < 0)
}

// level: neither of the two is before the other one.
func (x *entry) level(y *entry) bool { return x.a == y.a && x.b == y.b && x.c == y.c }

const (
	heapShift = 9
	heapChunk = 1 << heapShift
	// heapFirst is the room of a heap's first chunk at first. It grows and shrinks
	// by fours.
	heapFirst = 4
	entrySize = int64(unsafe.Sizeof(entry{}))
)

// heap is a 4-ary min-heap that tells each element its position, so that one
// can leave from the middle. It grows by chunks: a plain slice of a million
// entries would stop the broker for 10 ms whenever it doubles. The smallest element
// lies in the heap itself: there are heaps of every type and tenant, and most hold no
// other one.
type heap struct {
	root  entry
	n     int
	place func(ref uint32, pos int32)
	// held counts the bytes of chunks, of all heaps that share it.
	held   *int64
	chunks [][]entry
}

func (h *heap) at(i int) *entry {
	if i == 0 {
		return &h.root
	}
	i--
	return &h.chunks[i>>heapShift][i&(heapChunk-1)]
}

func (h *heap) set(i int, x entry) {
	*h.at(i) = x
	h.place(x.ref, int32(i))
}

// top is the smallest element; the heap must not be empty.
func (h *heap) top() *entry { return &h.root }

func (h *heap) push(x entry) {
	if h.n > 0 {
		h.makeRoom()
	}
	h.n++
	h.up(h.n-1, x)
}

// put lets an element, which is at pos or not yet there (-1), have key x. It tells
// whether that was another one.
func (h *heap) put(pos int32, x entry) bool {
	if pos < 0 {
		h.push(x)
	} else if h.at(int(pos)).level(&x) {
		return false
	} else {
		h.fix(pos, x)
	}
	return true
}

// makeRoom makes room for one element beyond the root and those in chunks.
func (h *heap) makeRoom() {
	at := h.n - 1
	if n := at >> heapShift; n == len(h.chunks) {
		room := heapChunk
		if n == 0 {
			room = heapFirst
		}
		h.chunks = append(h.chunks, make([]entry, room))
		*h.held += int64(room) * entrySize
	} else if n == 0 && at == len(h.chunks[0]) {
		h.resize(min(4*at, heapChunk))
	}
}

// remove takes out the element at pos.
func (h *heap) remove(pos int32) {
	h.n--
	last := *h.at(h.n)
	if int(pos) < h.n {
		h.fix(pos, last)
	}
	if len(h.chunks) > 0 && len(h.chunks[0]) > heapFirst {
		h.shrink()
	}
}

// shrink gives back a chunk once half of the one before it is empty too, and
// three quarters of a lone chunk once a sixteenth of it is used: a heap whose
// size swings does not allocate each time.
func (h *heap) shrink() {
	if k := len(h.chunks) - 1; k > 0 {
		if h.n <= k<<heapShift-heapChunk/2 {
			h.chunks[k] = nil
			h.chunks = h.chunks[:k]
			*h.held -= heapChunk * entrySize
		}
		return
	}
	if room := len(h.chunks[0]); room > heapFirst && h.n <= room/16 {
		h.resize(max(room/4, heapFirst))
	}
}

// resize moves a heap's only chunk to one with this room.
func (h *heap) resize(room int) {
	*h.held += int64(room-len(h.chunks[0])) * entrySize
	moved := make([]entry, room)
	copy(moved, h.chunks[0][:max(h.n-1, 0)])
	h.chunks[0] = moved
}

// release gives back all room of an empty heap.
func (h *heap) release() {
	for _, c := range h.chunks {
		*h.held -= int64(len(c)) * entrySize
	}
	h.chunks = nil
}

// eachBefore calls fn for all elements before x among the one at pos and those
// below it, until fn returns false, which it then returns as well.
func (h *heap) eachBefore(pos int, x *entry, fn func(*entry) bool) bool {
	if pos >= h.n || !h.at(pos).before(x) {
		return true
	}
	if !fn(h.at(pos)) {
		return false
	}
	for c := pos<<2 + 1; c <= pos<<2+4; c++ {
		if !h.eachBefore(c, x, fn) {
			return false
		}
	}
	return true
}

// fix puts x, which may have any key, in place of the element at pos.
func (h *heap) fix(pos int32, x entry) {
	i := int(pos)
	if i > 0 && x.before(h.at((i-1)>>2)) {
		h.up(i, x)
		return
	}
	h.down(i, x)
}

func (h *heap) up(i int, x entry) {
	for i > 0 {
		p := (i - 1) >> 2
		if !x.before(h.at(p)) {
			break
		}
		h.set(i, *h.at(p))
		i = p
	}
	h.set(i, x)
}

func (h *heap) down(i int, x entry) {
	for {
		c := i << 2 // its children lie side by side in one chunk
		if c+1 >= h.n {
			break
		}
		at := c & (heapChunk - 1)
		below := h.chunks[c>>heapShift][at : at+min(4, h.n-1-c)]
		least := 0
		for k := 1; k < len(below); k++ {
			if below[k].before(&below[least]) {
				least = k
			}
		}
		if !below[least].before(&x) {
			break
		}
		h.set(i, below[least])
		i = c + 1 + least
	}
	h.set(i, x)
}
