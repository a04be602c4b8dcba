package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	gloom "gloom/clients/go"
	"gloom/cmd/internal/cli"
	"gloom/cmd/internal/launch"
	"gloom/cmd/internal/process"
)

const workLong = `Run COMMAND once for each job of TYPE. The command reads the job's body from
standard input, and what it writes to standard output is the answer. If it exits
with a status other than 0, the run has failed, and the job is retried while it
has retries left.

    gloom work TYPE -- COMMAND      serve one type; several may be given
    gloom work 'mail-*' -- COMMAND  serve all types that begin with mail-
    gloom work TYPE -- sh -c '…'    use pipes and redirections
    -j 8                            run up to eight commands at once
    --timeout 30s                   stop a command that runs longer

Ctrl-C lets running commands finish, and a second Ctrl-C stops them.`

const workExample = `  gloom work shout -- tr a-z A-Z
  gloom work -j 8 --timeout 30s sum -- sh -c 'sha256sum -- "$(cat)"'
  gloom work 'mail-*' report --except mail-test -- ./serve {type}`

const commandsTopic = `Types:
In a TYPE, * stands for any characters, so a pattern also serves types that come
later. Among all its types, a worker gets the best job first. --except leaves
types out.

Input and output:
If the body is a JSON string, the command gets its text, otherwise the JSON.
Output that is valid JSON is sent as JSON, and any other output as a string
without its last line end. The arguments {id} and {type} are replaced by the
job's id and type. The environment has the same in GLOOM_JOB_ID and
GLOOM_JOB_TYPE, and the job's headers, if any, as JSON in GLOOM_JOB_HEADERS.
Other GLOOM_ variables, such as tokens, keys and addresses, are hidden from
commands.

    gloom work page -- sh -c 'curl -fsS -- "$(cat)"'
    gloom work --progress slow -- sh -c 'echo half >&3; sleep 1; echo done'

Failures:
An exit status other than 0 fails the run, and the end of standard error is the
reason. The job is then retried while it has retries left. --final lists
statuses after which it is not. gloom prints the first failure of a type, then
at most one every 10 seconds; -v prints all of them, -q none.

Stopping:
After SIGINT or SIGTERM, gloom takes no more jobs, gives back those that have
not begun, and lets running commands finish. A second signal stops the commands,
a third one kills them.

A command is stopped when --timeout has passed, when its job is cancelled, and
when the connection is lost, since the broker then gives the job to another
worker. Its process group gets SIGTERM and, 5 seconds later, SIGKILL. If gloom
itself is killed, or suspended (Ctrl-Z) for 13 seconds, a helper process,
job-guard, stops the commands.

Connections:
gloom reconnects when a connection is lost. With several addresses
(--worker-addr A,B) it runs up to -j commands for each broker.

Ids from submitters:
Submitters choose ids. So that no id can become code, {id} and {type} must be
arguments of their own, and must not follow an option; write -- before them
where they are operands. A job whose id begins with - fails, because the command
could take it for an option. --unsafe-template permits all of this. These are
safe:
    gloom work mail -- sh -c 'echo "$1"' sh {id}
    gloom work mail -- sh -c 'echo "$GLOOM_JOB_ID"'
These rules cannot cover every program that runs its operands. awk, sed and ssh
are refused, but watch, make and others are not.`

