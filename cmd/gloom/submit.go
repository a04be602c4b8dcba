package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/goccy/go-json"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"gloom/broker/admin/api"
	"gloom/broker/admin/finding"
	gloom "gloom/clients/go"
	"gloom/cmd/internal/cli"
	"gloom/wire"
)

const submitLong = `Submit a job, wait for its answer, and print the answer.

    gloom submit TYPE BODY          submit one job; BODY - is standard input,
                                    and without BODY it is null
    gloom submit TYPE --lines FILE  submit a job for each line of a file
    --timeout 30s                   fail a run that takes longer
    --keep 1h                       keep the job if the connection is lost
    --detach                        print the id, and do not wait

A body that is valid JSON is sent as JSON, and any other text as a string. An
answer that is a string is printed as its text, and any other answer as JSON.
Ctrl-C cancels the jobs that have no answer yet, unless they are kept.`

const submitExample = `  gloom submit resize '{"file":"a.png","width":200}' --timeout 30s --retries 1
  gloom submit report weekly --detach --delay 1h --id weekly
  find . -name '*.jpg' | gloom submit thumbnail --lines - --ordered`

const bodiesTopic = `Bodies and answers:
A body that is valid JSON is sent as JSON, and any other text as a string.
--text sends every body as a string; --json accepts only JSON. Without BODY the
body is null (with --base64: no bytes). An answer that is a string is printed as
its text, and any other answer as JSON; --json prints every answer as JSON.
--base64 is for bytes that are not text: it sends them in base64, and decodes
the answer. The worker then needs gloom work --base64.

These send the same body:
    gloom submit shout 'hello, world'
    gloom submit shout '"hello, world"'
    gloom submit shout --text 'hello, world'`

const linesTopic = `Many jobs:
With --lines, each line of the file is the body of a job: a string or, with
--json, a JSON value. Only --json skips blank lines. At most --window jobs are
outstanding at a time. Answers are printed as they come; --ordered prints them
in the order of the lines. Failures are printed on standard error with their
line numbers, and the exit status is then 1. A terminal shows a progress bar.
--number puts the line number and a tab before each answer. --records prints a
JSON record for each line instead, also for a failure:
    {"line":3,"id":"…","body":…}   {"line":4,"id":"…","error":"…","reason":"…"}
A job that the broker refuses as overloaded is submitted again a little later.

Lost connections:
If the connection is lost, the outstanding jobs fail. With --keep the broker
continues them, and their answers are printed once the connection is back,
except for an answer that was lost on its way. --resubmit submits lost jobs
again, so they may run twice. Ctrl-C cancels the outstanding jobs unless they
are kept.

Resuming:
A run with --lines, --keep and --resume can be stopped and continued: it
attaches to jobs whose ids exist, and submits the others. A job's id is
--id-prefix and its line number. With --id-from-line it is --id-prefix and the
line itself (or its SHA-256, if that is too long); then all lines must differ.
No other jobs may have these ids. A run that stops early prints the command
line that continues it, in which --from skips the lines before the first one
without an answer. A later line whose answer was already printed may run again.

    gloom submit mail --lines mails.jsonl --json --records >answers.jsonl
    gloom submit mail --lines mails --json --keep 1h --resume --id-prefix may-`

