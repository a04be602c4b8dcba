package redistest

import (
	"context"

	"gloom/bench/throwaway"
)

// New starts a server for one test.
func New(t throwaway.TB, args ...string) *Server {
	t.Helper()
	s, err := Start(args...)
	if err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(s.Close)
	return s
}

// Do sends one command and fails the test when it fails.
func (s *Server) Do(t throwaway.TB, args ...any) any {
	t.Helper()
	c := s.Client()
	defer c.Close()
	v, err := c.Do(context.Background(), args...).Result()
	if err != nil {
		t.Fatalf("%v: %v", args, err)
	}
	return v
}
