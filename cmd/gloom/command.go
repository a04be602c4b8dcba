package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	gloom "gloom/clients/go"
	"gloom/cmd/internal/launch"
)

// killDelay is the time between the signal to stop a command and the signal that kills it.
const killDelay = 5 * time.Second

// endDelay is how long the end of a command may go unnoticed.
const endDelay = 100 * time.Millisecond

// maxStderr limits the bytes that are kept from the end of stderr. maxReportedStderr limits the
// kept bytes that go into a reason.
const (
	maxStderr         = 64 << 10
	maxReportedStderr = 1000
)

// command runs one program for each job.
type command struct {
	args           []string // {id} and {type} are replaced
	unsafeTemplate bool     // placeholders are replaced even if the value begins with a hyphen

	timeout    time.Duration // 0: none
	input      string        // the form in which the command reads the body
	output     string        // the form in which the command writes the answer
	maxOutput  int64
	final      statuses      // exit statuses that end the job without a retry
	retryDelay time.Duration // negative: the job's own backoff
	progress   bool          // read progress from descriptor 3
	guard      *launch.Guard // ends commands when this process ends: their jobs then run elsewhere
	stderr     io.Writer     // gets what commands write to stderr; may be nil

	kill    <-chan struct{} // when it is closed, commands are killed at once
	running sync.WaitGroup
}

// These errors are the reasons why a command is stopped, besides those that the job's context has.
var (
	errTimeout  = errors.New("timeout")
	errOverflow = errors.New("overflow")
	errStopped  = errors.New("gloom work itself was stopped for a while")
)

// errGivenBack is in the error of a run whose job is given back.
var errGivenBack = gloom.Release(0)

// runFailure returns the error for a failed run whose job may be retried.
func (c *command) runFailure(err error) error {
	if c.retryDelay < 0 {
		return err
	}
	return gloom.RetryAfter(err, c.retryDelay)
}

// handle is the handler of a worker.
func (c *command) handle(ctx context.Context, job *gloom.Job) (any, error) {
	c.running.Add(1)
	defer c.running.Done()
	if strings.Contains(job.ID+job.Type, "\x00") {
		return nil, gloom.Fatal(errors.New("the job's id or type has a zero byte, which cannot be passed to a command"))
	}
	input, err := fromBody(job.Body, c.input)
	if err != nil {
		return nil, gloom.Fatal(fmt.Errorf("its body %w", err))
	}
	stdout := &limitedBuffer{limit: c.maxOutput, overflow: make(chan struct{})}
	stderr := &tailBuffer{limit: maxStderr, tee: c.stderr}
	start := launch.Command{
		Env:   append(commandEnv(), "GLOOM_JOB_ID="+job.ID, "GLOOM_JOB_TYPE="+job.Type),
		Stdin: input, Stdout: stdout, Stderr: stderr,
		Linger: killDelay, Guard: c.guard, DeathSignal: syscall.SIGTERM,
		Args: c.args[:1:1],
	}
	if job.Headers != nil {
		start.Env = append(start.Env, "GLOOM_JOB_HEADERS="+string(job.Headers))
	}
	placeholders := strings.NewReplacer("{id}", job.ID, "{type}", job.Type)
	for _, a := range c.args[1:] {
		if v := placeholders.Replace(a); v != a && v[0] == '-' && !c.unsafeTemplate {
			placeholder := strings.Trim(a, "{}")
			return nil, gloom.Fatal(fmt.Errorf(`its %s %.64q begins with "-", so the command could take it for an option; $GLOOM_JOB_%s also has it`, placeholder, v, strings.ToUpper(placeholder)))
		}
		start.Args = append(start.Args, placeholders.Replace(a))
	}
	if c.progress {
		pipe, err := newProgressPipe(job)
		if err != nil {
			return nil, c.startFailure(ctx, err)
		}
		defer pipe.close()
		start.Files = []*os.File{pipe.w}
		start.Env = append(start.Env, "GLOOM_PROGRESS_FD=3")
	}
	lapses := c.guard.Lapses()
	p, err := launch.Start(start)
	for _, f := range start.Files {
		f.Close()
	}
	if err != nil {
		return nil, c.startFailure(ctx, err)
	}
	reason := c.waitOrStop(ctx, p, stdout.overflow)
	if reason == nil && p.Result().Signal == syscall.SIGKILL && c.guard.LapsedSince(lapses) {
		reason = errStopped
	}
	return c.outcome(reason, p.Result(), stdout, stderr)
}

// commandEnv returns our environment without our own variables: tokens, keys, addresses.
func commandEnv() []string {
	return slices.DeleteFunc(os.Environ(), func(s string) bool { return strings.HasPrefix(s, "GLOOM_") })
}

