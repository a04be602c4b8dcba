package master

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/rs/zerolog"

	"gloom/broker/admin/finding"
	"gloom/cmd/internal/boot"
	"gloom/cmd/internal/daemon"
	"gloom/cmd/internal/schedule"
	"gloom/cmd/jq-master/job"
	"gloom/cmd/jq-master/store"
)

// Options are the options of a master.
type Options struct {
	Limits
	Store store.Store
	Push  Pusher
	// Broker starts a broker or connects to one. Shared says that other clients use the broker,
	// too.
	Broker func() (Broker, error)
	Shared bool
	// Namespace is part of the names of the broker's groups.
	Namespace string
	// Prefix begins the types of jobs at the broker. Its last character makes sure that no pattern
	// of another master matches these types.
	Prefix string
	// SingleRunPrefix begins the types of jobs with max_retry 0. SingleRunPrefix is Prefix, unless
	// Gloom workers may join. Gloom workers must not be able to guess the prefix: a worker that did
	// would run a job before the attempt is written, and after a crash the job would run again.
	SingleRunPrefix string
	// Schedules is the file of schedules; nil if there is none.
	Schedules *schedule.File
	// ReadJob parses the job of a schedule.
	ReadJob func(json.RawMessage) (*NewJob, error)
	// Persisted says that constraints survive a restart.
	Persisted bool
	Seed      uint64
	Log       zerolog.Logger
}

// Master is the queue of one namespace.
type Master struct {
	opt        Options
	log        zerolog.Logger
	bootOffset time.Duration // boot.Since at Open
	startedAt  int64         // wall time at Open, in milliseconds since 1970

	drainedCh   chan struct{} // closed by Drain
	active      atomic.Pointer[activeMachine]
	bootReading atomic.Pointer[bootTime] // the last reading of clock; one that is older than a millisecond is not used
	commands    commandQueue

	mu            sync.Mutex  // guards the fields below
	machine       *machine    // nil unless this master is the active one
	broker        *brokerConn // nil also during the pause before the next connection
	inactiveFault *job.Fault  // why machine is nil
	storeErr      error       // why the store is away
	leftEffects   []func()    // side effects that an ended machine has left
	alarm         *time.Timer
	alarmAt       int64 // when the alarm fires, on the clock of machine.now
	choresDue     chan struct{}
	rates         rates

	names      cached[[]NameStats]
	heldCounts cached[map[string]int] // jobs that constraints hold back
	findings   cached[*FindingLists]
	// The constraints, for scrapes of the metrics.
	scrapedConstraints cached[[]*ConstraintView]
	findingTracker     finding.Tracker // guarded by findings
}

// activeMachine is the machine of the active master, with a channel for those who wait for its end.
type activeMachine struct {
	machine *machine
	ended   chan struct{} // closed when the machine has ended
}

// Open returns a master, which does nothing until Run is called.
func Open(o Options) *Master {
	return &Master{
		opt: o, log: o.Log, bootOffset: boot.Since(), startedAt: time.Now().UnixMilli(),
		drainedCh: make(chan struct{}), choresDue: make(chan struct{}, 1), inactiveFault: errStarting,
	}
}

// Limits returns the limits of the master.
func (m *Master) Limits() Limits { return m.opt.Limits }

// Namespace returns the namespace that the master serves.
func (m *Master) Namespace() string { return m.opt.Namespace }

// bootTime is a reading of boot.Since, which is a system call, and the time by a cheaper clock,
// which stands still while the host is suspended.
type bootTime struct {
	uptime time.Duration
	readAt time.Time
}

// clock returns the machine's time, the store's time and this host's time.
func (m *Master) clock() (now, wall, host int64) {
	t := time.Now()
	r := m.bootReading.Load()
	if r == nil || t.Sub(r.readAt) >= time.Millisecond {
		r = &bootTime{uptime: boot.Since()}
		t = time.Now() // afterwards, so that the time in between is not counted twice
		r.readAt = t
		m.bootReading.Store(r)
	}
	uptime := r.uptime + t.Sub(r.readAt)
	return m.startedAt + toMillis(uptime-m.bootOffset), m.opt.Store.At(uptime), t.UnixMilli()
}

