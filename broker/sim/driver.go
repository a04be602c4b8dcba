package sim

import (
	"bytes"
	"fmt"
	"strings"

	"gloom/broker"
)

// driver gives commands to the core as a hub would. Memory that it lends to the core is
// overwritten before the next command.
type driver struct {
	observation // what the last command showed
	// peers and numbers translate between the numbers of peers in commands and in the core.
	peers       map[int]broker.Peer
	numbers     map[broker.Peer]int
	scratch     []byte
	usedScratch int

	// outcomes holds the numbers of the kept outcomes that were sent last, by id.
	outcomes map[string]uint64
	// runs maps the core's number of a borrowed run to the number of that run in commands. lentRuns
	// maps the core's number of a lent run to the id of its job.
	runs     map[uint64]int
	lentRuns map[uint64]string

	// watched reports that a fleet watches the core. lendable has the types with jobs to lend,
	// as such a fleet knows them from EachIdleChange.
	watched  bool
	lendable map[string]bool

	stable []stableBody
}

// An effect has marked a body as Stable, so the body must never change again. stableBody holds the
// body and a copy to compare it with.
type stableBody struct{ body, want []byte }

const stableBodies = 64

func newDriver(cfg broker.Config) *driver {
	d := &driver{
		observation: observation{core: broker.New(cfg)},

		watched:  cfg.Seed%4 > 0,
		lendable: map[string]bool{},
		peers:    map[int]broker.Peer{},
		numbers:  map[broker.Peer]int{},
		outcomes: map[string]uint64{},
		runs:     map[uint64]int{},
		lentRuns: map[uint64]string{},
	}
	if d.watched {
		d.core.TrackIdle()
	}
	return d
}

// peer translates the number of a command's connection to the core's number. A connection that was
// never introduced gets a number that the core has not used, near used numbers.
func (d *driver) peer(c *command) broker.Peer {
	if p, known := d.peers[c.peer]; known {
		return p
	}
	return broker.Peer(uint64(c.peer%7) | uint64(c.peer%3)<<40)
}

// lend copies a text to memory that is overwritten before the next command.
func (d *driver) lend(text string) []byte {
	if d.usedScratch+len(text) > len(d.scratch) {
		d.scratch = make([]byte, 2*(d.usedScratch+len(text))+256)
		d.usedScratch = 0
	}
	mem := d.scratch[d.usedScratch : d.usedScratch+len(text) : d.usedScratch+len(text)]
	d.usedScratch += copy(mem, text)
	return mem
}

// bodyOf returns the body in memory that is overwritten before the next command, unless c.stable.
func (d *driver) bodyOf(c *command) []byte {
	if c.stable {
		return c.body
	}
	return d.lend(string(c.body))
}

// do carries out a command. It stores the frames that the core sends in d.frames.
func (d *driver) do(c *command) {
	for i := range d.scratch[:d.usedScratch] {
		d.scratch[i] = 0xEE
	}
	d.usedScratch = 0
	d.observation = observation{core: d.core, frames: d.frames[:0]}
	d.note(verbs[c.verb].core(d, c))
}

// all repeats a command of the core that handles a bounded number of things at a time, until
// nothing is left.
func (d *driver) all(once func() (fx effects, more bool)) effects {
	for more := true; more; {
		var fx effects
		fx, more = once()
		d.note(fx)
	}
	return nil
}

func (d *driver) connect(c *command) (fx effects) {
	var p broker.Peer
	switch c.verb {
	case addSubmitter:
		p = d.core.AddSubmitter()
		d.core.SetOwner(p, c.token)
	case addWorker:
		p = d.core.AddWorker()
	case addBorrower:
		p, fx = d.core.AddBorrower(c.now, d.lend(c.typ), fmt.Sprint(c.peer))
	case addLender:
		p = d.core.AddLender()
	}
	if _, again := d.numbers[p]; again || p == 0 {
		panic(fmt.Sprintf("sim: the core gave out peer %d twice", p))
	}
	d.peers[c.peer], d.numbers[p] = p, c.peer
	return fx
}

