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
	lentMem  map[*byte][]byte
	returned [][]byte
	free     map[int][][]byte
	// heldBytes counts the bytes that are lent now. peakBytes is its largest value in all runs.
	// returns counts how often memory was returned in all runs.
	heldBytes, peakBytes int
	returns              int
}

func newPages() *poisonPages {
	return &poisonPages{lentMem: map[*byte][]byte{}, free: map[int][][]byte{}}
}

// Get implements broker.Pages.
func (p *poisonPages) Get(n int) []byte {
	var mem []byte
	if f := p.free[n]; len(f) > 0 {
		mem = f[len(f)-1]
		p.free[n] = f[:len(f)-1]
		clear(mem)
	} else {
		mem = container.HeapPages{}.Get(n)
	}
	p.lentMem[&mem[0]] = mem
	p.heldBytes += n
	p.peakBytes = max(p.peakBytes, p.heldBytes)
	return mem
}

// Put implements broker.Pages.
func (p *poisonPages) Put(mem []byte) {
	if len(mem) == 0 || len(p.lentMem[&mem[0]]) != len(mem) {
		panic(fmt.Sprintf("sim: %d bytes given back that are not lent", len(mem)))
	}
	delete(p.lentMem, &mem[0])
	for n := copy(mem, poison); n < len(mem); n *= 2 {
		copy(mem[n:], mem[:n])
	}
	p.returned = append(p.returned, mem)
	p.heldBytes -= len(mem)
	p.returns++
}

// check returns an error if returned memory was written to after its return.
func (p *poisonPages) check() error {
	for _, mem := range p.returned {
		if bytes.Count(mem, []byte(poison)) != len(mem) {
			return fmt.Errorf("memory of %d bytes was written to after it was given back", len(mem))
		}
	}
	return nil
}

// settle ends a run and keeps its memory for the next run.
func (p *poisonPages) settle() {
	for _, mem := range slices.AppendSeq(p.returned, maps.Values(p.lentMem)) {
		p.free[len(mem)] = append(p.free[len(mem)], mem)
	}
	clear(p.lentMem)
	p.returned, p.heldBytes = p.returned[:0], 0
}
