package main

import (
	"context"
	"encoding/json"
	"errors"
	"sync"

	"gloom/cmd/jobd/control"
	"gloom/cmd/jobd/peer"
)

// lateEngine serves requests before the engine is open: they are answered with the reason for
// the wait as an error.
type lateEngine struct {
	mu     sync.Mutex // guards the fields below
	engine control.Daemon
	routes peer.Routes
	why    error
}

var errStarting = errors.New("the daemon is starting")

func (l *lateEngine) arrive(engine control.Daemon) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.engine, l.routes, l.why = engine, control.Routes(engine), nil
}

func (l *lateEngine) wait(why error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.why = why
}

func (l *lateEngine) current() (control.Daemon, peer.Routes, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.engine, l.routes, l.why
}

func (l *lateEngine) health() error {
	engine, _, err := l.current()
	if err != nil {
		return err
	}
	return engine.Health()
}

// serverRoutes returns routes that can be served before the engine is open, and then pass requests
// on to it.
func (l *lateEngine) serverRoutes() peer.Routes {
	routes := make(peer.Routes)
	for name, route := range control.Routes(nil) {
		routes[name] = peer.Route{Waits: route.Waits, Handle: func(ctx context.Context, c *peer.Conn, data json.RawMessage) (any, error) {
			_, opened, err := l.current()
			if err != nil {
				return nil, err
			}
			return opened[name].Handle(ctx, c, data)
		}}
	}
	return routes
}
