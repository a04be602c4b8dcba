package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"gloom/broker/guard"
	gloom "gloom/clients/go"
	"gloom/cmd/internal/daemon"
	"gloom/cmd/internal/durable"
	"gloom/cmd/internal/launch"
	"gloom/cmd/internal/link"
	"gloom/cmd/serverlessd/job"
	"gloom/cmd/serverlessd/journal"
	"gloom/cmd/serverlessd/runner"
	"gloom/cmd/serverlessd/schedule"
	"gloom/cmd/serverlessd/store"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
)

// Engine is the daemon without its HTTP interface.
type Engine struct {
	cfg        Config
	log        zerolog.Logger
	nodeName   string // the name of the directory, which never changes; copies of the directory have the same
	place      string // what identifies the directory and no copy of it
	ids        *job.IDSource
	journal    *journal.Journal
	backends   []*backend
	handlers   *handlers
	runner     *runner.Runner
	guard      *launch.Guard // kills the runner's processes when this daemon has ended
	events     *events
	link       *link.Link
	submitter  *link.JobSubmitter
	metrics    metrics
	countCache countCache
	putBackMu  sync.Mutex // serializes PutBack

	ctx    context.Context // the context of all loops; it ends after the last write
	cancel context.CancelFunc
	loops  sync.WaitGroup
	wake   chan struct{} // wakes pickLoop

	sysidFileMu sync.Mutex // serializes writes to the file of sysids

	mu          sync.Mutex // guards the following
	stopped     bool       // Stop was called: no jobs are handed out
	leaving     bool       // the daemon is shutting down
	isPicking   bool       // set while pick takes jobs
	scheduler   *schedule.Scheduler
	batches     map[*batch]struct{}
	workers     map[string]*typeWorkers    // what is known of Gloom workers, by jobtype
	mayStillRun map[string]map[job.ID]bool // jobs that were given up and may still run at Gloom workers, by jobtype
	probeCount  int                        // probes at the broker, for all jobtypes
	hostErrors  map[string]hostError       // why jobs could not begin on this host, by language
	idleCh      chan struct{}              // closed when the daemon leaves and no batch is left
}

// Open starts an engine. It does not wait for stores that are away.
func Open(cfg Config, log zerolog.Logger, registerer prometheus.Registerer) (*Engine, error) {
	stores, err := openStores(cfg.Stores)
	if err != nil {
		return nil, err
	}
	return start(cfg, stores, log, registerer)
}

// start starts the engine with stores, which it owns from then on.
func start(cfg Config, stores []store.Store, log zerolog.Logger, registerer prometheus.Registerer) (_ *Engine, err error) {
	e := &Engine{
		cfg: cfg, log: log, stopped: cfg.Stopped, wake: make(chan struct{}, 1), idleCh: make(chan struct{}),
		batches: make(map[*batch]struct{}),
		workers: make(map[string]*typeWorkers), mayStillRun: make(map[string]map[job.ID]bool), hostErrors: make(map[string]hostError), metrics: newMetrics(registerer),
		scheduler: schedule.New(schedule.Limits{Slots: cfg.Concurrency, ClientSlots: cfg.ClientConcurrency}),
	}
	e.ctx, e.cancel = context.WithCancel(store.OwnCalls(context.Background()))
	for _, s := range stores {
		e.backends = append(e.backends, newBackend(e, s))
	}
	defer func() {
		if err != nil {
			e.close()
		}
	}()
	mode := os.FileMode(0o700)
	if cfg.User != "" {
		mode = 0o711 // handler processes have their directories below it
	}
	if err := durable.MakeDir(cfg.Dir, mode); err != nil {
		return nil, err
	}
	e.ids = job.NewIDSource(job.NewSysid(), time.Now)
	if e.journal, err = openJournal(cfg.Dir, stores, journal.Options{IDs: e.ids, NoSync: cfg.NoSync, MaxBytes: cfg.JournalMax, ReserveBytes: cfg.DiskReserve, Log: log, OnRemove: e.dropSegment}); err != nil {
		return nil, err
	}
	if e.nodeName, err = e.readNodeName(filepath.Join(cfg.Dir, "node")); err != nil {
		return nil, err
	}
	e.events = openEvents(filepath.Join(cfg.Dir, "events.log"), log)
	old, err := e.claimSysids()
	if err != nil {
		return nil, err
	}
	old = e.endOrphans(old) // these processes must end before their jobs can run again
	if e.guard, err = launch.NewGuard(e.ownerOf(e.ids.Sysid())); err != nil {
		return nil, err
	}
	runnerOptions := cfg.Options
	runnerOptions.Dir, runnerOptions.Guard, runnerOptions.Log = cfg.Dir, e.guard, log
	if e.runner, err = runner.New(runnerOptions); err != nil {
		return nil, err
	}
	e.handlers = newHandlers(e)
	for _, b := range e.backends {
		b.oldSysids = old
	}
	if err := e.connect(); err != nil {
		return nil, err
	}
	registerer.MustRegister(collector{e})
	return e, nil
}

