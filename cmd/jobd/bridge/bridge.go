// Package bridge submits rows of a MySQL table to a Gloom broker as jobs, and writes the results
// into the rows. It is the engine of a jobd daemon: package queue decides what to do next, package
// store reads and writes rows, and package launch starts processes.
//
// # How a row flows
//
//	fetch.go    accepts waiting rows and claims them (store.Accept), as many as their targets
//	            have use for; manual.go accepts rows that are to be run by hand
//	queue       keeps them here until their target has a free place
//	slot.go     submitRow submits the row to the broker; one of this daemon's own slots, a worker
//	            there, takes it, writes it running and runs the process
//	remote.go   without a launcher: the row is written running, by the fetch if its target has
//	            a free place, and then submitted; the answer of a worker ends it
//	writer.go   writes what has happened to rows, many in a transaction; an end that the
//	            database does not take is in spool.go until it does
//
// When a daemon dies, the claims say which rows it had: ownerWatch decides when an incarnation is
// dead, and package store settles its rows.
package bridge

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"

	gloom "gloom/clients/go"
	"gloom/cmd/internal/boot"
	"gloom/cmd/internal/launch"
	"gloom/cmd/internal/link"
	"gloom/cmd/internal/process"
	"gloom/cmd/jobd/bridge/queue"
	"gloom/cmd/jobd/config"
	"gloom/cmd/jobd/control"
	"gloom/cmd/jobd/store"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
)

// Bridge is a running engine.
type Bridge struct {
	// These fields are set once.
	cfg           config.Worker
	log           zerolog.Logger
	store         store.Store
	writer        *writer
	guard         *launch.Guard // guards processes; nil without a launcher
	link          *link.Link
	submitter     *link.JobSubmitter
	metrics       *metrics
	idPrefix      string
	registry      prometheus.Registerer
	ctx           context.Context // the context of all goroutines; it ends last
	cancel        context.CancelFunc
	submitCtx     context.Context // the context of submits; it ends when a stop has waited long enough
	cancelSubmits context.CancelFunc
	loops         sync.WaitGroup
	rowTasks      sync.WaitGroup // goroutines of rows
	slotConns     sync.WaitGroup // connections of slots
	fetches       chan []queue.FetchRequest
	fenced        chan struct{} // signals that an Accept has returned ErrFenced
	done          chan struct{}
	database      health
	fetchHealth   health // health of fetches
	lease         lease
	reaper        reaper

	mu               sync.Mutex // guards the fields below
	machine          *queue.Machine
	rowsInBroker     map[int64]*row
	rowFields        map[int64][]byte      // fields of queued rows; used without a launcher
	manualRows       map[int64]*manualWait // queued rows that a RunManual has accepted
	manualWaits      map[int64]*manualWait
	stopSlotsOf      map[string]context.CancelFunc // by target: functions that stop its slots
	onTargetsChanged func()                        // the function that OnTargets has set
	fetchInProgress  bool
	fetchPace        fetchPace
	manualCalls      int // number of RunManual calls that are accepting rows
	stopping         bool
	lastSignal       syscall.Signal // the last signal that all processes got; new ones get it too
	requeueCounts    map[int64]int
	labelledTargets  map[string]bool // targets that have a label of their own in metrics
	err              error

	lastLaunchErr   error     // the last temporary failure to start a process
	lastLaunchErrAt time.Time // when that happened
}

// row is a row that has been given to the broker.
type row struct {
	store.Row
	wait    *manualWait // of the RunManual that accepted the row; nil for other rows
	pending *gloom.Pending

	submittedAt time.Time // when it was submitted to the broker
	startedAt   int64     // time_started, UNIX seconds
	isTaken     bool      // its run has begun or is being written; nobody else may begin it
	isGivenBack bool      // given back: no slot may begin it
	mayStillRun bool      // the connection to the broker was lost while the broker had the row
	isSetAside  bool      // the database refuses its start or its end
	isLaunching bool      // its process is being started
	process     *launch.Process
	isRevoked   bool          // the process was killed because the claim had ended or was about to
	writtenCh   chan struct{} // closed when the row is written or set aside
}

// maxOutput is the number of bytes that are kept of an output whose column has room for more.
const maxOutput = 64 << 20

const (
	// openTimeout limits the time for the database in one attempt to open.
	openTimeout  = 30 * time.Second
	openInterval = time.Second
	// A row that has been missing for confirmAfter counts as deleted. If a trigger has refused an
	// output for confirmAfter, the output's size counts as the reason.
	confirmAfter = 5 * time.Second
)

// Main must be the first call of every program that opens a Bridge with a launcher. In a process
// that was started as a guard, this function runs the guard and does not return.
func Main() { launch.Main() }