// setAlarm sets the timer to the time when the next work is due.
func (m *Master) setAlarm(mc *machine) {
	next := mc.nextAlarm()
	if next < m.alarmAt && m.alarm != nil {
		m.alarmAt = next
		m.alarm.Reset(time.Duration(max(next-mc.now, 0)) * time.Millisecond)
	}
	if !mc.allSubmitted && m.opt.Store.HoldsLease() || mc.constraints.sweepIndex >= 0 { // the alarm is checked after each command, and at each beat
		select {
		case m.choresDue <- struct{}{}:
		default:
		}
	}
}

// Run waits for the lease, and then serves as the active master. If another master takes over, or
// the store has lost data, Run waits for the lease again. It returns when ctx ends or if the store
// can never be used.
func (m *Master) Run(ctx context.Context) error {
	m.opt.Store.Watch(func(awayErr error) {
		if awayErr != nil {
			m.log.Error().Err(awayErr).Msg("the store is away; nothing is enqueued or handed out")
		} else {
			m.log.Warn().Msg("the store is back")
		}
		m.mu.Lock()
		mc := m.machine
		m.storeErr = awayErr
		m.mu.Unlock()
		if mc != nil {
			m.queueStep(mc, func() { mc.onStoreChange(awayErr) })
		}
	})
	starting := errStarting
	for {
		m.setState(errStandby)
		if err := m.acquire(ctx); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		m.setState(starting)
		err := m.serve(ctx)
		starting = errStarting
		switch {
		case ctx.Err() != nil:
			m.resign(ctx)
			return nil
		case err == errYield:
			m.log.Error().Stringer("broker_wait", m.opt.BrokerWait).Msg("the broker has been away for broker_wait; a standby that reaches its broker gets the lease")
			m.setState(errStandby)
			m.resign(ctx)
			continue
		}
		m.log.Error().Err(err).Msg("the master stops handing out jobs, and starts again from the store")
		starting = &job.Fault{Code: job.Starting, Reason: fmt.Sprintf("the master is reading the store again after a fault: %v", err), RetryAfter: time.Second}
		m.setState(starting)
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

// setState sets the reason for which a master that is not active refuses all requests.
func (m *Master) setState(reason *job.Fault) {
	m.mu.Lock()
	m.inactiveFault = reason
	m.mu.Unlock()
}

// serve runs the active master until ctx ends or there is an error.
func (m *Master) serve(ctx context.Context) error {
	mc := newMachine(m.opt.Limits, m.opt.Seed)
	mc.namespace, mc.prefix, mc.singleRunPrefix, mc.schedules.readJob = m.opt.Namespace, m.opt.Prefix, m.opt.SingleRunPrefix, m.opt.ReadJob
	failed := make(chan error, 1)
	mc.env = environment{
		store: m.opt.Store, push: m.opt.Push,
		run:   func(f func()) { m.queueStep(mc, f) },
		runOr: func(f, onGone func()) { m.queueCommand(command{mc, f, onGone}) },
		fail: func(err error) {
			select {
			case failed <- err:
			default:
			}
		},
	}
	mc.setTime(m.clock())
	if err := m.load(ctx, mc); err != nil {
		return err
	}
	life, end := context.WithCancel(ctx)
	defer end()
	begin := sync.OnceFunc(func() { go m.syncFile(life) })
	var yieldSince time.Duration // since when shouldYield is true, by boot.Since; 0: it is false
	pause := backoff.NewExponentialBackOff()
	pause.InitialInterval, pause.MaxInterval = minReconnectPause, maxReconnectPause
	for {
		conn, err := m.connect(mc)
		if err != nil {
			return err
		}
		opened := time.Now()
		m.activate(mc, conn)
		begin()
		driveErr := m.drive(ctx, mc, conn, nil, &yieldSince, failed)
		if driveErr != nil {
			m.flush(mc)
			m.deactivate(mc)
			conn.close()
			return driveErr
		}
		if time.Since(opened) >= maxReconnectPause {
			pause.Reset()
		}
		wait := pause.NextBackOff()
		m.log.Warn().Stringer("wait", wait.Round(time.Millisecond)).Msg("the broker is gone, or a token has gained rights; all jobs are submitted again")
		m.mu.Lock()
		mc.setTime(m.clock())
		mc.forgetSubmissions()
		mc.env.broker, m.broker = nil, nil
		m.mu.Unlock()
		conn.close()
		if driveErr := m.drive(ctx, mc, nil, time.After(wait), &yieldSince, failed); driveErr != nil {
			m.flush(mc)
			m.deactivate(mc)
			return driveErr
		}
	}
}

// These bound the pause before the connection to the broker is opened again. The pause grows while
// connections break soon, because all jobs are submitted on each of them. The pause is short again
// after a connection that has lasted for maxReconnectPause.
const minReconnectPause, maxReconnectPause = 50 * time.Millisecond, 5 * time.Second

// load reads the content of the store.
func (m *Master) load(ctx context.Context, mc *machine) error {
	start := time.Now()
	err := m.opt.Store.Load(ctx, store.LoadHandlers{
		Worker: mc.loadWorker,
		Key:    mc.loadKey,
		Constraint: func(k *job.Constraint) error {
			sel, fault := Compile(k)
			if fault != nil {
				return fmt.Errorf("it is invalid: %w", fault)
			}
			mc.replace(k, sel)
			return nil
		},
		Job: func(j *job.Job, forgetAt, dropAt int64) {
			if !j.State.Ended() && mc.jobs.Len() == 0 {
				mc.constraints.updateEnabled()
			}
			mc.load(j, forgetAt, dropAt)
		},
		Schedule: mc.loadSchedule,
		Seq:      func(last uint64) { mc.seq = max(mc.seq, last) },
	})
	if err != nil {
		return err
	}
	mc.setTime(m.clock())
	mc.finishLoad()
	if n := mc.jobs.Len(); n > 0 {
		m.log.Info().Int("jobs", n).Int("workers", len(mc.workers)).Stringer("took", time.Since(start).Round(time.Millisecond)).Msg("the store is read")
	}
	return nil
}

func (m *Master) connect(mc *machine) (*brokerConn, error) {
	b, err := m.opt.Broker()
	if err != nil {
		return nil, err
	}
	conn, err := openBrokerConn(b, mc.heldRunsPrefix(), m.opt.MaxJobs, func(f func(mc *machine)) { m.queueStep(mc, func() { f(mc) }) }, m.log)
	if err != nil {
		b.Close()
	}
	return conn, err
}

// activate makes the master serve requests.
func (m *Master) activate(mc *machine, conn *brokerConn) {
	m.mu.Lock()
	mc.env.broker, mc.maxGroups = conn, conn.broker.MaxGroups
	if m.machine == nil {
		m.machine, m.inactiveFault = mc, nil
		m.rates = rates{} // the ledger of each machine begins at 0
		m.active.Store(&activeMachine{mc, make(chan struct{})})
		mc.awayErr = m.storeErr
		m.alarmAt = never
		m.alarm = time.AfterFunc(time.Hour, func() { m.onAlarm(mc) })
	}
	m.broker = conn
	m.setAlarm(mc)
	m.mu.Unlock()
}

// flush tells the store which results it can drop, and waits until that is sent.
func (m *Master) flush(mc *machine) {
	sentAll := make(chan struct{})
	m.queueStep(mc, func() {
		mc.flushFetched()
		mc.runAfterStep(func() { close(sentAll) })
	})
	<-sentAll
}

// deactivate makes the master refuse requests again, including those that are waiting.
func (m *Master) deactivate(mc *machine) {
	m.mu.Lock()
	m.machine, m.broker = nil, nil
	m.leftEffects, mc.afterStep = append(m.leftEffects, mc.afterStep...), nil
	m.inactiveFault = errStarting
	m.alarm.Stop()
	close(m.active.Swap(nil).ended)
	m.mu.Unlock()
	m.queueCommand(command{})
}

// onAlarm does the work that is due.
func (m *Master) onAlarm(mc *machine) {
	m.queueStep(mc, func() {
		m.alarmAt = never
		mc.tick()
	})
}

// beatInterval is the interval at which workers are checked.
const beatInterval = 200 * time.Millisecond

// drive sends the machine its periodic commands until an error ends it. It returns nil when the
// connection to the broker must be opened again. Between two connections conn is nil; pauseOver
// delivers when the next attempt is due.
func (m *Master) drive(ctx context.Context, mc *machine, conn *brokerConn, pauseOver <-chan time.Time, yieldSince *time.Duration, failed <-chan error) error {
	var lost, outdated, choresDue <-chan struct{}
	if conn != nil {
		lost, outdated, choresDue = conn.broker.Lost, conn.outdated, m.choresDue
	}
	ticker := time.NewTicker(beatInterval)
	defer ticker.Stop()
	second := time.NewTicker(time.Second)
	defer second.Stop()
	drained := m.drainedCh
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case err := <-failed:
			return err
		case <-m.opt.Store.Lost():
			return m.opt.Store.Err()
		case <-lost:
			return nil
		case <-outdated:
			return nil
		case <-pauseOver:
			return nil
		case <-drained:
			drained = nil
			m.queueStep(mc, mc.drain)
		case <-ticker.C:
			m.queueStep(mc, func() { mc.checkPeriodic(); mc.refill(); mc.resubmitPending(); mc.settleSchedules(); mc.tick() })
		case <-second.C:
			m.queueStep(mc, func() { m.rates.sample(&mc.ledger) })
			if conn == nil {
				continue
			}
			if !m.shouldYield(conn) {
				*yieldSince = 0
			} else if *yieldSince = cmp.Or(*yieldSince, boot.Since()); boot.Since()-*yieldSince >= m.opt.BrokerWait {
				return errYield
			}
		case <-choresDue:
			m.doChores(mc, conn)
		}
	}
}

