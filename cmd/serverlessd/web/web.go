// Package web is the HTTP side of the serverless queue: requests and their checks, bodies, answers
// and errors. It makes no decisions about jobs.
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

// Scopes of tokens, in the order of Scopes.
const (
	Submit guard.Scope = 1 << iota
	Handle
	Read
	Admin
)

// ScopeNames are the scopes as they are written in a token file.
var ScopeNames = []string{"submit", "handler", "read", "admin"}

// Queue is the queue behind the requests.
type Queue interface {
	Add(ctx context.Context, batches []journal.Batch) (journal.Receipt, error)
	Share(ctx context.Context, lines []store.Keyed, ask unique.Ask) ([]store.Shared, error)
	Stored(ctx context.Context, r journal.Receipt) error
	Job(ctx context.Context, id job.ID) (*store.Record, error)
	Result(ctx context.Context, id job.ID) (*store.Record, []byte, error)
	Delete(ctx context.Context, id job.ID) error
	Retry(ctx context.Context, id job.ID) error
	Hasten(ctx context.Context, id job.ID) error
	Payload(ctx context.Context, id job.ID) (*store.Record, []byte, error)
	Jobs(ctx context.Context, q store.Query) (list []store.Record, next job.ID, err error)
	RetryAll(ctx context.Context, q store.Query) (affected int, more bool, err error)
	State(ctx context.Context, client string) (map[string]store.Counts, error)
	// Asides returns the files of jobs that were set aside; PutBack gives the jobs of one to a
	// store.
	Asides() ([]journal.Aside, error)
	PutBack(ctx context.Context, file string) (jobs int, err error)
	PutHandler(ctx context.Context, h *job.Handler) error
	DeleteHandler(ctx context.Context, jobtype string) (int, error)
	Handler(ctx context.Context, jobtype, id string) (*job.Handler, error)
	Versions(ctx context.Context, jobtype string) ([]store.Version, error)
	// Handlers returns the newest versions by jobtype. Neither it nor Look asks a store.
	Handlers() map[string]*job.Handler
	Snapshot() *engine.Snapshot
	PutSchedule(ctx context.Context, key schedule.Key, spec schedule.Spec) error
	DropSchedule(ctx context.Context, key schedule.Key) error
	Schedule(ctx context.Context, key schedule.Key) (store.Named, time.Time, error)
	Schedules(ctx context.Context, client string, after schedule.Key, limit int) ([]store.Named, time.Time, error)
	// Unhandled reports whether a type has no handler, as far as this daemon knows.
	Unhandled(jobtype string) bool
	Health() error
	Start()
	Stop()
}

// Options of the HTTP side.
type Options struct {
	MaxBody, MaxLine int // bytes
	MaxLines         int // of a body
	MaxBodies        int // large ones in memory at a time
	// Shown to operators: the bytes that may wait in the journal, the languages of handlers, and
	// the most batches and processes at a time.
	JournalMax            int64
	Languages             []string
	Concurrency, Contexts int
	// Quit makes the daemon stop; it returns at once.
	Quit    func()
	Metrics http.Handler
	Version string
}

// Web serves the requests of clients and operators.
type Web struct {
	queue     Queue
	door      *door.Door
	opt       Options
	places    *places // of bodies
	unread    *places // of results and payloads that are being written
	snapshots snapshotCache
	encoded   replies.Cache[snapshotKey] // the snapshots as they are sent
	past      moments.Ring
	began     time.Time
}

// New returns the handler of a door.
func New(q Queue, d *door.Door, opt Options) *Web {
	return &Web{queue: q, door: d, opt: opt, places: newPlaces(opt.MaxBodies), unread: newPlaces(opt.MaxBodies), began: time.Now()}
}

// Watch looks at the daemon now and then until stop, so that plots are filled when somebody opens
// the page, and each finding begins when its condition does.
func (s *Web) Watch(stop <-chan struct{}) { s.past.Run(stop, s.moment) }

// request is a parsed request.
type request struct {
	*http.Request
	w            http.ResponseWriter
	grant        *guard.Grant
	query        url.Values
	client, name string // name is a type or an id
}

// action says what a request does.
type action struct {
	methods string // allowed methods, separated by commas
	query   string // allowed parameters, separated by commas
	body    bool   // it takes a body
	scope   guard.Scope
	open    bool // anybody may, with any Host
	changes bool // it changes something, even if it is a GET
	do      func(*Web, *request) error
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
	var need door.Need
	a := route(req)
	if a != nil {
		need = door.Need{Methods: strings.Split(a.methods, ","), Scope: a.scope, Open: a.open, Changes: a.changes}
	}
	var err error
	if req.grant, err = s.door.Admit(w, r, need); err != nil {
		return err
	}
	if a.open {
		return a.do(s, req)
	}
	if req.query, err = url.ParseQuery(r.URL.RawQuery); err != nil {
		return fail(http.StatusBadRequest, "invalid_value", "query", "the query is malformed: %v", err)
	}
	if err := req.strict(a); err != nil {
		return err
	}
	if err := req.checkClient(); err != nil {
		return err
	}
	return a.do(s, req)
}

// strict refuses parameters and bodies that an action does not take, so that a misspelt filter is
// never ignored.
func (r *request) strict(a *action) error {
	takes := "it takes none"
	if a.query != "" {
		takes = "it takes " + strings.ReplaceAll(a.query, ",", ", ")
	}
	for name, values := range r.query {
		if !slices.Contains(strings.Split(a.query, ","), name) {
			return invalid(clip([]byte(name)), "%s has no parameter %.60q; %s", r.URL.Path, name, takes)
		}
		if len(values) > 1 {
			return invalid(name, "%s is given %d times; it may be given once", name, len(values))
		}
	}
	if a.body || r.ContentLength == 0 {
		return nil
	}
	if n, _ := r.Body.Read(make([]byte, 1)); n > 0 {
		r.w.Header().Set("Connection", "close") // the rest is not read
		return invalid("body", "%s takes no body; its parameters are in the query: %s", r.URL.Path, takes)
	}
	return nil
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

// jobtype returns the request's jobtype, checked, which the token must cover.
func (r *request) jobtype() (string, error) {
	if err := checkType("type", r.name); err != nil {
		return "", err
	}
	return r.covered(job.Jobtype(r.client, r.name))
}

func (r *request) covered(jobtype string) (string, error) {
	if !r.grant.Covers(jobtype) {
		return "", fail(http.StatusForbidden, "forbidden", "type", "the token does not cover %s", jobtype)
	}
	return jobtype, nil
}

func checkType(field, name string) error {
	if err := job.CheckType(name); err != nil {
		return fail(http.StatusBadRequest, "invalid_type", field, "%v", err)
	}
	return nil
}
