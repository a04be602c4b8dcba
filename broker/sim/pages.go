package sim

import (
	"bytes"
	"fmt"
	"unsafe"
)

const poison = 0xA5

// poisonPages lends memory and overwrites it when it is returned. It keeps returned memory
// until the end of the run, so that writes after the return are found.
type poisonPages struct {
	lent map[*byte][]byte
	back [][]byte
	free map[int][][]byte
	// held is how many bytes are lent, peak is the most that were lent at a time in this run, and
	// returns is how often memory was returned.
	held, peak int
	returns    int
}

func newPages() *poisonPages {
	return &poisonPages{lent: map[*byte][]byte{}, free: map[int][][]byte{}}
}

// Get implements broker.Pages.
func (p *poisonPages) Get(n int) []byte {
	var m []byte
	if f := p.free[n]; len(f) > 0 {
		m = f[len(f)-1]
		p.free[n] = f[:len(f)-1]
		clear(m)
	} else {
		w := make([]uint64, (n+7)/8)
		m = unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(w))), n)
	}
	p.lent[unsafe.SliceData(m)] = m
	p.held += n
	p.peak = max(p.peak, p.held)
	return m
}

// Put implements broker.Pages.
func (p *poisonPages) Put(m []byte) {
	at := unsafe.SliceData(m)
	if known, ok := p.lent[at]; !ok || len(known) != len(m) {
		panic(fmt.Sprintf("sim: %d bytes given back that are not lent", len(m)))
	}
	delete(p.lent, at)
	poisonFill(m)
	p.back = append(p.back, m)
	p.held -= len(m)
	p.returns++
}

func poisonFill(m []byte) {
	if len(m) == 0 {
		return
	}
	m[0] = poison
	for n := 1; n < len(m); n *= 2 {
		copy(m[n:], m[:n])
	}
}

var poisonPattern = func() []byte {
	m := make([]byte, 1<<20)
	poisonFill(m)
	return m
}()

// checkPoison returns an error if returned memory was written to after its return.
func checkPoison(m []byte) error {
	for n := 0; n < len(m); n += len(poisonPattern) {
		part := m[n:min(len(m), n+len(poisonPattern))]
		if !bytes.Equal(part, poisonPattern[:len(part)]) {
			return fmt.Errorf("memory of %d bytes was written to after it was given back", len(m))
		}
	}
	return nil
}

// settle ends a run and keeps its memory for the next run.
func (p *poisonPages) settle() {
	for _, m := range p.back {
		p.free[len(m)] = append(p.free[len(m)], m)
	}
	for _, m := range p.lent {
		p.free[len(m)] = append(p.free[len(m)], m)
	}
	clear(p.lent)
	p.back, p.held, p.peak, p.returns = p.back[:0], 0, 0, 0
}
