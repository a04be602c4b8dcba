package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/goccy/go-json"
	"github.com/spf13/cobra"

	gloom "gloom/clients/go"
)

const submitLong = `Hand in a job of TYPE, wait for it, and print its answer.

BODY is sent as JSON if it is JSON, else as a string; --text and --json settle
it. - reads it from standard input; without BODY it is null. An answer that is a
string is printed as its text, anything else as JSON; --json prints JSON always.

With --lines FILE (- is standard input) every line is a job: a string, or with
--json a JSON value, blank lines left out. Up to --window jobs are outstanding
at a time. Answers are printed as they come, or with --ordered in the order of
the lines. Failures go to standard error with their line number, and the exit
status is 1 if there were any. On a terminal a bar shows how far it is, and how
long it may take. --number puts the line number and a tab before each answer;
--records prints JSON records instead, failures too:
    {"line":3,"id":"…","body":…}   {"line":4,"id":"…","error":"…","reason":"…"}

A job that the broker refuses as overloaded is handed in again a little later.
When the connection is lost, what was outstanding has failed, or with --resubmit
is handed in again, so that it may run twice. Ctrl-C cancels what is left.`

const submitExample = `  gloom submit shout 'hello, world'
  gloom submit resize '{"file":"a.png","width":200}' --timeout 30s --retries 1
  find . -name '*.jpg' | gloom submit thumbnail --lines - --ordered
  gloom submit mail --lines mails.jsonl --json --records >answers.jsonl
  gloom submit report '"weekly"' --detach --delay 1h --id weekly`

