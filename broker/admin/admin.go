// Package admin is the operators' side of a broker, over HTTP: metrics, health, a view of
// jobs, types and peers, and the few things that operators may change. It asks the hub and
// decides nothing about jobs itself. openapi.json describes the API.
package admin

import (
	"net/http"
	"net/http/pprof"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/rs/zerolog"
	"golang.org/x/sync/semaphore"

	"gloom/broker/admin/api"
	"gloom/broker/admin/moments"
	web "gloom/broker/admin/page"
	"gloom/broker/server"
)

// API is the HTTP API for the operators of one broker.
type API struct {
	srv *server.Server
	log zerolog.Logger
	mux *http.ServeMux
	// buildMu is held while a piece of a long answer or of a long change is made, but not while
	// that piece is written. Thus all operators together use one processor and leave the others to
	// jobs.
	buildMu     sync.Mutex
	snapshot    snapshot
	surveys     surveys
	figureBytes figureBytes
	moments     moments.Ring
	// openStreams counts the open event streams.
	openStreams atomic.Int64
	// submitBytes bounds the bytes of jobs that are being received.
	submitBytes *semaphore.Weighted
}

// figureBytes is the memory that rates of the last day and the snapshot of all types take, in
// bytes.
type figureBytes struct{ rates, snapshot atomic.Int64 }

func (h *figureBytes) total() int64 { return h.rates.Load() + h.snapshot.Load() }

// New returns the handler for the HTTP address of a broker.
func New(srv *server.Server, log zerolog.Logger) *API {
	opt := srv.Options()
	a := &API{srv: srv, log: log, mux: http.NewServeMux()}
	a.submitBytes = semaphore.NewWeighted(max(opt.MaxMemory/submitShare, submitFrames*int64(opt.MaxFrame+1)))
	reg := prometheus.NewRegistry()
	reg.MustRegister(&collector{srv: srv, figureBytes: &a.figureBytes}, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	a.mux.Handle("GET /metrics", promhttp.HandlerFor(reg, promhttp.HandlerOpts{MaxRequestsInFlight: 4}))
	a.mux.HandleFunc("GET /healthz", a.healthz)
	a.mux.HandleFunc("GET /readyz", a.readyz)
	a.mux.HandleFunc("GET /openapi.json", a.getOpenAPI)
	for _, r := range routes {
		a.mux.HandleFunc(r.pattern, a.withAuthorization(r))
	}
	for _, path := range web.Site.Paths() {
		a.mux.HandleFunc("GET "+path, web.Site.ServeHTTP)
	}
	a.mux.HandleFunc("GET /{$}", a.getPage)
	a.mux.HandleFunc("/", a.notFound)
	go a.recordMoments(srv.Done())
	if srv.Options().Pprof {
		a.mux.HandleFunc("GET /debug/pprof/", a.withAuthorization(route{serve: withoutError(pprof.Index)}))
		a.mux.HandleFunc("GET /debug/pprof/profile", a.withAuthorization(route{serve: withoutError(pprof.Profile)}))
		a.mux.HandleFunc("GET /debug/pprof/symbol", a.withAuthorization(route{serve: withoutError(pprof.Symbol)}))
		a.mux.HandleFunc("GET /debug/pprof/trace", a.withAuthorization(route{serve: withoutError(pprof.Trace)}))
	}
	return a
}

// withBuildLock holds buildMu while fn makes a piece of a long answer or of a long change.
func (a *API) withBuildLock(fn func()) {
	a.buildMu.Lock()
	defer a.buildMu.Unlock() // a request that panics must not keep others out
	fn()
}

// ServeHTTP implements http.Handler.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !publicPaths[r.URL.Path] && !a.ownHost(r.Host) {
		e := foreignHostError(r.Host)
		reply(w, e.Status, e)
		return
	}
	a.mux.ServeHTTP(w, api.MarkSlashes(r))
}

// publicPaths is the set of paths that reveal nothing about jobs: anybody may request them, with any
// Host.
var publicPaths = map[string]bool{"/healthz": true, "/readyz": true, "/metrics": true, "/openapi.json": true}

func withoutError(h http.HandlerFunc) handler {
	return func(_ *API, w http.ResponseWriter, r *http.Request) error {
		h(w, r)
		return nil
	}
}

func (a *API) healthz(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) }

func (a *API) readyz(w http.ResponseWriter, _ *http.Request) {
	if a.srv.Draining() {
		http.Error(w, "draining", http.StatusServiceUnavailable)
		return
	}
	_, _ = w.Write([]byte("ok\n"))
}
