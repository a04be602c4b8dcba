// Package runner runs jobs with their handlers: in processes of interpreters, which are reused, or
// over HTTP. It knows neither stores nor brokers.
package runner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"gloom/cmd/internal/launch"
	"gloom/cmd/serverlessd/job"

	"github.com/rs/zerolog"
)

// Options holds the options of a runner. A zero field stands for the value in brackets, if there is
// one.
type Options struct {
	Dir       string         // where the runner makes its folder, and removes those of killed runners
	Languages []string       // languages that are allowed
	HTTPAllow []netip.Prefix // networks that may be called; empty: all addresses that are not link-local
	User      string         // the user of handler processes, a name or a number; "" is the daemon's own
	Path      string         // PATH of handler processes [/usr/local/bin:/usr/bin:/bin]
	Guard     *launch.Guard  // ends handler processes when the daemon ends; may be nil
	Log       zerolog.Logger

	MaxProcesses   int           // maximum number of handler processes at a time
	JobsPerProcess int           // maximum number of jobs that a handler process runs
	IdleTimeout    time.Duration // how long a handler process may be idle [60 s]

	StartTimeout time.Duration // time for the start of a handler process, and for each `before` [10 s]
	JobTimeout   time.Duration // time for a job whose handler sets none
	JobCPU       time.Duration // processor time for a job whose handler sets none

	MaxOutput    int64         // maximum number of bytes that a job may print or reply [16 MiB]
	MaxLines     int           // maximum number of J: lines that a job may print [10,000]
	MaxLineBytes int           // maximum number of bytes of a J: line's payload
	RetryFor     time.Duration // the longest Retry-After

	MaxMemory   int64 // bytes of memory that a handler process and its descendants may use
	MaxFileSize int64 // bytes of the largest file that a handler process may write [1 GiB]
	MaxFiles    int   // maximum number of open files of a handler process [1,024]
	MaxTasks    int   // maximum number of processes and threads of User, if it is set [4,096]
}

func (o *Options) complete() {
	o.Path = cmp.Or(o.Path, "/usr/local/bin:/usr/bin:/bin")
	o.IdleTimeout = cmp.Or(o.IdleTimeout, time.Minute)
	o.StartTimeout = cmp.Or(o.StartTimeout, 10*time.Second)
	o.MaxOutput = cmp.Or(o.MaxOutput, 16<<20)
	o.MaxLines = cmp.Or(o.MaxLines, 10_000)
	o.MaxFileSize = cmp.Or(o.MaxFileSize, 1<<30)
	o.MaxFiles = cmp.Or(o.MaxFiles, 1024)
	o.MaxTasks = cmp.Or(o.MaxTasks, 4096)
}

// Job is a job of a batch.
type Job struct {
	ID      job.ID
	Payload []byte // without the newline
	Tries   int
}

// Batch holds jobs of one type, which run one after the other.
type Batch struct {
	Client, Type string // Type bare
	Handler      *job.Handler
	Jobs         []Job
	// MustEnd is called before each job. If it returns true, the batch ends there. It may be nil.
	MustEnd func() bool
}

// Reporter is told what happens to the jobs of a batch, by their index and in order, from one
// goroutine.
type Reporter interface {
	Started(i int)
	Ended(i int, o job.Outcome)
}

// Runner runs batches. It is safe for concurrent use.
type Runner struct {
	options    Options
	httpClient *http.Client
	pool       *pool
	checkSlots chan struct{} // holds a value for each check in progress
	startSlots chan struct{} // holds a value for each process that is being started
	ctx        context.Context
	cancel     context.CancelFunc // ends ctx
}

// New returns a runner. It returns an error for options that cannot work: a user that does not
// exist or that only root can become, or a directory that cannot be made.
func New(o Options) (*Runner, error) {
	o.complete()
	user, err := credential(o.User)
	if err != nil {
		return nil, err
	}
	if o.Dir == "" {
		return nil, errors.New("the runner has no directory")
	}
	if o.Dir, err = makeFolder(o.Dir); err != nil {
		return nil, err
	}
	launch.KeepDescriptors()
	r := &Runner{options: o, httpClient: newClient(o), checkSlots: make(chan struct{}, maxChecks), startSlots: make(chan struct{}, maxStarts)}
	r.pool = newPool(r, user)
	r.ctx, r.cancel = context.WithCancel(context.Background())
	go r.pool.watch()
	return r, nil
}

// credential returns the credential of a user, or nil for the user of the daemon.
func credential(name string) (*syscall.Credential, error) {
	if name == "" {
		return nil, nil
	}
	u, err := user.Lookup(name)
	if err != nil {
		if u, err = user.LookupId(name); err != nil {
			return nil, fmt.Errorf("user %q: there is no user with that name or number", name)
		}
	}
	uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
	gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
	switch {
	case err1 != nil || err2 != nil:
		return nil, fmt.Errorf("user %q: its ids %s and %s are not numbers", name, u.Uid, u.Gid)
	case int(uid) == os.Getuid():
		return nil, nil
	case os.Getuid() != 0:
		return nil, fmt.Errorf("user %q: only root may run contexts as another user", name)
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
}

// Run runs a batch. A job that is not reported as started was not started. When ctx ends, no
// further job is begun, and the running one is killed and not reported as ended. Batches for Gloom
// workers must not be passed to Run.
//
// Run returns an error if a job could not begin because of a state of this host that passes, as
// launch.IsTemporary says. In that case, jobs that are not reported as ended have not run.
func (r *Runner) Run(ctx context.Context, b Batch, to Reporter) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(r.ctx, cancel)()

	switch {
	case b.Handler.Lang != job.HTTP:
		return r.runInProcess(ctx, b, to)
	case b.Handler.Options.Batch:
		return r.runBatch(ctx, b, to)
	}
	return r.runRequests(ctx, b, to)
}

