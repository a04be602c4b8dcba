package runner

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"sync/atomic"
	"time"

	"gloom/cmd/internal/launch"
	"gloom/cmd/serverlessd/job"

	"golang.org/x/sys/unix"
)

// key identifies the contexts that a job may use: jobs with equal keys may share a context.
type key struct{ client, lang, eid string }

func keyOf(client string, h *job.Handler) key {
	eid := "eid " + h.EID
	if h.EID == "" {
		eid = "version " + h.Jobtype + " " + h.ID
	}
	return key{client, h.Lang, eid}
}

// interpreter starts the contexts of a language, and communicates with them.
type interpreter interface {
	// args returns the command line of a context.
	args(o *Options) []string
	// open opens the files that a context inherits besides the pipe of its input.
	open(c *process) ([]*os.File, error)
	// hello, hook and task return bytes for the input of a context. It answers each with a mark,
	// whose number status interprets.
	hello(c *process) []byte
	hook(c *process, source string) []byte
	task(c *process, b Batch, j Job) ([]byte, error)
	// status returns the status for the number in a run's mark, and the data that the run gets if
	// it has given none.
	status(number int) (status int, data string)
}

// process is a context: an operating system process, its input and its output. One batch at a time
// uses it.
type process struct {
	key
	r           *Runner
	interpreter interpreter
	secret      string
	dir         string
	in          *os.File
	out         *output
	p           *launch.Process
	sources     map[string]int  // the numbers of the sources that it already has
	befores     map[string]bool // the sources of the hook "before" that it has run
	payload     *os.File        // for sh, the standard input of its jobs
	excess      atomic.Int64    // bytes of memory used when the context was killed for using too many; 0 if it was not

	era     int // the era of the pool in which it began
	jobs    int // run
	cleared bool
	broken  bool // the context must not be used again
	expiry  *time.Timer
}

// endPatience bounds how long a context may take to end by itself, and killPatience how long it may
// take to end once it is killed.
const (
	endPatience  = time.Second
	killPatience = 10 * time.Second
)

// startsAtOnce bounds how many processes are being started at a time. During a start the daemon has
// twice as many files open for the process, and connections leave only a limited number of files
// for this.
const startsAtOnce = 4

// begin starts a context and waits until it is ready.
func (r *Runner) begin(ctx context.Context, k key, serial uint64) (*process, *fault) {
	name := strconv.FormatUint(serial, 10)
	c := &process{key: k, r: r, dir: filepath.Join(r.o.Dir, name), sources: make(map[string]int), befores: make(map[string]bool)}
	c.interpreter = interpreters[k.lang]
	var random [16]byte
	_, _ = rand.Read(random[:])
	c.secret = hex.EncodeToString(random[:])
	c.out = newOutput(c.secret, &r.o, r.o.Log.With().Str("client", k.client).Str("lang", k.lang).Logger())
	r.starts <- struct{}{}
	err := c.start(name)
	<-r.starts
	if err != nil {
		c.clear()
		return nil, &fault{hostOr(codeContextFailed, err), err.Error()}
	}
	if _, f := c.step(ctx, c.interpreter.hello(c), r.o.Start, 0); f != nil {
		c.kill()
		switch f.code {
		case "":
			return nil, f
		case codeTimeout:
			f.text = fmt.Sprintf("the context was not ready after %v", r.o.Start)
		case codeContextDied:
			f.text = "the context ended at its start" + f.text[len(died):]
		}
		return nil, &fault{codeContextFailed, f.text}
	}
	return c, nil
}