// Await is like Open, but waits while the database is away, and calls onWait after each failed
// attempt.
func Await(ctx context.Context, cfg config.Worker, log zerolog.Logger, registry prometheus.Registerer, onWait func(error)) (control.Daemon, error) {
	for retrying := false; ; retrying = true {
		b, err := Open(ctx, cfg, log, registry)
		switch {
		case err == nil && retrying:
			log.Warn().Msg("the database is back")
		case store.IsAway(err) && ctx.Err() == nil:
			if !retrying {
				log.Error().Err(err).Msg("the database is away; waiting for it")
			}
			onWait(err)
			if sleep(ctx, openInterval, nil) {
				continue
			}
		}
		return b, err
	}
}

// Open starts an engine on the table and broker of the configuration. When it returns,
// the rows of a dead predecessor are settled and the targets' rows are being fetched.
func Open(ctx context.Context, cfg config.Worker, log zerolog.Logger, registry prometheus.Registerer) (*Bridge, error) {
	s, err := store.Open(ctx, store.Options{
		MySQL: cfg.MySQL, Claims: cfg.ClaimsTable, Name: cfg.Name, Lease: cfg.Lease, ReadFields: cfg.Launcher == "", ConfirmAfter: confirmAfter, Log: log,
	})
	if err != nil {
		return nil, fmt.Errorf("mysql: %w", err)
	}
	b, err := open(ctx, cfg, log, registry, s)
	if err != nil {
		s.Close()
		return nil, err
	}
	return b, nil
}

// open is like Open, but uses a given store.
func open(ctx context.Context, cfg config.Worker, log zerolog.Logger, registry prometheus.Registerer, s store.Store) (_ *Bridge, err error) {
	b := &Bridge{
		cfg: cfg, log: log, store: s, metrics: newMetrics(), registry: registry,
		machine: queue.New(), rowsInBroker: make(map[int64]*row), rowFields: make(map[int64][]byte), manualRows: make(map[int64]*manualWait),
		manualWaits: make(map[int64]*manualWait), stopSlotsOf: make(map[string]context.CancelFunc), requeueCounts: make(map[int64]int), labelledTargets: make(map[string]bool),
		fetches: make(chan []queue.FetchRequest, 1), fenced: make(chan struct{}, 1), done: make(chan struct{}),
		database: health{condition: "database is away"}, fetchHealth: health{condition: "rows cannot be fetched"}, idPrefix: cfg.Broker.IDPrefix,
	}
	if b.idPrefix == "" {
		b.idPrefix = cfg.MySQL.Database + "." + cfg.MySQL.Table + "/"
	}
	if cfg.MaxOutputBuffer < 0 {
		b.cfg.MaxOutputBuffer = int(min(s.OutputRoom(), maxOutput))
	}
	b.machine.FetchBegins = cfg.Launcher == ""
	b.ctx, b.cancel = context.WithCancel(context.Background())
	b.submitCtx, b.cancelSubmits = context.WithCancel(b.ctx)
	defer func() {
		if err != nil {
			b.tearDown()
			b.leave()
		}
	}()
	var sp *spool
	if cfg.SpoolDir != "" {
		if sp, err = newSpool(cfg.SpoolDir, b.spoolTable()); err != nil {
			return nil, err
		}
	}
	b.writer = newWriter(s, sp, b.metrics, log, func(err error) { b.recordDatabase("write", err) })
	for _, t := range cfg.Targets {
		if err := b.addToMachine(t.Name, b.boundConcurrency(t.Concurrency)); err != nil {
			return nil, err
		}
	}
	startCtx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	sendTime := boot.Since()
	if err := s.Register(startCtx); err != nil {
		return nil, fmt.Errorf("mysql: %w", err)
	}
	b.lease.start(cfg.Lease, sendTime)
	if err := b.connect(); err != nil {
		return nil, err
	}
	if registry != nil {
		if err := registry.Register(collector{b, b.metrics}); err != nil {
			return nil, err
		}
	}
	b.reaper.owners = ownerWatch{minSilence: cfg.Lease / 2, maxGap: 3 * b.reapInterval()}
	if err := b.loadSpool(sp); err != nil {
		return nil, err
	}
	if _, err := b.reap(startCtx); err != nil {
		log.Warn().Err(err).Msg("cannot look for rows of dead daemons yet")
	}
	b.run()
	// Waiting rows are fetched before the first client is served, so that a client later sees
	// only the effects of its own polls.
	b.waitUntil(startCtx, func() bool { return !b.isFetching() && b.reaper.spoolWritten() })
	return b, nil
}

