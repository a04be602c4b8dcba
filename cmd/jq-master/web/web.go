// Package web is the HTTP interface of JQ: it checks requests, calls the master, and encodes the
// master's answers in MessagePack or JSON. It makes no decisions about jobs. openapi.yaml describes
// the interface.
package web

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"io"
	"maps"
	"math"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/tinylib/msgp/msgp"
	"golang.org/x/sync/semaphore"

	"gloom/broker/admin/api"
	"gloom/broker/admin/moments"
	"gloom/broker/guard"
	"gloom/cmd/internal/door"
	"gloom/cmd/internal/replies"
	"gloom/cmd/jq-master/job"
	"gloom/cmd/jq-master/master"
	"gloom/cmd/jq-master/pack"
	"gloom/cmd/jq-master/page"
)

// Scopes are the scopes of tokens, sorted by their guard.Scope.
var Scopes = []string{"push", "work", "admin"}

const (
	mayPush guard.Scope = 1 << iota
	mayWork
	mayAdmin
)

// Config is the configuration of a Server.
type Config struct {
	Master *master.Master
	Door   *door.Door
	// MaxBody bounds the body of a request in bytes.
	MaxBody int
	// WorkerPort is for workers that give neither url nor port: jobs are pushed to this port at the
	// address from which the worker registers. If it is 0, such workers pull.
	WorkerPort int
	// CheckURL returns a fault if jobs of a worker that registers from host must not be pushed to
	// url.
	CheckURL func(url, host string) *job.Fault
	Registry *prometheus.Registry
}

// Server handles HTTP requests.
type Server struct {
	Config
	mux          *http.ServeMux
	requests     *prometheus.CounterVec
	exchanges    sync.Pool           // of *exchange
	inboundBytes atomic.Int64        // bytes of bodies that are being read
	outbound     *semaphore.Weighted // bytes of jobs' data that are being written, except to workers
	handouts     *semaphore.Weighted // bytes of arguments that are being written to workers that pull
	moments      moments.Ring
	replyCache   replies.Cache[statsRequest] // the statistics
	startedAt    time.Time
}

// outboundBytes returns how many bytes of jobs' data in large replies may be written at a time.
func (c *Config) outboundBytes() int64 { return maxLargeReplies * max(int64(c.MaxBody), largeReply) }

//go:embed openapi.yaml
var openAPI []byte

// New returns a Server that handles all requests.
func New(c Config) *Server {
	s := &Server{Config: c, mux: http.NewServeMux(), outbound: semaphore.NewWeighted(c.outboundBytes()), handouts: semaphore.NewWeighted(c.outboundBytes()), startedAt: time.Now()}
	s.exchanges.New = func() any { return &exchange{Server: s} }
	s.requests = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "gloom_jq_http_requests_total", Help: "Requests, by route and by the code of the reply.",
	}, []string{"route", "code"})
	c.Registry.MustRegister(s.requests)
	c.Registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "gloom_jq_unauthorized_total", Help: "Requests with a missing or unknown token.",
	}, func() float64 { return float64(c.Door.Unauthorized.Load()) }))
	c.Registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "gloom_jq_connections", Help: "HTTP connections that are open.",
	}, func() float64 { return float64(c.Door.Conns()) }))
	metrics := promhttp.HandlerFor(c.Registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4})
	s.mux.Handle("/metrics", s.newEndpoint("/metrics", plainOperations(metrics.ServeHTTP)))
	s.mux.Handle("/", s.newEndpoint("none", nil))
	s.mux.Handle("/{$}", s.newEndpoint("/", map[string]operation{http.MethodGet: {serve: index}}))
	for _, path := range page.Site.Paths() {
		s.mux.Handle(path, s.newEndpoint("page", plainOperations(page.Site.ServeHTTP)))
	}
	for pattern, methods := range routes {
		s.mux.Handle(pattern, s.newEndpoint(pattern, methods))
	}
	return s
}

