package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/schollz/progressbar/v3"

	gloom "gloom/clients/go"
	"gloom/cmd/internal/cli"
)

// outcomePrinter prints the outcomes of a stream: answers on stdout, failures on stderr, and a
// progress bar there if it is a terminal.
type outcomePrinter struct {
	*submitCommand
	startedAt      time.Time
	total          int  // lines, -1 where that is not known
	onTerminal     bool // stderr is a terminal
	sharesTerminal bool // stdout is the same terminal, so the bar must make way

	mu    sync.Mutex // guards the following
	out   *bufio.Writer
	bar   *progressbar.ProgressBar
	ended int // how many jobs have ended

	unwritten int // the first line whose outcome is still in out, or an earlier one; 0 if none is
}

// drawInterval is the time between two drawings of the bar. Answers that go to the same terminal are
// printed at the same moments.
const drawInterval = 100 * time.Millisecond

func newOutcomePrinter(s *submitCommand, count func() int) *outcomePrinter {
	v := &outcomePrinter{submitCommand: s, out: bufio.NewWriterSize(s.stdout, 64<<10), onTerminal: cli.IsTerminal(s.stderr)}
	v.sharesTerminal = v.onTerminal && cli.IsTerminal(s.stdout)
	if v.onTerminal && !s.quiet {
		v.total = count()
		v.bar = newBar(s, v.total)
	}
	return v
}

func newBar(s *submitCommand, total int) *progressbar.ProgressBar {
	return progressbar.NewOptions(total,
		progressbar.OptionSetWriter(s.stderr),
		progressbar.OptionSetDescription(cmp.Or(s.job.Type, "attach")),
		progressbar.OptionFullWidth(),
		progressbar.OptionShowCount(),
		progressbar.OptionShowIts(),
		progressbar.OptionSetItsString("jobs"),
		progressbar.OptionSetPredictTime(total > 0),
		progressbar.OptionSetElapsedTime(true),
		progressbar.OptionUseANSICodes(true),
		progressbar.OptionSpinnerType(14),
		progressbar.OptionSetSpinnerChangeInterval(0), // otherwise the library would draw at times of its own
		progressbar.OptionSetTheme(progressbar.Theme{
			Saucer: "█", SaucerPadding: "░", BarStart: "", BarEnd: "",
		}),
	)
}

// countLines counts the lines of a file; it returns -1 for one that can be read only once.
func countLines(f *os.File) int {
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return -1
	}
	at, err := f.Seek(0, io.SeekCurrent)
	if err != nil {
		return -1
	}
	defer f.Seek(at, io.SeekStart)
	n, last := 0, byte('\n')
	for buf := make([]byte, 256<<10); ; {
		k, err := f.Read(buf)
		n += bytes.Count(buf[:k], []byte("\n"))
		if k > 0 {
			last = buf[k-1]
		}
		if err != nil {
			break
		}
	}
	if last != '\n' {
		n++
	}
	if n == 0 {
		return -1
	}
	return n
}

func (v *outcomePrinter) start() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.startedAt = time.Now()
	v.draw()
}

// draw draws the progress so far; finish draws the end.
func (v *outcomePrinter) draw() {
	if v.bar == nil {
		return
	}
	n := v.ended
	if v.total > 0 {
		n = min(n, v.total-1)
	}
	_ = v.bar.Set(n)
}

// startTicker returns a ticker's channel: the printing goroutine must call flush at each tick. That
// goroutine also calls flush when it is idle.
func (v *outcomePrinter) startTicker() (c <-chan time.Time, stop func()) {
	if v.bar == nil {
		return nil, func() {}
	}
	t := time.NewTicker(drawInterval)
	return t.C, t.Stop
}

// printOutcome prints the n-th outcome, an answer or a failure.
func (v *outcomePrinter) printOutcome(o lineResult, n int) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.ended = n
	before := v.out.Buffered()
	err := v.print(o)
	switch now := v.out.Buffered(); {
	case err != nil:
	case now < before: // out was full: all that came before this line is written
		v.unwritten = o.number
	case now > before && (v.unwritten == 0 || o.number < v.unwritten):
		v.unwritten = o.number
	}
	return err
}