func (d *driver) join(c *command) effects {
	req := broker.JoinRequest{
		Type: d.lend(c.typ), Types: d.names(c.types), Except: d.names(c.except),
		Prefetch: c.prefetch, WantsNotices: c.notices, WantsHeaders: c.wantHeaders,
	}
	if c.allow != "" {
		req.Allows = func(typ []byte) bool { return strings.Contains(c.allow, string(typ)) }
		for _, letter := range c.allow {
			req.AllowsID |= 1 << (letter - 'a')
		}
	}
	return d.core.Join(c.now, d.peer(c), &req)
}

func (d *driver) fail(c *command) effects {
	return d.core.Fail(c.now, d.peer(c), &broker.Failure{
		ID: d.lend(c.id), Reason: c.reason, NoRetry: c.noRetry, WorkerLost: c.lost && !c.noRetry, WorkerExpelled: c.lost && c.noRetry, Delay: c.failDelay,
	})
}

func (d *driver) release(c *command) effects {
	return d.core.Release(c.now, d.peer(c), &broker.ReleaseRequest{ID: d.lend(c.id), Delay: c.delay, NotStarted: c.verb == giveBack})
}

func (d *driver) amend(c *command) effects {
	fx, code, _ := d.core.Amend(c.now, d.changing(c))
	d.overloaded = code == broker.Overloaded
	return fx
}

func (d *driver) configure(c *command) effects {
	fx, refusal := d.core.Configure(c.now, d.settings(c))
	d.overloaded = refusal != nil
	return fx
}

func (d *driver) borrow(c *command) effects {
	d.note(d.core.IntroduceType(c.now, d.lend(c.typ)))
	fx, run, why := d.core.Borrow(c.now, d.peer(c), d.submission(c))
	d.borrowRefusal = why
	if run != 0 {
		d.runs[run] = c.run
	}
	return fx
}

func (d *driver) revokeAll(c *command) effects {
	filter := broker.JobFilter{Type: d.lend(c.typ)}
	if c.boolArg {
		filter.State = "running"
	}
	if c.typ == "" {
		filter.Type, filter.Group = nil, d.lend(c.groups[0])
	}
	from := 0
	return d.all(func() (fx effects, more bool) {
		fx, _, from = d.core.RevokeJobs(c.now, from, 1000, &filter)
		return fx, from != -1
	})
}

func (d *driver) forget(c *command) effects {
	req := broker.ForgetRequest{Name: d.lend(c.typ), Discard: c.boolArg}
	d.all(func() (effects, bool) { return d.core.ForgetType(c.now, &req) })
	_, d.known = d.core.TypeUse(req.Name)
	return nil
}

func (d *driver) reviveAll(c *command) effects {
	var walk broker.LetterWalk
	d.all(func() (effects, bool) { return d.core.WalkLetters(c.now, d.lend(c.typ), &walk, c.boolArg) })
	d.overloaded = walk.Refused > 0
	return nil
}

func (d *driver) revive(c *command) effects {
	fx, code, reason := d.core.ResubmitLetter(c.now, d.lend(c.typ), d.lend(c.id), 0)
	if (reason.Why == 0) != (code == 0) {
		panic(fmt.Sprintf("sim: revive returns code %d with reason %+v", code, reason))
	}
	d.overloaded = code == broker.Overloaded
	return fx
}

// run returns the core's number of a borrowed run. A run that was never borrowed gets a number
// near those in use.
func (d *driver) run(number int) uint64 {
	for run, n := range d.runs {
		if n == number {
			return run
		}
	}
	return uint64(number)<<32 | 1<<31 | uint64(number) // no run has such a number
}