func openStores(addresses []string) (stores []store.Store, err error) {
	for _, address := range addresses {
		s, err := store.Open(address)
		if err != nil {
			closeStores(stores)
			scheme, _, _ := strings.Cut(address, ":") // the rest of the address may contain a password
			return nil, &guard.OptionError{Flag: "store", Value: scheme + ":…", Reason: err.Error()}
		}
		stores = append(stores, s)
	}
	return stores, nil
}

func closeStores(stores []store.Store) {
	for _, s := range stores {
		s.Close()
	}
}

// Health returns nil, or an error with all reasons why the daemon cannot do its work: it is
// stopping; no store works, because each one is away, refuses something, or has handlers that have
// not been read yet; the journal cannot be read, refuses lines or has no room for them; jobs cannot
// begin on this host; or the broker is away and there is a handler for Gloom workers.
func (e *Engine) Health() error {
	if e.isLeaving() {
		return ErrDraining
	}
	var all []error
	if stores := e.storeFaults(); len(stores) == len(e.backends) {
		all = stores
	}
	all = append(all, e.journal.LastRefusal())
	all = append(all, e.hostHealth())
	if e.needsBroker() {
		all = append(all, e.link.Health())
	}
	return daemon.JoinReasons(all...)
}

// Degraded returns why some of the stores do not work, or nil. The jobs of these stores wait, and
// all other jobs run.
func (e *Engine) Degraded() error { return daemon.JoinReasons(e.storeFaults()...) }

// storeFaults returns an error for each store that does not work.
func (e *Engine) storeFaults() (faults []error) {
	for _, b := range e.backends {
		err := b.health()
		if err == nil && !e.handlers.wereRead(b) {
			err = errHandlersUnread
		}
		if err != nil && len(e.backends) > 1 {
			err = fmt.Errorf("%s: %w", b.store.Name(), err)
		}
		if err != nil {
			faults = append(faults, err)
		}
	}
	return faults
}

// connect connects to the broker or starts one, and starts the loops.
func (e *Engine) connect() (err error) {
	cfg := e.cfg.Broker
	cfg.Context = e.ctx
	if e.link, err = link.Open(cfg, e.log); err != nil {
		return err
	}
	if e.submitter, err = e.link.NewJobSubmitter(gloom.Window(1 << 20)); err != nil {
		return err
	}
	for _, b := range e.backends {
		e.loops.Go(b.keepSysid)
		e.loops.Go(b.write)
		e.loops.Go(b.sweep)
		e.loops.Go(b.ingest)
	}
	e.loops.Go(e.scheduleStore().schedule)
	e.loops.Go(e.scheduleStore().keepFile)
	e.loops.Go(e.pickLoop)
	e.loops.Go(e.handlers.watch)
	return nil
}

// sleep waits for d, and reports whether the engine still runs after that.
func (e *Engine) sleep(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-e.ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// wakePick makes pickLoop pick again.
func (e *Engine) wakePick() { signal(e.wake) }

// signal wakes the goroutine that reads from a channel with room for one signal, now or when it
// reads next.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// readNodeName returns the directory's name from its file, or writes a new name to the file. If the
// disk is full, the new name is used only by this process. A file that a crash has damaged is
// replaced.
func (e *Engine) readNodeName(path string) (string, error) {
	text, err := guard.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", err
	}
	name := strings.TrimSpace(string(text))
	if strings.ContainsFunc(name, func(r rune) bool { return r < '!' || r > '~' }) {
		e.log.Error().Str("file", path).Msg("the directory's name is damaged and replaced; processes that an earlier daemon in this directory has left are not found")
		if err := os.Remove(path); err != nil {
			return "", err
		}
		name = ""
	}
	if name != "" {
		return name, nil
	}
	name = job.NewSysid()
	if err := appendLine(path, name); err != nil {
		e.log.Warn().Err(err).Msg("cannot write the directory's name; the next start chooses another one")
	}
	return name, nil
}

// close frees everything. Endings that have not been written by then are lost; their jobs run
// again.
func (e *Engine) close() {
	e.mu.Lock()
	e.cancel() // from now on awaitRun starts no loop
	e.mu.Unlock()
	if e.runner != nil {
		e.runner.Close()
	}
	if e.submitter != nil {
		e.submitter.Close()
	}
	e.loops.Wait()
	if e.guard != nil {
		e.guard.Close()
	}
	if e.link != nil {
		e.link.Close()
	}
	for _, b := range e.backends {
		b.store.Close()
	}
	if e.events != nil {
		e.events.Close()
	}
	if e.journal != nil {
		e.journal.Close()
	}
}
