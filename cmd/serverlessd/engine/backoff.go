package engine

import "time"

// backoff is how long the job waits before its next run, after so many tries:
// doubled from least on, at most most, plus up to a quarter by chance.
func backoff(least, most time.Duration, tries int, chance float64) time.Duration {
	d := min(least, most)
	for ; tries > 1 && d < most; tries-- {
		d = min(2*d, most)
	}
	return d + time.Duration(chance*float64(d)/4)
}