// doChores submits a slice of the jobs to the broker, or applies changed constraints to a slice of
// them. Between slices other commands run.
func (m *Master) doChores(mc *machine, conn *brokerConn) {
	queuedCommands, changes := conn.backlog()
	var part *sweepSlice
	m.runNow(mc, func() {
		if queuedCommands <= maxStepRecords/2 {
			mc.submitSlice(maxStepRecords)
		}
		// The next slice waits until the broker has processed the last one. Otherwise slices would
		// keep this process too busy to read requests.
		if mc.allSubmitted && queuedCommands <= maxSliceCost/changeCost && changes == 0 {
			part = mc.nextSlice(maxSliceCost)
		}
	})
	if part != nil {
		part.match()
		m.runNow(mc, func() { mc.sweepSlice(part) })
	}
	if part != nil || queuedCommands+changes > 0 { // let the broker and requests run
		time.Sleep(time.Millisecond)
	}
}

// Drain stops accepting jobs and handing them out; running jobs may still be answered. It waits
// until no job runs, or ctx ends.
func (m *Master) Drain(ctx context.Context) error {
	m.mu.Lock()
	select {
	case <-m.drainedCh:
	default:
		close(m.drainedCh)
	}
	m.mu.Unlock()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		m.mu.Lock()
		idle := m.machine == nil || m.machine.draining && m.machine.counts[job.Running] == 0 && m.machine.jobsPending == 0
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

// Ready returns nil if the master accepts and hands out jobs, or an error with all reasons why not. The
// first is a *job.Fault.
func (m *Master) Ready() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.machine == nil:
		return m.inactiveFault
	case !m.opt.Store.HoldsLease():
		return errStandby
	case m.machine.draining:
		return errDraining
	}
	var all []error
	if m.machine.awayErr != nil {
		all = append(all, m.machine.storeAway())
	} else if m.machine.now < m.machine.fullUntil {
		all = append(all, unavailable(m.machine.fullErr))
	}
	if m.broker == nil {
		all = append(all, errPausing)
	} else if err := m.broker.health(); err != nil {
		all = append(all, &job.Fault{Code: job.Starting, Reason: err.Error(), RetryAfter: time.Second})
	} else if !m.machine.workersMayGetJobs {
		all = append(all, errLinking)
	}
	return daemon.JoinReasons(all...)
}
