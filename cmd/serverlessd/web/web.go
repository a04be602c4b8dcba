// Package web is the HTTP interface of serverlessd: it checks requests, parses bodies, calls the
// queue, and writes answers and errors. It makes no decisions about jobs.
package web

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"gloom/broker/admin/moments"
	"gloom/broker/guard"
	"gloom/cmd/internal/door"
	"gloom/cmd/internal/replies"
	"gloom/cmd/internal/schedule"
	"gloom/cmd/internal/unique"
	"gloom/cmd/serverlessd/engine"
	"gloom/cmd/serverlessd/job"
	"gloom/cmd/serverlessd/journal"
	"gloom/cmd/serverlessd/store"
)

// These are the scopes of tokens. Their bits have the order of ScopeNames.
const (
	Submit guard.Scope = 1 << iota
	Handle
	Read
	Admin
)

// ScopeNames holds the names of the scopes as token files write them.
var ScopeNames = []string{"submit", "handler", "read", "admin"}

// Queue is the queue on which requests act. The engine implements it.
type Queue interface {
	Add(ctx context.Context, batches []journal.Batch) (journal.Receipt, error)
	AddUnique(ctx context.Context, lines []store.KeyedEntry, keyReq unique.Request) ([]store.UniqueResult, error)
	Stored(ctx context.Context, r journal.Receipt) error
	Job(ctx context.Context, id job.ID) (*store.Record, error)
	Result(ctx context.Context, id job.ID, limit int) (*store.Record, []byte, error)
	Delete(ctx context.Context, id job.ID) error
	Retry(ctx context.Context, id job.ID) error
	Hasten(ctx context.Context, id job.ID) error
	Payload(ctx context.Context, id job.ID, limit int) (*store.Record, []byte, error)
	Jobs(ctx context.Context, q store.Query) (list []store.Record, next job.ID, err error)
	RetryAll(ctx context.Context, q store.Query) (affected int, more bool, err error)
	State(ctx context.Context, client string) (map[string]store.Counts, error)
	// AsideFiles returns the files of jobs that were set aside. PutBack gives the jobs of a file to
	// a store.
	AsideFiles() ([]journal.AsideFile, error)
	PutBack(ctx context.Context, file string) (jobs int, err error)
	PutHandler(ctx context.Context, h *job.Handler) error
	DeleteHandler(ctx context.Context, jobtype string) (int, error)
	Handler(ctx context.Context, jobtype, id string) (*job.Handler, error)
	Versions(ctx context.Context, jobtype string) ([]store.Version, error)
	// Handlers returns the newest version of each handler, by jobtype. Handlers and Snapshot do not
	// call a store.
	Handlers() map[string]*job.Handler
	Snapshot() *engine.Snapshot
	PutSchedule(ctx context.Context, key schedule.Key, spec schedule.Spec) error
	DropSchedule(ctx context.Context, key schedule.Key) error
	Schedule(ctx context.Context, key schedule.Key) (store.NamedSchedule, time.Time, error)
	Schedules(ctx context.Context, client string, after schedule.Key, limit int) ([]store.NamedSchedule, time.Time, error)
	// IsUnhandled reports whether a type has no handler, as far as this daemon knows.
	IsUnhandled(jobtype string) bool
	Health() error
	Degraded() error
	Start()
	Stop()
}

// Options holds the options of the HTTP interface.
type Options struct {
	MaxBody, MaxLineBytes int // bytes
	MaxLines              int // maximum number of lines of a body
	MaxBodies             int // maximum number of large bodies in memory at a time, and of results
	// The following are only shown to operators: the maximum size of the journal in bytes, the
	// languages of handlers, and the maximum numbers of batches and of processes at a time.
	JournalMax                int64
	Languages                 []string
	Concurrency, MaxProcesses int
	// Quit makes the daemon stop. It returns at once.
	Quit    func()
	Metrics http.Handler
	Version string
}

// Web handles the requests of clients and operators.
type Web struct {
	queue         Queue
	door          *door.Door
	opt           Options
	bodyBuffers   *bufferPool // limits large bodies that are being read
	resultBuffers *bufferPool // limits large results and payloads that are being written
	snapshots     snapshotCache
	replyCache    replies.Cache[snapshotKey] // encoded answers of stats
	history       moments.Ring
	startedAt     time.Time
}

