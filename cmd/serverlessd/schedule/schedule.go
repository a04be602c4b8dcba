// Package schedule decides whose jobs are taken next. The decision depends only on counts, running
// batches and the time that it is given: the package has no store and no clock.
//
// Clients take turns. A turn ends when the client's credit is used up. Credit is run time. A client
// pays for a batch while it runs, so that a client of long batches is charged before they end. When
// no waiting client has credit left, all get more (deficit round robin). A new client gets the next
// turn.
package schedule

import (
	"slices"
	"time"
)

const (
	// quantum is the run time that a client gets per round, and that a batch pays in advance. It is
	// short, so that the short batches of two waiting clients alternate.
	quantum = 10 * time.Millisecond
	// tieAge is the difference in age up to which two types count as equally old.
	tieAge = 100 * time.Millisecond
	// maxWarmTies limits the ties in a row that a warm handler process may decide.
	maxWarmTies = 4
)

// Type is a type that has due jobs.
type Type struct {
	Client, Jobtype string
	Age             time.Duration // how long its oldest job has been due
	Limit           int           // batches of the type that may run at a time; 0: any number
	Warm            bool          // whether a handler process is ready for it
}

// Limits holds the limits of the daemon. Each running batch has a slot.
type Limits struct {
	Slots, ClientSlots int // maximum number of slots in all, and for one client; 0: no limit
}

// Scheduler keeps track of what runs and of each client's credit. It is not safe for concurrent
// use.
type Scheduler struct {
	limits    Limits
	chargedAt time.Time // when clients were last charged
	running   int
	clients   map[string]*client
	turns     []*client // clients sorted by their turns; the first one has the turn
}

// client is a client that has waiting jobs, running batches, or debts.
type client struct {
	name      string
	credit    time.Duration  // below 0: a debt
	running   map[string]int // by jobtype
	slots     int            // sum of running
	hadNoTurn bool           // the client has not had a turn yet
	warmTies  int            // ties in a row that a warm handler process has decided

	// The following are used only during a selection.
	waiting         bool
	oldest, warmest int // indexes of types that may run; -1: none
}

// New returns a scheduler for a daemon that runs nothing.
func New(limits Limits) *Scheduler {
	return &Scheduler{limits: limits, clients: make(map[string]*client)}
}

// SelectJobtypeToRun returns the index of the type whose jobs to take next, or -1 if nothing may
// run. It takes no slot: the caller must call JobsStarted.
func (s *Scheduler) SelectJobtypeToRun(now time.Time, types []Type) int {
	s.charge(now)
	s.updateClients(types)
	if s.limits.Slots > 0 && s.running >= s.limits.Slots {
		return -1
	}
	for {
		minDebt := time.Duration(-1) // the smallest debt of a client that may run
		for at, c := range s.turns {
			if c.oldest < 0 {
				continue
			}
			if c.credit > 0 {
				s.turns = append(slices.Clone(s.turns[at:]), s.turns[:at]...)
				c.hadNoTurn = false
				return c.choose(types)
			}
			if minDebt < 0 || -c.credit < minDebt {
				minDebt = -c.credit
			}
		}
		if minDebt < 0 {
			return -1
		}
		s.payDebt(minDebt)
	}
}

// updateClients adds clients that have waiting jobs. It forgets clients that have neither waiting
// jobs, nor running batches, nor debts.
func (s *Scheduler) updateClients(types []Type) {
	for _, c := range s.turns {
		c.waiting, c.oldest, c.warmest = false, -1, -1
	}
	var newClients []*client
	waiting := 0
	for at, t := range types {
		c := s.clients[t.Client]
		if c == nil {
			c = s.addClient(t.Client)
			newClients = append(newClients, c)
		}
		if !c.waiting {
			c.waiting = true
			waiting++
		}
		if s.limits.ClientSlots > 0 && c.slots >= s.limits.ClientSlots || t.Limit > 0 && c.running[t.Jobtype] >= t.Limit {
			continue
		}
		if c.oldest < 0 || t.Age > types[c.oldest].Age {
			c.oldest = at
		}
		if t.Warm && (c.warmest < 0 || t.Age > types[c.warmest].Age) {
			c.warmest = at
		}
	}
	s.turns = slices.DeleteFunc(s.turns, func(c *client) bool {
		// If only one client is waiting, it delays no other, so old debts are forgiven.
		gone := !c.waiting && c.slots == 0 && (c.credit >= 0 || waiting < 2)
		if gone {
			delete(s.clients, c.name)
		} else if !c.waiting {
			c.credit = min(c.credit, 0)
		}
		return gone
	})
	first := 0 // the new clients' place: after those that are new, too, but came earlier
	for first < len(s.turns) && s.turns[first].hadNoTurn {
		first++
	}
	s.turns = slices.Insert(s.turns, first, newClients...)
}

func (s *Scheduler) addClient(name string) *client {
	c := &client{name: name, credit: quantum, running: make(map[string]int), hadNoTurn: true, oldest: -1, warmest: -1}
	s.clients[name] = c
	return c
}

// payDebt gives all clients as many quanta as a client with this debt needs to have credit again. No
// client can save more than one quantum.
func (s *Scheduler) payDebt(debt time.Duration) {
	gift := (debt/quantum + 1) * quantum
	for _, c := range s.turns {
		c.credit = min(c.credit+gift, quantum)
	}
}

// choose returns the client's type that has waited longest, or a type with a warm handler process
// that has waited about as long.
func (c *client) choose(types []Type) int {
	if c.warmest >= 0 && c.warmest != c.oldest && c.warmTies < maxWarmTies && types[c.oldest].Age-types[c.warmest].Age <= tieAge {
		c.warmTies++
		return c.warmest
	}
	c.warmTies = 0
	return c.oldest
}

// JobsStarted takes a slot for a batch of a client's type.
func (s *Scheduler) JobsStarted(now time.Time, name, jobtype string) {
	s.charge(now)
	c := s.clients[name]
	if c == nil {
		c = s.addClient(name)
		c.hadNoTurn = false
		s.turns = append(s.turns, c)
	}
	s.running++
	c.slots++
	c.running[jobtype]++
	c.credit -= quantum // paid in advance, so that each waiting client gets a slot before any gets a second one
}

// JobsStopped gives a batch's slot back.
func (s *Scheduler) JobsStopped(now time.Time, name, jobtype string) {
	s.charge(now)
	c := s.clients[name]
	if c == nil || c.running[jobtype] == 0 {
		return
	}
	s.running--
	c.slots--
	if c.running[jobtype]--; c.running[jobtype] == 0 {
		delete(c.running, jobtype)
	}
	c.credit += quantum
}

// charge makes all clients pay for their run time since the last call.
func (s *Scheduler) charge(now time.Time) {
	if d := now.Sub(s.chargedAt); d > 0 {
		for _, c := range s.turns {
			c.credit -= time.Duration(c.slots) * d
		}
		s.chargedAt = now
	}
}
