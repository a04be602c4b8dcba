package server

import "golang.org/x/sys/unix"

// backlog is output that a socket has not taken yet.
type backlog struct {
	parts [][]byte
	n     int // bytes
}

const (
	// Output is held back in pieces from firstPiece to lastPiece bytes, as large
	// as what is held already.
	firstPiece = 4 << 10
	lastPiece  = 64 << 10
	// maxParts is how many pieces the system takes in one write (IOV_MAX).
	maxParts = 1024
)

// add appends a copy of part, or part itself if it stays as it is.
func (b *backlog) add(part []byte, stays bool) {
	if len(part) == 0 {
		return
	}
	if stays {
		b.parts = append(b.parts, part[:len(part):len(part)]) // nothing is appended to it
	} else if i := len(b.parts) - 1; i >= 0 && cap(b.parts[i])-len(b.parts[i]) >= len(part) {
		b.parts[i] = append(b.parts[i], part...)
	} else {
		piece := make([]byte, 0, max(len(part), min(max(b.n, firstPiece), lastPiece)))
		b.parts = append(b.parts, append(piece, part...))
	}
	b.n += len(part)
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
	}
	if b.parts = b.parts[i:]; left > 0 {
		b.parts[0] = b.parts[0][left:]
	}
	return n, nil
}