func (d *driver) settings(c *command) *broker.Settings {
	var s broker.Settings
	for _, setting := range c.settings() {
		switch setting.verb {
		case setRule:
			s.Rules = append(s.Rules, broker.RuleInfo{Pattern: d.lend(setting.id), Rule: setting.rule})
		case dropRule:
			s.Drop = append(s.Drop, d.lend(setting.id))
		case setFair:
			s.Types = append(s.Types, broker.TypeSetting{Name: d.lend(setting.typ), Fair: &setting.boolArg})
		case pause:
			s.Types = append(s.Types, broker.TypeSetting{Name: d.lend(setting.typ), Paused: &setting.boolArg})
		case limit:
			s.Types = append(s.Types, broker.TypeSetting{Name: d.lend(setting.typ), Limits: &broker.TypeLimits{Concurrency: setting.concurrency, Rate: setting.rate, Burst: setting.burst}})
		}
	}
	return &s
}

func (d *driver) names(list []string) (names [][]byte) {
	for _, n := range list {
		names = append(names, d.lend(n))
	}
	return names
}

func (d *driver) submission(c *command) *broker.Submission {
	return &broker.Submission{
		ID: d.lend(c.id), Type: d.lend(c.typ), Body: d.bodyOf(c), StableBody: c.stable, Priority: c.priority,
		Delay: c.delay, Timeout: c.timeout, Backoff: c.backoff, Expires: c.expires,
		Retries: int32(c.retries), Detach: c.detach, NoAck: c.quiet, Progress: c.progress, Keep: c.keep,
		Age: c.age, Headers: d.lend(string(c.headers)), Groups: d.names(c.groups),
	}
}

func (d *driver) changing(c *command) *broker.ChangeRequest {
	return &broker.ChangeRequest{
		ID: d.lend(c.id), Priority: c.priority, SetPriority: c.setPriority,
		Groups: d.names(c.groups), SetGroups: c.setGroups, Delay: c.delay,
	}
}

// note copies effects, because they are valid only until the next command.
func (d *driver) note(fx []broker.Effect) {
	for i := range fx {
		e := &fx[i]
		number, known := d.numbers[e.Peer]
		if !known {
			panic(fmt.Sprintf("sim: an effect for the unknown peer %d", e.Peer))
		}
		f := frame{op: e.Op, code: e.Code, peer: number, id: string(e.ID), typ: string(e.Type), body: e.Body, headers: e.Headers, creditSpent: e.CreditSpent}
		if e.Code != 0 {
			f.reason = e.Reason.Text
			if *e.Reason == (broker.Reason{}) && e.Run == 0 {
				panic(fmt.Sprintf("sim: code %d without a reason", e.Code))
			}
		}
		if e.Code == broker.JobRetryLater || e.Op == broker.OpReturn {
			f.delay = e.Delay
		}
		if run, borrowed := d.runs[e.Run]; borrowed {
			f.run = run
		} else if e.Run != 0 {
			if e.Op == broker.OpJob {
				d.lentRuns[e.Run] = f.id
			}
			if d.lentRuns[e.Run] != f.id {
				panic(fmt.Sprintf("sim: run %d was lent with job %q, and has job %q now", e.Run, d.lentRuns[e.Run], f.id))
			}
			if e.Op == broker.OpJob || e.Op == broker.OpFollow {
				f.loan = d.core.Loan(e.Run)
			}
		}
		if e.State != 0 {
			f.state = e.State.String()
		}
		if e.Outcome != 0 {
			d.outcomes[f.id] = e.Outcome
		}
		if e.Op == broker.OpRefuse && e.Code == broker.Overloaded {
			d.overloaded = true
		}
		if e.Op == broker.OpClose {
			d.closed = append(d.closed, number)
		}
		if e.StableBody && len(d.stable) < stableBodies {
			d.stable = append(d.stable, stableBody{e.Body, bytes.Clone(e.Body)})
		}
		d.frames = append(d.frames, f)
	}
}

// settle returns an error if memory that must not change has changed.
func (d *driver) settle() error {
	for _, stable := range d.stable {
		if !bytes.Equal(stable.body, stable.want) {
			return fmt.Errorf("a body of %d bytes changed although it was marked as stable", len(stable.body))
		}
	}
	return nil
}