func newSubmit(t *tool) *cobra.Command {
	s := &submitCommand{tool: t, job: gloom.Job{}}
	cmd := &cobra.Command{
		Use:     "submit TYPE [BODY | - | --lines FILE]",
		Short:   "Submit jobs and print their answers",
		Long:    submitLong,
		Example: submitExample,
		RunE:    func(cmd *cobra.Command, args []string) error { return s.run(cmd, args) },

		ValidArgsFunction: t.completeType,
	}
	cli.SetTopics(cmd,
		cli.Topic{Name: "bodies", Short: "Bodies and answers that are JSON, text or bytes", Text: bodiesTopic},
		cli.Topic{Name: "lines", Short: "Many jobs, lost connections and resuming", Text: linesTopic})
	cli.SetWordHint(cmd, "-p", "did you mean --priority?")
	cli.SetWordHint(cmd, "--wait", "gloom submit waits for the answer by itself; --detach does not wait")
	cli.SetWordHint(cmd, "--retry", "did you mean --retries?")
	cli.SetWordHint(cmd, "--file", "gloom submit TYPE - <FILE sends a file, --lines FILE a job for each of its lines")
	cli.SetWordHint(cmd, "--type", "the type is an argument: gloom submit TYPE BODY")
	f := cmd.Flags()
	f.Int64Var(&s.job.Priority, "priority", 0, "larger numbers run first")
	f.DurationVar(&s.job.Delay, "delay", 0, "do not run the job before this time has passed")
	f.DurationVar(&s.job.Expires, "expires", 0, "let the job expire if it has not started after this time")
	f.DurationVar(&s.job.Age, "age", 0, "order the job as if it had been submitted this long ago")
	f.DurationVar(&s.job.Timeout, "timeout", 0, "fail a run that takes longer")
	f.IntVar(&s.retries, "retries", 0, "runs after the first one (default: the broker's, 3 unless set otherwise)")
	f.DurationVar(&s.job.Backoff, "backoff", 0, "wait before the first retry, doubled for each further one (default 1s; 0: none)")
	f.StringVar(&s.job.ID, "id", "", "the job's id, which no other job that has not ended may have; {line} is the line's number")
	f.StringArrayVar(&s.job.Groups, "group", nil, "a `group` that the job belongs to, such as its tenant; may be given several times")
	f.StringArrayVar(&s.headers, "header", nil, "`KEY=VALUE` for the headers of the job; may be given several times")
	f.DurationVar(&s.job.Keep, "keep", 0, "keep the job if the connection is lost, and its outcome for this long after its end")
	f.BoolVar(&s.job.Detach, "detach", false, "print the id and do not wait: the job continues, and its answer is not printed")
	f.BoolVar(&s.asJSON, "json", false, "accept only bodies that are JSON, and print answers as JSON")
	f.BoolVar(&s.asText, "text", false, "send every body as a string")
	f.BoolVar(&s.base64, "base64", false, "send the bytes of the body in base64, and decode the answer")
	f.BoolVar(&s.progress, "progress", false, "print the worker's progress on standard error")
	f.StringVar(&s.linesFile, "lines", "", "submit a job for each line of this `file`; - is standard input")
	s.streamFlags(f, gloom.DefaultWindow)
	f.BoolVar(&s.resubmit, "resubmit", false, "submit again the jobs that were lost with a connection")
	f.BoolVar(&s.resume, "resume", false, "with --keep: attach to jobs whose ids exist, submit the others")
	f.StringVar(&s.idPrefix, "id-prefix", "", "what ids begin with, before the line number or the line (--id-from-line)")
	f.BoolVar(&s.idFromLine, "id-from-line", false, "end ids with the line instead of its number; the prefix is TYPE/ by default")
	f.IntVar(&s.firstLine, "from", 1, "begin at the line with this number")
	s.quietFlag(f)
	cli.SetHeadings(f, map[string]string{
		"priority": "Job",
		"json":     "Body and answer",
		"lines":    "Many jobs, with --lines",
		"quiet":    "Other",
	})
	return cmd
}

// streamFlags defines the flags of every command that prints the answers of many jobs.
func (s *submitCommand) streamFlags(f *pflag.FlagSet, window int) {
	f.BoolVar(&s.ordered, "ordered", false, "print answers in the order of the lines")
	f.BoolVarP(&s.number, "number", "n", false, "put the line number and a tab before each answer")
	f.BoolVar(&s.records, "records", false, "print a JSON record for each line")
	f.IntVar(&s.window, "window", window, "jobs outstanding at a time")
	f.DurationVar(&s.reconnect, "reconnect", 30*time.Second, "how long to try to restore a lost connection")
}

func (s *submitCommand) quietFlag(f *pflag.FlagSet) {
	f.BoolVarP(&s.quiet, "quiet", "q", false, "show no progress bar, and do not report connections")
}

// checkStream returns an error if flags of streamFlags conflict or are out of range.
func (s *submitCommand) checkStream(f *pflag.FlagSet) error {
	switch {
	case s.number && s.records:
		return cli.Usagef("--number and --records cannot be used together")
	case s.asJSON && s.asText || s.base64 && (s.asJSON || s.asText):
		return cli.Usagef("--json, --text and --base64 cannot be used together")
	case s.window < 1 || s.window > 1_000_000:
		return cli.Usagef("--window %d: must be 1 … 1000000", s.window)
	}
	return checkDurations(f, "reconnect")
}

