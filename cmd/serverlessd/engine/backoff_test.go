package engine

import (
	"testing"
	"time"
)

// TestBackoffDoublesUpToMaximum: the backoff doubles with each try up to the maximum; up to a
// quarter is added.
func TestBackoffDoublesUpToMaximum(t *testing.T) {
	for _, c := range []struct {
		tries           int
		chance          float64
		minPause, limit time.Duration
		want            time.Duration
	}{
		{1, 0, 10 * time.Second, 5 * time.Minute, 10 * time.Second},
		{1, 1, 10 * time.Second, 5 * time.Minute, 12500 * time.Millisecond},
		{2, 0, 10 * time.Second, 5 * time.Minute, 20 * time.Second},
		{5, 0, 10 * time.Second, 5 * time.Minute, 160 * time.Second},
		{6, 0, 10 * time.Second, 5 * time.Minute, 5 * time.Minute},
		{1 << 40, 0.5, 10 * time.Second, 5 * time.Minute, 337500 * time.Millisecond},
		{1, 0, time.Hour, time.Minute, time.Minute},
	} {
		if got := backoff(c.minPause, c.limit, c.tries, c.chance); got != c.want {
			t.Errorf("backoff(%v, %v, %d, %v) = %v, want %v", c.minPause, c.limit, c.tries, c.chance, got, c.want)
		}
	}
}
