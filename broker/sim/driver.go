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
	peers   map[int]broker.Peer
	numbers map[broker.Peer]int
	scratch []byte
	used    int

	// outcomes holds the numbers of the kept outcomes that were sent last, by id.
	outcomes map[string]uint64
	code     broker.Code // the result of an operator's command
	// runs maps the number that the core has given a borrowed run to the number that the command
	// has for it. lent maps the core's number of a lent run to the id of its job.
	runs map[uint64]int
	lent map[uint64]string

	// watched reports that a fleet watches the core. lendable has the types with jobs to lend,
	// as such a fleet knows them from Moved.
	watched  bool
	lendable map[string]bool

	stable []stableBody
}

// stableBody holds a body that an effect marked as Stable, so that it must never change again, and
// a copy of the body to compare it with.
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
		lent:     map[uint64]string{},
	}
	if d.watched {
		d.core.TrackIdle()
	}
	return d
}

// peer translates the number of a connection in a command to the core's number. A connection
// that was never introduced gets a number that the core has not used, near those that it has
// used.
func (d *driver) peer(number int) broker.Peer {
	if p, known := d.peers[number]; known {
		return p
	}
	return broker.Peer(uint64(number%7) | uint64(number%3)<<40)
}

// lend copies b, unless it is nil, to memory that is overwritten before the next command.
func (d *driver) lend(b []byte) []byte {
	if b == nil {
		return nil
	}
	if d.used+len(b) > len(d.scratch) {
		d.scratch = make([]byte, 2*(d.used+len(b))+256)
		d.used = 0
	}
	m := d.scratch[d.used : d.used+len(b) : d.used+len(b)]
	d.used += len(b)
	copy(m, b)
	return m
}

func (d *driver) body(c *command) []byte {
	if c.stable {
		return c.body
	}
	return d.lend(c.body)
}

// do carries out a command. It stores the frames that the core sends in d.frames.
func (d *driver) do(c *command) {
	for i := range d.scratch[:d.used] {
		d.scratch[i] = 0xEE
	}
	d.used = 0
	d.observation, d.code = observation{core: d.core, frames: d.frames[:0]}, 0
	id, typ := d.lend([]byte(c.id)), d.lend([]byte(c.typ))
	p := d.peer(c.peer)
	b := d.core
	var fx []broker.Effect
	switch c.verb {
	case addSubmitter:
		d.introduce(c.peer, b.AddSubmitter())
		b.SetOwner(d.peers[c.peer], c.token)
	case addWorker:
		d.introduce(c.peer, b.AddWorker())
	case submit:
		fx = b.Submit(c.now, p, d.submission(c))
	case cancel:
		fx = b.Cancel(c.now, p, id)
	case join:
		q := broker.JoinRequest{
			Type: typ, Types: d.names(c.types), Except: d.names(c.except),
			Prefetch: c.prefetch, Notices: c.notices, Headers: c.wantHeaders,
		}
		if c.allow != "" {
			q.Allows = func(typ []byte) bool { return strings.Contains(c.allow, string(typ)) }
			for _, letter := range c.allow {
				q.Scope |= 1 << (letter - 'a')
			}
		}
		fx = b.Join(c.now, p, &q)
	case change:
		fx = b.Change(c.now, p, d.changing(c))
	case amend:
		fx, d.code, _ = b.Amend(c.now, d.changing(c))
	case setRule, dropRule, setFair, limit, pause:
		var refused *broker.BadSetting
		fx, refused = b.Configure(c.now, d.settings(c))
		d.overloaded = refused != nil
	case addBorrower:
		var p broker.Peer
		p, fx = b.AddBorrower(c.now, typ, fmt.Sprint(c.peer))
		d.introduce(c.peer, p)
	case addLender:
		d.introduce(c.peer, b.AddLender())
	case allot:
		fx = b.Allot(c.now, p, c.room)
	case borrow:
		d.note(b.IntroduceType(c.now, typ))
		var run uint64
		fx, run, d.unborrowed = b.Borrow(c.now, p, d.submission(c))
		if run != 0 {
			d.runs[run] = c.run
		}
	case unwant:
		fx = b.MarkUnwanted(c.now, p, d.run(c.run), c.flag)
	case follow:
		b.Follow(p, d.run(c.run), c.flag)
	case release, giveBack:
		fx = b.Release(c.now, p, &broker.ReleaseRequest{ID: id, Delay: c.delay, NotStarted: c.verb == giveBack})
	case respond:
		fx = b.Respond(c.now, p, id, d.body(c), c.stable)
	case fail:
		fx = b.Fail(c.now, p, &broker.Failure{ID: id, Reason: c.reason, NoRetry: c.noRetry, Lost: c.lost && !c.noRetry, Expelled: c.lost && c.noRetry, Delay: c.failDelay})
	case progress:
		fx = b.Progress(c.now, p, id, d.body(c), c.stable)
	case leave:
		fx = b.Leave(c.now, p)
	case gone:
		fx = b.RemovePeer(c.now, p)
	case expelled:
		fx = b.ExpelPeer(c.now, p, c.reason)
	case tick:
		fx = b.Tick(c.now)
	case credit:
		fx = b.SetCredit(c.now, p, int64(c.room))
	case drain:
		b.Drain()
	case expel:
		for more := true; more; {
			fx, more = b.Expel(c.now)
			d.note(fx)
		}
		return
	case attach:
		fx = b.Attach(c.now, p, id, c.progress, c.room)
	case written:
		fx = b.OutcomeWritten(c.now, d.outcomes[c.id])
	case revoke:
		fx, d.code = b.Revoke(c.now, id, c.flag)
	case revokeAll:
		q := broker.JobFilter{State: map[bool]string{true: "running"}[c.flag]}
		if c.typ != "" {
			q.Type = typ
		} else {
			q.Group = d.lend([]byte(c.groups[0]))
		}
		for from := 0; from != -1; {
			fx, _, from = b.RevokeJobs(c.now, from, 1000, &q)
			d.note(fx)
		}
		return
	case forget:
		f := broker.ForgetRequest{Name: typ, Discard: c.flag}
		for more := true; more; {
			fx, more = b.ForgetType(c.now, &f)
			d.note(fx)
		}
		_, d.known = b.TypeUse(typ)
		return
	case reviveAll:
		var w broker.LetterWalk
		for more := true; more; {
			fx, more = b.WalkLetters(c.now, typ, &w, c.flag)
			d.note(fx)
		}
		d.overloaded = w.Refused > 0
		return
	case revive:
		var reason broker.Reason
		fx, d.code, reason = b.Revive(c.now, typ, id, 0)
		if (reason.Why == 0) != (d.code == 0) {
			panic(fmt.Sprintf("sim: revive returns code %d with reason %+v", d.code, reason))
		}
	}
	d.overloaded = d.overloaded || d.code == broker.Overloaded
	d.note(fx)
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
	for _, x := range c.settings() {
		switch x.verb {
		case setRule:
			s.Rules = append(s.Rules, broker.RuleInfo{Pattern: d.lend([]byte(x.id)), Rule: x.rule})
		case dropRule:
			s.Drop = append(s.Drop, d.lend([]byte(x.id)))
		case setFair:
			s.Types = append(s.Types, broker.TypeSetting{Name: d.lend([]byte(x.typ)), Fair: &x.flag})
		case pause:
			s.Types = append(s.Types, broker.TypeSetting{Name: d.lend([]byte(x.typ)), Paused: &x.flag})
		case limit:
			s.Types = append(s.Types, broker.TypeSetting{Name: d.lend([]byte(x.typ)), Limits: &broker.TypeLimits{Concurrency: x.concurrency, Rate: x.rate, Burst: x.burst}})
		}
	}
	return &s
}

