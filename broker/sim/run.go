package sim

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"gloom/broker"
)

// Options say how seeds are run.
type Options struct {
	// Steps replaces the number of commands of a run, if it is not 0.
	Steps int
	// Trace, if set, is called with each command and the frames that it causes.
	Trace func(line string)
	// NoShrink leaves failing runs as they are.
	NoShrink bool
}

// traceLines bounds how many commands of a run are printed if it cannot be shortened.
const traceLines = 60

// Runner runs seeds, one at a time. It reuses memory between runs.
type Runner struct {
	pages *poisonPages
	// Commands counts the commands that were carried out. Profiles counts the runs of each kind.
	Commands int
	Profiles map[string]int
}

// NewRunner returns a runner.
func NewRunner() *Runner { return &Runner{pages: newPages(), Profiles: map[string]int{}} }

// Run runs one seed. If the run fails, the error has everything needed to reproduce the failure.
func (x *Runner) Run(seed uint64, opt Options) error {
	rng := rand.New(rand.NewPCG(seed, 0x6a09e667f3bcc909))
	p := profileOf(seed, rng)
	x.Profiles[p.name]++
	cfg := configOf(&p, rng)
	steps := uniform(p.numbers.get("minSteps"), p.numbers.get("maxSteps"))(rng)
	if opt.Steps > 0 {
		steps = opt.Steps
	}
	shownConfig := cfg
	shownConfig.Seed = 0
	config := nonZero(shownConfig)
	r := x.begin(cfg, &p)
	g := &generator{profile: p, rng: rng, oracle: r.oracle, core: r.driver.core, steps: steps}
	if opt.Trace != nil {
		opt.Trace(fmt.Sprintf("seed %d, %s, %d commands, config:%s", seed, p.name, steps, config))
	}
	var done []*command
	err := r.play(func() *command {
		if len(done) == steps {
			return nil
		}
		done = append(done, g.next())
		return done[len(done)-1]
	}, opt.Trace)
	if err == nil {
		x.Commands += steps
		return nil
	}
	shortRun := done
	if !opt.NoShrink {
		shortRun = x.shrink(cfg, &p, done)
	}
	var trace []string
	shortErr := x.replay(cfg, &p, shortRun, func(line string) { trace = append(trace, line) })
	if shortErr == nil {
		shortErr = fmt.Errorf("the run does not fail again: the failure depends on more than the commands")
	}
	omitted := max(0, len(trace)-traceLines)
	return fmt.Errorf("seed %d (%s) fails at step %d: %w\nreplay: go test ./broker/sim -seed %d -v\nconfig:%s\n"+
		"shortest run found, %d commands, without the first %d:\n  %s\n  %w",
		seed, p.name, len(done), err, seed, config, len(trace), omitted, strings.Join(trace[omitted:], "\n  "), shortErr)
}

// replay runs a list of commands.
func (x *Runner) replay(cfg broker.Config, p *profile, cmds []*command, trace func(line string)) error {
	return x.begin(cfg, p).play(func() *command {
		if len(cmds) == 0 {
			return nil
		}
		c := cmds[0]
		cmds = cmds[1:]
		return c
	}, trace)
}

// shrinkTime bounds the search for a shorter run.
const shrinkTime = 10 * time.Second

// shrink looks for a shorter run that still fails: it leaves out smaller and smaller pieces
// until no piece can be left out.
func (x *Runner) shrink(cfg broker.Config, p *profile, cmds []*command) []*command {
	until := time.Now().Add(shrinkTime)
	for size := (len(cmds) + 1) / 2; size > 0; {
		shorter := false
		for at := 0; at < len(cmds) && time.Now().Before(until); {
			shortened := append(append([]*command(nil), cmds[:at]...), cmds[min(len(cmds), at+size):]...)
			if x.replay(cfg, p, shortened, nil) != nil {
				cmds, shorter = shortened, true
				continue
			}
			at += size
		}
		if !shorter || size > 1 {
			size /= 2
		}
	}
	return cmds
}

// runner is one run.
type runner struct {
	parent  *Runner
	profile *profile
	driver  *driver
	oracle  *oracle
	steps   int
	// paced reports that a rate has been set; its timer may fire earlier than needed.
	paced bool
	walks []*walk
	rng   *rand.Rand
}

