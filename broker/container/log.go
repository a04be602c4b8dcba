package container

import "unsafe"

const (
	logShift = 18
	// LogChunk is the size of a chunk of a Log in bytes. A record and its text must fit.
	LogChunk = 1 << logShift
	// logTail is the size of what follows each record and its text: the length of the text and
	// the length of the whole, in 4 bytes each.
	logTail = 8
)

// Log keeps the latest records that were added to it, each with a text of any length. The
// records lie one after the other in chunks; if there are too many chunks, the oldest is
// dropped. T must have no pointers, and a size that is a multiple of 8.
//
// The position of a record is above 0 and above those of all earlier records. It is never
// reused. All methods cost O(1).
type Log[T any] struct {
	// Pages provides the memory of chunks. It must be set before the first record.
	Pages         Pages
	maxChunks     int // how many chunks are allowed; 0 means no limit
	chunks        []logChunk
	droppedChunks int64 // how many chunks have been dropped
}

// logChunk is one piece of a log's memory.
type logChunk struct {
	mem       []byte
	usedBytes int
}

// Limit sets how many bytes all chunks may occupy, but keeps at least one chunk. It drops the
// oldest chunks beyond the limit.
func (l *Log[T]) Limit(bytes int64) {
	l.maxChunks = int(max(1, bytes>>logShift))
	for len(l.chunks) > l.maxChunks {
		l.Pages.Put(l.drop())
	}
}

// drop drops the oldest chunk and returns its memory.
func (l *Log[T]) drop() []byte {
	m := l.chunks[0].mem
	l.chunks = append(l.chunks[:0], l.chunks[1:]...)
	l.droppedChunks++
	return m
}

// HeldBytes returns how many bytes all chunks occupy.
func (l *Log[T]) HeldBytes() int64 { return int64(len(l.chunks)) << logShift }

// Add adds a record with n bytes of text. The caller must fill both completely, as they are not
// zeroed.
func (l *Log[T]) Add(n int) (x *T, text []byte) {
	size := int(unsafe.Sizeof(*x))
	recordSize := size + (n+7)&^7 + logTail
	if len(l.chunks) == 0 || l.chunks[len(l.chunks)-1].usedBytes+recordSize > LogChunk {
		var m []byte
		if len(l.chunks) > 0 && len(l.chunks) >= l.maxChunks {
			m = l.drop()
		} else {
			m = l.Pages.Get(LogChunk)
		}
		l.chunks = append(l.chunks, logChunk{mem: m})
	}
	c := &l.chunks[len(l.chunks)-1]
	m := c.mem[c.usedBytes : c.usedBytes+recordSize]
	c.usedBytes += recordSize
	*(*[2]uint32)(unsafe.Pointer(&m[recordSize-logTail])) = [2]uint32{uint32(n), uint32(recordSize)}
	return (*T)(unsafe.Pointer(unsafe.SliceData(m))), m[size : size+n : size+n]
}

// Complete reports whether the log still has every record that was added.
func (l *Log[T]) Complete() bool { return l.droppedChunks == 0 }

// Last returns the position of the latest record, 0 if there is none.
func (l *Log[T]) Last() int64 { return l.lastOfChunk(len(l.chunks) - 1) }

// lastOfChunk returns the position of the last record of a chunk, 0 if n is negative.
func (l *Log[T]) lastOfChunk(n int) int64 {
	if n < 0 {
		return 0
	}
	return (l.droppedChunks+int64(n))<<logShift + int64(l.chunks[n].usedBytes)
}

// First returns the earliest record, nil if there is none.
func (l *Log[T]) First() *T {
	if len(l.chunks) == 0 {
		return nil
	}
	return (*T)(unsafe.Pointer(unsafe.SliceData(l.chunks[0].mem)))
}

// Align returns the position of the latest record that is at or before a position, or 0 if this
// record has been dropped. Unlike At, Align accepts any number. It visits the records of one chunk.
func (l *Log[T]) Align(pos int64) int64 {
	n := (pos-1)>>logShift - l.droppedChunks
	if n < 0 {
		return 0
	}
	at := l.lastOfChunk(int(min(n, int64(len(l.chunks)-1))))
	for at > pos {
		_, _, at = l.At(at)
	}
	return at
}

// At returns the record at a position and the position of the previous record. They are nil and 0
// for records that have been dropped.
func (l *Log[T]) At(pos int64) (x *T, text []byte, before int64) {
	n := int((pos-1)>>logShift - l.droppedChunks)
	if pos <= 0 || n < 0 {
		return nil, nil, 0
	}
	end := int((pos-1)&(LogChunk-1)) + 1
	m := l.chunks[n].mem[:end]
	lens := *(*[2]uint32)(unsafe.Pointer(&m[end-logTail]))
	m = m[end-int(lens[1]):]
	if end == int(lens[1]) {
		before = l.lastOfChunk(n - 1)
	} else {
		before = pos - int64(lens[1])
	}
	x = (*T)(unsafe.Pointer(unsafe.SliceData(m)))
	size := int(unsafe.Sizeof(*x))
	return x, m[size : size+int(lens[0])], before
}
