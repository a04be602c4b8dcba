package master

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"gloom/broker/admin/finding"
	"gloom/cmd/internal/boot"
	"gloom/cmd/internal/schedule"
	"gloom/cmd/jq-master/job"
	"gloom/cmd/jq-master/store"
)

// Values converts MessagePack to JSON and back, for workers at the broker's socket.
type Values struct {
	JSON     func(raw []byte) []byte
	FromJSON func(text []byte) ([]byte, *job.Fault)
}

// Options are the options of a master.
type Options struct {
	Limits
	Store  store.Store
	Push   Pusher
	Values Values
	// Broker starts a broker or connects to one. Shared says that other clients use the broker,
	// too.
	Broker func() (Broker, error)
	Shared bool
	// Namespace is part of the names of the broker's groups.
	Namespace string
	// Prefix is the prefix of the types of jobs at the broker. It ends with a character that no
	// pattern of another master has in that place.
	Prefix string
	// Once is the prefix of the types of jobs with max_retry 0. If socket workers may join,
	// they must not be able to guess it: such a worker would run a job before the attempt is
	// written, and after a crash the job would run again. Otherwise it is Prefix.
	Once string
	// Schedules is the file of the namespace's schedules; nil: there is none.
	Schedules *schedule.File
	// ReadJob reads the job of a schedule.
	ReadJob func(json.RawMessage) (*New, error)
	// Persisted says that constraints survive a restart.
	Persisted bool
	Seed      uint64
	Log       zerolog.Logger
}

// Master is the queue of one namespace.
type Master struct {
	opt   Options
	log   zerolog.Logger
	began time.Duration // boot.Since at Open
	start int64         // wall time of began, in milliseconds

	scraped  scraped
	drained  chan struct{} // closed when Drain was called
	serves   atomic.Pointer[service]
	commands commandQueue

	mu    sync.Mutex // guards the fields below
	c     *machine   // nil unless this master is the active one
	line  *brokerLine
	state *job.Fault // why c is nil
	away  error      // why the store is away
	rest  []func()   // work that a machine left when it ended
	alarm *time.Timer
	rings int64 // when it fires, on the machine's clock
	chore chan struct{}
	rates rates

	names spared[[]NameStats]
	held  spared[map[string]int] // jobs that constraints hold back
	found spared[*Found]
	known finding.Memory // guarded by found
}

// service is the active machine.
type service struct {
	c    *machine
	dead chan struct{} // closed when it has ended
}

// Open returns a master. It does nothing before Run.
func Open(o Options) *Master {
	return &Master{
		opt: o, log: o.Log, began: boot.Since(), start: time.Now().UnixMilli(),
		drained: make(chan struct{}), chore: make(chan struct{}, 1), state: errStarting,
	}
}

// Limits returns the limits of the master, Namespace the namespace that it serves.
func (m *Master) Limits() Limits    { return m.opt.Limits }
func (m *Master) Namespace() string { return m.opt.Namespace }

// clock returns the machine's time, the store's time and this host's time.
func (m *Master) clock() (now, wall, host int64) {
	return m.start + ms(boot.Since()-m.began), m.opt.Store.Now(), time.Now().UnixMilli()
}

// wind sets the alarm for the next work that is due.
func (m *Master) wind(c *machine) {
	next := c.next()
	if next < m.rings && m.alarm != nil {
		m.rings = next
		m.alarm.Reset(time.Duration(max(next-c.now, 0)) * time.Millisecond)
	}
	if !c.brought && m.opt.Store.Holds() || c.constraints.sweep >= 0 { // checked again at each beat
		select {
		case m.chore <- struct{}{}:
		default:
		}
	}
}

