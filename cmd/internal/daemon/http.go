package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"gloom/broker/guard"
	"gloom/cmd/internal/cli"
)

// NewRegistry returns a registry with the metrics of the process and the
// runtime.
func NewRegistry() *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}

// HTTP serves /metrics, /healthz (the process answers) and /readyz (it can do its work).
// Without an address there is no port, and all methods do nothing.
type HTTP struct {
	server   *http.Server
	listener net.Listener
}

// ListenHTTP opens the port. Health returns nil, or the reason why the daemon cannot do its
// work.
func ListenHTTP(addr string, registry *prometheus.Registry, health func() error) (*HTTP, error) {
	if addr == "" {
		return &HTTP{}, nil
	}
	listener, err := Listen(addr)
	if err != nil {
		return nil, err
	}
	server := &http.Server{
		Handler: Probes(registry, health), ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second,
		WriteTimeout: 30 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10,
	}
	return &HTTP{server, listener}, nil
}

// Listen binds the address that http_addr names: "host:port", or "http://host:port". It has
// no TLS.
func Listen(addr string) (net.Listener, error) {
	addr, scheme := guard.CutHTTP(addr)
	if scheme == "https" {
		return nil, errors.New("http_addr: there is no TLS here, so https:// cannot be served; http:// or host:port can")
	}
	host, _, _ := net.SplitHostPort(addr)
	listener, err := net.Listen(cli.Network(host), addr)
	if err != nil {
		return nil, fmt.Errorf("http_addr: %w", err)
	}
	return listener, nil
}

// Probes serves /metrics, /healthz and /readyz.
func Probes(registry *prometheus.Registry, health func() error) *http.ServeMux {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := health(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	return mux
}

// Addr returns the address that is served, "" for none.
func (h *HTTP) Addr() string {
	if h.listener == nil {
		return ""
	}
	return h.listener.Addr().String()
}

// Serve serves in the background.
func (h *HTTP) Serve() {
	if h.server != nil {
		go func() { _ = h.server.Serve(h.listener) }()
	}
}

// Close stops serving, after the current answers or a second.
func (h *HTTP) Close() {
	if h.server == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if h.server.Shutdown(ctx) != nil {
		_ = h.server.Close()
	}
	_ = h.listener.Close()
}
