package container

import "unsafe"

// Entry is an element of a heap. Elements are ordered by Major, then by Minor, then by Serial, the
// smaller first. Serial is a number that wraps around. Ref identifies the owner of the element.
type Entry struct {
	Major, Minor uint64
	Ref          uint32
	Serial       uint32
}

// Before reports whether x comes before y.
func (x *Entry) Before(y *Entry) bool {
	return x.Major < y.Major || x.Major == y.Major && (x.Minor < y.Minor || x.Minor == y.Minor && int32(x.Serial-y.Serial) < 0)
}

// Ties reports whether neither x nor y comes before the other.
func (x *Entry) Ties(y *Entry) bool {
	return x.Major == y.Major && x.Minor == y.Minor && x.Serial == y.Serial
}

const (
	heapShift = 9
	heapChunk = 1 << heapShift
	// minHeapRoom is the number of elements for which a heap's first chunk has room at first. That
	// chunk grows and shrinks by a factor of four.
	minHeapRoom = 4
	entrySize   = int64(unsafe.Sizeof(Entry{}))
)

// Heap is a 4-ary min-heap that tells each element its position, so that elements can be
// removed from the middle. It grows by chunks, because doubling a slice of a million entries
// would stop the broker for 10 ms. The smallest element is in the struct itself, because a
// broker has very many heaps, and most of them hold one element at most.
//
// A change costs O(log n), everything else O(1). Positions are 0 to Len()-1, and the
// smallest element is at 0.
type Heap struct {
	root Entry
	n    int
	// SetPos is called with the new position of each element that has moved, but not for an
	// element that is taken out.
	SetPos func(ref uint32, pos int32)
	// Bytes counts the bytes of the chunks of all heaps that share this counter.
	Bytes  *int64
	chunks [][]Entry
}

// Len returns the number of elements.
func (h *Heap) Len() int { return h.n }

// At returns the element at a position. Only its Ref may be changed in place.
func (h *Heap) At(i int) *Entry {
	if i == 0 {
		return &h.root
	}
	i--
	return &h.chunks[i>>heapShift][i&(heapChunk-1)]
}

func (h *Heap) set(i int, x Entry) {
	*h.At(i) = x
	h.SetPos(x.Ref, int32(i))
}

// Top returns the smallest element. The heap must not be empty.
func (h *Heap) Top() *Entry { return &h.root }

// Push adds an element.
func (h *Heap) Push(x Entry) {
	if h.n > 0 {
		h.makeRoom()
	}
	h.n++
	h.siftUp(h.n-1, x)
}

// Put replaces the element at pos by x, or adds x if pos is -1. It reports whether the element
// is new or its key has changed.
func (h *Heap) Put(pos int32, x Entry) bool {
	if pos < 0 {
		h.Push(x)
	} else if h.At(int(pos)).Ties(&x) {
		return false
	} else {
		h.Fix(pos, x)
	}
	return true
}

// makeRoom makes room in the chunks for one more element.
func (h *Heap) makeRoom() {
	at := h.n - 1
	if n := at >> heapShift; n == len(h.chunks) {
		room := heapChunk
		if n == 0 {
			room = minHeapRoom
		}
		h.chunks = append(h.chunks, make([]Entry, room))
		*h.Bytes += int64(room) * entrySize
	} else if n == 0 && at == len(h.chunks[0]) {
		h.resize(min(4*at, heapChunk))
	}
}

// Remove takes out the element at pos.
func (h *Heap) Remove(pos int32) {
	h.n--
	last := *h.At(h.n)
	if int(pos) < h.n {
		h.Fix(pos, last)
	}
	if len(h.chunks) > 0 && len(h.chunks[0]) > minHeapRoom {
		h.shrink()
	}
}

// shrink frees a chunk once half of the chunk before it is empty too, so that a heap whose
// size swings does not allocate each time. A heap with a single chunk shrinks to a quarter
// once only a sixteenth of it is used.
func (h *Heap) shrink() {
	if k := len(h.chunks) - 1; k > 0 {
		if h.n <= k<<heapShift-heapChunk/2 {
			h.chunks[k] = nil
			h.chunks = h.chunks[:k]
			*h.Bytes -= heapChunk * entrySize
		}
		return
	}
	if room := len(h.chunks[0]); room > minHeapRoom && h.n <= room/16 {
		h.resize(max(room/4, minHeapRoom))
	}
}

// resize replaces a heap's only chunk by one with room for this many elements.
func (h *Heap) resize(room int) {
	*h.Bytes += int64(room-len(h.chunks[0])) * entrySize
	entries := make([]Entry, room)
	copy(entries, h.chunks[0][:max(h.n-1, 0)])
	h.chunks[0] = entries
}

// Release frees all chunks of an empty heap.
func (h *Heap) Release() {
	for _, c := range h.chunks {
		*h.Bytes -= int64(len(c)) * entrySize
	}
	h.chunks = nil
}

// EachBefore calls fn for each element that comes before x in the subtree at pos, until fn
// returns false; then EachBefore returns false, too. It visits at most five elements for each
// call of fn.
func (h *Heap) EachBefore(pos int, x *Entry, fn func(*Entry) bool) bool {
	if pos >= h.n || !h.At(pos).Before(x) {
		return true
	}
	if !fn(h.At(pos)) {
		return false
	}
	for c := pos<<2 + 1; c <= pos<<2+4; c++ {
		if !h.EachBefore(c, x, fn) {
			return false
		}
	}
	return true
}

// Fix replaces the element at pos by x, which may be larger or smaller.
func (h *Heap) Fix(pos int32, x Entry) {
	i := int(pos)
	if i > 0 && x.Before(h.At((i-1)>>2)) {
		h.siftUp(i, x)
		return
	}
	h.siftDown(i, x)
}

func (h *Heap) siftUp(i int, x Entry) {
	for i > 0 {
		p := (i - 1) >> 2
		if !x.Before(h.At(p)) {
			break
		}
		h.set(i, *h.At(p))
		i = p
	}
	h.set(i, x)
}

func (h *Heap) siftDown(i int, x Entry) {
	for {
		c := i << 2 // the children of i lie side by side in one chunk
		if c+1 >= h.n {
			break
		}
		at := c & (heapChunk - 1)
		children := h.chunks[c>>heapShift][at : at+min(4, h.n-1-c)]
		smallest := 0
		for k := 1; k < len(children); k++ {
			if children[k].Before(&children[smallest]) {
				smallest = k
			}
		}
		if !children[smallest].Before(&x) {
			break
		}
		h.set(i, children[smallest])
		i = c + 1 + smallest
	}
	h.set(i, x)
}
