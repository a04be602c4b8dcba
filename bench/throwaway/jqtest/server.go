// Package jqtest runs the program jq-master for tests and benchmarks, on a free
// loopback port. It ends with the process that started it.
package jqtest

import (
	"context"
	"errors"
	"net/http"
	"os"
	"strconv"

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
	port, err := throwaway.FreePort()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "gloom-jq-")
	if err != nil {
		return nil, err
	}
	s := &Server{Addr: "127.0.0.1:" + strconv.Itoa(port), Command: command}
	path := "/readyz"
	if standby {
		path = "/healthz"
	}
	s.Server = &throwaway.Server{
		Program: command[0], Dir: dir,
		Args: func() []string {
			return append(append(s.Command[1:len(s.Command):len(s.Command)], "--addr", s.Addr), args...)
		},
		Ready: func(ctx context.Context) error { return s.ok(ctx, path) },
	}
	return s, nil
}

// Ready returns nil when the master hands out jobs.
func (s *Server) Ready(ctx context.Context) error { return s.ok(ctx, "/readyz") }

func (s *Server) ok(ctx context.Context, path string) error {
	req, err := http.NewRequestWithContext(ctx, "GET", "http://"+s.Addr+path, nil)
	if err != nil {
		return err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return errors.New(res.Status)
	}
	return nil
}
