package bridge

import (
	"bufio"
	"context"
	"database/sql"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"gloom/bench/throwaway/mariadbtest"
	"gloom/cmd/internal/failpoint"
	"gloom/cmd/internal/launch"
	"gloom/cmd/jobd/config"

	"github.com/goccy/go-json"
	"github.com/rs/zerolog"
)

// The test binary is also the daemon that is killed. It gets its configuration and its failpoint
// from the environment.
const (
	envConfig = "BRIDGE_TEST_CONFIG"
	envFault  = "BRIDGE_TEST_FAULT"  // name:count, the failpoint and the passage at which to die
	envManual = "BRIDGE_TEST_MANUAL" // ids to run by hand
	envPoints = "BRIDGE_TEST_POINTS" // the file that gets the names of the points passed
)

func TestMain(m *testing.M) {
	launch.Main()
	if text := os.Getenv(envConfig); text != "" {
		runDaemon(text)
		return
	}
	// More tests run at a time than there are processors, because they mostly wait for processes
	// and the database.
	_ = flag.Set("test.parallel", "6")
	os.Exit(mariadbtest.Main(m))
}

func runDaemon(text string) {
	must := func(err error) {
		if err != nil {
			fmt.Fprintln(os.Stderr, "daemon:", err)
			os.Exit(1)
		}
	}
	var cfg config.Worker
	must(json.Unmarshal([]byte(text), &cfg))
	failpoint.Hook = failpointHook(os.Getenv(envFault), os.Getenv(envPoints))
	stop, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer cancel()
	b, err := Open(context.Background(), cfg, zerolog.New(os.Stderr).With().Timestamp().Logger().Level(zerolog.DebugLevel), nil)
	must(err)
	fmt.Println("ready")
	if text := os.Getenv(envManual); text != "" {
		var ids []int64
		must(json.Unmarshal([]byte(text), &ids))
		go func() {
			outcomes, texts, err := b.RunManual(context.Background(), ids)
			fmt.Fprintln(os.Stderr, "manual:", len(outcomes), texts, err)
		}()
	}
	<-stop.Done()
	ctx, cancel := context.WithTimeout(context.Background(), 45*time.Second)
	defer cancel()
	must(b.Shutdown(ctx))
}

// failpointHook ends the process at the count-th passage of a point.
func failpointHook(at, points string) func(string) {
	name, count := "", 0
	if i := strings.LastIndexByte(at, ':'); i >= 0 {
		name = at[:i]
		fmt.Sscan(at[i+1:], &count)
	}
	var mu sync.Mutex
	return func(point string) {
		mu.Lock()
		defer mu.Unlock()
		if points != "" {
			if f, err := os.OpenFile(points, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600); err == nil {
				fmt.Fprintln(f, point)
				f.Close()
			}
		}
		if point == name {
			if count--; count == 0 {
				syscall.Kill(os.Getpid(), syscall.SIGKILL)
				select {}
			}
		}
	}
}

// testSite is a database and a directory that daemons share.
type testSite struct {
	t        *testing.T
	server   *mariadbtest.Server
	database string
	db       *sql.DB
	dir      string
}

const ownersTable = `CREATE TABLE jobs (
  id int(10) unsigned NOT NULL AUTO_INCREMENT PRIMARY KEY,
  target char(16) NOT NULL,
  time_created int(10) unsigned NOT NULL DEFAULT 0,
  time_started int(10) unsigned NOT NULL DEFAULT 0,
  time_finished int(10) unsigned NOT NULL DEFAULT 0,
  status enum('waiting','manual','accepted','running','done','ignored') NOT NULL DEFAULT 'waiting',
  result enum('ok','fail') DEFAULT NULL,
  return_code tinyint(3) unsigned DEFAULT NULL,
  sig char(10) DEFAULT NULL,
  stdout mediumtext DEFAULT NULL,
  stderr mediumtext DEFAULT NULL,
  KEY status_target_idx (status, target, id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8`

func newTestSite(t *testing.T, server *mariadbtest.Server) *testSite {
	t.Helper()
	s := &testSite{t: t, server: server, database: server.Database(t), dir: t.TempDir()}
	db, err := server.Open(s.database)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	s.db = db
	s.exec(ownersTable)
	job := "#!/bin/sh\necho \"start $1 $WHO\" >> " + s.dir + "/runs\nsleep 0.0$(($1 % 7))\necho \"end $1 $WHO\" >> " + s.dir + "/runs\necho out $1\n"
	if err := os.WriteFile(filepath.Join(s.dir, "job"), []byte(job), 0o755); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *testSite) exec(query string, args ...any) {
	s.t.Helper()
	if _, err := s.db.Exec(query, args...); err != nil {
		s.t.Fatalf("%.100s: %v", query, err)
	}
}

