package daemon

import (
	"errors"
	"fmt"
	"net"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"gloom/broker/guard"
	"gloom/cmd/internal/cli"
)

// NewRegistry returns a registry with the metrics of this process and of the Go runtime.
func NewRegistry() *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}

// Listen binds the address that http_addr names: "host:port", or "http://host:port". It has
// no TLS.
func Listen(addr string) (net.Listener, error) {
	addr, scheme := guard.CutHTTP(addr)
	if scheme == "https" {
		return nil, errors.New("http_addr: https is not supported here; use http:// or host:port")
	}
	host, _, _ := net.SplitHostPort(addr)
	listener, err := net.Listen(cli.ListenNetwork(host), addr)
	if err != nil {
		return nil, fmt.Errorf("http_addr: %w", err)
	}
	return listener, nil
}

// NewHealthMux serves /metrics, /healthz and /readyz.
func NewHealthMux(registry *prometheus.Registry, health func() error) *http.ServeMux {
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