// mayBegin reports whether a batch's next job may begin.
func (b Batch) mayBegin(ctx context.Context) bool {
	return ctx.Err() == nil && (b.MustEnd == nil || !b.MustEnd())
}

// timeout and cpu return the limits of a handler's job.
func (r *Runner) timeout(h *job.Handler) time.Duration {
	return cmp.Or(time.Duration(h.Options.Timeout), r.options.JobTimeout)
}
func (r *Runner) cpu(h *job.Handler) time.Duration {
	return cmp.Or(time.Duration(h.Options.CPU), r.options.JobCPU)
}

// HasWarmProcess reports whether an idle handler process is ready for a client's handler.
func (r *Runner) HasWarmProcess(client string, h *job.Handler) bool {
	return r.pool.hasWarm(processKeyOf(client, h))
}

// Processes returns how many handler processes there are.
func (r *Runner) Processes() int { return r.pool.size() }

// Kill ends all handler processes and the jobs in them at once, as if each Run's ctx had ended. No
// process begins after that.
func (r *Runner) Kill() {
	r.cancel()
	r.pool.close()
}

// Close does what Kill does, and waits until everything is gone.
func (r *Runner) Close() {
	r.Kill()
	r.pool.awaitEnd()
	r.httpClient.CloseIdleConnections()
	_ = os.Remove(filepath.Join(r.options.Dir, markFile))
	_ = os.Remove(r.options.Dir)
}

// CheckError is an error of Check, with a code for the HTTP interface and the field concerned.
type CheckError struct{ Code, Field, Reason string }

func (e *CheckError) Error() string { return e.Reason }

// Check returns a *CheckError if a source is not valid, or ErrCheckBusy. It compiles code, but does
// not run it.
func (r *Runner) Check(ctx context.Context, s *job.Source) error {
	switch {
	case s.Lang == "":
		return &CheckError{"missing_field", "lang", "the handler has no lang"}
	case !slices.Contains(job.Languages, s.Lang):
		return &CheckError{"invalid_lang", "lang", fmt.Sprintf("lang %.40q must be one of %s", s.Lang, strings.Join(job.Languages, ", "))}
	case !slices.Contains(r.options.Languages, s.Lang):
		return &CheckError{"invalid_lang", "lang", fmt.Sprintf("lang %q is disabled here; enabled are %s", s.Lang, strings.Join(r.options.Languages, ", "))}
	case s.Body == "":
		return &CheckError{"missing_field", "body", "the handler has no body"}
	case s.Lang == job.HTTP:
		return checkURL(s.Body)
	}
	return r.compile(ctx, s)
}

func checkURL(body string) error {
	u, err := url.Parse(body)
	switch {
	case err != nil:
		err = errors.Unwrap(err) // drops the URL, with which the message begins
	case u.Scheme != "http" && u.Scheme != "https":
		err = errors.New("it does not begin with http:// or https://")
	case u.Hostname() == "":
		err = errors.New("it has no host")
	default:
		return nil
	}
	return &CheckError{"invalid_value", "body", fmt.Sprintf("the URL %.200q is not valid: %v", body, err)}
}

// runFault says why a run ended without an outcome of its handler. Without a code the run has not
// ended: host is the temporary reason why it could not begin on this host, or ctx has ended.
type runFault struct {
	code, text string
	host       error
}

// faultOf returns the fault of an error before a run: with host if the error has a temporary cause
// on this host, otherwise with the code.
func faultOf(code string, err error) *runFault {
	if launch.IsTemporary(err) {
		return &runFault{host: err}
	}
	return &runFault{code: code, text: err.Error()}
}

// These are the codes of outcomes that the handler did not give.
const (
	codeContextFailed = "context_failed" // the handler process did not start
	codeContextDied   = "context_died"
	codeBeforeFailed  = "before_failed"
	codeTimeout       = job.CodeTimeout
	codeCPU           = "cpu"
	codeMemory        = "memory"
	codeOutput        = "output"
	codeLines         = "lines"
	codeConnection    = "connection_failed" // refused, not allowed, cut off
	codeNoResponse    = "no_response"       // a batch's reply has no line for the job
	codeBadResponse   = "bad_response"      // a batch's reply has a bad line for the job or for an earlier one
	codeWorkerLost    = "worker_lost"       // the Gloom worker was lost
	codeRefused       = "refused"           // the broker will never accept the job
)

func (f runFault) outcome() job.Outcome {
	return job.Outcome{Status: http.StatusInternalServerError, Code: f.code, Data: []byte(f.text)}
}

// failAll reports that all jobs of a batch ended with the same fault.
func (b Batch) failAll(o job.Outcome, to Reporter) {
	for i := range b.Jobs {
		to.Started(i)
		to.Ended(i, o)
	}
}