func newWork(t *tool) *cobra.Command {
	w := &workCommand{tool: t, maxOutput: 16 << 20, input: formAuto, output: formAuto, log: newStderrWriter(t.stderr, readerTimeout)}
	cmd := &cobra.Command{
		Use:     "work TYPE... [-j N] [--timeout D] -- COMMAND [ARGUMENT...]",
		Short:   "Serve jobs with a command",
		Long:    workLong,
		Example: workExample,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkDurations(cmd.Flags(), "timeout", "retry-delay"); err != nil {
				return err
			}
			return w.run(args, cmd.ArgsLenAtDash())
		},

		ValidArgsFunction: w.complete,
	}
	cli.SetWordHint(cmd, "-c", "-j N runs N commands at once; the command comes after --")
	cli.SetWordHint(cmd, "--concurrency", "did you mean --jobs?")
	cli.SetWordHint(cmd, "--type", "the type is an argument: gloom work TYPE -- COMMAND")
	cli.SetTopics(cmd, cli.Topic{Name: "commands", Short: "How commands get jobs, fail, and are stopped", Text: commandsTopic})
	f := cmd.Flags()
	f.IntVarP(&w.jobs, "jobs", "j", 1, "how many commands to run at once, for each broker")
	f.StringArrayVar(&w.exceptTypes, "except", nil, "leave out this `type` or pattern; may be given several times")
	f.DurationVar(&w.timeout, "timeout", 0, "stop a command that runs longer (0: never)")
	f.Var(cli.ChoiceFlag(&w.input, formAuto, formJSON, formBase64), "input", "what the command reads: auto (a string as its text, else JSON), json, or base64 (the bytes that a string encodes)")
	f.Var(cli.ChoiceFlag(&w.output, formAuto, formText, formJSON, formBase64), "output", "how output is sent: auto (as JSON if it is JSON, else as a string), text (a string), json, or base64")
	f.BoolVar(&w.base64, "base64", false, "the same as --input base64 --output base64, for bytes that are not text")
	f.Var(cli.SizeFlag(&w.maxOutput, 1, 1<<40), "max-output", "fail a command that writes more to standard output")
	f.Var(&textFlag{typ: "list", parse: w.final.parse}, "final", "do not retry after these exit statuses: all, or a list such as 2,64")
	f.DurationVar(&w.retryDelay, "retry-delay", -1, "wait before a retry, instead of the job's own backoff")
	f.BoolVar(&w.unsafeTemplate, "unsafe-template", false, "allow {id} and {type} anywhere, even as code or an option")
	f.BoolVar(&w.progress, "progress", false, "send each line that the command writes to descriptor 3 as progress")
	f.BoolVar(&w.passStderr, "stderr", false, "pass on what commands write to standard error")
	f.BoolVarP(&w.verbose, "verbose", "v", false, "print a line about each job, not only about failures")
	f.BoolVarP(&w.quiet, "quiet", "q", false, "report neither connections nor failures")
	f.Lookup("retry-delay").DefValue = "0" // left out of the help
	return cmd
}

// workCommand is the command that serves jobs.
type workCommand struct {
	*tool
	types          []string
	exceptTypes    []string
	jobs           int
	timeout        time.Duration
	input          string
	output         string
	base64         bool
	maxOutput      int64
	final          statuses
	retryDelay     time.Duration
	unsafeTemplate bool
	progress       bool
	passStderr     bool
	verbose        bool
	quiet          bool

	log io.Writer // standard error, whose reader may have gone
}

// readerTimeout limits how long jobs and signals wait for a reader of standard error that has
// stopped reading.
const readerTimeout = time.Second

// newStderrWriter returns a writer for standard error, which says how many lines were lost before.
func newStderrWriter(to io.Writer, patience time.Duration) *cli.LossyWriter {
	o := cli.NewLossyWriter(to, patience)
	o.LossNotice = func(lines int64) string {
		return fmt.Sprintf("gloom: lost %s, because nobody read standard error\n", cli.Plural(int(lines), "line"))
	}
	return o
}

// note is like tool.note, but does not wait if nobody reads standard error.
func (w *workCommand) note(format string, args ...any) {
	fmt.Fprintf(w.log, "gloom: "+format+"\n", args...)
}

// complete offers types as the first argument, then programs and files, as a shell does by itself.
func (w *workCommand) complete(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return w.completeType(cmd, args, prefix)
	}
	return nil, cobra.ShellCompDirectiveDefault
}

var (
	placeholder = regexp.MustCompile(`\{(id|type)\}`)
	// operandScript matches programs for which any argument may be a script, which they run or pass to
	// another host's shell.
	operandScript = regexp.MustCompile(`^(ssh|[gmn]?awk|g?sed)$`)
	// shellScript matches options of a shell that are followed by its script, even with -- between
	// them.
	shellScript = regexp.MustCompile(`^-[A-Za-z]*c`)
)

