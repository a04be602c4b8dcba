package container

import "math/bits"

// Buffers keeps memory for reuse, in sizes that are powers of two. A nil *Buffers keeps
// nothing and leaves all memory to the collector.
type Buffers struct {
	// MaxBytes bounds the bytes that are kept; HeldBytes counts them.
	MaxBytes, HeldBytes int

	free [bufferSizes][][]byte
}

// MaxBuffer is the largest buffer that is kept, minBuffer the smallest, in bytes.
const (
	MaxBuffer   = minBuffer << (bufferSizes - 1)
	minBuffer   = 1 << 10
	bufferSizes = 9
)

// Get returns an empty slice with a capacity of at least n bytes.
func (x *Buffers) Get(n int) []byte {
	if x == nil || n > MaxBuffer {
		return make([]byte, 0, n)
	}
	class := bits.Len(uint(max(n, minBuffer)-1) / minBuffer)
	last := len(x.free[class]) - 1
	if last < 0 {
		return make([]byte, 0, minBuffer<<class)
	}
	b := x.free[class][last]
	x.free[class][last] = nil
	x.free[class] = x.free[class][:last]
	x.HeldBytes -= cap(b)
	return b
}

// Put keeps b for reuse if there is room. The caller must not use it any more.
func (x *Buffers) Put(b []byte) {
	overwrite(b[:cap(b)])
	if n := cap(b); x != nil && n >= minBuffer && n <= MaxBuffer && x.HeldBytes+n <= x.MaxBytes {
		class := bits.Len(uint(n/minBuffer)) - 1
		x.HeldBytes += n
		x.free[class] = append(x.free[class], b[:0])
	}
}

// Trim frees half of the buffers of each size. Called at intervals, it keeps buffers in use and
// frees buffers that only a burst needed.
func (x *Buffers) Trim() {
	if x == nil {
		return
	}
	for class, list := range x.free {
		for target := len(list) / 2; len(list) > target; {
			n := len(list) - 1
			x.HeldBytes -= cap(list[n])
			list[n] = nil
			list = list[:n]
		}
		x.free[class] = list
	}
}
