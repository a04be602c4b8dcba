package mariadbtest

import (
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"gloom/bench/throwaway"
)

var shared struct {
	sync.Mutex
	server *Server
	err    error
}

var databases atomic.Int64

// Main runs a package's tests and stops their shared server. Call it from TestMain:
// os.Exit(mariadbtest.Main(m)).
func Main(m interface{ Run() int }) int {
	defer func() {
		shared.Lock()
		defer shared.Unlock()
		if shared.server != nil {
			shared.server.Close()
		}
	}()
	return m.Run()
}

// Shared returns the server of this test binary, started at the first call. Tests that stop or
// disturb the server use New.
func Shared(t throwaway.TB) *Server {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if shared.server == nil && shared.err == nil {
		shared.server, shared.err = Start(Options{})
	}
	if shared.err != nil {
		t.Fatalf("%v", shared.err)
	}
	return shared.server
}

// New starts a server for one test.
func New(t throwaway.TB, args ...string) *Server {
	t.Helper()
	s, err := Start(Options{Args: args})
	if err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(s.Close)
	return s
}

// Database makes an empty database that is dropped when the test ends.
func (s *Server) Database(t throwaway.TB) string {
	t.Helper()
	name := fmt.Sprintf("t%d_%d", os.Getpid(), databases.Add(1))
	s.Exec(t, "", "CREATE DATABASE "+name+" CHARACTER SET utf8 COLLATE utf8_general_ci")
	t.Cleanup(func() {
		if db, err := s.Open(""); err == nil {
			defer db.Close()
			db.Exec("DROP DATABASE " + name)
		}
	})
	return name
}

// Exec runs statements as root and fails the test when one fails.
func (s *Server) Exec(t throwaway.TB, database, query string, args ...any) {
	t.Helper()
	db, err := s.Open(database)
	if err == nil {
		defer db.Close()
		_, err = db.Exec(query, args...)
	}
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}