// Watch reads the statistics and findings at intervals until stop is closed. So plots have data
// when the page is opened, and findings show how long they have lasted.
func (s *Server) Watch(stop <-chan struct{}) {
	s.moments.Collect(stop, func() (m moments.Moment, h moments.Histograms, known bool) {
		_, err := s.Master.Findings()
		st, fault := s.Master.Stats(0)
		if err != nil || fault != nil {
			return m, h, false
		}
		ledger := &st.Ledger
		return moments.Moment{Moment: api.Moment{
			Submitted: uint64(ledger.Enqueued + ledger.Revived), Ended: uint64(ledger.Done + ledger.Failed + ledger.Cancelled), Failed: uint64(ledger.Failed),
			Queued: uint64(ledger.Waiting), Running: uint64(ledger.Running),
		}}, moments.Histograms{Bounds: master.Bounds(), Waits: st.Wait[:], Runs: st.Run[:]}, true
	})
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if p := r.URL.EscapedPath(); p != path.Clean(p) {
		s.newEndpoint("none", nil).ServeHTTP(w, r) // the mux itself would redirect the request
		return
	}
	s.mux.ServeHTTP(w, api.MarkSlashes(r))
}

// plainOperations returns a GET operation for a handler that reveals nothing about jobs. Any client
// may call it, with any Host header and beyond the limit on connections.
func plainOperations(serve http.HandlerFunc) map[string]operation {
	return map[string]operation{http.MethodGet: {serve: func(x *exchange) (int, error) { return x.plain(serve) }}}
}

// plain lets a handler that knows nothing of exchanges write the reply.
func (x *exchange) plain(serve http.HandlerFunc) (int, error) {
	t := statusRecorder{x.w, http.StatusOK}
	serve(&t, x.r)
	x.status = t.status
	return x.status, nil
}

// statusRecorder is a ResponseWriter that records the status of the reply.
type statusRecorder struct {
	http.ResponseWriter
	status int
}

func (t *statusRecorder) WriteHeader(status int) {
	t.status = status
	t.ResponseWriter.WriteHeader(status)
}

// index serves the page to clients that accept HTML. The page has no secret; it only says whether a
// token is needed.
func index(x *exchange) (int, error) {
	if !strings.Contains(x.r.Header.Get("Accept"), "text/html") {
		return 0, job.Refuse(job.NotFound, "", "\"/\" has only the page, for clients that accept text/html")
	}
	return x.plain(func(w http.ResponseWriter, r *http.Request) {
		if x.Door.IsGuarded() {
			page.Site.Index(w, r, []byte(`{"guarded":true}`))
			return
		}
		page.Site.Visit(w, r, x.Server, map[string]string{"status": "/v1/status", "look": "/v1/stats?names=20&shared=true", "history": "/v1/moments"})
	})
}

