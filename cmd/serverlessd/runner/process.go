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

// processKey identifies the processes that a job may use: jobs with equal keys may share a
// process.
type processKey struct{ client, lang, eid string }

func processKeyOf(client string, h *job.Handler) processKey {
	eid := "eid " + h.EID
	if h.EID == "" {
		eid = "version " + h.Jobtype + " " + h.ID
	}
	return processKey{client, h.Lang, eid}
}

// interpreter starts the processes of a language, and communicates with them.
type interpreter interface {
	// args returns the command line of a process.
	args(o *Options) []string
	// open opens the files that a process inherits besides the pipe of its input.
	open(c *handlerProcess) ([]*os.File, error)
	// greeting, hook and task return bytes for the input of a process. It answers each with
	// an end line, whose number status interprets.
	greeting(c *handlerProcess) []byte
	hook(c *handlerProcess, source string) []byte
	task(c *handlerProcess, b Batch, j Job) ([]byte, error)
	// status returns the status for the number in a run's end line, and the data that the run gets if
	// it has given none.
	status(number int) (status int, data string)
}

// handlerProcess is an operating system process that runs jobs of one client, one after the other,
// with its input and its output. Flags, metrics and error codes call it a context. One batch at a
// time uses it.
type handlerProcess struct {
	processKey
	runner       *Runner
	interpreter  interpreter
	secret       string
	dir          string
	stdin        *os.File
	output       *output
	process      *launch.Process
	sources      map[string]int  // the numbers of the sources that it already has
	beforesRun   map[string]bool // the sources of the hook "before" that it has run
	payloadFile  *os.File        // for sh, the standard input of its jobs
	excessMemory atomic.Int64    // bytes of memory used when the process was killed for using too many; 0 if it was not

	jobs      int // run
	isCleared bool
	unusable  bool // the process must not be used again
	idleTimer *time.Timer
}

// endTimeout bounds how long a process may take to end by itself, and killTimeout how long
// it may take to end once it is killed.
const (
	endTimeout  = time.Second
	killTimeout = 10 * time.Second
)

// maxStarts bounds how many processes are being started at a time. During a start the daemon has
// twice as many files open for the process, and connections leave only a limited number of files
// for this.
const maxStarts = 4

// startProcess starts a process and waits until it is ready.
func (r *Runner) startProcess(ctx context.Context, k processKey, serial uint64) (*handlerProcess, *runFault) {
	name := strconv.FormatUint(serial, 10)
	c := &handlerProcess{processKey: k, runner: r, dir: filepath.Join(r.options.Dir, name), sources: make(map[string]int), beforesRun: make(map[string]bool)}
	c.interpreter = interpreters[k.lang]
	var secret [16]byte
	_, _ = rand.Read(secret[:])
	c.secret = hex.EncodeToString(secret[:])
	c.output = newOutput(c.secret, &r.options, r.options.Log.With().Str("client", k.client).Str("lang", k.lang).Logger())
	r.startSlots <- struct{}{}
	err := c.start(name)
	<-r.startSlots
	if err != nil {
		c.clear()
		return nil, faultOf(codeContextFailed, err)
	}
	if _, fault := c.step(ctx, c.interpreter.greeting(c), r.options.StartTimeout, 0); fault != nil {
		c.kill()
		switch fault.code {
		case "":
			return nil, fault
		case codeTimeout:
			fault.text = fmt.Sprintf("the context was not ready after %v", r.options.StartTimeout)
		case codeContextDied:
			fault.text = "the context ended at its start" + fault.text[len(diedReason):]
		}
		return nil, &runFault{code: codeContextFailed, text: fault.text}
	}
	return c, nil
}

func (c *handlerProcess) start(name string) error {
	user := c.runner.pool.user
	if err := os.Mkdir(c.dir, 0o700); err != nil {
		return err
	}
	childStdin, stdin, err := os.Pipe()
	if err != nil {
		return err
	}
	c.stdin = stdin
	defer childStdin.Close()
	files, err := c.interpreter.open(c)
	if err != nil {
		return err
	}
	files = append([]*os.File{childStdin}, files...)
	if user != nil {
		if err := os.Chown(c.dir, int(user.Uid), int(user.Gid)); err != nil {
			return err
		}
		for _, f := range files {
			if err := f.Chown(int(user.Uid), int(user.Gid)); err != nil {
				return err
			}
		}
	}
	o := &c.runner.options
	limits := []launch.Limit{
		{Resource: unix.RLIMIT_CORE, Max: 0}, {Resource: unix.RLIMIT_FSIZE, Max: uint64(o.MaxFileSize)}, {Resource: unix.RLIMIT_NOFILE, Max: uint64(o.MaxFiles)},
	}
	if c.lang != job.Node { // Node reserves much more memory than it uses
		limits = append(limits, launch.Limit{Resource: unix.RLIMIT_DATA, Max: uint64(o.MaxMemory)})
	}
	if user != nil { // the limit applies to all processes of the user together
		limits = append(limits, launch.Limit{Resource: unix.RLIMIT_NPROC, Max: uint64(o.MaxTasks)})
	}
	c.process, err = launch.Start(launch.Command{
		Args: c.interpreter.args(o), Dir: c.dir,
		Env:    []string{"PATH=" + o.Path, "HOME=" + c.dir, "TMPDIR=" + c.dir, "PWD=" + c.dir, "LANG=C.UTF-8"},
		Stdout: c.output, Stderr: stderr{c.output}, Files: files,
		Guard: o.Guard, Name: "context-" + name, WatchGroup: true, User: user, Limits: limits,
	})
	if err == nil {
		c.process.KillRest()
	}
	return err
}