func (d *driver) names(list []string) (names [][]byte) {
	for _, n := range list {
		names = append(names, d.lend([]byte(n)))
	}
	return names
}

func (d *driver) submission(c *command) *broker.Submission {
	return &broker.Submission{
		ID: d.lend([]byte(c.id)), Type: d.lend([]byte(c.typ)), Body: d.body(c), Stable: c.stable, Priority: c.priority,
		Delay: c.delay, Timeout: c.timeout, Backoff: c.backoff, Expires: c.expires,
		Retries: int32(c.retries), Detach: c.detach, NoAck: c.quiet, Progress: c.progress, Keep: c.keep,
		Age: c.age, Headers: d.lend(c.headers), Groups: d.names(c.groups),
	}
}

func (d *driver) changing(c *command) *broker.ChangeRequest {
	return &broker.ChangeRequest{
		ID: d.lend([]byte(c.id)), Priority: c.priority, SetPriority: c.setPriority,
		Groups: d.names(c.groups), SetGroups: c.setGroups, Delay: c.delay,
	}
}

func (d *driver) introduce(number int, p broker.Peer) {
	if _, again := d.numbers[p]; again || p == 0 {
		panic(fmt.Sprintf("sim: the core gave out peer %d twice", p))
	}
	d.peers[number], d.numbers[p] = p, number
}

// note copies effects, because they are valid only until the next command.
func (d *driver) note(fx []broker.Effect) {
	for i := range fx {
		e := &fx[i]
		number, known := d.numbers[e.Peer]
		if !known {
			panic(fmt.Sprintf("sim: an effect for the unknown peer %d", e.Peer))
		}
		f := frame{op: e.Op, code: e.Code, peer: number, id: string(e.ID), typ: string(e.Type), body: e.Body, headers: e.Headers, spent: e.CreditSpent}
		if e.Code != 0 {
			if f.reason = e.Reason.Text; *e.Reason == (broker.Reason{}) && e.Run == 0 {
				panic(fmt.Sprintf("sim: code %d without a reason", e.Code))
			}
		}
		if e.Code == broker.JobLater || e.Op == broker.OpReturn {
			f.delay = e.Delay
		}
		if run, borrowed := d.runs[e.Run]; borrowed {
			f.run = run
		} else if e.Run != 0 {
			if e.Op == broker.OpJob {
				d.lent[e.Run] = f.id
			}
			if d.lent[e.Run] != f.id {
				panic(fmt.Sprintf("sim: run %d was lent with job %q, and has job %q now", e.Run, d.lent[e.Run], f.id))
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
		if e.Stable && len(d.stable) < stableBodies {
			d.stable = append(d.stable, stableBody{e.Body, bytes.Clone(e.Body)})
		}
		d.frames = append(d.frames, f)
	}
}

// settle returns an error if memory that must not change has changed.
func (d *driver) settle() error {
	for _, k := range d.stable {
		if !bytes.Equal(k.body, k.want) {
			return fmt.Errorf("a body of %d bytes changed although it was marked as stable", len(k.body))
		}
	}
	return nil
}