// New returns the HTTP handler for a door.
func New(q Queue, d *door.Door, opt Options) *Web {
	return &Web{queue: q, door: d, opt: opt, bodyBuffers: newBufferPool(opt.MaxBodies), resultBuffers: newBufferPool(opt.MaxBodies), startedAt: time.Now()}
}

// Watch takes snapshots at intervals until stop is closed. So plots have data when the page is
// opened, and findings show how long they have lasted.
func (s *Web) Watch(stop <-chan struct{}) { s.history.Collect(stop, s.moment) }

// request is a request and what is known about it.
type request struct {
	*http.Request
	w            http.ResponseWriter
	grant        *guard.Grant
	query        url.Values
	client, name string // name is a type or an id
	jobtype      string // client and type of a typed action
}

// action describes what can be requested with a path.
type action struct {
	methods   string // allowed methods, separated by commas
	query     string // allowed parameters, separated by commas
	body      bool   // whether a request has a body
	scope     guard.Scope
	public    bool // any client may request it, with any Host header
	mutates   bool // it changes something although it may be requested with GET
	needsType bool // its name is a type, which the token must cover
	run       func(*Web, *request) error
	// byMethod holds the actions of this path that other methods request.
	byMethod map[string]*action
}

// ServeHTTP implements http.Handler.
func (s *Web) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if err := s.serve(w, r); err != nil {
		reply(w, err)
	}
}

func (s *Web) serve(w http.ResponseWriter, r *http.Request) error {
	req := &request{Request: r, w: w}
	var requirements door.Requirements
	a := route(req)
	if a != nil {
		requirements = door.Requirements{Methods: strings.Split(a.methods, ","), Scope: a.scope, Public: a.public, Mutates: a.mutates}
	}
	var err error
	if req.grant, err = s.door.Admit(w, r, requirements); err != nil {
		return err
	}
	if a.public {
		return a.run(s, req)
	}
	if req.query, err = url.ParseQuery(r.URL.RawQuery); err != nil {
		return fail(http.StatusBadRequest, "invalid_value", "query", "the query is malformed: %v", err)
	}
	if err := req.checkQuery(a); err != nil {
		return err
	}
	err = req.checkClient()
	if err == nil && a.needsType {
		err = req.setJobtype()
	}
	if err != nil {
		return err
	}
	return a.run(s, req)
}

// checkQuery returns an error for parameters and bodies that an action does not accept, so that a
// misspelt filter is never ignored.
func (r *request) checkQuery(a *action) error {
	for name, values := range r.query {
		if !slices.Contains(strings.Split(a.query, ","), name) {
			return invalid(shortText([]byte(name)), "%s has no parameter %.60q; %s", r.URL.Path, name, a.queryText())
		}
		if len(values) > 1 {
			return invalid(name, "%s is given %d times; it may be given once", name, len(values))
		}
	}
	if a.body || guard.HasNoBody(r.Request) {
		return nil
	}
	r.w.Header().Set("Connection", "close") // the client need not send the rest
	return invalid("body", "%s accepts no body; its parameters are in the query: %s", r.URL.Path, a.queryText())
}

// queryText returns a text that lists the parameters of an action.
func (a *action) queryText() string {
	if a.query == "" {
		return "it accepts none"
	}
	return "it accepts " + strings.ReplaceAll(a.query, ",", ", ")
}

func (r *request) checkClient() error {
	if r.client == "" {
		return nil
	}
	if err := job.CheckClient(r.client); err != nil {
		return fail(http.StatusBadRequest, "invalid_client", "client", "%v", err)
	}
	return nil
}

// setJobtype sets the jobtype. It returns an error if the jobtype is not valid, or if the token
// does not cover the jobtype.
func (r *request) setJobtype() error {
	if err := checkType("type", r.name); err != nil {
		return err
	}
	r.jobtype = job.Jobtype(r.client, r.name)
	return r.covers(r.jobtype)
}

func (r *request) covers(jobtype string) error {
	if !r.grant.Covers(jobtype) {
		return fail(http.StatusForbidden, "forbidden", "type", "the token does not cover %s", jobtype)
	}
	return nil
}

func checkType(field, name string) error {
	if err := job.CheckType(name); err != nil {
		return fail(http.StatusBadRequest, "invalid_type", field, "%v", err)
	}
	return nil
}