// checkTemplate refuses placeholders where the command may run their values as code, because
// submitters choose the ids. It judges by position, since there are more interpreters than anyone
// could list: a part of an argument, or an argument right after an option, may be a script.
func checkTemplate(args []string) error {
	interpreter := "" // the program whose operands are scripts
	for i, a := range args {
		name := placeholder.FindString(a)
		advice := fmt.Sprintf("sh -c '… \"$1\"' sh %s, or read $GLOOM_JOB_%s; --unsafe-template allows it anywhere", name, strings.ToUpper(strings.Trim(name, "{}")))
		option := optionBefore(args[:i])
		switch {
		case name == "":
			if base := filepath.Base(a); operandScript.MatchString(base) {
				interpreter = base
			}
		case i == 0:
			return cli.Usagef("the program %q: placeholders are replaced in its arguments only", a)
		case name != a:
			return cli.Usagef("%s inside %q could be run as a part of it: a placeholder must be an argument of its own", name, a).SetHint("%s", advice)
		case option == "--":
			return cli.Usagef("%s after -- could be run as the script of a shell's -c", name).SetHint("%s", advice)
		case option != "":
			return cli.Usagef("%s directly after %q could be run as a script, or belong to the option", name, option).
				SetHint("put -- before it if it is an operand; otherwise %s", advice)
		case interpreter != "":
			return cli.Usagef("%s among the arguments of %s could be run as a script", name, interpreter).SetHint("%s", advice)
		}
	}
	return nil
}

// optionBefore returns the option to which the next argument may belong, "" if there is none. That
// is the last argument if it is an option; a final -- counts only after the -c of a shell, which
// may take the next argument as its script nevertheless.
func optionBefore(args []string) string {
	isOption := func(a string) bool { return strings.HasPrefix(a, "-") || strings.HasPrefix(a, "+") }
	last := len(args) - 1
	if last < 0 || !isOption(args[last]) {
		return ""
	}
	if args[last] != "--" {
		return args[last]
	}
	for i := last - 1; i >= 0 && isOption(args[i]); i-- {
		if shellScript.MatchString(args[i]) {
			return "--"
		}
	}
	return ""
}

// heartbeat is the pace at which broker and worker check each other. A worker that is suspended
// loses its jobs to others. Submitters have no heartbeat, so that their jobs survive Ctrl-Z.
const heartbeat = 15 * time.Second

const (
	// If this process is stopped for longer than stopLimit, the guard kills its commands. The
	// broker gives their jobs to others one heartbeat after the stop at the earliest: it waits for
	// two heartbeats from our last byte, and we send one at each.
	stopLimit = heartbeat - 2*time.Second
	// keepAliveInterval is the interval at which the guard learns that this process is not stopped.
	keepAliveInterval = time.Second
)

// maxJobs bounds -j: each job needs a connection and several descriptors.
const maxJobs = 10000

// splitArgs separates the types from the command, which it returns.
func (w *workCommand) splitArgs(args []string, dash int) (command []string, err error) {
	switch second := slices.Index(args, "--"); {
	case dash < 0:
		dash = min(1, len(args))
	case dash == 0 && second > 0 && strings.HasPrefix(args[0], "-"): // gloom work -- -x -- COMMAND
		dash, args = second, slices.Delete(slices.Clone(args), second, second+1)
	}
	if w.types, command = args[:dash], args[dash:]; len(w.types) == 0 {
		return nil, cli.Usagef("work needs a type").SetHint("gloom work TYPE -- COMMAND")
	}
	if len(command) == 0 {
		return nil, cli.Usagef("work %s needs a command", strings.Join(w.types, " ")).
			SetHint("%s -- COMMAND", commandLine("work", w.types...))
	}
	return command, nil
}