func (c *process) start(name string) error {
	who := c.r.pool.user
	if err := os.Mkdir(c.dir, 0o700); err != nil {
		return err
	}
	theirs, in, err := os.Pipe()
	if err != nil {
		return err
	}
	c.in = in
	defer theirs.Close()
	files, err := c.interpreter.open(c)
	if err != nil {
		return err
	}
	files = append([]*os.File{theirs}, files...)
	if who != nil {
		if err := os.Chown(c.dir, int(who.Uid), int(who.Gid)); err != nil {
			return err
		}
		for _, f := range files {
			if err := f.Chown(int(who.Uid), int(who.Gid)); err != nil {
				return err
			}
		}
	}
	o := &c.r.o
	limits := []launch.Limit{
		{Resource: unix.RLIMIT_CORE, Max: 0}, {Resource: unix.RLIMIT_FSIZE, Max: uint64(o.FileSize)}, {Resource: unix.RLIMIT_NOFILE, Max: uint64(o.Files)},
	}
	if c.lang != job.Node { // Node reserves much more memory than it uses
		limits = append(limits, launch.Limit{Resource: unix.RLIMIT_DATA, Max: uint64(o.Memory)})
	}
	if who != nil { // the limit applies to all processes of the user together
		limits = append(limits, launch.Limit{Resource: unix.RLIMIT_NPROC, Max: uint64(o.Tasks)})
	}
	c.p, err = launch.Start(launch.Command{
		Args: c.interpreter.args(o), Dir: c.dir,
		Env:    []string{"PATH=" + o.Path, "HOME=" + c.dir, "TMPDIR=" + c.dir, "PWD=" + c.dir, "LANG=C.UTF-8"},
		Stdout: c.out, Stderr: stderr{c.out}, Files: files,
		Guard: o.Guard, Name: "context-" + name, WatchGroup: true, User: who, Limits: limits,
	})
	if err == nil {
		c.p.KillRest()
	}
	return err
}

const died = "the context ended before the job did"

// step sends a frame to a context and waits for the mark that ends the step. The step may take at
// most limit and, unless cpu is 0, use at most cpu of processor time. After a fault the context
// cannot be used again. A fault without a code means that ctx has ended.
func (c *process) step(ctx context.Context, frame []byte, limit, cpu time.Duration) (m mark, f *fault) {
	defer func() { c.broken = c.broken || f != nil }()
	deadline := time.Now().Add(limit)
	meter := c.p.Meter()
	check := time.NewTimer(limit)
	if cpu > 0 {
		check.Reset(min(limit, max(cpu/100, minCheck)))
	}
	defer check.Stop()
	// So a context that does not read its input cannot block the write for longer.
	_ = c.in.SetWriteDeadline(deadline)
	stop := context.AfterFunc(ctx, func() { _ = c.in.SetWriteDeadline(time.Unix(1, 0)) })
	_, _ = c.in.Write(frame) // the wait below notices an error
	stop()
	for {
		select {
		case m = <-c.out.marks:
			return m, m.fault
		case <-c.p.Ended():
			select {
			case m = <-c.out.marks:
				if m.fault != nil {
					return m, m.fault
				}
			default:
			}
			if bytes := c.excess.Load(); bytes > 0 {
				return m, &fault{codeMemory, fmt.Sprintf("its processes held %d bytes of memory; at most %d are allowed", bytes, c.r.o.Memory)}
			}
			return m, &fault{codeContextDied, died + c.cause()}
		case <-ctx.Done():
			return m, &fault{}
		case <-check.C:
			left := time.Until(deadline)
			if left <= 0 {
				return m, &fault{codeTimeout, fmt.Sprintf("it took longer than %v", limit)}
			}
			used := time.Duration(0)
			if cpu > 0 {
				if used = meter.Used(); used >= cpu {
					return m, &fault{codeCPU, fmt.Sprintf("it used more than %v of processor time", cpu)}
				}
			}
			check.Reset(nextCheck(left, cpu-used))
		}
	}
}

// minCheck is the shortest time between two readings of a job's processor time, because a reading
// examines all processes of the host. Most jobs have ended before the first reading.
const minCheck = 10 * time.Millisecond

// nextCheck returns the shortest time in which a job can use this much processor time, but at most
// wall.
func nextCheck(wall, cpu time.Duration) time.Duration {
	if cpu <= 0 {
		return wall
	}
	return min(wall, max(cpu/time.Duration(runtime.NumCPU()), minCheck))
}

// cause describes how the process ended, and what it printed last.
func (c *process) cause() string {
	r := c.p.Result()
	s := fmt.Sprintf(" (exit status %d)", r.Code)
	if r.Signal != 0 {
		s = fmt.Sprintf(" (%s)", launch.SignalName(r.Signal))
	}
	if last := c.out.lastWords(); last != "" {
		s += ": " + last
	}
	return s
}

// hook runs the source of a hook, which is before, beforeEach or afterEach.
func (c *process) hook(ctx context.Context, what, source string, limit, cpu time.Duration) *fault {
	if source == "" {
		return nil
	}
	c.forgetErrors()
	m, f := c.step(ctx, c.interpreter.hook(c, source), limit, cpu)
	if f != nil {
		if f.code != "" {
			f.text = what + ": " + f.text
		}
		return f
	}
	if status, data := c.interpreter.status(m.number); status != 200 {
		if len(m.data) > 0 {
			data = string(m.data)
		}
		return &fault{codeBefore, what + ": " + data}
	}
	return nil
}

