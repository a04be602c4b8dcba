package server

// pace decides whether a loop writes at once or once per round. While reads come one by one
// it writes at once, which costs a write per frame and saves the time of another round. When
// many connections are ready at a time it writes at the end of the round, which saves most of
// the writes.
type pace struct {
	reads   int // since the last round
	lone    int // rounds in a row with one read
	instant bool
	since   int // reads since the last round that was counted
}

const (
	// loneRounds is how many rounds in a row must have had one read each before
	// output is written at once.
	loneRounds = 8
	// countEvery is how often a round is counted while writing at once.
	countEvery = 16
)

// atOnce tells whether to write output right after the read that was counted last.
func (p *pace) atOnce() bool {
	if !p.instant {
		return false
	}
	if p.since++; p.since < countEvery {
		return true
	}
	// Count one round, to see whether reads still come one by one.
	*p = pace{reads: 1, lone: loneRounds - 1}
	return false
}

func (p *pace) endRound() {
	if p.reads <= 1 {
		p.lone++
	} else {
		p.lone = 0
	}
	p.instant, p.reads = p.lone >= loneRounds, 0
}