// startFailure returns the error for a command that could not start. That is the fault of this
// machine, not of the job, so the slot pauses: otherwise it would use up the retries of a whole
// queue. If this machine temporarily lacks descriptors, processes or memory, the job is given back.
func (c *command) startFailure(ctx context.Context, err error) error {
	t := time.NewTimer(time.Second)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
	failed := fmt.Errorf("the command could not be started: %v", err)
	if launch.IsTemporary(err) {
		return fmt.Errorf("%w: %w", failed, errGivenBack)
	}
	return c.runFailure(failed)
}

// waitOrStop waits until a command has ended. It stops a command when the command's time is over,
// when nobody waits for its result any more, or when its output is too large.
func (c *command) waitOrStop(ctx context.Context, p *launch.Process, overflow <-chan struct{}) (reason error) {
	var limit <-chan time.Time
	if c.timeout > 0 {
		t := time.NewTimer(c.timeout)
		defer t.Stop()
		limit = t.C
	}
	select {
	case <-p.Ended():
		return nil
	case <-limit:
		reason = errTimeout
	case <-overflow:
		reason = errOverflow
	case <-ctx.Done():
		reason = context.Cause(ctx)
	}
	select {
	case <-p.Ended(): // the other event came with its end, as after a stop of this process
		return nil
	case <-time.After(endDelay):
	}
	p.KillRest()
	p.SignalGroup(syscall.SIGTERM)
	t := time.NewTimer(killDelay)
	defer t.Stop()
	select {
	case <-p.Ended():
		return reason
	case <-t.C:
	case <-c.kill:
	}
	p.SignalGroup(syscall.SIGKILL)
	<-p.Ended()
	return reason
}

// outcome returns the answer or the error of a command that has ended.
func (c *command) outcome(cause error, end launch.Result, stdout *limitedBuffer, stderr *tailBuffer) (any, error) {
	reason, final := "", false
	switch {
	case cause == errTimeout:
		reason = fmt.Sprintf("timeout after %v", c.timeout)
	case cause == errOverflow || stdout.overflowed():
		reason, final = fmt.Sprintf("its output is larger than %d bytes (--max-output)", c.maxOutput), true
	case cause != nil:
		reason = "stopped: " + plainText(cause)
	case end.Err != nil:
		reason = "cannot tell how it ended: " + end.Err.Error()
	case end.Signal != 0:
		reason = "signal: " + end.Signal.String()
	case end.Code != 0:
		reason, final = fmt.Sprintf("exit status %d", end.Code), c.final.contains(end.Code)
	case end.OutputHeld:
		reason = fmt.Sprintf("the command has exited, but processes that it started kept its output open for %v", killDelay)
	default:
		body, err := toBody(stdout.buf.Bytes(), c.output)
		if err == nil {
			return body, nil
		}
		reason, final = "its output "+err.Error(), true
	}
	if text := stderr.text(); text != "" {
		reason += ": " + text
	}
	err := errors.New(reason)
	if final {
		return nil, gloom.Fatal(err)
	}
	return nil, c.runFailure(err)
}

// limitedBuffer keeps what is written to it, up to limit bytes.
type limitedBuffer struct {
	limit    int64
	buf      bytes.Buffer
	overflow chan struct{} // closed when more was written
}

func (b *limitedBuffer) Write(p []byte) (int, error) {
	if int64(b.buf.Len()+len(p)) > b.limit {
		if !b.overflowed() {
			close(b.overflow)
		}
		return 0, errOverflow
	}
	return b.buf.Write(p)
}

func (b *limitedBuffer) overflowed() bool {
	select {
	case <-b.overflow:
		return true
	default:
		return false
	}
}

// tailBuffer keeps at least the last limit bytes that are written to it, and passes all bytes on to
// tee, which may be nil.
type tailBuffer struct {
	limit     int
	buf       []byte
	truncated bool
	tee       io.Writer
}

func (b *tailBuffer) Write(p []byte) (int, error) {
	if b.tee != nil {
		_, _ = b.tee.Write(p)
	}
	b.buf = append(b.buf, p...)
	if n := len(b.buf) - b.limit; n > b.limit {
		b.buf = append(b.buf[:0], b.buf[n:]...)
		b.truncated = true
	}
	return len(p), nil
}

// text returns the last maxReportedStderr bytes, in whole lines if possible.
func (b *tailBuffer) text() string {
	s := bytes.TrimSpace(b.buf)
	truncated := b.truncated
	if n := len(s) - maxReportedStderr; n > 0 {
		s, truncated = s[n:], true
		if i := bytes.IndexByte(s, '\n'); i >= 0 && i < len(s)/2 {
			s = s[i+1:]
		}
	}
	out := strings.ToValidUTF8(string(s), "�")
	if truncated {
		out = "… " + out
	}
	return out
}
