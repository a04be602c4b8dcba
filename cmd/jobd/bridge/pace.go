package bridge

import "time"

// pace knows how long reads take and how long rows stay. Both change slowly, except for
// single reads that a lock holds up, so the shorter of the last two reads counts.
type pace struct {
	fetch, before time.Duration
	stay          map[string]time.Duration // time of a target's rows from start to end, on average
}

// fetchLeast is the shortest duration that counts for a read: smaller reads cost more
// than it is worth to leave rows waiting, for so long, for another daemon.
const fetchLeast = 10 * time.Millisecond

// smoothing is the weight of the average against one more row.
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
