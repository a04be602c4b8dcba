package jobd

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/rs/zerolog"

	"gloom/bench/door"
	"gloom/bench/result"
	"gloom/broker/memory"
	gloom "gloom/clients/go"
	"gloom/cmd/jobd/bridge"
	"gloom/cmd/jobd/config"
)

// Report is what a Run measured.
type Report struct {
	result.Environment
	Database string  `json:"database"` // version
	Flush    string  `json:"innodb_flush_log_at_trx_commit"`
	Options  Options `json:"options"`
	Rounds   []Round `json:"rounds"`
}

// Round is one measurement. CPU is user and system time.
type Round struct {
	Rows        int           `json:"rows"`
	Seconds     float64       `json:"seconds"`
	Undone      int           `json:"undone"` // rows that did not end as they should
	DatabaseCPU time.Duration `json:"database_cpu_ns"`
	OwnCPU      time.Duration `json:"own_cpu_ns"`     // bridge, broker and workers
	OthersCPU   float64       `json:"others_cpu"`     // processors that other programs kept busy
	Flushes     int64         `json:"flushes"`        // flushes of the redo log
	Batch       float64       `json:"rows_per_write"` // row changes per transaction of the bridge
}

// Rate returns the rows per second.
func (r Round) Rate() float64 { return float64(r.Rows) / r.Seconds }

// Run measures. It stops at the first round in which a row was not done.
func Run(ctx context.Context, o Options, progress func(Round)) (*Report, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	b, err := openDB(o)
	if err != nil {
		return nil, err
	}
	defer b.close()
	conn, err := b.session(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	rep := &Report{Environment: result.CurrentEnvironment(), Options: o}
	rep.Options.MySQL.Password = ""
	rep.Database, rep.Flush = b.version(ctx)
	if err := b.fill(ctx, conn, o); err != nil {
		return nil, err
	}
	for range o.Rounds {
		round, err := measure(ctx, b, conn, o)
		if err != nil {
			return rep, err
		}
		rep.Rounds = append(rep.Rounds, round)
		if progress != nil {
			progress(round)
		}
		if round.Undone > 0 {
			return rep, fmt.Errorf("%d rows did not end correctly", round.Undone)
		}
		if _, err := conn.ExecContext(ctx, "DELETE FROM "+tableName+" WHERE target <> ?", idleTarget); err != nil {
			return rep, err
		}
	}
	return rep, nil
}

// worker runs the rows in one of the modes.
type worker interface {
	// run returns when that number of rows has run. It does not read the table, because the reads
	// would be measured too.
	run(ctx context.Context, rows int) error
	close()
}

func measure(ctx context.Context, b *testDB, conn *sql.Conn, o Options) (Round, error) {
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	answer := strings.Repeat("x", o.Answer)
	var w worker
	var err error
	switch o.Mode {
	case ModeOriginal:
		w, err = newOriginalRun(ctx, b, o, answer)
	default:
		w, err = newBridgeRun(ctx, b, o, answer)
	}
	if err != nil {
		return Round{}, err
	}
	defer w.close()
	if o.Mode == ModeLaunch {
		answer = ""
	}
	if err := b.insert(ctx, conn, o.Rows, func(i int) string { return targetName(i % o.Targets) }); err != nil {
		return Round{}, err
	}
	r := Round{Rows: o.Rows}
	flushes, meter := b.flushCount(ctx), door.StartMeter(b.pid)
	if err := w.run(ctx, o.Rows); err != nil {
		return r, err
	}
	meter.Stop(0)
	r.Seconds, r.DatabaseCPU, r.OwnCPU, r.OthersCPU = meter.Elapsed.Seconds(), meter.DaemonCPU[0], meter.OwnCPU, meter.OthersCPU
	r.Flushes = b.flushCount(ctx) - flushes
	if b, ok := w.(*bridgeRun); ok {
		r.Batch = b.batch()
	}
	r.Undone, err = b.unfinishedRows(ctx, conn, answer)
	return r, err
}

// flushCount returns how often the server has flushed a file.
func (b *testDB) flushCount(ctx context.Context) (n int64) {
	var name string
	b.db.QueryRowContext(ctx, "SHOW GLOBAL STATUS LIKE 'Innodb_data_fsyncs'").Scan(&name, &n)
	return n
}

// bridgeRun is a bridge in this process, with workers or a launcher.
type bridgeRun struct {
	bridge  *bridge.Bridge
	metrics *prometheus.Registry
	workers []*gloom.Worker
}

func newBridgeRun(ctx context.Context, base *testDB, o Options, answer string) (*bridgeRun, error) {
	cfg := config.Worker{
		Name: "bench", Orphans: "fail", MaxOutputBuffer: 1 << 20, Lease: 10 * time.Second, ShutdownTimeout: 10 * time.Second, MySQL: base.mysql,
	}
	for i := range o.Targets {
		cfg.Targets = append(cfg.Targets, config.Target{Name: targetName(i), Concurrency: o.Concurrency})
	}
	if o.Mode == ModeLaunch {
		cfg.Launcher = o.Command
	}
	memory.SetPace(memory.OfHost() / 4 * 3) // as jobd does
	w := &bridgeRun{metrics: prometheus.NewRegistry()}
	var err error
	if w.bridge, err = bridge.Open(ctx, cfg, zerolog.Nop(), w.metrics); err != nil {
		return nil, err
	}
	for i := range o.Targets {
		if o.Mode == ModeLaunch {
			break
		}
		g := &gloom.Worker{
			Type: targetName(i), Concurrency: min(o.Concurrency, 500), Prefetch: min(o.Concurrency, 500),
			Handler: func(context.Context, *gloom.Job) (any, error) { return answer, nil },
			Options: []gloom.Option{gloom.Addrs(w.bridge.WorkerAddr()), gloom.TrustBodies()},
		}
		if err := g.Start(ctx); err != nil {
			w.close()
			return nil, err
		}
		w.workers = append(w.workers, g)
	}
	return w, nil
}

// batch returns the mean number of row changes in a transaction.
func (r *bridgeRun) batch() float64 {
	for _, m := range r.metricsNamed("jobd_write_rows") {
		return m.GetHistogram().GetSampleSum() / float64(max(m.GetHistogram().GetSampleCount(), 1))
	}
	return 0
}

// rowsEnded returns how many rows the bridge has ended.
func (r *bridgeRun) rowsEnded() (n float64) {
	for _, m := range r.metricsNamed("jobd_rows_ended_total") {
		n += m.GetCounter().GetValue()
	}
	return n
}

// metricsNamed returns the bridge's metrics with this name, one for each set of labels.
func (r *bridgeRun) metricsNamed(name string) []*dto.Metric {
	families, _ := r.metrics.Gather()
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()
		}
	}
	return nil
}

func (r *bridgeRun) run(ctx context.Context, rows int) error {
	r.bridge.Poll(nil)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for r.rowsEnded() < float64(rows) {
		select {
		case <-ctx.Done():
			return fmt.Errorf("%.0f of %d rows have ended: %w", r.rowsEnded(), rows, ctx.Err())
		case <-tick.C:
		}
	}
	return nil
}

func (r *bridgeRun) close() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for _, g := range r.workers {
		g.Stop(ctx)
	}
	r.bridge.Shutdown(ctx)
}
