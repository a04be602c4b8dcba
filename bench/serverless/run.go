package serverless

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"
	"golang.org/x/sys/unix"

	"gloom/bench/door"
)

// Round is one measurement.
type Round struct {
	Shape   string        `json:"shape"`
	Jobs    int           `json:"jobs"`
	Seconds float64       `json:"seconds"`
	P50     time.Duration `json:"p50_ns,omitempty"`
	P99     time.Duration `json:"p99_ns,omitempty"`
	// Append and Overwrite are the durations of a small write with its fdatasync on the same disk:
	// Append at the end of a file, as in the journal, and Overwrite within a file.
	Append    time.Duration `json:"append_p50_ns,omitempty"`
	Overwrite time.Duration `json:"overwrite_p50_ns,omitempty"`
	CPU       time.Duration `json:"daemon_cpu_ns"`
	OwnCPU    time.Duration `json:"own_cpu_ns"`
	OthersCPU float64       `json:"others_cpu"` // processors that all other programs kept busy, including the daemon's language processes
}

// Rate returns the jobs per second.
func (r Round) Rate() float64 { return float64(r.Jobs) / r.Seconds }

// Run measures every shape on a daemon of its own.
func Run(ctx context.Context, o Options, done func(Round)) error {
	if err := o.Validate(); err != nil {
		return err
	}
	for range o.Rounds {
		for _, shape := range o.Shapes {
			r, err := measure(ctx, shape, o)
			if err != nil {
				return fmt.Errorf("%s: %w", shape, err)
			}
			done(r)
		}
	}
	return nil
}

func measure(ctx context.Context, shape string, o Options) (r Round, err error) {
	d, err := startDaemon(ctx, o)
	if err != nil {
		return r, err
	}
	defer d.server.Close()
	r.Shape = shape
	switch shape {
	case "lone":
		if r.Append, r.Overwrite, err = syncTimes(d.server.Dir); err == nil {
			err = d.measureAdding(ctx, &r, 1, 1, o.Time)
		}
	case "add":
		err = d.measureAdding(ctx, &r, o.Clients, 1, o.Time)
	case "batch":
		err = d.measureAdding(ctx, &r, o.Clients, o.Lines, o.Time)
	case "first":
		err = d.measureFirst(ctx, &r)
	default:
		err = d.measureHandling(ctx, &r, o.Jobs)
	}
	return r, err
}

func (d *daemon) startMeter() *door.Meter { return door.StartMeter(d.server.PID()) }

// recordMeter ends the measurement of a round.
func (r *Round) recordMeter(m *door.Meter) {
	m.Stop(0)
	r.Seconds, r.CPU, r.OwnCPU, r.OthersCPU = m.Elapsed.Seconds(), m.DaemonCPU[0], m.OwnCPU, m.OthersCPU
}

// checkAdded checks that there is one job for each accepted line.
func (d *daemon) checkAdded(ctx context.Context, typ string, jobs int) error {
	c, err := d.counts(ctx, typ)
	if err == nil && c.Added != jobs {
		err = fmt.Errorf("%d lines were accepted, but there are %d jobs", jobs, c.Added)
	}
	return err
}

// syncTimes returns the medians of a small write and its fdatasync, with and without making the
// file longer.
func syncTimes(dir string) (appendTime, overwriteTime time.Duration, err error) {
	f, err := os.Create(filepath.Join(dir, "sync"))
	if err != nil {
		return 0, 0, err
	}
	defer f.Close()
	const writes, size = 500, 200
	median := func() time.Duration {
		times := make([]time.Duration, writes)
		for i := range times {
			start := time.Now()
			_, e := f.WriteAt(make([]byte, size), int64(i*size))
			err = errors.Join(err, e, unix.Fdatasync(int(f.Fd())))
			times[i] = time.Since(start)
		}
		slices.Sort(times)
		return times[writes/2]
	}
	appendTime = median()
	overwriteTime = median()
	return appendTime, overwriteTime, err
}

// measureFirst runs the shape of that name: it measures the time from the answer to an add until the
// start of the job, in a type without other jobs.
func (d *daemon) measureFirst(ctx context.Context, r *Round) error {
	const jobs = 100
	startTimes := make(chan time.Time, 1)
	target, err := listenForHandler(func() { startTimes <- time.Now() })
	if err != nil {
		return err
	}
	defer target.Close()
	if err := d.call(ctx, "PUT", "/bench/handler/add/first?lang=http", []byte("http://"+target.Addr().String()), nil); err != nil {
		return err
	}
	var times []time.Duration
	meter := d.startMeter()
	for i := range jobs {
		if err := d.call(ctx, "POST", "/bench/job/first", []byte("x\n"), nil); err != nil {
			return err
		}
		ackTime := time.Now()
		select {
		case at := <-startTimes:
			times = append(times, max(0, at.Sub(ackTime)))
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := d.awaitDone(ctx, "first", i+1); err != nil {
			return err
		}
	}
	r.recordMeter(meter)
	slices.Sort(times)
	r.Jobs, r.P50, r.P99 = jobs, times[jobs/2], times[jobs*99/100]
	return nil
}

// listenForHandler listens for the requests of an http handler.
func listenForHandler(onRequest func()) (net.Listener, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err == nil {
		go func() { _ = fasthttp.Serve(ln, func(*fasthttp.RequestCtx) { onRequest() }) }()
	}
	return ln, err
}

var emptyHandlers = map[string]string{"node": "return 200", "python": "return 200", "sh": ":"}

// measureHandling measures how fast a handler that does nothing runs waiting jobs.
func (d *daemon) measureHandling(ctx context.Context, r *Round, jobs int) error {
	source := emptyHandlers[r.Shape]
	var served atomic.Int64
	if r.Shape == "http" {
		target, err := listenForHandler(func() { served.Add(1) })
		if err != nil {
			return err
		}
		defer target.Close()
		source = "http://" + target.Addr().String()
	}
	if r.Shape == "sh" {
		jobs = max(1, jobs/10) // a process each
	}
	if err := d.call(ctx, "PUT", "/bench/handler/add/work?lang="+r.Shape, []byte(source), nil); err != nil {
		return err
	}
	if err := d.call(ctx, "POST", "/bench/job/work", []byte("warm\n"), nil); err != nil {
		return err
	}
	if err := d.awaitDone(ctx, "work", 1); err != nil {
		return err
	}
	if err := d.call(ctx, "POST", "/stop", nil, nil); err != nil {
		return err
	}
	var body []byte
	for i := range jobs {
		body = append(strconv.AppendInt(body, int64(i), 10), '\n')
	}
	if err := d.call(ctx, "POST", "/bench/job/work?wait=store", body, nil); err != nil {
		return err
	}
	meter := d.startMeter()
	if err := d.call(ctx, "POST", "/start", nil, nil); err != nil {
		return err
	}
	if err := d.awaitDone(ctx, "work", jobs+1); err != nil {
		return err
	}
	r.recordMeter(meter)
	r.Jobs = jobs
	if n := served.Load(); r.Shape == "http" && n != int64(jobs)+1 {
		return fmt.Errorf("%d jobs were done, but the handler was called %d times", jobs+1, n)
	}
	return d.checkAdded(ctx, "work", jobs+1)
}