// submitCommand is the command that submits one job or a stream of jobs, or attaches to jobs.
type submitCommand struct {
	*tool
	job       gloom.Job // what all jobs have in common
	retries   int
	headers   []string
	progress  bool
	asJSON    bool
	asText    bool
	base64    bool
	linesFile string
	ordered   bool
	number    bool
	records   bool
	window    int
	resubmit  bool
	reconnect time.Duration
	quiet     bool
	attach    bool // the lines are ids of jobs that exist already

	idPrefix   string
	idFromLine bool
	resume     bool
	firstLine  int // the number of the first line to submit
}

// maxBody bounds bodies in bytes: brokers refuse larger frames anyway.
const maxBody = 1 << 30

func (s *submitCommand) check(cmd *cobra.Command, args []string) error {
	streaming := cmd.Flags().Changed("lines")
	if err := s.checkStream(cmd.Flags()); err != nil {
		return err
	}
	switch {
	case len(args) == 0:
		return cli.Usagef("submit needs a type").SetHint("gloom submit TYPE BODY")
	case len(args) > 2:
		return cli.Usagef("expected a type and a body, got %d arguments", len(args)).SetHint("quote a body that contains spaces")
	case args[0] == "":
		return cli.Usagef("the type is empty")
	case len(args) == 1 && args[0] == "-":
		return cli.Usagef("a type is needed before -").SetHint("gloom submit TYPE -")
	case streaming && len(args) > 1:
		return cli.Usagef("a body and --lines cannot be used together")
	case streaming && s.linesFile == "":
		return cli.Usagef("--lines needs a file, or - for standard input")
	case cmd.Flags().Changed("id") && s.job.ID == "":
		return cli.Usagef("--id is empty")
	case s.job.ID != "" && (s.idFromLine || cmd.Flags().Changed("id-prefix")):
		return cli.Usagef("--id cannot be used with --id-prefix or --id-from-line")
	case s.idPrefix == "" && cmd.Flags().Changed("id-prefix"):
		return cli.Usagef("--id-prefix is empty")
	case s.firstLine < 1:
		return cli.Usagef("--from %d: must be at least 1", s.firstLine)
	case s.job.Detach && s.job.Keep > 0:
		return cli.Usagef("--keep and --detach cannot be used together: nobody is told how a detached job ends")
	case streaming && s.resume && s.job.Keep <= 0:
		return cli.Usagef("--resume needs --keep: other jobs end with their connection").SetHint("--keep 1h")
	case streaming && s.resume && s.job.ID == "" && s.idPrefix == "" && !s.idFromLine:
		return cli.Usagef("--resume needs ids that are the same the next time").SetHint("--id-prefix PREFIX, or --id-from-line")
	case streaming && s.job.ID != "" && !strings.Contains(s.job.ID, "{line}"):
		return cli.Usagef("--id %q: with --lines it needs {line}, so that ids differ", s.job.ID)
	case cmd.Flags().Changed("retries") && (s.retries < 0 || s.retries > 1000):
		return cli.Usagef("--retries %d: must be 0 … 1000", s.retries)
	}
	if !streaming {
		for _, name := range []string{"ordered", "number", "records", "resubmit", "window", "reconnect", "id-prefix", "id-from-line", "resume", "from"} {
			if cmd.Flags().Changed(name) {
				return cli.Usagef("--%s needs --lines", name)
			}
		}
	}
	if err := checkDurations(cmd.Flags(), "delay", "timeout", "backoff", "expires", "age", "keep"); err != nil {
		return err
	}
	return nil
}

func (s *submitCommand) run(cmd *cobra.Command, args []string) error {
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
	if cmd.Flags().Changed("backoff") && s.job.Backoff == 0 {
		s.job.Backoff = gloom.NoBackoff
	}
	for _, h := range s.headers {
		key, value, ok := strings.Cut(h, "=")
		if !ok || key == "" {
			return cli.Usagef("--header %q: must be KEY=VALUE", h)
		}
		s.job.Headers.Set(key, value)
	}
	ctx, stop := cli.UntilSignal(context.Background())
	defer stop()
	if s.linesFile != "" {
		return s.streamFile(ctx, "lines", s.linesFile)
	}
	return s.submitOne(ctx, args[1:])
}

// idOf returns the id of the job of a line, "" if the client makes one up.
func (s *submitCommand) idOf(number int, data []byte) string {
	switch {
	case s.idFromLine:
		prefix := cmp.Or(s.idPrefix, s.job.Type+"/")
		if len(prefix)+len(data) > wire.MaxNameBytes || !utf8.Valid(data) {
			return fmt.Sprintf("%s%x", prefix, sha256.Sum256(data))
		}
		return prefix + string(data)
	case s.idPrefix != "":
		return s.idPrefix + strconv.Itoa(number)
	}
	return strings.ReplaceAll(s.job.ID, "{line}", strconv.Itoa(number))
}

