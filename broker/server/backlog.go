package server

import "golang.org/x/sys/unix"

// backlog is output that a socket has not taken yet.
type backlog struct {
	parts  [][]byte
	n      int // bytes
	memory int // that parts lie in, those written in part whole
	first  int // of it, the memory of the first part
}

const (
	// Output is held back in pieces from firstPiece to lastPiece bytes, as large
	// as what is held already.
	firstPiece = 4 << 10
	lastPiece  = 64 << 10
	// maxParts is how many pieces the system takes in one write (IOV_MAX).
	maxParts = 1024
)

// add appends a copy of part. The last part of an output leaves room for the next
// one, as much as is held already.
func (b *backlog) add(part []byte, last bool) {
	if i := len(b.parts) - 1; i >= 0 {
		k := min(len(part), cap(b.parts[i])-len(b.parts[i]))
		b.parts[i] = append(b.parts[i], part[:k]...)
		b.n += k
		part = part[k:]
	}
	if len(part) == 0 {
		return
	}
	size := len(part)
	if last {
		size = max(size, min(max(b.n, firstPiece), lastPiece))
	}
	b.push(append(make([]byte, 0, size), part...))
}

// refer appends part itself, which stays as it is.
func (b *backlog) refer(part []byte) {
	if len(part) > 0 {
		b.push(part[:len(part):len(part)]) // nothing is appended to it
	}
}

func (b *backlog) push(part []byte) {
	if len(b.parts) == 0 {
		b.first = cap(part)
	}
	b.parts = append(b.parts, part)
	b.n += len(part)
	b.memory += cap(part)
}

// write writes once, most bytes at the most. It leaves nothing in iov.
func (b *backlog) write(fd, most int, iov [][]byte) (n int, err error) {
	for _, part := range b.parts[:min(len(b.parts), maxParts)] {
		iov = append(iov, part[:min(len(part), most)])
		if most -= len(part); most <= 0 {
			break
		}
	}
	n, err = unix.SendmsgBuffers(fd, iov, nil, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
	clear(iov)
	if err != nil {
		return 0, err
	}
	b.n -= n
	left := n
	i := 0
	for ; i < len(b.parts) && left >= len(b.parts[i]); i++ {
		left -= len(b.parts[i])
		b.parts[i] = nil
		b.memory -= b.first
		b.first = 0
		if i+1 < len(b.parts) {
			b.first = cap(b.parts[i+1])
		}
	}
	if b.parts = b.parts[i:]; left > 0 {
		b.parts[0] = b.parts[0][left:]
	}
	return n, nil
}