func (x *Runner) begin(cfg broker.Config, p *profile) *runner {
	x.pages.settle()
	cfg.Pages = x.pages
	r := &runner{parent: x, profile: p, driver: newDriver(cfg), oracle: newOracle(cfg), rng: rand.New(rand.NewPCG(cfg.Seed, 1))}
	r.walks = r.listings()
	return r
}

// play carries out the commands that next returns until it returns nil, and then finishes the run.
// trace, unless it is nil, is called as Options.Trace.
func (r *runner) play(next func() *command, trace func(line string)) error {
	for c := next(); c != nil; c = next() {
		err := r.step(c)
		if trace != nil {
			trace(r.line(c))
		}
		if err != nil {
			return err
		}
	}
	return r.finish()
}

// step carries out a command in the core and in the oracle, and compares the results.
func (r *runner) step(c *command) (err error) {
	defer func() {
		if e := recover(); e != nil {
			err = fmt.Errorf("panic: %v\n%s", e, debug.Stack())
		}
	}()
	r.steps++
	o := r.oracle
	for _, setting := range c.settings() {
		r.paced = r.paced || setting.rate > 0 || setting.rule.Rate > 0
	}
	r.driver.do(c)
	o.do(c, r.driver.observation)
	if o.complaint != "" {
		return fmt.Errorf("%s", o.complaint)
	}
	endTogether := c.verb == tick || c.verb == endLeftovers || c.verb == revokeAll || c.verb == forget
	if err := cmp.Or(compareFrames(o.frames, r.driver.frames, endTogether), r.compareNext(), r.compareMoves()); err != nil {
		return err
	}
	period := r.profile.numbers.get("ledgerEvery")
	if r.steps%period != 0 {
		return nil
	}
	if err := cmp.Or(r.compareLedgers(), r.compareWalks()); err != nil || r.steps/period%6 != 0 {
		return err
	}
	id := c.id
	if n := len(o.jobs); n > 0 {
		id = o.jobs[r.rng.IntN(n)].id
	}
	return cmp.Or(r.comparePeers(), r.compareJob(id), r.compareJob(c.id), r.compareLetters(), r.compareHeld())
}

// finish disconnects all peers, lets all timers expire, and checks that nothing is left.
func (r *runner) finish() (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("at the end: %w", err)
		}
	}()
	o, core := r.oracle, r.driver.core
	end := []*command{}
	for _, p := range o.peers {
		end = append(end, &command{verb: gone, now: o.now, peer: p.number})
	}
	r.rng.Shuffle(len(end), func(i, j int) { end[i], end[j] = end[j], end[i] })
	for _, j := range o.jobs {
		if j.detach || j.keep > 0 {
			end = append(end, &command{verb: revoke, now: o.now, id: j.id})
		}
	}
	for _, name := range o.names {
		end = append(end, &command{verb: pause, now: o.now, typ: name}, &command{verb: limit, now: o.now, typ: name})
	}
	for _, c := range end {
		if err := r.step(c); err != nil {
			return fmt.Errorf("%v: %w", c, err)
		}
	}
	for n := 0; core.NextTick() < broker.Never; n++ {
		if err := r.step(&command{verb: tick, now: max(o.now, core.NextTick())}); err != nil {
			return err
		}
		if n > 10000 {
			return fmt.Errorf("10,000 ticks later there is still work to do")
		}
	}
	// Memory that the last command freed is returned by the next command.
	return cmp.Or(r.step(&command{verb: tick, now: o.now}), r.compareLedgers(), r.comparePeers(), r.compareLetters(),
		r.compareHistory(), r.compareHeld(), r.driver.settle(), r.compareMemory())
}