func newSubmit(t *tool) *cobra.Command {
	s := &submit{tool: t, job: gloom.Job{}}
	cmd := &cobra.Command{
		Use:     "submit TYPE [BODY | - | --lines FILE]",
		Short:   "Hand in jobs and print their answers",
		Long:    submitLong,
		Example: submitExample,
		RunE:    func(cmd *cobra.Command, args []string) error { return s.run(cmd, args) },

		ValidArgsFunction: t.completeType,

		DisableFlagsInUseLine: true,
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.BoolVar(&s.asJSON, "json", false, "bodies are JSON, and answers are printed as JSON")
	f.BoolVar(&s.asText, "text", false, "bodies are strings, whatever they look like")
	f.StringVar(&s.lines, "lines", "", "a job for each line of this file; - is standard input")
	f.BoolVar(&s.ordered, "ordered", false, "print answers in the order of the lines")
	f.BoolVarP(&s.number, "number", "n", false, "put the line number before each answer")
	f.BoolVar(&s.records, "records", false, "print a JSON record for each line")
	f.IntVar(&s.window, "window", gloom.DefaultWindow, "jobs outstanding at a time")
	f.BoolVar(&s.resubmit, "resubmit", false, "hand in again what was outstanding when the connection was lost")
	f.DurationVar(&s.reconnect, "reconnect", 30*time.Second, "give up when a lost connection is not back after this time")
	f.BoolVarP(&s.quiet, "quiet", "q", false, "show no bar, say nothing about connections")
	f.Int64Var(&s.job.Priority, "priority", 0, "larger numbers run first")
	f.DurationVar(&s.job.Delay, "delay", 0, "do not run it before")
	f.DurationVar(&s.job.Timeout, "timeout", 0, "a run that takes longer has failed")
	f.IntVar(&s.retries, "retries", 0, "runs after the first one (default: the broker's, 3 unless set otherwise)")
	f.DurationVar(&s.job.Backoff, "backoff", 0, "wait before the first retry, doubled for each further one")
	f.DurationVar(&s.job.Expires, "expires", 0, "a job that has not started by then has expired")
	f.StringVar(&s.job.ID, "id", "", "the job's id, unique while it has not ended; {line} is the line's number")
	f.BoolVar(&s.job.Detach, "detach", false, "print the id and leave: the job outlives us, its answer is not told")
	f.BoolVar(&s.progress, "progress", false, "print the worker's progress on standard error")
	return cmd
}

// submit is the command that hands in jobs.
type submit struct {
	*tool
	job       gloom.Job // what all jobs have in common
	retries   int
	progress  bool
	asJSON    bool
	asText    bool
	lines     string
	ordered   bool
	number    bool
	records   bool
	window    int
	resubmit  bool
	reconnect time.Duration
	quiet     bool
}

// maxBody bounds bodies in bytes: brokers refuse larger frames anyway.
const maxBody = 1 << 30

func (s *submit) check(cmd *cobra.Command, args []string) error {
	streaming := cmd.Flags().Changed("lines")
	switch {
	case len(args) == 0:
		return usage("submit needs a type").advise("gloom submit TYPE BODY")
	case len(args) > 2:
		return usage("expected a type and a body, got %d arguments", len(args)).advise("quote a body that has blanks")
	case streaming && len(args) > 1:
		return usage("a body and --lines exclude each other")
	case streaming && s.lines == "":
		return usage("--lines needs a file, or - for standard input")
	case s.asJSON && s.asText:
		return usage("--json and --text exclude each other")
	case s.number && s.records:
		return usage("--number and --records exclude each other")
	case s.window < 1 || s.window > 1_000_000:
		return usage("--window %d: must be 1 … 1000000", s.window)
	case s.reconnect < 0:
		return usage("--reconnect %v: must not be negative", s.reconnect)
	case streaming && s.job.ID != "" && !strings.Contains(s.job.ID, "{line}"):
		return usage("--id %q: with --lines it needs {line}, so that ids differ", s.job.ID)
	case cmd.Flags().Changed("retries") && (s.retries < 0 || s.retries > 1000):
		return usage("--retries %d: must be 0 … 1000", s.retries)
	}
	if !streaming {
		for _, name := range []string{"ordered", "number", "records", "resubmit"} {
			if cmd.Flags().Changed(name) {
				return usage("--%s goes with --lines", name)
			}
		}
	}
	if s.link.compat {
		for _, name := range []string{"delay", "timeout", "retries", "backoff", "expires", "detach", "progress"} {
			if cmd.Flags().Changed(name) {
				return usage("--%s and --compat exclude each other: the original protocol does not know it", name)
			}
		}
	}
	return nil
}

func (s *submit) run(cmd *cobra.Command, args []string) error {
	if err := s.check(cmd, args); err != nil {
		return err
	}
	s.job.Type = args[0]
	if cmd.Flags().Changed("retries") {
		s.job.Retries = s.retries
		if s.retries == 0 {
			s.job.Retries = gloom.NoRetries
		}
	}
	ctx, stop := untilSignal(context.Background())
	defer stop()
	if s.lines != "" {
		return s.stream(ctx)
	}
	return s.one(ctx, args[1:])
}

// untilSignal is a context that SIGINT and SIGTERM end, with the cause.
func untilSignal(parent context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(parent)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	go func() {
		select {
		case sig := <-signals:
			signal.Stop(signals) // the next one kills
			cancel(&interrupted{sig})
		case <-ctx.Done():
		}
	}()
	return ctx, func() { signal.Stop(signals); cancel(nil) }
}

// dial connects to a broker; there is one attempt for each address.
func (s *submit) dial(ctx context.Context, more ...gloom.Option) (*gloom.Submitter, error) {
	opts, err := s.link.options(s.link.submit, clientName("submit"))
	if err != nil {
		return nil, err
	}
	jobs, err := gloom.Dial(ctx, append(opts, more...)...)
	if ctx.Err() != nil {
		return jobs, context.Cause(ctx)
	}
	return jobs, noBroker(s.link.submit, "submit-addr", err)
}

// form is how text becomes a body.
func (s *submit) form() string {
	switch {
	case s.asJSON:
		return formJSON
	case s.asText || s.lines != "":
		return formText
	}
	return formAuto
}

// one hands in a single job.
func (s *submit) one(ctx context.Context, args []string) error {
	body := json.RawMessage("null")
	if len(args) > 0 {
		data, what := []byte(args[0]), "body"
		var err error
		if args[0] == "-" {
			what = "standard input"
			if data, err = io.ReadAll(io.LimitReader(os.Stdin, maxBody+1)); err != nil {
				return fmt.Errorf("reading standard input: %w", err)
			} else if len(data) > maxBody {
				return usage("standard input has more than %d bytes", maxBody)
			}
		}
		if body, err = toBody(data, s.form()); err != nil {
			return usage("%s %w", what, err)
		}
	}
	jobs, err := s.dial(ctx)
	if err != nil {
		return err
	}
	defer jobs.Close()
	job := s.job
	job.Body = body
	if s.progress {
		job.OnProgress = func(body json.RawMessage) { s.note("progress: %s", bodyText(body)) }
	}
	p, err := jobs.Submit(ctx, job)
	if err != nil {
		return err
	}
	r, err := p.Result(ctx)
	switch {
	case ctx.Err() != nil: // closing cancels it
		return context.Cause(ctx)
	case err != nil:
		return err
	case job.Detach:
		_, err = fmt.Fprintln(s.out, r.ID)
	case s.asJSON:
		_, err = fmt.Fprintf(s.out, "%s\n", r.Body)
	default:
		_, err = fmt.Fprintf(s.out, "%s\n", bodyText(r.Body))
	}
	return outputError(err)
}

// outputError is a failure to write what was asked for.
func outputError(err error) error {
	if err == nil || errors.Is(err, syscall.EPIPE) {
		return err
	}
	return fmt.Errorf("writing the output: %w", err)
}
