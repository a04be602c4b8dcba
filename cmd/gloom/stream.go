package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goccy/go-json"

	gloom "gloom/clients/go"
	"gloom/cmd/internal/cli"
)

// maxHeldBack is the maximum number of windows of answers that --ordered holds back.
const maxHeldBack = 8

// refusalPause is the pause before the next submit after the broker refused a job for a temporary
// reason. An answer, which makes room, ends the pause early.
const refusalPause = 100 * time.Millisecond

// closeTimeout limits how long this process waits, after a signal, for outcomes that the broker has
// sent.
const closeTimeout = 2 * time.Second

// line is a job of the stream.
type line struct {
	index       int // counts lines that are jobs, from 0
	number      int // number of the line in its file, from 1
	id          string
	body        json.RawMessage
	resubmitted bool // it has been submitted before
	attach      bool // the job exists: attach to it
	ended       bool // the job existed, but no longer does
}

// lineResult is the result of a line.
type lineResult struct {
	line
	gloom.Result
	err error
}

// stream is one run of submit --lines or attach. One goroutine reads lines, one submits jobs or
// attaches to them, and the goroutine that runs the stream prints.
type stream struct {
	*submitCommand
	nextLine func(limit int) ([]byte, error) // the next line, or a *gloom.RefusedError if it is longer
	maxFrame atomic.Int64                    // the broker's limit, in bytes: a longer line cannot be a job
	jobs     *gloom.Submitter
	printer  *outcomePrinter
	fail     context.CancelCauseFunc
	onLost   func(*gloom.LostError)

	// unprinted holds an element for each line that is read and not printed. The other channels have
	// the same capacity, so that no send on them blocks.
	unprinted chan struct{}
	outcomes  chan lineResult
	retry     chan line // to submit again, before further lines

	lines chan line
	total chan int // gets the number of jobs at the end of the input

	refused atomic.Bool   // a job was refused since the last pause
	room    chan struct{} // has an element if an answer has arrived since that refusal

	openLines openLines

	leaving atomic.Bool // this process is ending the connection
	unended int         // number of kept jobs that had not ended when this process began to end the connection
}

// streamFile streams the lines of the file that a flag names, - for standard input.
func (s *submitCommand) streamFile(ctx context.Context, flag, name string) error {
	in := os.Stdin
	if name != "-" {
		f, err := await(ctx, func() (*os.File, error) { return os.Open(name) }) // a pipe may have no writer yet
		if ctx.Err() != nil {
			return context.Cause(ctx)
		} else if err != nil {
			return cli.Usagef("--%s: %w", flag, err)
		}
		defer f.Close()
		in = f
	}
	r := lineReader{in: bufio.NewReaderSize(in, 64<<10)}
	return s.stream(ctx, func() int { return countLines(in) }, r.next)
}

// stream streams lines; count returns their number, or -1 if it is not known.
func (s *submitCommand) stream(ctx context.Context, count func() int, next func(limit int) ([]byte, error)) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	st := &stream{submitCommand: s, fail: fail, nextLine: next, printer: newOutcomePrinter(s, count)}
	st.openLines.begin(max(1, s.firstLine))
	places := s.window
	if s.ordered {
		places *= maxHeldBack
	}
	st.unprinted, st.outcomes, st.retry = make(chan struct{}, places), make(chan lineResult, places), make(chan line, places)
	st.lines, st.total, st.room = make(chan line), make(chan int, 1), make(chan struct{}, 1)
	r := &reconnectReporter{submitCommand: s, printer: st.printer, giveUp: fail, maxFrame: &st.maxFrame}
	st.onLost = r.onJobLost
	defer r.stop()
	var err error
	if st.jobs, err = s.dial(ctx, gloom.Window(s.window), gloom.Notify(r.notice)); err != nil {
		return err
	}
	defer st.jobs.Close()
	return st.run(ctx)
}