// unquoteCommand returns how a command that was given as one word must be given, or "" if the word
// is no such command.
func unquoteCommand(args []string) string {
	words := strings.Fields(args[0])
	if len(args) > 1 || len(words) < 2 {
		return ""
	}
	if _, err := exec.LookPath(words[0]); err != nil {
		return ""
	}
	if shellWords(words) != strings.Join(words, " ") { // the shell is to interpret a part of it
		return "sh -c " + shellWords(args)
	}
	return strings.Join(words, " ")
}

// servesSeveral reports whether the worker may serve several types, because several names, a pattern
// or exceptions were given.
func (w *workCommand) servesSeveral() bool {
	return len(w.types) > 1 || len(w.exceptTypes) > 0 || strings.Contains(w.types[0], "*")
}

func (w *workCommand) check() error {
	switch {
	case slices.Contains(w.types, ""):
		return cli.Usagef("the type is empty")
	case slices.ContainsFunc(w.types, func(typ string) bool { return slices.Contains(w.exceptTypes, typ) }):
		return cli.Usagef("a type is both served and left out: %.200q", w.exceptTypes)
	case w.jobs < 1 || w.jobs > maxJobs:
		return cli.Usagef("-j %d: must be 1 … %d", w.jobs, maxJobs)
	case w.base64 && (w.input != formAuto || w.output != formAuto):
		return cli.Usagef("--base64 is short for --input base64 --output base64")
	}
	return nil
}

func (w *workCommand) run(all []string, dash int) error {
	args, err := w.splitArgs(all, dash)
	if err != nil {
		return err
	}
	if err := w.check(); err != nil {
		return err
	}
	if !w.unsafeTemplate {
		if err := checkTemplate(args); err != nil {
			return err
		}
	}
	if _, err := exec.LookPath(args[0]); err != nil {
		if errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist) {
			f := cli.Usagef("command not found: %q", args[0])
			if dash < 0 { // the further arguments may all be types
				if command := unquoteCommand(args); command != "" {
					return f.SetHint("%s -- %s", commandLine("work", w.types...), command)
				}
				return f.SetHint("put the command after --: gloom work %s -- COMMAND", shellWords(all))
			}
			return f.SetHint("a program in $PATH or a path; for pipes and redirections: -- sh -c '…'")
		}
		f := cli.Usagef("command cannot be run: %w", err)
		if errors.Is(err, os.ErrPermission) {
			f.Hint = "chmod +x makes a script executable; -- sh SCRIPT also runs it"
		}
		return f
	}
	if w.base64 {
		w.input, w.output = formBase64, formBase64
	}
	self := process.Self()
	guard, err := launch.NewGuardWithGrace(fmt.Sprintf("gloom-%d-%s", self.PID, self.Start), killDelay)
	if err != nil {
		return err
	}
	defer guard.Close()
	kill := make(chan struct{})
	c := &command{
		guard: guard, args: args, unsafeTemplate: w.unsafeTemplate, timeout: w.timeout, input: w.input, output: w.output,
		maxOutput: w.maxOutput, final: w.final, retryDelay: w.retryDelay,
		progress: w.progress, kill: kill,
	}
	if w.passStderr {
		c.stderr = w.log
	}
	opts, err := w.conn.options(w.conn.workerAddrs, clientName("work"))
	if err != nil {
		return err
	}
	reporter := &workReporter{workCommand: w, brokers: map[string]*brokerState{}, failures: map[string]*failureReport{}}
	worker := &gloom.Worker{
		Types: w.types, Except: w.exceptTypes, Headers: true,
		Concurrency: w.jobs, Handler: reporter.countRuns(c.handle),
		Options: append(opts, gloom.Heartbeat(heartbeat), gloom.Notify(reporter.onNotice)),
	}
	if !w.servesSeveral() {
		worker.Type, worker.Types = w.types[0], nil
	}
	done := make(chan struct{})
	defer close(done)
	go keepAlive(guard, done)
	return w.serve(worker, c, kill, reporter)
}

