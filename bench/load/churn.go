package load

import (
	"math/rand/v2"
	"time"
)

// Churn makes peers come and go at random.
type Churn struct {
	Workers    float64       // workers that end per second: closed or reset, idle or busy
	Submitters float64       // submitters that end per second, with jobs outstanding
	Steady     int           // submitters that stay; their jobs must all be answered
	MaxAway    time.Duration // the longest time that a peer stays away
}

// churner makes the peers of one shard come and go.
type churner struct {
	Churn
	shard      *shard
	rng        *rand.Rand
	workers    *schedule
	submitters *schedule
	absent     []absence
	stopped    bool
}

// absence describes a peer that is away and comes back at returnAt.
type absence struct {
	returnAt int64
	dial     func() error
	resume   func()
}

// Churn starts to make peers come and go.
func (g *Generator) Churn(c Churn) error {
	i := uint64(0)
	share := float64(len(g.shards))
	return g.eachShard(func(sh *shard) error {
		seed := g.cfg.Seed + i*7919
		i++
		sh.churn = &churner{Churn: c, shard: sh, rng: rand.New(rand.NewPCG(seed, 1))}
		if c.Workers > 0 {
			sh.churn.workers = newSchedule(NewPoisson(c.Workers/share, seed+1), sh.now)
		}
		if c.Submitters > 0 {
			sh.churn.submitters = newSchedule(NewPoisson(c.Submitters/share, seed+2), sh.now)
		}
		return nil
	})
}

// stop ends the churn. Peers that are disconnected connect again at once.
func (c *churner) stop() {
	c.stopped = true
	for _, a := range c.absent {
		c.reconnect(a)
	}
	c.absent = nil
}

// step does the work that is due, and returns when it must be called again; a negative time means never.
func (c *churner) step(now int64) (next int64) {
	if c.stopped {
		return -1
	}
	next = -1
	for i := 0; i < len(c.absent); {
		a := c.absent[i]
		if a.returnAt > now {
			next = earliest(next, a.returnAt)
			i++
			continue
		}
		c.absent[i] = c.absent[len(c.absent)-1]
		c.absent = c.absent[:len(c.absent)-1]
		c.reconnect(a)
	}
	if s := c.workers; s != nil {
		for _, ok := s.nextDue(now); ok; _, ok = s.nextDue(now) {
			next = earliest(next, c.endWorker(now))
		}
		next = earliest(next, s.nextAt)
	}
	if s := c.submitters; s != nil {
		for _, ok := s.nextDue(now); ok; _, ok = s.nextDue(now) {
			next = earliest(next, c.endSubmitter(now))
		}
		next = earliest(next, s.nextAt)
	}
	return next
}

func (c *churner) reconnect(a absence) {
	if err := a.dial(); err != nil {
		c.shard.faults.add(Disconnected, "coming back: %v", err)
		return
	}
	a.resume()
}

func (c *churner) endWorker(now int64) int64 {
	w := c.shard.workers[c.rng.IntN(len(c.shard.workers))]
	if !w.ready {
		return -1
	}
	w.hangup(c.rng.IntN(2) == 0)
	c.shard.totals.WorkerHangups++
	return c.disconnect(now, w.dial, func() {})
}

func (c *churner) endSubmitter(now int64) int64 {
	s := c.shard.submitters[c.rng.IntN(len(c.shard.submitters))]
	if !s.ready || s.Index < c.Steady {
		return -1
	}
	budget := s.budget
	s.hangup(c.rng.IntN(2) == 0)
	s.budget = 0
	c.shard.totals.SubmitterHangups++
	return c.disconnect(now, s.dial, func() {
		if !c.stopped {
			s.budget = budget
			s.fillWindow()
		}
	})
}

// disconnect records a peer that has just hung up as absent, and returns when it comes back.
func (c *churner) disconnect(now int64, dial func() error, resume func()) int64 {
	returnAt := now
	if c.MaxAway > 0 {
		returnAt += c.rng.Int64N(int64(c.MaxAway))
	}
	c.absent = append(c.absent, absence{returnAt, dial, resume})
	return returnAt
}
