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

type churner struct {
	Churn
	lane       *lane
	rng        *rand.Rand
	workers    *schedule
	submitters *schedule
	absent     []absence
	stopped    bool
}

type absence struct {
	returnAt int64
	dial     func() error
	resume   func()
}

// Churn starts to make peers come and go.
func (g *Generator) Churn(c Churn) error {
	i := uint64(0)
	share := float64(len(g.lanes))
	return g.eachLane(func(l *lane) error {
		seed := g.cfg.Seed + i*7919
		i++
		l.churn = &churner{Churn: c, lane: l, rng: rand.New(rand.NewPCG(seed, 1))}
		if c.Workers > 0 {
			l.churn.workers = newSchedule(NewPoisson(c.Workers/share, seed+1), l.now)
		}
		if c.Submitters > 0 {
			l.churn.submitters = newSchedule(NewPoisson(c.Submitters/share, seed+2), l.now)
		}
		return nil
	})
}

// stop ends the churn; peers that are away come back at once.
func (c *churner) stop() {
	c.stopped = true
	for _, a := range c.absent {
		c.reconnect(a)
	}
	c.absent = nil
}

func (c *churner) step(now int64) (next int64) {
	if c.stopped {
		return -1
	}
	next = -1
	for i := 0; i < len(c.absent); {
		a := c.absent[i]
		if a.returnAt > now {
			next = earlier(next, a.returnAt)
			i++
			continue
		}
		c.absent[i] = c.absent[len(c.absent)-1]
		c.absent = c.absent[:len(c.absent)-1]
		c.reconnect(a)
	}
	if s := c.workers; s != nil {
		for _, ok := s.nextDue(now); ok; _, ok = s.nextDue(now) {
			next = earlier(next, c.endWorker(now))
		}
		next = earlier(next, s.next)
	}
	if s := c.submitters; s != nil {
		for _, ok := s.nextDue(now); ok; _, ok = s.nextDue(now) {
			next = earlier(next, c.endSubmitter(now))
		}
		next = earlier(next, s.next)
	}
	return next
}

func (c *churner) reconnect(a absence) {
	if err := a.dial(); err != nil {
		c.lane.faults.add(Disconnected, "coming back: %v", err)
		return
	}
	a.resume()
}

func (c *churner) endWorker(now int64) int64 {
	w := c.lane.workers[c.rng.IntN(len(c.lane.workers))]
	if !w.ready {
		return -1
	}
	w.hangup(c.rng.IntN(2) == 0)
	c.lane.count.WorkerHangups++
	return c.disconnect(now, w.dial, func() {})
}

func (c *churner) endSubmitter(now int64) int64 {
	s := c.lane.submitters[c.rng.IntN(len(c.lane.submitters))]
	if !s.ready || s.Index < c.Steady {
		return -1
	}
	budget := s.budget
	s.hangup(c.rng.IntN(2) == 0)
	s.budget = 0
	c.lane.count.SubmitterHangups++
	return c.disconnect(now, s.dial, func() {
		if !c.stopped {
			s.budget = budget
			s.fillWindow()
		}
	})
}

func (c *churner) disconnect(now int64, dial func() error, resume func()) int64 {
	returnAt := now
	if c.MaxAway > 0 {
		returnAt += c.rng.Int64N(int64(c.MaxAway))
	}
	c.absent = append(c.absent, absence{returnAt, dial, resume})
	return returnAt
}