const diedReason = "the context ended before the job did"

// step sends a frame to a process and waits for the end line of the step. The step may
// take at most limit and, unless cpu is 0, use at most cpu of processor time. After a fault the
// process cannot be used again. A fault without a code means that ctx has ended.
func (c *handlerProcess) step(ctx context.Context, frame []byte, limit, cpu time.Duration) (result stepResult, fault *runFault) {
	defer func() { c.unusable = c.unusable || fault != nil }()
	deadline := time.Now().Add(limit)
	meter := c.process.Meter()
	check := time.NewTimer(limit)
	if cpu > 0 {
		check.Reset(min(limit, max(cpu/100, minCPUCheckInterval)))
	}
	defer check.Stop()
	// So a process that does not read its input cannot block the write for longer.
	_ = c.stdin.SetWriteDeadline(deadline)
	stop := context.AfterFunc(ctx, func() { _ = c.stdin.SetWriteDeadline(time.Unix(1, 0)) })
	_, _ = c.stdin.Write(frame) // the wait below notices an error
	stop()
	for {
		select {
		case result = <-c.output.results:
			return result, result.fault
		case <-c.process.Ended():
			if result, ok := c.endedStep(); ok {
				c.unusable = true
				return result, result.fault
			}
			if bytes := c.excessMemory.Load(); bytes > 0 {
				return result, &runFault{code: codeMemory, text: fmt.Sprintf("its processes held %d bytes of memory; at most %d are allowed", bytes, c.runner.options.MaxMemory)}
			}
			return result, &runFault{code: codeContextDied, text: diedReason + c.cause()}
		case <-ctx.Done():
			if result, ok := c.endedStep(); ok {
				return result, result.fault
			}
			return result, &runFault{}
		case <-check.C:
			timeLeft := time.Until(deadline)
			if timeLeft <= 0 {
				if result, ok := c.endedStep(); ok {
					return result, result.fault
				}
				return result, &runFault{code: codeTimeout, text: fmt.Sprintf("it took longer than %v", limit)}
			}
			used := time.Duration(0)
			if cpu > 0 {
				if used = meter.Used(); used >= cpu {
					return result, &runFault{code: codeCPU, text: fmt.Sprintf("it used more than %v of processor time", cpu)}
				}
			}
			check.Reset(nextCheck(timeLeft, cpu-used))
		}
	}
}

// endedStep returns the result of a step whose end line has come: after a stop of this daemon it may
// have waited in the pipe while the time of the step, or of its locks, ran out.
func (c *handlerProcess) endedStep() (result stepResult, ok bool) {
	c.process.Flush()
	select {
	case result = <-c.output.results:
		return result, true
	default:
		return result, false
	}
}

// minCPUCheckInterval is the shortest time between two readings of a job's processor time, because
// a reading examines all processes of the host. Most jobs have ended before the first reading.
const minCPUCheckInterval = 10 * time.Millisecond

// nextCheck returns the shortest time in which a job can use this much processor time, but at most
// wall.
func nextCheck(wall, cpu time.Duration) time.Duration {
	if cpu <= 0 {
		return wall
	}
	return min(wall, max(cpu/time.Duration(runtime.NumCPU()), minCPUCheckInterval))
}

// cause describes the end of the process, and its last output.
func (c *handlerProcess) cause() string {
	r := c.process.Result()
	s := fmt.Sprintf(" (exit status %d)", r.Code)
	if r.Signal != 0 {
		s = fmt.Sprintf(" (%s)", launch.SignalName(r.Signal))
	}
	if last := c.output.stderrTail(); last != "" {
		s += ": " + last
	}
	return s
}

// hook runs the source of a hook, which is before, beforeEach or afterEach.
func (c *handlerProcess) hook(ctx context.Context, name, source string, limit, cpu time.Duration) *runFault {
	if source == "" {
		return nil
	}
	c.forgetErrors()
	result, fault := c.step(ctx, c.interpreter.hook(c, source), limit, cpu)
	if fault != nil {
		if fault.code != "" {
			fault.text = name + ": " + fault.text
		}
		return fault
	}
	if status, data := c.interpreter.status(result.number); status != 200 {
		if len(result.data) > 0 {
			data = string(result.data)
		}
		return &runFault{code: codeBeforeFailed, text: name + ": " + data}
	}
	return nil
}

