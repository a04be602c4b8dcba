package broker

import "slices"

// A chore is work that is too long for the command that begins it. Later commands, of
// whatever kind, continue it.
type chore interface {
	// step does a part of the chore. It returns the cost, in visits to places that lie apart in
	// memory, and whether the chore is done.
	step(b *Broker) (cost int, done bool)
}

// chores are worked on from the last to the first: a later chore may add work to an earlier chore,
// so the later chore must end first.
type chores []chore

func (c *chores) add(x chore) { *c = append(*c, x) }

const (
	// choreSteps bounds the chore steps in one command, and tickSteps bounds the cleanup and
	// notification steps in one tick. submitSteps is the number of cleanup steps in one submit: a
	// submitter that comes and goes must not outrun the cleanups.
	choreSteps  = 1 << 11
	tickSteps   = 1 << 8
	submitSteps = 2
	// recordVisits is roughly how many places are visited when a group's or a holding's record changes,
	// with its index entries, limits, queues and heaps.
	recordVisits = 8
)

// runChores works on chores until their cost reaches a number of steps.
func (b *Broker) runChores(c *chores, steps int) {
	for steps > 0 && len(*c) > 0 {
		last := len(*c) - 1
		cost, done := (*c)[last].step(b)
		steps -= cost
		if done {
			*c = slices.Delete(*c, last, last+1)
		}
	}
}