// resumeCommand returns the command line that continues from a line of the input. It does not
// show a token.
func (s *submitCommand) resumeCommand(from int) string {
	args, hide := []string{"gloom"}, false
	for i := 1; i < len(os.Args); i++ {
		arg := os.Args[i]
		switch flag, value, hasValue := strings.Cut(arg, "="); {
		case flag == "--from":
			if !hasValue {
				i++
			}
			continue
		case hide, flag == "--token" && value != "":
			if arg = `"$GLOOM_TOKEN"`; !hide {
				arg = flag + "=" + arg
			}
			args, hide = append(args, arg), false
			continue
		default:
			hide = flag == "--token"
		}
		args = append(args, finding.ShellWord(arg))
	}
	if from > 1 {
		at := len(args)
		if i := slices.Index(args, "--"); i >= 0 { // no flags follow it
			at = i
		}
		args = slices.Insert(args, at, "--from", strconv.Itoa(from))
	}
	return strings.Join(args, " ")
}

// inputHint says what else is needed to continue.
func (s *submitCommand) inputHint() string {
	if s.linesFile == "-" {
		return ", with the same standard input"
	}
	return ""
}

// shellWords quotes words for a shell and joins them with blanks.
func shellWords(words []string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = finding.ShellWord(w)
	}
	return strings.Join(quoted, " ")
}

// commandLine returns a command line of gloom that can be pasted, whatever its arguments are.
func commandLine(words string, args ...string) string {
	if slices.ContainsFunc(args, func(a string) bool { return strings.HasPrefix(a, "-") }) { // it would be taken for a flag
		words += " --"
	}
	return cli.Clean("gloom " + words + " " + shellWords(args))
}

// dial connects to a broker; there is one attempt for each address.
func (s *submitCommand) dial(ctx context.Context, extra ...gloom.Option) (*gloom.Submitter, error) {
	command := "submit"
	if s.attach {
		command = "attach"
	}
	opts, err := s.conn.options(s.conn.submitAddrs, clientName(command))
	if err != nil {
		return nil, err
	}
	jobs, err := gloom.Dial(ctx, append(opts, extra...)...)
	if ctx.Err() != nil {
		return jobs, context.Cause(ctx)
	}
	return jobs, unreachableFault(s.conn.submitAddrs, "submit-addr", err)
}

// bodyForm returns the way in which text is read as a body, as set by the options.
func (s *submitCommand) bodyForm() string {
	switch {
	case s.asJSON:
		return formJSON
	case s.base64:
		return formBase64
	case s.asText || s.linesFile != "":
		return formText
	}
	return formAuto
}

// answerForm returns the form in which answers are printed.
func (s *submitCommand) answerForm() string {
	if f := s.bodyForm(); f != formText {
		return f
	}
	return formAuto
}

// A user who waits is told why after explainAfter, then at growing intervals up to maxExplainPause.
const (
	explainAfter    = 2 * time.Second
	maxExplainPause = time.Minute
	// maxSuggestedTypes is how many types are searched for one with a similar name.
	maxSuggestedTypes = 1000
)

// explainWait tells a user who waits that no worker serves the type, if the broker's address for
// operators can be asked. On a terminal, if id is not empty, explainWait also tells what this job is
// waiting for.
func (s *submitCommand) explainWait(ctx context.Context, id string, note func(format string, args ...any)) (stop func()) {
	if s.quiet || s.job.Detach || s.attach {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		printed := ""
		for pause := explainAfter; ; pause = min(2*pause, maxExplainPause) {
			select {
			case <-time.After(pause):
			case <-ctx.Done():
				return
			}
			var typ api.Type
			var j api.Job
			text, o, repeats := "", s.conn.operator(), id != "" && cli.IsTerminal(s.stderr)
			switch {
			case id != "" && o.call(ctx, http.MethodGet, "/v1/jobs/"+api.Segment(id), nil, &j) != nil: // perhaps another broker
			case o.call(ctx, http.MethodGet, "/v1/types/"+api.Segment(s.job.Type), nil, &typ) == nil && typ.Unserved():
				text = "no worker serves " + cli.QuoteName(s.job.Type) + " yet; waiting for one" + inBrackets(serveHint(ctx, o, s.job.Type))
			case repeats:
				text = whyWaiting(&j)
			}
			if text != "" && text != printed && ctx.Err() == nil {
				note("%s", text)
				printed = text
			}
			if !repeats {
				return
			}
		}
	}()
	return func() {
		cancel()
		<-ended
	}
}

