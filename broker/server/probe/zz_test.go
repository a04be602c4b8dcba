package probe

import (
	"testing"
	"time"
)

func TestAAZZ(t *testing.T) {
	t.Parallel()
	b := shared(t)
	c := b.submitter(t)
	begin := time.Now()
	var maxPing, maxSleep time.Duration
	for time.Since(begin) < 20*time.Second {
		x := time.Now()
		c.ping()
		d := time.Since(x)
		maxPing = max(maxPing, d)
		if d > 200*ms { t.Logf("ping %v at %v", d, time.Since(begin)) }
		x = time.Now()
		time.Sleep(5 * ms)
		d = time.Since(x)
		maxSleep = max(maxSleep, d)
		if d > 200*ms { t.Logf("sleep %v at %v", d, time.Since(begin)) }
	}
	t.Logf("ZZ max ping %v, max sleep %v", maxPing, maxSleep)
}
