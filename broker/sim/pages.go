package sim

import (
	"bytes"
	"fmt"
	"maps"
	"slices"

	"gloom/broker/container"
)

const poison = "\xA5"

// poisonPages lends memory and overwrites it when it is returned. It keeps returned memory
// until the end of the run, so that writes after the return are found.
type poisonPages struct {
	lent map[*byte][]byte
	back [][]byte
	free map[int][][]byte
	// held counts the bytes that are lent now. peak is the largest value of held in all runs.
	// returns counts how often memory was returned in all runs.
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
		m = container.HeapPages{}.Get(n)
	}
	p.lent[&m[0]] = m
	p.held += n
	p.peak = max(p.peak, p.held)
	return m
}

// Put implements broker.Pages.
func (p *poisonPages) Put(m []byte) {
	if len(m) == 0 || len(p.lent[&m[0]]) != len(m) {
		panic(fmt.Sprintf("sim: %d bytes given back that are not lent", len(m)))
	}
	delete(p.lent, &m[0])
	for n := copy(m, poison); n < len(m); n *= 2 {
		copy(m[n:], m[:n])
	}
	p.back = append(p.back, m)
	p.held -= len(m)
	p.returns++
}

// check returns an error if returned memory was written to after its return.
func (p *poisonPages) check() error {
	for _, m := range p.back {
		if bytes.Count(m, []byte(poison)) != len(m) {
			return fmt.Errorf("memory of %d bytes was written to after it was given back", len(m))
		}
	}
	return nil
}

// settle ends a run and keeps its memory for the next run.
func (p *poisonPages) settle() {
	for _, m := range slices.AppendSeq(p.back, maps.Values(p.lent)) {
		p.free[len(m)] = append(p.free[len(m)], m)
	}
	clear(p.lent)
	p.back, p.held = p.back[:0], 0
}
