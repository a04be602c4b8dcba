// Package jqtest runs the program jq-master for tests and benchmarks, on a free
// loopback port. It ends with the process that started it.
package jqtest

import (
	"context"

	"gloom/bench/throwaway"
)

// Server is one jq-master. It may be stopped or killed and launched again; its address stays the
// same.
type Server struct {
	*throwaway.Server
	Addr string
	// Command holds the program and its first arguments; a change takes effect at the next Launch.
	Command []string
}

// New prepares a command with further arguments. Launch then starts it, and returns when the master
// is ready or, with standby, when it runs.
func New(command []string, standby bool, args ...string) (*Server, error) {
	base, err := throwaway.New(command[0])
	if err != nil {
		return nil, err
	}
	s := &Server{Server: base, Addr: base.Addr(), Command: command}
	s.Args = func() []string {
		return append(append(s.Command[1:len(s.Command):len(s.Command)], "--addr", s.Addr), args...)
	}
	s.Server.Ready = s.Answers("/readyz")
	if standby {
		s.Server.Ready = s.Answers("/healthz")
	}
	return s, nil
}

// Ready returns nil when the master hands out jobs.
func (s *Server) Ready(ctx context.Context) error { return s.Answers("/readyz")(ctx) }