// keepAlive postpones the time at which the guard kills commands, as long as this process is not
// stopped.
func keepAlive(guard *launch.Guard, done <-chan struct{}) {
	tick := time.NewTicker(keepAliveInterval)
	defer tick.Stop()
	for {
		guard.SetDeadline(time.Now().Add(stopLimit))
		select {
		case <-tick.C:
		case <-done:
			return
		}
	}
}

// serve runs the worker until signals end it.
func (w *workCommand) serve(worker *gloom.Worker, c *command, kill chan struct{}, reporter *workReporter) error {
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	// Jobs must continue after the reader of standard error has gone. SIGPIPE is caught and not
	// ignored, because commands inherit an ignored signal.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	worker.StopTimeout = 1 << 62 // signals decide
	done := make(chan error, 1)
	go func() {
		err := worker.Run(ctx)
		c.running.Wait() // waits for commands that have been told to stop
		done <- err
	}()
	var sig os.Signal // the last one
	for n := 1; ; n++ {
		select {
		case err := <-done:
			if err == nil || reporter.answered.Load()+reporter.failed.Load()+reporter.unwanted.Load() > 0 {
				reporter.summary()
			}
			switch {
			case n > 2 && sig == syscall.SIGTERM:
				return cli.SilentExit(cli.ExitTerminated)
			case n > 2:
				return cli.SilentExit(cli.ExitInterrupted)
			}
			// The error is printed here, because main would wait for a reader of standard error.
			return cli.SilentExit(cli.Report(w.log, "gloom", classify(unreachableFault(w.conn.workerAddrs, "worker-addr", err))))
		case sig = <-signals:
		}
		switch n {
		case 1:
			time.Sleep(cli.StopWindow)
			for len(signals) > 0 {
				<-signals
			}
			if r := reporter.running.Load(); r > 0 && !w.quiet {
				w.note("no more jobs; waiting for %s, a second signal stops them", cli.Plural(int(r), "command"))
			}
			cancel()
		case 2:
			ended, end := context.WithCancel(context.Background())
			end()
			go worker.Stop(ended)
		case 3:
			close(kill)
		}
	}
}

// workReporter reports what happens to connections, once per broker instead of once per socket, and
// counts jobs.
type workReporter struct {
	*workCommand
	running atomic.Int64
	// These count the runs that have ended. Unwanted runs were stopped because their jobs were
	// cancelled, or because they took longer than their submitter allows.
	answered, failed, unwanted atomic.Int64

	mu       sync.Mutex // guards the rest
	brokers  map[string]*brokerState
	failures map[string]*failureReport // by type
}

// failureReport says when a failure of a type was reported last, and how many have not been since.
type failureReport struct {
	reportedAt  time.Time
	hiddenCount int
}

const (
	// failureInterval is the minimum time between two reports of failures of one type.
	failureInterval = 10 * time.Second
	// maxFailureTypes bounds the types whose failures are reported apart from each other.
	maxFailureTypes = 100
)

// shouldReport counts a failure of a type, and returns whether to report it now and how many failures
// have been hidden since the last report. The first failure of a type is reported.
func (t *workReporter) shouldReport(typ string, now time.Time) (hiddenCount int, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.failures) >= maxFailureTypes && t.failures[typ] == nil {
		typ = "" // no type has this name
	}
	f := t.failures[typ]
	switch {
	case f == nil:
		t.failures[typ] = &failureReport{reportedAt: now}
		return 0, true
	case now.Sub(f.reportedAt) < failureInterval:
		f.hiddenCount++
		return 0, false
	}
	hiddenCount = f.hiddenCount
	*f = failureReport{reportedAt: now}
	return hiddenCount, true
}

// brokerState is the state of a broker's connections. Each kind of failure is reported once, until
// a connection has joined again.
type brokerState struct {
	hasJoined    bool // at least once
	lost, failed bool
	givenUp      bool
}