// spoolTable distinguishes this daemon's results from those of others in the same spool.
func (b *Bridge) spoolTable() string {
	c := b.cfg
	return fmt.Sprintf("%s:%d%s/%s.%s/%s", c.MySQL.Host, c.MySQL.Port, c.MySQL.Socket, c.MySQL.Database, c.MySQL.Table, c.Name)
}

// connect connects to the broker or starts one, and starts slots if there is a launcher.
func (b *Bridge) connect() (err error) {
	broker := b.cfg.Broker
	if broker.WorkerAddr != "" && broker.SubmitAddr == "" {
		return errors.New("'broker_worker_addr' is set, but 'broker_submit_addr' is not")
	}
	if b.link, err = link.Open(link.Config{
		Program: "jobd", SubmitAddr: broker.SubmitAddr, WorkerAddr: broker.WorkerAddr, Token: broker.Token,
		TLSCA: broker.TLSCA, TLSCert: broker.TLSCert, TLSKey: broker.TLSKey, TLSServerName: broker.TLSServerName, TLSPrefix: "broker_tls_",
		Lease: b.cfg.Lease, Context: b.ctx,
	}, b.log); err != nil {
		return err
	}
	if b.submitter, err = b.link.NewJobSubmitter(gloom.Window(1 << 20)); err != nil {
		return err
	}
	if b.cfg.Launcher == "" {
		return nil
	}
	if b.link.WorkerAddr() == "" {
		return errors.New("'launcher' is set, but 'broker_worker_addr' is not")
	}
	if b.guard, err = launch.NewGuard(ownerOf(process.Self())); err != nil {
		return err
	}
	b.setGuardDeadline()
	for _, t := range b.cfg.Targets {
		b.startSlots(t.Name, b.boundConcurrency(t.Concurrency))
	}
	return nil
}

// ownerOf returns the name of a daemon as the owner of its processes, for package launch.
func ownerOf(p store.Process) string { return fmt.Sprintf("%d-%s", p.PID, p.Start) }

// maxConcurrency is the maximum number of rows of a target that one daemon launches at once. A user
// may write a large number to mean "no limit", and does not want that many slots.
const maxConcurrency = 10_000

// boundConcurrency returns the concurrency that a target gets.
func (b *Bridge) boundConcurrency(concurrency int) int {
	if b.cfg.Launcher == "" {
		return concurrency
	}
	return min(concurrency, maxConcurrency)
}

// startSlots starts slots for a target's type, in place of the ones that it has.
func (b *Bridge) startSlots(target string, slots int) {
	if b.guard == nil {
		return
	}
	b.stopSlots(target)
	typ := b.cfg.TypeOf(target)
	ctx, stop := context.WithCancel(b.ctx)
	b.stopSlotsOf[target] = stop
	b.link.KeepSlots(ctx, &b.slotConns, slots, func(connection int) *gloom.Worker {
		return &gloom.Worker{
			Type: typ, Handler: b.runInSlot,
			// A slot's process has no time limit here; the bridge ends it.
			StopTimeout: 1000 * time.Hour,
			Options:     b.link.WorkerOptions(connectionName(typ, connection)),
		}
	})
}

// stopSlots lets a target's slots finish in the background.
func (b *Bridge) stopSlots(target string) {
	if stop := b.stopSlotsOf[target]; stop != nil {
		stop()
		delete(b.stopSlotsOf, target)
		for n := range maxConcurrency / link.MaxSlots {
			b.link.ForgetSide(connectionName(b.cfg.TypeOf(target), n+1))
		}
	}
}

// connectionName returns the name that a target's connection has in the link's log and health.
func connectionName(typ string, connection int) string {
	if connection == 1 {
		return typ
	}
	return fmt.Sprintf("%s, connection %d", typ, connection)
}

// addToMachine adds a target, unless the broker would refuse its jobs.
func (b *Bridge) addToMachine(target string, concurrency int) error {
	if err := b.cfg.CheckTarget(target); err != nil {
		return err
	}
	return b.machine.Add(target, concurrency)
}

// run starts the loops. They run until the bridge is released; no failure of the database or the
// broker ends them.
func (b *Bridge) run() {
	b.loops.Go(func() { b.writer.run(b.ctx) })
	b.loops.Go(func() { b.fetchLoop(b.ctx) })
	b.loops.Go(func() { b.leaseLoop(b.ctx) })
	b.loops.Go(func() { b.reapLoop(b.ctx) })
	if b.guardsProcesses() {
		b.loops.Go(func() { b.guardLoop(b.ctx) })
	}
	if b.cfg.PollInterval > 0 {
		b.loops.Go(func() { b.pollLoop(b.ctx) })
	}
	b.withMachine(func() { b.machine.Poll(nil) })
}

