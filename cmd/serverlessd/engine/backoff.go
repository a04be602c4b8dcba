package engine

import "time"

// backoff returns how long a job waits before its next run: minDelay after the first try, doubled
// after each further try up to maxDelay. A random part is added: a quarter of the wait, times
// chance, which is from 0 to 1.
func backoff(minDelay, maxDelay time.Duration, tries int, chance float64) time.Duration {
	d := min(minDelay, maxDelay)
	for ; tries > 1 && d < maxDelay; tries-- {
		d = min(2*d, maxDelay)
	}
	return d + time.Duration(chance*float64(d)/4)
}