// run runs a job, whose frame or error task has returned. After a fault the context cannot be used
// again. A fault without a code means that ctx has ended.
func (c *process) run(ctx context.Context, b Batch, j Job, frame []byte, err error) (o job.Outcome, f *fault) {
	start := time.Now()
	if err != nil {
		c.broken = true
		f = &fault{codeContextFailed, err.Error()}
		return f.outcome(), f
	}
	c.forgetErrors()
	m, f := c.step(ctx, frame, c.r.timeout(b.Handler), c.r.cpu(b.Handler))
	c.jobs++
	if f != nil {
		o = f.outcome()
	} else {
		o = c.outcome(&m)
	}
	o.Wall = time.Since(start)
	if code, _ := job.Judge(o.Status); code != job.CodeOK || j.Tries > 1 {
		o.Stderr = c.errors()
	}
	return o, f
}

// forgetErrors drops what earlier steps have printed to standard error. It is not called before
// the hello, because what a context prints at its start may explain why the hello is not answered.
func (c *process) forgetErrors() {
	c.p.Flush()
	c.out.forget()
}

// errors returns the end of what the step has printed to standard error. It first reads what is
// still in the pipe.
func (c *process) errors() []byte {
	c.p.Flush()
	return c.out.errors()
}

func (c *process) outcome(m *mark) job.Outcome {
	status, data := c.interpreter.status(m.number)
	o := job.Outcome{Status: status, Data: m.data, Lines: m.lines, BadLines: m.bad}
	if len(o.Data) == 0 {
		o.Data = []byte(data)
	}
	if m.said != nil {
		o.Status, o.Data = m.said.status, m.said.data
	}
	return o
}

// runContext runs a batch in a context.
func (r *Runner) runContext(ctx context.Context, b Batch, to Reporter) error {
	c, f := r.pool.acquire(ctx, keyOf(b.Client, b.Handler))
	if f != nil {
		if err := f.host(); err != nil {
			return err
		}
		if f.code != "" {
			b.failAll(f.outcome(), to)
		}
		return nil
	}
	defer r.pool.release(c)
	h := b.Handler
	timeout, cpu := r.timeout(h), r.cpu(h)
	if !c.befores[h.Before] {
		if f = c.hook(ctx, "before", h.Before, r.o.Start, 0); f != nil {
			c.broken = true
		} else {
			c.befores[h.Before] = true
		}
	}
	if f == nil {
		f = c.hook(ctx, "beforeEach", h.BeforeEach, timeout, cpu)
	}
	if f != nil {
		if f.code != "" {
			f.code = codeBefore
			o := f.outcome()
			o.Stderr = c.errors()
			b.failAll(o, to)
		}
		return nil
	}
	for i, j := range b.Jobs {
		if !b.mayBegin(ctx, i) {
			break
		}
		frame, err := c.interpreter.task(c, b, j)
		if launch.IsTemporary(err) {
			c.broken = true
			return err
		}
		to.Started(i)
		o, f := c.run(ctx, b, j, frame, err)
		if f != nil && f.code == "" {
			return nil
		}
		if f != nil {
			c.kill() // the context ends before the job is reported, because the job may then run again
		}
		to.Ended(i, o)
		if f != nil {
			return nil
		}
	}
	if f := c.hook(ctx, "afterEach", h.AfterEach, timeout, cpu); f != nil && f.code != "" {
		c.out.log.Warn().Str("type", b.Type).Str("reason", f.text).Msg("afterEach failed")
	}
	return nil
}

// kill kills a context and all processes that it has started. It may be called more than once.
func (c *process) kill() {
	c.broken = true
	if c.cleared {
		return
	}
	if c.p != nil {
		ctx, cancel := context.WithTimeout(context.Background(), killPatience)
		defer cancel()
		c.p.Kill(ctx)
	}
	c.clear()
}

// finish closes a context's input, so that the context ends by itself, and kills it if it does not.
func (c *process) finish() {
	if !c.broken {
		c.in.Close()
		select {
		case <-c.p.Ended():
		case <-time.After(endPatience):
		}
	}
	c.kill()
}

// clear closes and removes the files of a context.
func (c *process) clear() {
	c.cleared = true
	for _, f := range []*os.File{c.in, c.payload} {
		if f != nil {
			f.Close()
		}
	}
	if err := os.RemoveAll(c.dir); err != nil {
		c.out.log.Warn().Err(err).Msg("a context's directory could not be removed")
	}
}