func (st *stream) run(ctx context.Context) error {
	go st.read(ctx)
	go st.submitAll(ctx)
	st.printer.start()
	defer st.explainWait(ctx, "", st.printer.note)()
	counts, err := st.print(ctx)
	outstanding, unprinted := st.jobs.Outstanding()+st.unended, len(st.unprinted)
	if err == nil {
		err = st.printer.flush()
	}
	cause := context.Cause(ctx)
	st.printer.finish(counts, outstanding, cause, err)
	at := st.openLines.first()
	if u := st.printer.unwritten; err != nil && u > 0 && (at == 0 || u < at) {
		at = u
	}
	if st.resume && at > 0 {
		st.note("to continue%s: %s", st.inputHint(), st.resumeCommand(at))
	}
	switch {
	case err != nil:
		return outputError(err)
	case counts.lost > 0:
		return st.lossError(counts, cause)
	case cause != nil:
		var reason *cli.Fault
		if errors.As(cause, &reason) && reason.Code == exitUnreachable && unprinted > 0 {
			f := *reason // a copy, because other goroutines may be reading the cause
			f.Err = fmt.Errorf("%w; %s not answered", reason.Err, countVerb(unprinted, "job"))
			return &f
		}
		return cause
	case counts.failed > 0:
		return cli.SilentExit(cli.ExitFailed)
	}
	return nil
}

// countVerb returns a count and its verb: "1 job is", "2 jobs are".
func countVerb(n int, noun string) string {
	if n == 1 {
		return "1 " + noun + " is"
	}
	return cli.Plural(n, noun) + " are"
}

// lostConnection reports whether a job failed because the connection was lost, and not because its
// kept outcome could not be read.
func lostConnection(err error) bool {
	var lost *gloom.LostError
	var refused *gloom.RefusedError
	return errors.As(err, &lost) && !errors.As(lost.Cause, &refused)
}

// lossError returns the error of a stream that lost jobs with its connection.
func (st *stream) lossError(counts outcomeCounts, cause error) error {
	f := cli.Failf(exitUnreachable, "the connection was lost, and with it %s that had not ended, the first on line %d", cli.Plural(counts.lost, "job"), counts.firstLost)
	if cause != nil {
		f.Err = fmt.Errorf("%w; lost with the connection: %s that had not ended, the first on line %d", cause, cli.Plural(counts.lost, "job"), counts.firstLost)
		var reason *cli.Fault
		if errors.As(cause, &reason) && reason.Code != exitUnreachable {
			f.Code = reason.Code
		}
	}
	if st.attach {
		return f.SetHint("the broker keeps their outcomes: attach again")
	}
	return f.SetHint("--resubmit submits again the jobs that were lost with the connection; they may run twice")
}

// read reads lines and makes jobs of them.
func (st *stream) read(ctx context.Context) {
	seq := 0
	for number := 1; ; number++ {
		st.openLines.begin(max(number, st.firstLine)) // lines before st.firstLine are skipped
		data, err := st.nextLine(int(st.maxFrame.Load()))
		var tooLong *gloom.RefusedError
		if err == io.EOF {
			st.openLines.begin(0)
			st.total <- seq
			return
		}
		if err != nil && !errors.As(err, &tooLong) {
			st.fail(fmt.Errorf("reading line %d: %w", number, err))
			return
		}
		if number < st.firstLine || (st.asJSON || st.attach) && err == nil && len(bytes.TrimSpace(data)) == 0 {
			continue
		}
		l := line{index: seq, number: number, attach: st.attach}
		seq++
		select {
		case st.unprinted <- struct{}{}:
		case <-ctx.Done():
			return
		}
		st.openLines.add(number)
		if err == nil && st.attach {
			l.id = string(data)
		} else if err == nil || !st.attach && !st.idFromLine {
			l.id = st.idOf(number, data)
		}
		if err == nil && !st.attach {
			l.body, err = toBody(data, st.bodyForm())
		}
		if err != nil {
			st.outcomes <- lineResult{line: l, err: err}
			continue
		}
		select {
		case st.lines <- l:
		case <-ctx.Done():
			return
		}
	}
}

// submitAll submits jobs, or attaches to them. Those that must be submitted again come first.
func (st *stream) submitAll(ctx context.Context) {
	for {
		var l line
		select {
		case l = <-st.retry:
		default:
			select {
			case l = <-st.retry:
			case l = <-st.lines:
			case <-ctx.Done():
				return
			}
		}
		if st.refused.Swap(false) {
			select {
			case <-time.After(refusalPause):
			case <-st.room:
			case <-ctx.Done():
				return
			}
		}
		st.submitLine(ctx, l)
	}
}

