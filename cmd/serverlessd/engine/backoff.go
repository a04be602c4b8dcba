package engine

import "time"

// backoff returns how long a job waits before its next run: least after the first try, doubled
// after each further try up to most, plus a quarter of this times chance, which is from 0 to 1.
func backoff(least, most time.Duration, tries int, chance float64) time.Duration {
	d := min(least, most)
	for ; tries > 1 && d < most; tries-- {
		d = min(2*d, most)
	}
	return d + time.Duration(chance*float64(d)/4)
}