// Run waits for the lease. Then it serves as the active master, until ctx ends or the store can
// never be used. It starts over if it is fenced or its store has lost something.
func (m *Master) Run(ctx context.Context) error {
	m.opt.Store.Watch(func(away error) {
		m.mu.Lock()
		c := m.c
		m.away = away
		m.mu.Unlock()
		if c != nil {
			m.step(c, func() { c.storeChanged(away) })
		}
	})
	for {
		m.stand(errStandby)
		if err := m.acquire(ctx); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		m.stand(errStarting)
		err := m.serve(ctx)
		switch {
		case ctx.Err() != nil:
			m.resign(ctx)
			return nil
		case err == errForsaken:
			m.log.Error().Stringer("broker_wait", m.opt.BrokerWait).Msg("the broker has been away for that long; a standby that reaches its broker gets the lease")
			m.stand(errStandby)
			m.resign(ctx)
			continue
		}
		m.log.Error().Err(err).Msg("the master stops handing out jobs, and starts again from the store")
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

func (m *Master) resign(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	if err := m.opt.Store.Resign(ctx); err != nil {
		m.log.Warn().Err(err).Msg("the lease was not given back; another master takes over when it expires")
	}
}

// stand makes the master refuse all requests for this reason.
func (m *Master) stand(why *job.Fault) {
	m.mu.Lock()
	m.state = why
	m.mu.Unlock()
}

// serve runs the active master until ctx ends or there is an error.
func (m *Master) serve(ctx context.Context) error {
	c := newMachine(m.opt.Limits, m.opt.Seed)
	c.namespace, c.prefix, c.once, c.schedules.read = m.opt.Namespace, m.opt.Prefix, m.opt.Once, m.opt.ReadJob
	failed := make(chan error, 1)
	c.out = outside{
		store: m.opt.Store, push: m.opt.Push,
		enter:  func(f func()) { m.step(c, f) },
		either: func(f, gone func()) { m.order(command{c, f, gone}) },
		fault: func(err error) {
			select {
			case failed <- err:
			default:
			}
		},
	}
	c.at(m.clock())
	if err := m.load(ctx, c); err != nil {
		return err
	}
	life, end := context.WithCancel(ctx)
	defer end()
	begin := sync.OnceFunc(func() { go m.keepFile(life) })
	var alone loneliness
	for {
		line, err := m.connect(c)
		if err != nil {
			return err
		}
		m.activate(c, line)
		begin()
		again := m.work(ctx, c, line, &alone, failed)
		if again == nil {
			m.log.Warn().Msg("the broker is gone, or a token has gained rights; all jobs are submitted again")
			m.mu.Lock()
			c.at(m.clock())
			c.unlink()
			c.out.line = nowhere{}
			m.mu.Unlock()
			line.close()
			continue
		}
		m.flush(c)
		m.deactivate(c)
		line.close()
		return again
	}
}

// load reads the content of the store.
func (m *Master) load(ctx context.Context, c *machine) error {
	began := time.Now()
	err := m.opt.Store.Load(ctx, store.Loaded{
		Worker: c.loadWorker,
		Key:    c.loadKey,
		Constraint: func(k *job.Constraint) error {
			pick, fault := Compile(k)
			if fault != nil {
				return fmt.Errorf("it is invalid: %w", fault)
			}
			c.replace(k, pick)
			return nil
		},
		Job: func(j *job.Job, forget, drop int64) {
			if !j.State.Ended() && c.jobs.Len() == 0 {
				c.constraints.relist()
			}
			c.load(j, forget, drop)
		},
		Schedule: c.loadSchedule,
		Seq:      func(last uint64) { c.seq = max(c.seq, last) },
	})
	if err != nil {
		return err
	}
	c.at(m.clock())
	c.loaded()
	if n := c.jobs.Len(); n > 0 {
		m.log.Info().Int("jobs", n).Int("workers", len(c.workers)).Dur("took", time.Since(began)).Msg("the store is read")
	}
	return nil
}

func (m *Master) connect(c *machine) (*brokerLine, error) {
	b, err := m.opt.Broker()
	if err != nil {
		return nil, err
	}
	line, err := openLine(b, m.opt.Values, c.ownPrefix(), m.opt.MaxJobs, func(f func(c *machine)) { m.step(c, func() { f(c) }) }, m.log)
	if err != nil {
		b.Close()
	}
	return line, err
}

// activate makes the master serve requests.
func (m *Master) activate(c *machine, line *brokerLine) {
	m.mu.Lock()
	c.out.line, c.maxGroups = line, line.b.MaxGroups
	if m.c == nil {
		m.c, m.state = c, nil
		m.serves.Store(&service{c, make(chan struct{})})
		c.away = m.away
		m.rings = never
		m.alarm = time.AfterFunc(time.Hour, func() { m.ring(c) })
	}
	m.line = line
	m.wind(c)
	m.mu.Unlock()
}

// flush sends the store what was collected for it.
func (m *Master) flush(c *machine) {
	sent := make(chan struct{})
	m.step(c, func() {
		c.flushFetched()
		c.later(func() { close(sent) })
	})
	<-sent
}

// deactivate makes the master refuse requests again, including those that wait.
func (m *Master) deactivate(c *machine) {
	m.mu.Lock()
	m.c, m.line = nil, nil
	m.rest, c.todo = append(m.rest, c.todo...), nil
	m.state = errStarting
	m.alarm.Stop()
	close(m.serves.Swap(nil).dead)
	m.mu.Unlock()
	m.order(command{})
}

// ring does the work that is due.
func (m *Master) ring(c *machine) {
	m.step(c, func() {
		m.rings = never
		c.tick()
	})
}

// beats is the interval at which workers are checked.
const beats = 200 * time.Millisecond

// work drives the machine. It returns nil when the connection to the broker must be opened again.
func (m *Master) work(ctx context.Context, c *machine, line *brokerLine, alone *loneliness, failed <-chan error) error {
	beat := time.NewTicker(beats)
	defer beat.Stop()
	second := time.NewTicker(time.Second)
	defer second.Stop()
	drained := m.drained
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case err := <-failed:
			return err
		case <-m.opt.Store.Lost():
			return m.opt.Store.Err()
		case <-line.b.Lost:
			return nil
		case <-line.outdated:
			return nil
		case <-drained:
			drained = nil
			m.step(c, c.drain)
		case <-beat.C:
			m.step(c, func() { c.beat(); c.refill(); c.placeLate(); c.settleSchedules(); c.tick() })
		case <-second.C:
			m.step(c, func() { m.rates.sample(&c.ledger) })
			if alone.lasts(m.forsaken(line), boot.Since()) >= m.opt.BrokerWait {
				return errForsaken
			}
		case <-m.chore:
			m.chores(c, line)
		}
	}
}

