package bridge

import "time"

// fetchPace records how long fetches take and how long rows stay. Both times change slowly, except
// that a lock may delay a single fetch, so the shorter of the last two fetches counts.
type fetchPace struct {
	lastFetch, previousFetch time.Duration
	avgStay                  map[string]time.Duration // average time of a target's rows from start to end
}

// minFetchTime is the duration that is assumed for a shorter fetch. The shorter a fetch, the fewer rows
// a daemon fetches at a time, which leaves more to other daemons. Below minFetchTime this gain would be
// smaller than the cost of the additional fetches.
const minFetchTime = 10 * time.Millisecond

// smoothing sets the weight of the latest row in the average, which is 1/smoothing.
const smoothing = 8

func (p *fetchPace) observeFetch(elapsed time.Duration) {
	p.lastFetch, p.previousFetch = elapsed, p.lastFetch
}

func (p *fetchPace) observeEnd(target string, duration time.Duration) {
	if p.avgStay == nil {
		p.avgStay = make(map[string]time.Duration)
	}
	if average, known := p.avgStay[target]; known {
		duration = average + (duration-average)/smoothing
	}
	p.avgStay[target] = max(duration, 1)
}

// endsPerFetch returns how many rows end in one slot of a target during a fetch.
func (p *fetchPace) endsPerFetch(target string) float64 {
	if duration := p.avgStay[target]; duration > 0 {
		return float64(max(min(p.lastFetch, p.previousFetch), minFetchTime)) / float64(duration)
	}
	return 0
}
