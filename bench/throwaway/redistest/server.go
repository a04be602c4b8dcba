// Package redistest starts throw-away Redis servers for tests and benchmarks, each with its own
// directory, unix socket and loopback port. They end with the process that started them. It does
// not know the data that jq-master keeps there.
package redistest

import (
	"context"
	"errors"
	"path/filepath"
	"strconv"

	"github.com/redis/go-redis/v9"

	"gloom/bench/throwaway"
)

// Server is one Redis server with an append-only file (appendfsync everysec). It may be stopped or
// killed and launched again; port, socket and data stay the same.
type Server struct {
	*throwaway.Server
	args []string
}

// Start starts a server; args are further arguments, which override those of this package. Close
// ends it.
func Start(args ...string) (*Server, error) {
	program := throwaway.Lookup("redis-server")
	if program == "" {
		return nil, errors.New("no redis-server found: apt-get install redis-server")
	}
	base, err := throwaway.New(program)
	if err != nil {
		return nil, err
	}
	s := &Server{Server: base, args: args}
	s.Args, s.Ready = s.command, s.ready
	return s, s.Start()
}

func (s *Server) command() []string {
	return append([]string{"--bind", "127.0.0.1", "--port", strconv.Itoa(s.Port()), "--unixsocket", s.Socket(),
		"--dir", s.Dir, "--save", "", "--appendonly", "yes", "--appendfsync", "everysec",
		"--repl-diskless-sync-delay", "0"}, s.args...)
}

// Socket returns the path of the unix socket, URL the TCP address in jq-master's form.
func (s *Server) Socket() string { return filepath.Join(s.Dir, "sock") }
func (s *Server) URL() string    { return "redis://" + s.Addr() }

// Client returns a client that does not retry. The caller closes it.
func (s *Server) Client() *redis.Client {
	return redis.NewClient(&redis.Options{Addr: s.Addr(), MaxRetries: -1})
}

func (s *Server) ready(ctx context.Context) error {
	c := s.Client()
	defer c.Close()
	return c.Ping(ctx).Err()
}