// write writes what is in out.
func (v *outcomePrinter) write() error {
	err := v.out.Flush()
	if err == nil {
		v.unwritten = 0
	}
	return err
}

func (v *outcomePrinter) print(o lineResult) error {
	switch {
	case v.records:
		return v.printRecord(o)
	case lostConnection(o.err): // reported with all the others at the end
		return nil
	case o.err != nil:
		v.clearBar()
		_, err := fmt.Fprintf(v.stderr, "gloom: %s\n", cli.CleanText(failureText(v.name(o.line), o.err)))
		return err
	}
	if v.number {
		v.out.WriteString(strconv.Itoa(o.number))
		v.out.WriteByte('\t')
	}
	switch {
	case v.job.Detach:
		v.out.WriteString(o.ID)
	case v.asJSON:
		v.out.Write(oneLine(o.Body))
	default:
		answer, _ := fromBody(o.Body, v.answerForm())
		v.out.Write(answer)
	}
	return v.out.WriteByte('\n')
}

// printRecord prints a line's outcome as JSON, for programs.
func (v *outcomePrinter) printRecord(o lineResult) error {
	code, reason, id := errorParts(o.err)
	if o.err == nil {
		id = o.Result.ID
	} else if id == "" {
		id = o.id
	}
	fmt.Fprintf(v.out, `{"line":%d`, o.number)
	if id != "" {
		fmt.Fprintf(v.out, `,"id":%s`, quote(id))
	}
	switch {
	case o.err != nil:
		fmt.Fprintf(v.out, `,"error":%s,"reason":%s`, quote(code), quote(reason))
	case !v.job.Detach:
		fmt.Fprintf(v.out, `,"body":%s`, oneLine(o.Body))
	}
	_, err := v.out.WriteString("}\n")
	return err
}

// errorParts returns the code, the reason and the id that a job's error has.
func errorParts(err error) (code, reason, id string) {
	var refused *gloom.RefusedError
	var ended *gloom.JobError
	var lost *gloom.LostError
	switch {
	case err == nil:
		return "", "", ""
	case errors.As(err, &lost):
		reason = "the connection was lost before the broker accepted the job"
		if lost.Acked {
			reason = "the connection was lost while the job was queued or running"
		} else if lost.Sent {
			reason = "the connection was lost; it is not known whether the broker accepted the job"
		}
		if errors.As(lost.Cause, &refused) { // of the attach
			reason += ", and its outcome cannot be read: " + refused.Reason
		}
		return "connection_lost", reason, lost.ID
	case errors.As(err, &refused):
		return string(refused.Code), refused.Reason, refused.ID
	case errors.As(err, &ended):
		return string(ended.Code), ended.Reason, ended.ID
	}
	return "invalid_line", err.Error(), ""
}

// failureText returns the text of the failure of a job with this name.
func failureText(name string, err error) string {
	code, reason, _ := errorParts(err)
	if code == "invalid_line" {
		return name + ": " + reason
	}
	return errorText(gloom.Code(code), reason, name)
}

// clearBar removes the bar from the terminal until it is drawn again.
func (v *outcomePrinter) clearBar() {
	if v.bar != nil {
		_ = v.bar.Clear()
	}
}

// flushIdle flushes the answers, unless the bar would have to be cleared for each of them.
func (v *outcomePrinter) flushIdle() error {
	if v.bar != nil && v.sharesTerminal {
		return nil
	}
	return v.write()
}

// flush flushes the answers and draws the bar.
func (v *outcomePrinter) flush() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.sharesTerminal && v.out.Buffered() > 0 {
		v.clearBar()
	}
	err := v.write()
	v.draw()
	return err
}

// note prints a message for the user.
func (v *outcomePrinter) note(format string, args ...any) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.clearBar()
	v.tool.note(format, args...)
}