// chores submits jobs to the broker and applies changed constraints to jobs, in slices between
// which other commands run.
func (m *Master) chores(c *machine, line *brokerLine) {
	ahead, changes := line.backlog()
	var part *slice
	m.hold(c, func() {
		if ahead <= manyAtOnce/2 {
			c.linkSlice(manyAtOnce)
		}
		// The next slice waits until the broker has processed the last one: while this
		// process is busy with slices, it reads no requests.
		if c.brought && ahead <= sliceLooks/sliceCost && changes == 0 {
			part = c.nextSlice(sliceLooks)
		}
	})
	if part != nil {
		part.match()
		m.hold(c, func() { c.sweepSlice(part) })
	}
	if part != nil || ahead+changes > 0 { // let the broker and requests run
		time.Sleep(time.Millisecond)
	}
}

// Drain stops accepting jobs and handing them out; running jobs may still be answered. It waits
// until no job runs, or ctx ends.
func (m *Master) Drain(ctx context.Context) error {
	m.mu.Lock()
	select {
	case <-m.drained:
	default:
		close(m.drained)
	}
	m.mu.Unlock()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		m.mu.Lock()
		idle := m.c == nil || m.c.draining && m.c.counts[job.Running] == 0 && m.c.entering == 0
		m.mu.Unlock()
		if idle {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// Ready returns nil if requests are served, or a *job.Fault that says why not.
func (m *Master) Ready() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.c == nil:
		return m.state
	case !m.opt.Store.Holds():
		return errStandby
	case m.c.draining:
		return errDraining
	case m.c.away != nil:
		return m.c.storeAway()
	case m.c.now < m.c.fullTo:
		return unavailable(m.c.full)
	}
	if err := m.line.health(); err != nil {
		return &job.Fault{Code: job.Starting, Reason: err.Error(), RetryAfter: time.Second}
	}
	if !m.c.linked {
		return errLinking
	}
	return nil
}

// nowhere stands in for the line while there is no broker.
type nowhere struct{}

func (nowhere) submit(submission)                               {}
func (nowhere) change(job.ID, []string, *int64, *time.Duration) {}
func (nowhere) cancel(job.ID)                                   {}
func (nowhere) serve(job.ID, serving)                           {}
func (nowhere) part(job.ID)                                     {}
func (nowhere) rules(ruleChange)                                {}
func (nowhere) settled(func())                                  {}
