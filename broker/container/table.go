package container

import (
	"encoding/binary"
	"unsafe"
)

// Pages provides the memory of records and slabs. The daemon takes this memory directly from the
// system. So the memory of a drained backlog is returned at once, and the garbage collector never
// sees this memory.
type Pages interface {
	// Get returns n zeroed bytes, aligned to 8.
	Get(n int) []byte
	// Put takes back what Get returned.
	Put([]byte)
}

// HeapPages takes memory from Go's heap.
type HeapPages struct{}

// Get implements Pages.
func (HeapPages) Get(n int) []byte {
	w := make([]uint64, (n+7)/8)
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(w))), n)
}

// Put implements Pages.
func (HeapPages) Put([]byte) {}

const (
	tableShift = 10
	tableChunk = 1 << tableShift
)

// Table holds records of one type without pointers, by number. Number 0 is never used. The last
// two bytes of a record that is not in use are the table's, its other bytes are zero.
// Chunks that become empty go back to the system. All methods cost O(1).
type Table[T any] struct {
	// Pages provides the memory of records. It must be set before the first record.
	Pages            Pages
	chunks           []*chunk[T]
	chunksWithRoom   []uint32 // chunks with room; the last is filled first
	freeChunkNumbers []uint32 // numbers of chunks whose memory was given back
	emptyChunks      int      // chunks without a live record
	liveRecords      int
	heldBytes        int64 // bytes of all chunks
}

// chunk holds tableChunk records of a table.
type chunk[T any] struct {
	records     []T
	mem         []byte
	free        uint16 // the head of the free list, as link returns it
	firstUnused uint16 // this record and all with a larger number have never been used
	liveRecords uint16
	// isListed reports that the chunk is in Table.chunksWithRoom.
	isListed bool
}

// Get returns record r, which must be in a chunk that exists. The record does not move until it
// is put back.
func (t *Table[T]) Get(r uint32) *T {
	return &t.chunks[r>>tableShift].records[r&(tableChunk-1)]
}

// Has reports whether record r is in a chunk that exists, so that it may be read.
func (t *Table[T]) Has(r uint32) bool {
	n := int(r >> tableShift)
	return n < len(t.chunks) && t.chunks[n] != nil
}

// Walk calls fn for up to limit records, in use or not, beginning at number from, until fn returns
// false. It returns the number to continue from, or -1 at the end (and if from is -1).
func (t *Table[T]) Walk(from, limit int, fn func(r uint32, x *T) (more bool)) int {
	end := len(t.chunks) << tableShift
	for more := true; more && limit > 0 && from >= 0 && from < end; limit-- {
		r := uint32(from)
		from++
		if t.Has(r) {
			more = fn(r, t.Get(r))
		} else {
			from = int(r&^(tableChunk-1)) + tableChunk
		}
	}
	if from >= end {
		return -1
	}
	return from
}

// Len returns how many records are in use, HeldBytes how many bytes all chunks occupy.
func (t *Table[T]) Len() int         { return t.liveRecords }
func (t *Table[T]) HeldBytes() int64 { return t.heldBytes }

// Take returns a zeroed record and its number.
func (t *Table[T]) Take() (uint32, *T) {
	for len(t.chunksWithRoom) > 0 {
		n := t.chunksWithRoom[len(t.chunksWithRoom)-1]
		if c := t.chunks[n]; c != nil && (c.free != 0 || c.firstUnused < tableChunk) {
			return t.takeFrom(n, c)
		} else if c != nil {
			c.isListed = false
		}
		t.chunksWithRoom = t.chunksWithRoom[:len(t.chunksWithRoom)-1]
	}
	var n uint32
	if k := len(t.freeChunkNumbers); k > 0 {
		n = t.freeChunkNumbers[k-1]
		t.freeChunkNumbers = t.freeChunkNumbers[:k-1]
	} else {
		n = uint32(len(t.chunks))
		t.chunks = append(t.chunks, nil)
	}
	c := &chunk[T]{isListed: true}
	var zero T
	c.mem = t.Pages.Get(int(unsafe.Sizeof(zero)) * tableChunk)
	c.records = unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(c.mem))), tableChunk)
	if n == 0 {
		c.firstUnused = 1
	}
	t.heldBytes += int64(len(c.mem)) + int64(unsafe.Sizeof(*c))
	t.chunks[n] = c
	t.chunksWithRoom = append(t.chunksWithRoom, n)
	t.emptyChunks++
	return t.takeFrom(n, c)
}

func (t *Table[T]) takeFrom(n uint32, c *chunk[T]) (uint32, *T) {
	var i uint16
	if c.free != 0 {
		i = c.free - 1
		next := c.link(i)
		c.free = binary.NativeEndian.Uint16(next)
		binary.NativeEndian.PutUint16(next, 0)
	} else {
		i = c.firstUnused
		c.firstUnused++
	}
	if c.liveRecords == 0 {
		t.emptyChunks--
	}
	c.liveRecords++
	t.liveRecords++
	return n<<tableShift | uint32(i), &c.records[i]
}

// link returns the place of a free record's link to the next record in the free list. The link is
// the next record's number within the chunk plus 1, or 0 at the end.
func (c *chunk[T]) link(i uint16) []byte {
	size := len(c.mem) / tableChunk
	return c.mem[size*int(i)+size-2:]
}

// Put takes record r back.
func (t *Table[T]) Put(r uint32) {
	n, i := r>>tableShift, uint16(r&(tableChunk-1))
	c := t.chunks[n]
	var zero T
	c.records[i] = zero
	binary.NativeEndian.PutUint16(c.link(i), c.free)
	c.free = i + 1
	c.liveRecords--
	t.liveRecords--
	if c.liveRecords == 0 {
		t.emptyChunks++
		// Keep one empty chunk for the next record.
		if t.emptyChunks > 1 {
			t.emptyChunks--
			t.heldBytes -= int64(len(c.mem)) + int64(unsafe.Sizeof(*c))
			t.Pages.Put(c.mem)
			t.chunks[n] = nil
			t.freeChunkNumbers = append(t.freeChunkNumbers, n)
			return
		}
	}
	if !c.isListed {
		c.isListed = true
		t.chunksWithRoom = append(t.chunksWithRoom, n)
	}
}