func (st *stream) submitLine(ctx context.Context, l line) {
	job := st.job
	job.ID, job.Body = l.id, l.body
	if st.progress {
		job.OnProgress = func(body json.RawMessage) { st.printer.note("%s: progress: %s", st.name(l), bodyText(body)) }
	}
	done := func(r gloom.Result, err error) {
		if lost := (*gloom.LostError)(nil); errors.As(err, &lost) && !st.leaving.Load() {
			st.onLost(lost)
		}
		if refused, ok := err.(*gloom.RefusedError); ok && st.attach && refusalStatus(refused.Code) == exitDenied {
			st.fail(err) // all the others would be refused, too
		}
		if err == nil && !job.Detach {
			if _, formErr := fromBody(r.Body, st.answerForm()); formErr != nil {
				err = fmt.Errorf("the answer %w", formErr)
			}
		}
		st.outcomes <- lineResult{line: l, Result: r, err: err}
	}
	var err error
	if l.attach {
		err = st.jobs.AttachFunc(ctx, l.id, job.OnProgress, done)
	} else {
		err = st.jobs.SubmitFunc(ctx, job, done)
	}
	if refused, ok := err.(*gloom.RefusedError); ok { // it is about this job only
		st.outcomes <- lineResult{line: l, err: refused}
	} else if err != nil && ctx.Err() == nil {
		st.fail(err)
	}
}

// name returns the name of a line in messages.
func (s *submitCommand) name(l line) string {
	if s.attach {
		return jobName(l.id)
	}
	return "line " + strconv.Itoa(l.number)
}

// outcomeCounts counts outcomes.
type outcomeCounts struct {
	answered, failed int
	lost             int // failed jobs that were lost with the connection
	firstLost        int // the first line of a lost job
}

// print prints outcomes until there are no more, or the context ends.
func (st *stream) print(ctx context.Context) (counts outcomeCounts, err error) {
	heldResults := map[int]lineResult{} // outcomes that --ordered prints later
	next, done, total := 0, 0, -1
	settle := func(o lineResult) error {
		if st.tryResubmit(o) {
			return nil
		}
		heldResults[o.index] = o
		if !st.ordered {
			next = o.index
		}
		for {
			o, ok := heldResults[next]
			if !ok {
				return nil
			}
			delete(heldResults, next)
			next++
			done++
			if o.err == nil {
				select {
				case st.room <- struct{}{}:
				default:
				}
				counts.answered++
			} else {
				counts.failed++
				if lostConnection(o.err) {
					if counts.lost++; counts.lost == 1 || o.number < counts.firstLost {
						counts.firstLost = o.number
					}
				}
			}
			if err := st.printer.printOutcome(o, done); err != nil {
				return err
			}
			st.openLines.markPrinted(o.number, errors.Is(o.err, gloom.ErrLost))
			<-st.unprinted
		}
	}
	tick, stop := st.printer.startTicker()
	defer stop()
	for done != total {
		if len(st.outcomes) == 0 {
			if err := st.printer.flushIdle(); err != nil {
				return counts, err
			}
		}
		select {
		case <-tick:
			if err := st.printer.flush(); err != nil {
				return counts, err
			}
		case o := <-st.outcomes:
			if err := settle(o); err != nil {
				return counts, err
			}
		case total = <-st.total:
		case <-ctx.Done():
			for len(st.outcomes) > 0 { // outcomes that had arrived before the signal
				if err := settle(<-st.outcomes); err != nil {
					return counts, err
				}
			}
			if st.job.Keep > 0 {
				st.leaving.Store(true)
				closeSubmitter(ctx, st.jobs)
			}
			for len(st.outcomes) > 0 { // outcomes that closeSubmitter has read
				if o := <-st.outcomes; lostConnection(o.err) {
					st.unended++
				} else if err := settle(o); err != nil {
					return counts, err
				}
			}
			// Print answers that were held back, unless --resume prints them later.
			for _, seq := range slices.Sorted(maps.Keys(heldResults)) {
				if o, ok := heldResults[seq]; ok && !st.resume {
					next = seq
					if err := settle(o); err != nil {
						return counts, err
					}
				}
			}
			return counts, nil
		}
	}
	return counts, nil
}