func (t *workReporter) countRuns(h gloom.Handler) gloom.Handler {
	return func(ctx context.Context, job *gloom.Job) (any, error) {
		t.running.Add(1)
		defer t.running.Add(-1)
		start := time.Now()
		v, err := h(ctx, job)
		elapsed := time.Since(start).Round(time.Millisecond)
		switch {
		case errors.Is(err, errGivenBack):
			t.reportFailure(job, "was given back", err, elapsed)
		case err != nil && context.Cause(ctx) == gloom.ErrCancelled:
			t.unwanted.Add(1)
			t.reportFailure(job, "was stopped", errors.New("it was cancelled or timed out, or its submitter has gone"), elapsed)
		case err != nil:
			t.failed.Add(1)
			t.reportFailure(job, "failed", err, elapsed)
		default:
			t.answered.Add(1)
			if t.verbose {
				t.note("job %s of type %s answered in %v", cli.QuoteName(job.ID), cli.QuoteName(job.Type), elapsed)
			}
		}
		return v, err
	}
}

// reportFailure reports a run without an answer and how it ended: every one with -v, some of each type
// without, none with -q alone.
func (t *workReporter) reportFailure(job *gloom.Job, ending string, err error, elapsed time.Duration) {
	suffix := ""
	if !t.verbose {
		if t.quiet {
			return
		}
		hiddenCount, ok := t.shouldReport(job.Type, time.Now())
		if !ok {
			return
		}
		if hiddenCount > 0 {
			suffix = fmt.Sprintf(" (%s before it not shown; -v shows all)", cli.Plural(hiddenCount, "failure"))
		}
	}
	first, _, _ := strings.Cut(err.Error(), "\n")
	t.note("run of job %s of type %s %s after %v: %s%s", cli.QuoteName(job.ID), cli.QuoteName(job.Type), ending, elapsed, cli.Clean(plainText(errors.New(first))), suffix)
}

func (t *workReporter) onNotice(n gloom.Notice) {
	t.mu.Lock()
	defer t.mu.Unlock()
	b := t.brokers[n.Addr]
	if b == nil {
		b = &brokerState{}
		t.brokers[n.Addr] = b
	}
	switch n.Event {
	case gloom.EventJoined:
		if !b.hasJoined || b.lost || b.failed {
			suffix := ""
			if b.hasJoined {
				suffix = "again "
			}
			t.notef("serving %s %sat %s, %d at a time", t.typeNames(), suffix, n.Addr, t.jobs)
		}
		*b = brokerState{hasJoined: true, givenUp: b.givenUp}
	case gloom.EventLost:
		if !b.lost {
			t.notef("connection to %s lost: %s; trying again", n.Addr, connectionCause(n.Err))
		}
		b.lost = true
	case gloom.EventFailed:
		if !b.failed {
			t.notef("no broker reached at %s: %s; trying again%s", n.Addr, connectionCause(n.Err), inBrackets(unreachableHint(n.Err, "")))
		}
		b.failed = true
	case gloom.EventGivenUp:
		if len(t.conn.workerAddrs) > 1 && !b.givenUp {
			var f *cli.Fault
			errors.As(classify(n.Err), &f)
			t.notef("giving up on %s: %s%s", n.Addr, f, inBrackets(f.Hint))
		}
		b.givenUp = true
	case gloom.EventPanic:
		t.notef("%v", n.Err)
	}
}

// typeNames lists the types and patterns that are served.
func (t *workReporter) typeNames() string {
	var names []string
	for _, typ := range t.types {
		names = append(names, cli.QuoteName(typ))
	}
	return strings.Join(names, ", ")
}

func (t *workReporter) notef(format string, args ...any) {
	if !t.quiet {
		t.note(format, args...)
	}
}

func (t *workReporter) summary() {
	s := cli.Plural(int(t.answered.Load()), "run") + " answered"
	if failed := t.failed.Load(); failed > 0 {
		s += fmt.Sprintf(", %d failed", failed)
	}
	if unwanted := t.unwanted.Load(); unwanted > 0 {
		s += fmt.Sprintf(", %d no longer wanted", unwanted)
	}
	t.notef("%s", s)
}
