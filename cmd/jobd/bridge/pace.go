package bridge

import "time"

// pace is what is known of how long reads take and rows stay. Both change slowly,
// but for single reads that are held up by a lock: of the last two the shorter
// counts.
type pace struct {
	fetch, before time.Duration
	stay          map[string]time.Duration // of a target's rows, from start to end, on average
}

// fetchLeast is what a read counts for at least: smaller reads cost more than rows
// that wait for so long are worth to another daemon.
const fetchLeast = 10 * time.Millisecond

// smoothing is the weight of the average against one row more.
const smoothing = 8

func (p *pace) fetched(took time.Duration) { p.fetch, p.before = took, p.fetch }

func (p *pace) ended(target string, stayed time.Duration) {
	if p.stay == nil {
		p.stay = make(map[string]time.Duration)
	}
	if stay, known := p.stay[target]; known {
		stayed = stay + (stayed-stay)/smoothing
	}
	p.stay[target] = max(stayed, 1)
}

// share is how many rows end in one place of a target during a read.
func (p *pace) share(target string) float64 {
	if stay := p.stay[target]; stay > 0 {
		return float64(max(min(p.fetch, p.before), fetchLeast)) / float64(stay)
	}
	return 0
}