const requeueOrphans = "requeue"

// withMachine changes the machine and carries out the effects.
func (b *Bridge) withMachine(change func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change()
	b.applyEffects()
}

// applyEffects carries out the effects of the machine; b.mu is held.
func (b *Bridge) applyEffects() {
	e := b.machine.NextEffects()
	for _, r := range e.Start {
		newRow := &row{
			Row:  store.Row{ID: r.ID, Target: r.Target, Priority: r.Priority, Fields: b.rowFields[r.ID]},
			wait: b.manualRows[r.ID], submittedAt: time.Now(), startedAt: r.StartedAt, isTaken: r.StartedAt != 0, writtenCh: make(chan struct{}),
		}
		delete(b.rowFields, r.ID)
		delete(b.manualRows, r.ID)
		b.rowsInBroker[r.ID] = newRow
		b.rowTasks.Go(func() { b.submitRow(newRow) })
	}
	for _, id := range e.Release {
		b.giveBack(id)
	}
	for _, r := range e.Undo {
		delete(b.rowFields, r.ID)
		undoResult := b.writer.enqueue(&change{kind: changeRequeue, id: r.ID})
		b.rowTasks.Go(func() {
			<-undoResult
			b.withMachine(func() { b.machine.Poll([]string{r.Target}) })
		})
	}
	if e.Fetch != nil {
		b.fetchInProgress = true
		b.fetches <- e.Fetch // does not block: only one fetch is in progress at a time
	}
}

// giveBack returns an accepted row to the table; b.mu is held.
func (b *Bridge) giveBack(id int64) {
	delete(b.rowFields, id)
	if wait := b.manualRows[id]; wait != nil {
		delete(b.manualRows, id)
		b.sendResult(wait, manualResult{reason: fmt.Sprintf("job %d was not started: the daemon is stopping, or its target was removed", id)})
	}
	b.writer.enqueue(&change{kind: changeGiveBack, id: id})
}

// leaveBroker is called when a row has left the broker, or was given up because the connection was
// lost. It frees the row's place in its target. If the connection was lost, it first waits until
// no worker runs the row any more.
func (b *Bridge) leaveBroker(r *row, outcome string, answer manualResult) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.metrics.endedRows.WithLabelValues(b.label(r.Target), outcome).Inc()
	if b.rowsInBroker[r.ID] == r {
		delete(b.rowsInBroker, r.ID)
	}
	if outcome == "ok" || outcome == "fail" {
		delete(b.requeueCounts, r.ID)
	}
	b.sendResult(r.wait, answer)
	if r.mayStillRun {
		b.rowTasks.Go(func() { b.awaitStrayRun(r) })
		return
	}
	if r.isSetAside {
		b.machine.FreePlace(r.ID)
	} else {
		b.machine.Done(r.ID)
	}
	b.fetchPace.observeEnd(r.Target, time.Since(r.submittedAt))
	if b.guard != nil { // without a launcher a fetch starts rows, too, so accepting more rows than there are places would gain nothing
		b.machine.SetEndsPerFetch(r.Target, b.fetchPace.endsPerFetch(r.Target))
	}
	b.applyEffects()
}

// label returns the label of a target in metrics; b.mu is held.
func (b *Bridge) label(target string) string {
	if !b.labelledTargets[target] {
		if len(b.labelledTargets) >= maxTargetLabels {
			return "other"
		}
		b.labelledTargets[target] = true
	}
	return target
}

func (b *Bridge) recordDatabase(caller string, err error) {
	if err != nil && (!store.IsAway(err) || b.ctx.Err() != nil) { // a stop cancels statements
		return
	}
	if b.database.record(caller, err) {
		if err != nil {
			b.log.Error().Err(err).Msg("the database is away")
		} else {
			b.log.Warn().Msg("the database is back")
		}
	}
}

// WorkerAddr returns the broker's address for workers. If the bridge has started the broker, only
// this process's user on this host can reach it.
func (b *Bridge) WorkerAddr() string { return b.link.WorkerAddr() }

// tearDown stops all goroutines and frees all resources. tearDown does not write the changes that
// still wait.
func (b *Bridge) tearDown() {
	b.mu.Lock()
	b.machine.Stop()
	b.machine.NextEffects() // from now on no row starts or is given back
	b.mu.Unlock()
	b.cancel()
	if b.submitter != nil {
		b.submitter.Close()
	}
	b.rowTasks.Wait()
	b.slotConns.Wait()
	b.loops.Wait()
	if b.guard != nil {
		b.guard.Close()
	}
	if b.link != nil {
		b.link.Close()
	}
	if b.registry != nil {
		b.registry.Unregister(collector{b, b.metrics})
	}
}