// serveHint names a served type with a similar name, or says how a type gets a worker.
func serveHint(ctx context.Context, o *operatorClient, typ string) string {
	if strings.Contains(typ, "*") {
		return "a job's type is a name, not a pattern"
	}
	var served []string
	types, _, _ := listItems[api.Type](ctx, o, "/v1/types", maxSuggestedTypes)
	for i := range types {
		if types[i].Workers > 0 {
			served = append(served, types[i].Type)
		}
	}
	if near := cli.Suggest(typ, served); near != "" {
		return "did you mean " + cli.QuoteName(near) + "?"
	}
	return commandLine("work", typ) + " -- COMMAND serves it"
}

// whyWaiting says how the last run of a job that is retried failed, or what a job that has not run
// is waiting for; "" if there is nothing to say.
func whyWaiting(j *api.Job) string {
	if n := len(j.Runs); n > 0 && j.State != "ended" {
		x, limit := &j.Runs[n-1], ""
		if j.Retries >= 0 {
			limit = fmt.Sprintf(" of at most %d", j.Retries+1)
		}
		ending := cmp.Or(map[string]string{"failed": "failed", "timed_out": "timed out", "lost": "was lost with its worker"}[x.Outcome], "was given back")
		if x.Error != "" {
			ending += ": " + cli.Clean(x.Error)
		}
		return fmt.Sprintf("run %d%s %s; the job is retried", x.N, limit, ending)
	}
	if j.State == "queued" && j.Holds != "" {
		return "waiting: " + cli.Clean(j.Holds)
	}
	return ""
}

// submitOne submits a single job.
func (s *submitCommand) submitOne(ctx context.Context, args []string) error {
	body := json.RawMessage("null")
	if s.base64 {
		body = quote("") // no bytes
	}
	if len(args) == 0 && !s.quiet && cli.IsTerminal(s.stderr) {
		s.note("no BODY was given, so it is %s; - reads it from standard input", body)
	}
	if len(args) > 0 {
		data, source := []byte(args[0]), "body"
		var err error
		if args[0] == "-" {
			source = "standard input"
			data, err = await(ctx, func() ([]byte, error) { return io.ReadAll(io.LimitReader(os.Stdin, maxBody+1)) })
			if ctx.Err() != nil {
				return context.Cause(ctx)
			} else if err != nil {
				return fmt.Errorf("reading standard input: %w", err)
			} else if len(data) > maxBody {
				return cli.Usagef("standard input has more than %d bytes", maxBody)
			}
		}
		if body, err = toBody(data, s.bodyForm()); err != nil {
			return cli.Usagef("%s %w", source, err)
		}
		if text := bytes.TrimSpace(data); s.bodyForm() == formAuto && !s.quiet && len(text) > 0 && (text[0] == '{' || text[0] == '[') && body[0] == '"' {
			s.note("%s %v, so it is sent as a string (--text: always; --json: never)", source, jsonError(text))
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
	stopTelling := s.explainWait(ctx, p.ID(), s.note)
	r, err := p.Result(ctx)
	stopTelling()
	select {
	case <-p.Done():
	default: // the context has ended first
		if job.Keep == 0 {
			return context.Cause(ctx) // closing cancels it
		}
		closeSubmitter(ctx, jobs)
		r, err = p.Result(context.WithoutCancel(ctx))
		if lost := (*gloom.LostError)(nil); errors.As(err, &lost) {
			switch {
			case lost.Acked:
				s.note("%s continues; %s waits for it again, %s ends it", jobName(p.ID()), commandLine("attach", p.ID()), commandLine("cancel", p.ID()))
			case lost.Sent:
				s.note("job %s may not have reached the broker; gloom attach shows whether it has", p.ID())
			}
			return context.Cause(ctx)
		}
	}
	switch {
	case err != nil:
		return err
	case job.Detach:
		_, err = fmt.Fprintln(s.stdout, r.ID)
		return outputError(err)
	}
	answer, err := fromBody(r.Body, s.answerForm())
	if err != nil {
		return cli.Failf(cli.ExitFailed, "the answer %w", err)
	}
	if !s.base64 {
		answer = append(answer, '\n')
	}
	_, err = s.stdout.Write(answer)
	return outputError(err)
}