func (s *testSite) queryCount(query string) (n int) {
	s.t.Helper()
	if err := s.db.QueryRow(query).Scan(&n); err != nil {
		s.t.Fatalf("%s: %v", query, err)
	}
	return n
}

func (s *testSite) config(name, orphans string, concurrency int) config.Worker {
	return config.Worker{
		Name: name, Lease: 2 * time.Second, ShutdownTimeout: 10 * time.Second, Orphans: orphans, MaxOutputBuffer: 1000,
		MySQL:    config.MySQL{Host: "127.0.0.1", Port: s.server.Port(), User: "root", Database: s.database, Table: "jobs", FetchLimit: 5},
		Launcher: filepath.Join(s.dir, "job") + " {id}", LauncherEnv: []string{"WHO=" + name},
		Targets: []config.Target{{Name: "a", Concurrency: concurrency}, {Name: "b", Concurrency: 1}},
	}
}

// child is a daemon in its own process.
type child struct {
	t      *testing.T
	name   string
	cmd    *exec.Cmd
	ready  chan struct{} // closed when it is ready or has ended
	exited chan struct{}
	log    string
}

func (s *testSite) start(cfg config.Worker, env ...string) *child {
	s.t.Helper()
	exe, err := os.Executable()
	if err != nil {
		s.t.Fatal(err)
	}
	text, err := json.Marshal(cfg)
	if err != nil {
		s.t.Fatal(err)
	}
	c := &child{t: s.t, name: cfg.Name, cmd: exec.Command(exe), ready: make(chan struct{}), exited: make(chan struct{})}
	c.log = filepath.Join(s.dir, fmt.Sprintf("log.%s.%d", cfg.Name, time.Now().UnixNano()))
	log, err := os.Create(c.log)
	if err != nil {
		s.t.Fatal(err)
	}
	defer log.Close()
	c.cmd.Env = append(append(os.Environ(), envConfig+"="+string(text)), env...)
	c.cmd.Stderr = log
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	go func() {
		bufio.NewReader(out).ReadString('\n')
		close(c.ready)
		c.cmd.Wait()
		close(c.exited)
	}()
	s.t.Cleanup(c.kill)
	return c
}

func (c *child) kill() {
	c.cmd.Process.Kill()
	<-c.exited
}

// await waits for the daemon's end.
func (c *child) await(name string) {
	c.t.Helper()
	select {
	case <-c.exited:
	case <-time.After(45 * time.Second):
		c.logOutput()
		c.t.Fatalf("%s: daemon %s does not end", name, c.name)
	}
}

func (c *child) logOutput() {
	text, _ := os.ReadFile(c.log)
	if len(text) > 20_000 {
		text = text[len(text)-20_000:]
	}
	c.t.Logf("log of %s:\n%s", c.name, text)
}

// run is one execution of a row's process.
type run struct {
	worker   string
	hasEnded bool
}

// runs reads the notes of the processes, by row, in order.
func (s *testSite) runs() map[int64][]run {
	s.t.Helper()
	text, err := os.ReadFile(filepath.Join(s.dir, "runs"))
	if err != nil && !os.IsNotExist(err) {
		s.t.Fatal(err)
	}
	byID := make(map[int64][]run)
	for line := range strings.Lines(string(text)) {
		var event, worker string
		var id int64
		if _, err := fmt.Sscan(line, &event, &id, &worker); err != nil {
			s.t.Fatalf("%q: %v", line, err)
		}
		if event == "start" {
			byID[id] = append(byID[id], run{worker: worker})
			continue
		}
		for i := range byID[id] {
			if byID[id][i].worker == worker {
				byID[id][i].hasEnded = true
			}
		}
	}
	return byID
}

// killConnections makes the server drop all other connections.
func (s *testSite) killConnections() {
	rows, err := s.db.Query("SELECT id FROM information_schema.processlist WHERE id <> CONNECTION_ID() AND command <> 'Daemon'")
	if err != nil {
		return
	}
	defer rows.Close()
	var ids []int64
	for rows.Next() {
		var id int64
		if rows.Scan(&id) == nil {
			ids = append(ids, id)
		}
	}
	for _, id := range ids {
		s.db.Exec(fmt.Sprint("KILL ", id))
	}
}