// run runs a job, whose frame task has returned. After a fault the process cannot be used
// again. A fault without a code means that ctx has ended.
func (c *handlerProcess) run(ctx context.Context, b Batch, j Job, frame []byte) (o job.Outcome, fault *runFault) {
	start := time.Now()
	c.forgetErrors()
	result, fault := c.step(ctx, frame, c.runner.timeout(b.Handler), c.runner.cpu(b.Handler))
	c.jobs++
	if fault != nil {
		o = fault.outcome()
	} else {
		o = c.outcome(&result)
	}
	o.Wall = time.Since(start)
	if code, _ := job.CodeOf(o.Status); code != job.CodeOK || j.Tries > 1 {
		o.Stderr = c.errors()
	}
	return o, fault
}

// forgetErrors drops what earlier steps have printed to standard error. It is not called before the
// hello: the prints of a process at its start may explain why the process does not answer the
// hello.
func (c *handlerProcess) forgetErrors() {
	c.process.Flush()
	c.output.forget()
}

// errors returns the end of the step's output to standard error. It first reads the rest of the
// pipe.
func (c *handlerProcess) errors() []byte {
	c.process.Flush()
	return c.output.errors()
}

func (c *handlerProcess) outcome(result *stepResult) job.Outcome {
	status, data := c.interpreter.status(result.number)
	o := job.Outcome{Status: status, Data: result.data, Lines: result.lines, BadLines: result.badLines}
	if len(o.Data) == 0 {
		o.Data = []byte(data)
	}
	if result.statusLine != nil {
		o.Status, o.Data = result.statusLine.status, result.statusLine.data
	}
	return o
}

// runInProcess runs a batch in a process.
func (r *Runner) runInProcess(ctx context.Context, b Batch, to Reporter) error {
	process, fault := r.pool.acquire(ctx, processKeyOf(b.Client, b.Handler))
	if fault != nil {
		if fault.code != "" && b.mayBegin(ctx) {
			b.failAll(fault.outcome(), to)
		}
		return fault.host
	}
	defer r.pool.release(process)
	if !b.mayBegin(ctx) { // the wait for the process may have been long
		return nil
	}
	handler := b.Handler
	timeout, cpu := r.timeout(handler), r.cpu(handler)
	if !process.beforesRun[handler.Before] {
		if fault = process.hook(ctx, "before", handler.Before, r.options.StartTimeout, 0); fault != nil {
			process.unusable = true
		} else {
			process.beforesRun[handler.Before] = true
		}
	}
	if fault == nil {
		fault = process.hook(ctx, "beforeEach", handler.BeforeEach, timeout, cpu)
	}
	if fault != nil {
		if fault.code != "" && b.mayBegin(ctx) { // without locks, the guard has killed the process
			fault.code = codeBeforeFailed
			o := fault.outcome()
			o.Stderr = process.errors()
			b.failAll(o, to)
		}
		return nil
	}
	for i, j := range b.Jobs {
		if !b.mayBegin(ctx) {
			break
		}
		frame, err := process.interpreter.task(process, b, j)
		var o job.Outcome
		if err != nil {
			process.unusable = true
			fault = faultOf(codeContextFailed, err)
			o = fault.outcome()
		}
		if fault == nil || fault.code != "" {
			to.Started(i)
		}
		if fault == nil {
			o, fault = process.run(ctx, b, j, frame)
		}
		if fault != nil && fault.code == "" {
			return fault.host
		}
		if fault != nil {
			process.kill() // the process ends before the job is reported, because the job may then run again
		}
		to.Ended(i, o)
		if process.unusable {
			return nil
		}
	}
	if fault := process.hook(ctx, "afterEach", handler.AfterEach, timeout, cpu); fault != nil && fault.code != "" {
		process.output.log.Warn().Str("type", b.Type).Str("reason", fault.text).Msg("afterEach failed")
	}
	return nil
}

// kill kills the process and all others that it has started. It may be called more than once.
func (c *handlerProcess) kill() {
	c.unusable = true
	if c.isCleared {
		return
	}
	if c.process != nil {
		ctx, cancel := context.WithTimeout(context.Background(), killTimeout)
		defer cancel()
		c.process.Kill(ctx)
	}
	c.clear()
}

// finish closes a process's input, so that the process ends by itself, and kills it
// if it does not.
func (c *handlerProcess) finish() {
	if !c.unusable {
		c.stdin.Close()
		select {
		case <-c.process.Ended():
		case <-time.After(endTimeout):
		}
	}
	c.kill()
}

// clear closes and removes the files of a process.
func (c *handlerProcess) clear() {
	c.isCleared = true
	for _, f := range []*os.File{c.stdin, c.payloadFile} {
		if f != nil {
			f.Close()
		}
	}
	if err := os.RemoveAll(c.dir); err != nil {
		c.output.log.Warn().Err(err).Msg("a context's directory could not be removed")
	}
}