func healthz(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") }

func openapi(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/yaml")
	_, _ = w.Write(openAPI)
}

func readyz(x *exchange) (int, error) {
	return x.plain(func(w http.ResponseWriter, r *http.Request) {
		if err := x.Master.Ready(); err != nil {
			w.Header().Set("Retry-After", "1")
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		healthz(w, r)
	})
}

// handler serves an operation. It writes a reply to x and returns the reply's status, or it returns
// an error, which becomes the reply.
type handler func(x *exchange) (status int, err error)

// answer asks the master, unless the request has a fault, and makes what show returns the reply.
func answer[T any](x *exchange, call func() (T, error), show func(T) object) (int, error) {
	if x.fault != nil {
		return 0, x.fault
	}
	v, err := call()
	if err != nil {
		return 0, err
	}
	x.object(show(v)...)
	return http.StatusOK, nil
}

// act has the master do something, unless the request has a fault. The reply has no body.
func (x *exchange) act(do func() error) (int, error) {
	if x.fault != nil {
		return 0, x.fault
	}
	return http.StatusNoContent, do()
}

// operation is the handler of a method on a path, and the scope that a request needs.
type operation struct {
	scope guard.Scope
	serve handler
	query []string // known parameters
}

// endpoint is a path and its operations.
type endpoint struct {
	*Server
	pattern string
	methods map[string]operation
	allowed []string // the names of methods
}

func (s *Server) newEndpoint(pattern string, methods map[string]operation) *endpoint {
	e := &endpoint{Server: s, pattern: pattern, methods: methods}
	for _, m := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodDelete} {
		if _, ok := methods[m]; ok {
			e.allowed = append(e.allowed, m)
		}
	}
	return e
}

// reply returns the encoding of replies to requests that name none: MessagePack for pushers and
// workers, JSON for operators.
func (e *endpoint) reply() string {
	for _, op := range e.methods {
		if op.scope == mayPush || op.scope == mayWork {
			return msgpackType
		}
	}
	return jsonType
}

// ServeHTTP implements http.Handler.
func (e *endpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x := e.exchanges.Get().(*exchange)
	defer x.release() // also after a panic, which the HTTP server catches
	x.w, x.r, x.replyType, x.defaultBodyType = w, r, e.reply(), e.reply()
	status, err := x.serve(e)
	if err != nil {
		status = x.refuse(err)
	}
	if x.status == 0 && status != 0 {
		x.send(status)
	}
	e.requests.WithLabelValues(e.pattern, strconv.Itoa(x.status)).Inc()
}

// serve checks a request and calls its handler.
func (x *exchange) serve(e *endpoint) (int, error) {
	contentType := mediaType(x.r.Header.Get("Content-Type"))
	if contentType != "" {
		x.replyType = contentType
	}
	reply := replyType(x.r.Header["Accept"], x.replyType)
	if reply != "" {
		x.replyType = reply
	}
	method := x.r.Method
	if method == http.MethodHead {
		method = http.MethodGet
	}
	op := e.methods[method]
	var err error
	x.grant, err = x.Door.Admit(x.w, x.r, door.Requirements{
		Methods: e.allowed, Scope: op.scope, Public: op.serve != nil && op.scope == 0,
		AnyHost: op.scope != mayAdmin && x.r.Header.Get("Origin") == "",
	})
	var refusal *door.Refusal
	switch {
	case errors.As(err, &refusal) && refusal.Status == http.StatusForbidden:
		return 0, job.Refuse(job.Forbidden, "", "%s", refusal.Reason)
	case refusal != nil:
		return 0, job.Refuse(job.Code{Name: refusal.Code, Status: refusal.Status}, "", "%s", refusal.Reason)
	case op.scope == 0:
		return op.serve(x)
	}
	if reply == "" {
		return 0, job.Refuse(job.NotAcceptable, "", "replies are %s or %s, but the Accept header allows neither: %.200q", msgpackType, jsonType, x.r.Header.Get("Accept"))
	}
	if x.readQuery(op); x.fault != nil {
		return 0, x.fault
	}
	return op.serve(x)
}

// noteFault notes what is wrong with the request, unless a fault is known already.
func (x *exchange) noteFault(code job.Code, field, format string, args ...any) {
	x.note(job.Refuse(code, field, format, args...))
}

func (x *exchange) note(fault *job.Fault) {
	if x.fault == nil {
		x.fault = fault
	}
}

// readQuery reads the query and refuses parameters that are unknown or given twice, except those
// of workers.
func (x *exchange) readQuery(op operation) {
	if x.r.URL.RawQuery == "" {
		return
	}
	var err error
	x.query, err = url.ParseQuery(x.r.URL.RawQuery)
	switch {
	case op.scope == mayWork:
		return
	case err != nil:
		x.noteFault(job.InvalidValue, "", "the query is malformed: %.200q: %v", x.r.URL.RawQuery, err)
	}
	for _, name := range slices.Sorted(maps.Keys(x.query)) {
		if !slices.Contains(op.query, name) {
			x.note(unknownField("parameter", "", msgp.AppendString(nil, name), op.query))
		}
		if n := len(x.query[name]); n > 1 {
			x.noteFault(job.InvalidValue, name, "%s is given %d times; it may be given once", name, n)
		}
	}
}

// exchange is a request and its reply.
type exchange struct {
	*Server
	w               http.ResponseWriter
	r               *http.Request
	grant           *guard.Grant
	query           url.Values
	fault           *job.Fault // the first fault in the request; the methods that read it then return zero values
	replyType       string     // media type
	defaultBodyType string     // media type of a request body without Content-Type
	status          int        // the status of the reply; 0 until it is sent
	body            bytes.Buffer
	json            []byte // buffer for a reply in JSON
	sharedReply     []byte // the whole reply, if it is shared with other requests
	// reserved is the number of bytes that the reply has of reservedOf, which is outbound or handouts.
	reserved   int64
	reservedOf *semaphore.Weighted
	replyBuilder
}

// reserve makes a large reply wait while many others are being written, because each reply stays in
// memory until it is written. n is the number of bytes of jobs' data in the reply. It fails if the
// client has gone.
func (x *exchange) reserve(n int) error {
	return x.reserveOf(x.outbound, n, func(room int64) error { return x.outbound.Acquire(x.r.Context(), room) })
}

// maxHandoutWait is how long jobs that a worker has pulled wait for others that are being written: their
// runs have begun.
const maxHandoutWait = 2 * time.Second

// reserveHandout is like reserve, for jobs that a worker has pulled. Replies to others do not delay them.
// Unless mayWait is set, it fails at once if there is no room.
func (x *exchange) reserveHandout(n int, mayWait bool) error {
	return x.reserveOf(x.handouts, n, func(room int64) error {
		if x.handouts.TryAcquire(room) {
			return nil
		}
		if mayWait {
			ctx, cancel := context.WithTimeout(x.r.Context(), maxHandoutWait)
			defer cancel()
			if err := x.handouts.Acquire(ctx, room); err == nil || x.r.Context().Err() != nil {
				return err
			}
		}
		fault := job.Refuse(job.Overloaded, "", "the jobs' arguments have %d bytes, and other workers have not read theirs yet; at most %d bytes are written at a time", n, x.outboundBytes())
		fault.RetryAfter = time.Second
		return fault
	})
}

// reserveOf reserves room for a reply of n bytes, unless it is small.
func (x *exchange) reserveOf(of *semaphore.Weighted, n int, acquire func(room int64) error) error {
	room := min(int64(n), x.outboundBytes())
	if room <= largeReply {
		return nil
	}
	if err := acquire(room); err != nil {
		return err
	}
	x.reserved, x.reservedOf = room, of
	return nil
}

func (x *exchange) unreserve() {
	if x.reserved > 0 {
		x.reservedOf.Release(x.reserved)
		x.reserved = 0
	}
}

// maxKeptBuffer is the size of the largest buffer that is kept for reuse.
const maxKeptBuffer = 64 << 10

func (x *exchange) release() {
	x.unreserve()
	x.w, x.r, x.grant, x.query, x.fault, x.sharedReply, x.status = nil, nil, nil, nil, nil, nil, 0
	if x.body.Reset(); x.body.Cap() > maxKeptBuffer {
		x.body = bytes.Buffer{}
	}
	if x.buf, x.json = x.buf[:0], x.json[:0]; cap(x.buf) > maxKeptBuffer || cap(x.json) > maxKeptBuffer {
		x.buf, x.json = nil, nil
	}
	x.exchanges.Put(x)
}

// refuse makes an error the reply, sets the headers that it needs, and returns the status of the
// reply, or 0 if the client has gone.
func (x *exchange) refuse(err error) int {
	var f *job.Fault
	if !errors.As(err, &f) {
		return 0 // the request's context has ended
	}
	reply := object{"error", f.Code.Name, "reason", f.Reason}
	if f.Field != "" {
		reply = append(reply, "field", f.Field)
	}
	x.buf = x.buf[:0]
	x.object(reply...)
	switch f.Code.Status {
	case http.StatusUnauthorized:
		x.w.Header().Set("WWW-Authenticate", `Bearer realm="jq"`)
	case http.StatusServiceUnavailable:
		wait := max(1, int(math.Ceil(f.RetryAfter.Seconds())))
		x.w.Header().Set("Retry-After", strconv.Itoa(wait))
	}
	return f.Code.Status
}

// replyBody returns the body of the reply, which is valid until x.release.
func (x *exchange) replyBody() []byte {
	switch {
	case x.sharedReply != nil:
		return x.sharedReply
	case x.replyType == jsonType:
		x.json = appendJSONLine(x.json[:0], x.buf)
		return x.json
	}
	return x.buf
}

// send writes the reply and reports whether all of it was sent.
func (x *exchange) send(status int) (whole bool) {
	x.status = status
	h := x.w.Header()
	h["X-Content-Type-Options"] = noSniff
	if status == http.StatusNoContent {
		x.w.WriteHeader(status)
		return true
	}
	body := x.replyBody()
	h["Content-Type"] = []string{x.replyType}
	h["Content-Length"] = []string{strconv.Itoa(len(body))}
	x.w.WriteHeader(status)
	if x.r.Method == http.MethodHead {
		return true
	}
	return x.write(body) == nil
}

const (
	// A client must read enough of a large reply within minReadTime that the system takes readStep bytes
	// more, and all of it within maxReadTime: others wait for the room that the reply takes. The system
	// takes no more until a third of its buffer is free: on this host, that can be a megabyte.
	minReadTime = 30 * time.Second
	maxReadTime = 2 * time.Minute
)

// write writes the body of a reply, a part at a time if there is room reserved for it.
func (x *exchange) write(body []byte) error {
	if x.reserved == 0 {
		_, err := x.w.Write(body)
		return err
	}
	ctl, end := http.NewResponseController(x.w), time.Now().Add(maxReadTime)
	for len(body) > 0 {
		deadline := time.Now().Add(minReadTime)
		if deadline.After(end) {
			deadline = end
		}
		_ = ctl.SetWriteDeadline(deadline) // fails without a connection, as in tests
		n, err := x.w.Write(body[:min(len(body), readStep)])
		if err != nil {
			return err
		}
		body = body[n:]
	}
	return nil
}

var noSniff = []string{"nosniff"}

// flush passes everything that was written to the operating system.
func (x *exchange) flush() error { return http.NewResponseController(x.w).Flush() }

// form returns the fields of the request's body, which must be a map with no others.
func (x *exchange) form(names ...string) fieldReader {
	v := x.value()
	if x.fault != nil {
		return fieldReader{fault: x.fault}
	}
	return readStrict(v, "", names...)
}

// value returns the request's body, which must be one value; nil after a fault.
func (x *exchange) value() pack.Value {
	if x.fault != nil {
		return nil
	}
	v, fault := x.readValue()
	if x.fault = fault; fault != nil {
		return nil
	}
	return v
}

func (x *exchange) readValue() (pack.Value, *job.Fault) {
	contentType := x.r.Header.Get("Content-Type")
	media := x.defaultBodyType
	if contentType != "" {
		media = mediaType(contentType)
	}
	if media == "" {
		return nil, job.Refuse(job.UnsupportedMedia, "", "the Content-Type must be %s or %s, not %.200q", msgpackType, jsonType, contentType)
	}
	if e := x.r.Header.Get("Content-Encoding"); e != "" && !strings.EqualFold(e, "identity") {
		return nil, job.Refuse(job.UnsupportedMedia, "", "a body must not be encoded, but is %.200q", e)
	}
	if fault := x.readBody(); fault != nil {
		return nil, fault
	}
	if media == jsonType {
		return pack.FromJSON(x.body.Bytes())
	}
	if fault := pack.Check(x.body.Bytes()); fault != nil {
		return nil, fault
	}
	return x.body.Bytes(), nil
}

const (
	// maxLargeReplies limits how many of the largest replies are written at once; slow readers
	// count, too. Replies with up to largeReply bytes of jobs' data are not limited.
	maxLargeReplies = 32
	largeReply      = 16 << 10
	// maxInboundBodies limits the bodies of the largest size that may be read at a time.
	maxInboundBodies = 64
	readStep         = 32 << 10
)

// readBody reads the request's body, up to MaxBody. The memory that it uses grows with the bytes
// that arrive, not with the announced length.
func (x *exchange) readBody() *job.Fault {
	limit := x.MaxBody
	if x.r.ContentLength > int64(limit) {
		return x.refuseTooLarge(strconv.FormatInt(x.r.ContentLength, 10))
	}
	counted := 0
	defer func() { x.inboundBytes.Add(-int64(counted)) }()
	for {
		if growth := x.body.Len() + readStep - counted; growth > 0 {
			counted += growth
			if x.inboundBytes.Add(int64(growth)) > maxInboundBodies*int64(limit) {
				x.w.Header().Set("Connection", "close")
				return job.Refuse(job.Overloaded, "", "the bodies being received have more than %d bytes", maxInboundBodies*limit)
			}
		}
		n, err := x.body.ReadFrom(io.LimitReader(x.r.Body, min(readStep, int64(limit+1-x.body.Len()))))
		switch {
		case x.body.Len() > limit:
			return x.refuseTooLarge("more")
		case err != nil:
			x.w.Header().Set("Connection", "close")
			return job.Refuse(job.InvalidBody, "", "the body ended after %d bytes: %v", x.body.Len(), err)
		case n < readStep:
			return nil
		}
	}
}

// skipBody reads the body of a request that needs none. The HTTP server notices a client's
// departure only after the body was read, and a pull must not take jobs for a worker that has gone.
func (x *exchange) skipBody() {
	if x.fault == nil {
		x.fault = x.readBody()
	}
	if x.body.Len() > 0 { // the request may wait for long
		x.body = bytes.Buffer{}
	}
}

func (x *exchange) refuseTooLarge(bytes string) *job.Fault {
	x.w.Header().Set("Connection", "close")
	return job.Refuse(job.TooLarge, "", "the body has %s bytes; at most %d are allowed (max-body)", bytes, x.MaxBody)
}
