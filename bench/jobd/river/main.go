// Command river measures River, a queue in PostgreSQL, as gloom-bench jobd measures jobd: how many
// rows go from waiting to done per second, and what processor time the client and the database need
// together. It is a module of its own because only this comparison needs River.
//
// It starts a PostgreSQL with default settings on a throw-away directory, so every commit is
// flushed. The jobs do nothing, and run in the client's process.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

type emptyJob struct{}

func (emptyJob) Kind() string { return "empty" }

type worker struct {
	river.WorkerDefaults[emptyJob]
	runs atomic.Int64
}

func (w *worker) Work(context.Context, *river.Job[emptyJob]) error {
	w.runs.Add(1)
	return nil
}

func main() {
	rows := flag.Int("rows", 50_000, "rows of a round")
	rounds := flag.Int("rounds", 3, "measurements")
	concurrency := flag.Int("concurrency", 2000, "rows that run at once")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := measure(ctx, *rows, *rounds, *concurrency); err != nil {
		fmt.Fprintln(os.Stderr, "river:", err)
		os.Exit(1)
	}
}

func measure(ctx context.Context, rows, rounds, concurrency int) error {
	server, err := startPostgres(ctx)
	if err != nil {
		return err
	}
	defer server.stop()
	pool, err := pgxpool.New(ctx, "host="+server.dir+" user=river dbname=postgres")
	if err != nil {
		return err
	}
	defer pool.Close()
	for until := time.Now().Add(10 * time.Second); pool.Ping(ctx) != nil; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(until) {
			return errors.New("PostgreSQL did not start within ten seconds")
		}
	}
	driver := riverpgxv5.New(pool)
	migrator, err := rivermigrate.New(driver, nil)
	if err != nil {
		return err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return err
	}
	for range rounds {
		if err := server.round(ctx, pool, rows, concurrency); err != nil {
			return err
		}
	}
	return nil
}

// round adds rows, and measures the time until all are completed in the database.
func (p *postgres) round(ctx context.Context, pool *pgxpool.Pool, rows, concurrency int) error {
	w, workers := &worker{}, river.NewWorkers()
	river.AddWorker(workers, w)
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{
		Workers: workers, Logger: slog.New(slog.DiscardHandler),
		FetchCooldown: 2 * time.Millisecond, FetchPollInterval: 20 * time.Millisecond, // as in River's own benchmark
		Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: concurrency}},
	})
	if err != nil {
		return err
	}
	if _, err := pool.Exec(ctx, "TRUNCATE river_job"); err != nil {
		return err
	}
	for added := 0; added < rows; {
		part := make([]river.InsertManyParams, min(5000, rows-added))
		for i := range part {
			part[i].Args = emptyJob{}
		}
		if _, err := client.InsertManyFast(ctx, part); err != nil {
			return err
		}
		added += len(part)
	}
	if _, err := pool.Exec(ctx, "CHECKPOINT"); err != nil {
		return err
	}
	begun, clientCPU, serverCPU := time.Now(), ownCPU(), p.cpu()
	if err := client.Start(ctx); err != nil {
		return err
	}
	defer client.Stop(context.WithoutCancel(ctx))
	for completed := 0; completed < rows; time.Sleep(5 * time.Millisecond) {
		if w.runs.Load() < int64(rows) { // a count costs the database time
			continue
		}
		if err := pool.QueryRow(ctx, "SELECT count(*) FROM river_job WHERE state = 'completed'").Scan(&completed); err != nil {
			return err
		}
	}
	took, n := time.Since(begun), float64(rows)
	clientCPU, serverCPU = ownCPU()-clientCPU, p.cpu()-serverCPU
	fmt.Printf("%9.0f rows/s  %5.2f s  database %6.1f µs/row  own %6.1f µs/row  %6.0f rows per CPU second\n", n/took.Seconds(), took.Seconds(),
		serverCPU.Seconds()*1e6/n, clientCPU.Seconds()*1e6/n, n/(serverCPU+clientCPU).Seconds())
	return nil
}

// postgres is a running server.
type postgres struct {
	dir string // of its data, and of its socket
	cmd *exec.Cmd
}

// startPostgres starts a server. If it runs as root, the server runs as the user postgres.
func startPostgres(ctx context.Context) (*postgres, error) {
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
	program, err := exec.LookPath("postgres")
	if err != nil && len(found) > 0 {
		program, err = found[len(found)-1], nil
	}
	if err != nil {
		return nil, errors.New("PostgreSQL is not installed (on Debian: apt-get install postgresql)")
	}
	dir, err := os.MkdirTemp("", "river-")
	if err != nil {
		return nil, err
	}
	p := &postgres{dir: dir, cmd: exec.Command(program, "-D", filepath.Join(dir, "data"), "-k", dir, "-h", "")}
	initdb := exec.CommandContext(ctx, filepath.Join(filepath.Dir(program), "initdb"), "-D", filepath.Join(dir, "data"), "-A", "trust", "-U", "river")
	if os.Getuid() == 0 {
		owner, err := user.Lookup("postgres")
		if err != nil {
			return nil, err
		}
		uid, _ := strconv.Atoi(owner.Uid)
		gid, _ := strconv.Atoi(owner.Gid)
		if err := os.Chown(dir, uid, gid); err != nil {
			return nil, err
		}
		for _, cmd := range []*exec.Cmd{initdb, p.cmd} {
			cmd.Dir, cmd.SysProcAttr = dir, &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
		}
	}
	if out, err := initdb.CombinedOutput(); err != nil {
		os.RemoveAll(dir)
		return nil, fmt.Errorf("initdb: %w: %s", err, out)
	}
	if err := p.cmd.Start(); err != nil {
		os.RemoveAll(dir)
		return nil, err
	}
	return p, nil
}

func (p *postgres) stop() {
	p.cmd.Process.Signal(os.Interrupt) // a fast shutdown
	p.cmd.Wait()
	os.RemoveAll(p.dir)
}

// cpu returns the processor time of the server's processes, in ticks of ten milliseconds.
func (p *postgres) cpu() (sum time.Duration) {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		stat, _ := os.ReadFile(path)
		pid, rest, _ := strings.Cut(string(stat), " (postgres) ")
		// After the state: parent (1), user and system time (11, 12), and those of ended children (13, 14).
		f := strings.Fields(rest)
		if len(f) < 15 || f[1] != strconv.Itoa(p.cmd.Process.Pid) && pid != strconv.Itoa(p.cmd.Process.Pid) {
			continue
		}
		for _, ticks := range f[11:15] {
			n, _ := strconv.ParseInt(ticks, 10, 64)
			sum += time.Duration(n) * 10 * time.Millisecond
		}
	}
	return sum
}

func ownCPU() time.Duration {
	var u syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
