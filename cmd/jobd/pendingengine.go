package main

import (
	"context"
	"encoding/json"
	"errors"
	"sync"

	"gloom/cmd/jobd/control"
	"gloom/cmd/jobd/peer"
)

// pendingEngine serves requests before the engine is open: they are answered with the reason for
// the wait as an error.
type pendingEngine struct {
	mu     sync.Mutex // guards the fields below
	engine control.Daemon
	routes peer.Routes
	reason error
}

var errStarting = errors.New("the daemon is starting")

func (p *pendingEngine) setEngine(engine control.Daemon) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.engine, p.routes, p.reason = engine, control.Routes(engine), nil
}

func (p *pendingEngine) setReason(reason error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reason = reason
}

func (p *pendingEngine) current() (control.Daemon, peer.Routes, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.engine, p.routes, p.reason
}

func (p *pendingEngine) health() error {
	engine, _, err := p.current()
	if err != nil {
		return err
	}
	return engine.Health()
}

// serverRoutes returns routes that can be served before the engine is open, and then pass requests
// on to it.
func (p *pendingEngine) serverRoutes() peer.Routes {
	routes := make(peer.Routes)
	for name, route := range control.Routes(nil) {
		routes[name] = peer.Route{Waits: route.Waits, Handle: func(ctx context.Context, c *peer.Conn, data json.RawMessage) (any, error) {
			_, opened, err := p.current()
			if err != nil {
				return nil, err
			}
			return opened[name].Handle(ctx, c, data)
		}}
	}
	return routes
}
