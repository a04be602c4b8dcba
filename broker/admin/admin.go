// Package admin is the operators' side of a broker, over HTTP.
package admin

import (
	"net/http"

	"github.com/rs/zerolog"

	"gloom/broker/hub"
)

// Broker is what the operators' side needs of a running broker.
type Broker interface {
	Hub() *hub.Hub
	Draining() bool
	Authorize(token string) (known, allowed bool)
	Drain()
}

// New returns the handler for the HTTP address.
func New(b Broker, _ zerolog.Logger) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("ok\n"))
	})
	return mux
}
