package main

import (
	"context"
	"encoding/json"
	"errors"
	"sync"

	"gloom/cmd/jobd/control"
	"gloom/cmd/jobd/peer"
)

// late serves requests before the engine is open: they are answered with the reason for the wait
// as an error.
type late struct {
	mu     sync.Mutex // guards the fields below
	engine control.Daemon
	routes peer.Routes
	why    error
}

var errStarting = errors.New("the daemon is starting")

func (l *late) arrive(engine control.Daemon) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.engine, l.routes, l.why = engine, control.Routes(engine), nil
}

func (l *late) wait(why error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.why = why
}

func (l *late) get() (control.Daemon, peer.Routes, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.engine, l.routes, l.why
}

func (l *late) health() error {
	engine, _, err := l.get()
	if err != nil {
		return err
	}
	return engine.Health()
}

// served returns the routes of the engine, which may be used before the engine is open.
func (l *late) served() peer.Routes {
	served := make(peer.Routes)
	for name, route := range control.Routes(nil) {
		served[name] = peer.Route{Waits: route.Waits, Handle: func(ctx context.Context, c *peer.Conn, data json.RawMessage) (any, error) {
			_, routes, err := l.get()
			if err != nil {
				return nil, err
			}
			return routes[name].Handle(ctx, c, data)
		}}
	}
	return served
}