// finish ends the progress bar. It prints a summary if stderr is a terminal and quiet is not set,
// or if a job or the command failed. outputErr is the error of a write to the output, if any.
func (v *outcomePrinter) finish(counts outcomeCounts, outstanding int, cause, outputErr error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch {
	case v.bar == nil:
	case cause == nil && v.total > 0:
		_ = v.bar.Finish()
		fmt.Fprintln(v.stderr)
	default:
		v.clearBar()
	}
	cut := outputErr != nil && v.job.Keep > 0 // the broker has the rest
	if !(v.onTerminal && !v.quiet) && counts.failed == 0 && cause == nil && !cut {
		return
	}
	elapsed := time.Since(v.startedAt)
	jobs := counts.answered + counts.failed
	s := fmt.Sprintf("%s in %v", cli.Plural(jobs, "job"), elapsed.Round(time.Millisecond))
	if sec := elapsed.Seconds(); jobs > 1 && sec > 0 {
		s += fmt.Sprintf(", %s a second", humanize.CommafWithDigits(float64(jobs)/sec, 0))
	}
	if counts.failed > 0 {
		s += fmt.Sprintf("; %s failed", humanize.Comma(int64(counts.failed)))
	}
	var stop *cli.Fault
	if (cut || errors.As(cause, &stop) && stop.Code >= cli.ExitInterrupted) && outstanding > 0 && !v.job.Detach {
		ending := "cancelled"
		switch {
		case v.job.Keep > 0 && outstanding == 1:
			ending = "continues (kept)"
		case v.job.Keep > 0:
			ending = "continue (kept)"
		}
		s += fmt.Sprintf("; %s %s", humanize.Comma(int64(outstanding)), ending)
	}
	v.tool.note("%s", s)
}

// reconnectReporter reports when a stream loses its connection, and ends the stream if the
// connection does not come back.
type reconnectReporter struct {
	*submitCommand
	printer  *outcomePrinter
	giveUp   context.CancelCauseFunc
	maxFrame *atomic.Int64 // gets the limit of each broker that is connected to

	mu       sync.Mutex // guards the following
	timer    *time.Timer
	reported bool // the lost connection has been reported
	stopped  bool
}

// onJobLost reports a lost connection when the first of its jobs fails: when the last one fails, the
// command may end before it has reported anything. A kept job whose outcome cannot be read fails
// when the connection is back.
func (r *reconnectReporter) onJobLost(err *gloom.LostError) {
	if refused := (*gloom.RefusedError)(nil); errors.As(err.Cause, &refused) || errors.Is(err.Cause, gloom.ErrClosed) {
		return // ErrClosed: we have ended the connection
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.report(err.Addr, err)
}

func (r *reconnectReporter) report(addr string, err error) {
	if !r.reported {
		r.reported = true
		r.notef("connection to %s lost: %s; trying again", addr, connectionCause(err))
	}
}

func (r *reconnectReporter) notice(n gloom.Notice) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopped {
		return
	}
	switch n.Event {
	case gloom.EventConnected:
		r.maxFrame.Store(int64(n.MaxFrame))
		r.reported = false
		if r.timer != nil {
			r.timer.Stop()
			r.timer = nil
			r.notef("connected again, to %s", n.Addr)
		}
	case gloom.EventLost:
		r.report(n.Addr, n.Err)
		reason := connectionCause(n.Err)
		if r.timer == nil {
			r.timer = time.AfterFunc(r.reconnect, func() {
				r.giveUp(cli.Failf(exitUnreachable, "connection to %s lost and not back after %v: %s", n.Addr, r.reconnect, reason).
					SetHint("--reconnect sets how long to try"))
			})
		}
	}
}

func (r *reconnectReporter) notef(format string, args ...any) {
	if !r.quiet {
		r.printer.note(format, args...)
	}
}

func (r *reconnectReporter) stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopped = true
	if r.timer != nil {
		r.timer.Stop()
	}
}