// closeSubmitter waits for the outcomes that the broker has sent, because it no longer keeps them.
func closeSubmitter(ctx context.Context, jobs *gloom.Submitter) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	jobs.Leave(ctx)
}

// tryResubmit submits a line again if --resubmit or the error permits it, and reports whether it
// did.
func (st *stream) tryResubmit(o lineResult) bool {
	if st.switchMode(&o) {
		st.retry <- o.line
		return true
	}
	var refused *gloom.RefusedError
	overloaded := errors.As(o.err, &refused) && refused.Code == gloom.ErrOverloaded
	draining := errors.Is(o.err, gloom.ErrDraining)
	lost := errors.Is(o.err, gloom.ErrLost)
	// A run whose submitter was lost holds its id until it has ended.
	held := o.resubmitted && errors.Is(o.err, gloom.ErrIDExists)
	if !overloaded && !held && !(st.resubmit && (lost || draining)) {
		return false
	}
	o.line.resubmitted = o.line.resubmitted || lost
	if !lost {
		st.refused.Store(true)
		select {
		case <-st.room: // was made before
		default:
		}
	}
	st.retry <- o.line
	return true
}

// switchMode reports whether --resume must try a line in the other way, and sets that way in o:
// attach to a job that exists, or submit one that no longer does. It switches once for each line,
// because with an id that others use it would switch forever.
func (st *stream) switchMode(o *lineResult) bool {
	refused, ok := o.err.(*gloom.RefusedError)
	switch {
	case !ok || !st.resume || o.ended:
		return false
	case !o.attach && refused.Code == gloom.ErrIDExists:
		o.attach = true
	case o.attach && refused.Code == gloom.ErrUnknownID:
		o.attach, o.ended = false, true
	default:
		return false
	}
	return true
}

// lineReader reads lines.
type lineReader struct {
	in       *bufio.Reader
	skipping bool // the rest of a line that was too long comes next
}

// next returns a line without its end, which the last one may lack. It refuses a line that is
// longer than limit bytes as soon as it has read more: the line may have no end.
func (r *lineReader) next(limit int) ([]byte, error) {
	var data []byte
	for {
		part, err := r.in.ReadSlice('\n')
		switch {
		case err != nil && err != bufio.ErrBufferFull && err != io.EOF:
			return nil, err
		case r.skipping:
			r.skipping = err == bufio.ErrBufferFull
			if err == io.EOF {
				return nil, io.EOF
			}
			continue
		case len(data)+len(part) > limit:
			r.skipping = err == bufio.ErrBufferFull
			return nil, &gloom.RefusedError{Code: gloom.ErrSizeError,
				Reason: fmt.Sprintf("the line alone has more than the %d bytes that a frame may have", limit)}
		case err == bufio.ErrBufferFull:
			data = append(data, part...)
			continue
		case err == io.EOF && len(data)+len(part) == 0:
			return nil, io.EOF
		}
		return trimLineEnd(append(data, part...)), nil
	}
}

// openLines holds the numbers of the lines that are not yet printed.
type openLines struct {
	mu        sync.Mutex
	lines     map[int]struct{} // the lines that are outstanding
	current   int              // the line that is being read, 0 at the end
	firstLost int              // the first line that was lost with its connection, or 0
}

func (o *openLines) begin(number int) {
	o.mu.Lock()
	o.current = number
	o.mu.Unlock()
}

func (o *openLines) add(number int) {
	o.mu.Lock()
	if o.lines == nil {
		o.lines = map[int]struct{}{}
	}
	o.lines[number] = struct{}{}
	o.mu.Unlock()
}

func (o *openLines) markPrinted(number int, lost bool) {
	o.mu.Lock()
	delete(o.lines, number)
	if lost && (o.firstLost == 0 || number < o.firstLost) {
		o.firstLost = number
	}
	o.mu.Unlock()
}

// first returns the number of the first open or lost line, 0 if there is none.
func (o *openLines) first() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	first := cmp.Or(o.firstLost, math.MaxInt)
	if o.current > 0 {
		first = min(first, o.current)
	}
	for n := range o.lines {
		first = min(first, n)
	}
	if first == math.MaxInt {
		return 0
	}
	return first
}
