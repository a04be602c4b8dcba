package server

import "golang.org/x/sys/unix"

// backlog is output that a socket or a stream has not taken yet.
type backlog struct {
	pool   *pool
	pieces []piece
	n      int // bytes
	memory int // that pieces lie in, those written in part whole
	flying int // bytes that a stream is writing, of the first piece
}

// piece is a part of it: what of mem has not been written, from at on.
type piece struct {
	mem  []byte
	at   int
	lent bool // mem is a body that is kept, and nothing is appended to it
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
	if i := len(b.pieces) - 1; i >= 0 && !b.pieces[i].lent {
		p := &b.pieces[i]
		k := min(len(part), cap(p.mem)-len(p.mem))
		p.mem = append(p.mem, part[:k]...)
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
	b.push(piece{mem: append(b.pool.get(size, size), part...)})
}

// refer appends part itself, which stays as it is.
func (b *backlog) refer(part []byte) {
	if len(part) > 0 {
		b.push(piece{mem: part, lent: true})
	}
}

func (b *backlog) push(p piece) {
	b.pieces = append(b.pieces, p)
	b.n += len(p.mem)
	b.memory += p.memory()
}

func (p *piece) memory() int {
	if p.lent {
		return len(p.mem)
	}
	return cap(p.mem)
}

func (p *piece) left() []byte { return p.mem[p.at:] }

// front has the first bytes written, most at the most, by a stream, which calls wrote.
func (b *backlog) front(most int) []byte {
	if b.n == 0 {
		return nil
	}
	left := b.pieces[0].left()
	b.flying = min(len(left), most)
	return left[:b.flying]
}

// write writes once, most bytes at the most. It leaves nothing in iov.
func (b *backlog) write(fd, most int, iov [][]byte) (n int, err error) {
	for i := range b.pieces[:min(len(b.pieces), maxParts)] {
		left := b.pieces[i].left()
		iov = append(iov, left[:min(len(left), most)])
		if most -= len(left); most <= 0 {
			break
		}
	}
	n, err = unix.SendmsgBuffers(fd, iov, nil, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
	clear(iov)
	if err != nil {
		return 0, err
	}
	b.wrote(n)
	return n, nil
}

// wrote notes that the first n bytes have been written.
func (b *backlog) wrote(n int) {
	b.n -= n
	b.flying = 0
	done := 0
	for ; done < len(b.pieces) && n >= len(b.pieces[done].left()); done++ {
		p := &b.pieces[done]
		n -= len(p.left())
		b.memory -= p.memory()
		if !p.lent && cap(p.mem) <= firstPiece {
			b.pool.put(p.mem)
		}
		*p = piece{}
	}
	if b.pieces = b.pieces[done:]; n > 0 {
		b.pieces[0].at += n
	}
}

// clear throws it away.
func (b *backlog) clear() { *b = backlog{pool: b.pool} }