// compareHistory compares the history with the ledger. The history has each ended job once,
// with its outcome, and the runs of a job are in order.
func (r *runner) compareHistory() error {
	core, count := r.driver.core, [broker.EndReleased + 1]uint64{}
	lastJobEnd := int64(math.MaxInt64)
	for from := int64(0); from >= 0; {
		var found []broker.EndedInfo
		found, from = core.Ended(r.oracle.now, from, 100, &broker.EndedFilter{})
		for i := range found {
			x := &found[i]
			count[x.EndKind]++
			if x.EndedAt > lastJobEnd || x.StartedAt > x.EndedAt || x.StartedAt >= 0 && x.Attempts == 0 {
				return fmt.Errorf("the history has %s, started %d, ended %d after a job that ended %d, attempts %d", x.ID, x.StartedAt, x.EndedAt, lastJobEnd, x.Attempts)
			}
			lastJobEnd = x.EndedAt
			lastRunEnd := int64(math.MinInt64)
			for _, run := range x.Runs {
				if run.StartedAt < lastRunEnd || run.EndedAt < run.StartedAt || run.EndedAt > x.EndedAt || run.Worker == 0 {
					return fmt.Errorf("the history has a run %+v of %s, which ended %d, after a run that ended %d", run, x.ID, x.EndedAt, lastRunEnd)
				}
				lastRunEnd = run.EndedAt
			}
			if len(x.Runs) == 0 && x.StartedAt >= 0 {
				return fmt.Errorf("the history has no run of %s, which started %d", x.ID, x.StartedAt)
			}
		}
	}
	l := core.Totals()
	if want := [...]uint64{l.Answered, l.Failed, l.Cancelled, l.Expired, l.Discarded, 0, 0, 0}; count != want {
		return fmt.Errorf("jobs by outcome are %d in the history, %d in the ledger", count, want)
	}
	return nil
}

// compareHeld compares the memory that is counted with the memory that is held. Tables also
// count their lists of free records, which are less than a 32nd of their memory.
func (r *runner) compareHeld() error {
	o, core, m := r.oracle, r.driver.core, r.driver.core.Memory()
	if unaccounted := int64(r.parent.pages.heldBytes) - m.Records - m.Slabs - m.History; unaccounted < -m.Records/32 || unaccounted > m.Pools {
		return fmt.Errorf("the core holds %d bytes of pages, but counts %+v", r.parent.pages.heldBytes, m)
	}
	n, bytes := o.overdueRuns()
	n += len(o.jobs)
	big := int64(0)
	for _, j := range slices.Concat(o.jobs, o.borrowed) {
		bytes += j.weight()
		body := len(j.body)
		if j.state == ended {
			body = len(j.last.body)
		}
		if body >= bigBody {
			big += int64(body)
		}
	}
	if m.Bodies != big && o.vanished == 0 {
		return fmt.Errorf("%d bytes of bodies are counted apart, held are %d", m.Bodies, big)
	}
	// Besides jobs, heaps and queues, only deadlines of jobs and sets of types count.
	maxRest := m.Pools + int64(n+len(o.borrowed))<<7
	jobs, load := core.Usage()
	if otherBytes := load - bytes - m.Heaps - m.Queues; jobs != int64(n) || otherBytes < 0 || otherBytes > maxRest && o.vanished == 0 {
		return fmt.Errorf("%d jobs are counted, held are %d of %d bytes; of the other %d bytes that are counted, at most %d may be", jobs, n, bytes, otherBytes, maxRest)
	}
	return nil
}

// bigBody is the length from which a body has memory of its own.
const bigBody = 128 << 10

// maxEmptyBytes limits the bytes that an empty core holds: the slab in use, some spare slabs, and a
// chunk of each table.
const maxEmptyBytes = 6<<20 + 256<<10

func (r *runner) compareMemory() error {
	p := r.parent.pages
	core, m := r.driver.core, r.driver.core.Memory()
	if jobs, load := core.Usage(); jobs != 0 || core.JobCount() != 0 || load != m.Heaps+m.Queues {
		return fmt.Errorf("%d jobs are left, %d count with %d bytes, of which %d are heaps and queues", core.JobCount(), jobs, load, m.Heaps+m.Queues)
	}
	if heldBytes := p.heldBytes - int(m.History); heldBytes > maxEmptyBytes {
		return fmt.Errorf("%d bytes of memory are held without a job, at most %d may be", heldBytes, maxEmptyBytes)
	}
	return p.check()
}

// line returns the text of a command and of the frames that followed, for a trace.
func (r *runner) line(c *command) string {
	var s strings.Builder
	s.WriteString(c.String())
	for i := range r.driver.frames {
		fmt.Fprintf(&s, "\n      -> %s", &r.driver.frames[i])
	}
	return s.String()
}
