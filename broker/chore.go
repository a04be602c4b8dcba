package broker

import "slices"

// A chore is what one command begins and is too long to end. Whatever commands come
// between two of its steps, it goes on.
type chore interface {
	// step goes on. It returns what that cost, in visits of things that lie apart in
	// memory, and whether the chore is done.
	step(b *Broker) (cost int, done bool)
}

// chores are taken the latest first: those that others still add to end last.
type chores []chore

func (c *chores) add(x chore) { *c = append(*c, x) }

const (
	// choreSteps is what one command does of chores that others wait for, tickSteps what
	// a tick does of those that give back memory, and lazySteps what a submit does: a
	// submitter that comes and goes must not outrun them.
	choreSteps = 1 << 11
	tickSteps  = 1 << 10
	lazySteps  = 2
)

// do takes steps of chores.
func (b *Broker) do(c *chores, steps int) {
	for steps > 0 && len(*c) > 0 {
		last := len(*c) - 1
		cost, done := (*c)[last].step(b)
		if steps -= cost; done {
			*c = slices.Delete(*c, last, last+1)
		}
	}
}
