package bridge

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"gloom/bench/throwaway/mariadbtest"
	gloom "gloom/clients/go"
	"gloom/cmd/jobd/config"
	"gloom/cmd/jobd/control"

	"github.com/rs/zerolog"
)

// TestDatabaseFaultsLoseNoRow drops connections, restarts the server, stops it,
// locks rows and makes it read-only while two daemons work. No row is lost, and since no daemon
// dies, none runs twice.
func TestDatabaseFaultsLoseNoRow(t *testing.T) {
	server := mariadbtest.New(t, "--innodb-flush-log-at-trx-commit=1")
	c := &crashScenario{testSite: newTestSite(t, server), orphans: "fail"}
	const n = 300
	c.exec("INSERT INTO jobs (target) SELECT 'a' FROM seq_1_to_300")
	c.exec("CREATE USER app@'127.0.0.1'; GRANT ALL ON " + c.database + ".* TO app@'127.0.0.1'; CREATE USER app@localhost; GRANT ALL ON " + c.database + ".* TO app@localhost")
	for _, name := range []string{crashOwner, crashPeer} {
		cfg := c.config(name, 3)
		cfg.MySQL.User = "app"
		d := c.start(cfg)
		c.victims = append(c.victims, d)
		<-d.ready
	}
	faults := map[string]func(){
		"connections": c.killConnections,
		"restart": func() {
			server.Stop()
			if err := server.Launch(); err != nil {
				t.Fatal(err)
			}
		},
		"kill": func() {
			server.Kill()
			if err := server.Launch(); err != nil {
				t.Fatal(err)
			}
		},
		"locks": func() {
			tx, err := c.db.Begin()
			if err != nil {
				return
			}
			rows, err := tx.Query("SELECT id FROM jobs WHERE status <> 'done' ORDER BY id LIMIT 10 FOR UPDATE")
			if err == nil {
				for rows.Next() {
				}
				rows.Close()
			}
			outlast(200 * time.Millisecond)
			tx.Rollback()
		},
		"read-only": func() {
			c.db.Exec("SET GLOBAL read_only = 1")
			outlast(200 * time.Millisecond)
			c.db.Exec("SET GLOBAL read_only = 0")
		},
		"frozen": func() {
			server.Freeze()
			outlast(300 * time.Millisecond)
			server.Thaw()
		},
	}
	for _, name := range []string{"connections", "restart", "locks", "connections", "read-only", "kill", "frozen", "connections"} {
		before := c.queryCount("SELECT COUNT(*) FROM jobs WHERE status = 'done'")
		t.Logf("%s with %d done", name, before)
		faults[name]()
		eventually(t, "work goes on after "+name, func() bool {
			var done int
			return c.db.QueryRow("SELECT COUNT(*) FROM jobs WHERE status = 'done'").Scan(&done) == nil && done >= min(n, before+8)
		})
	}
	eventually(t, "all is done", func() bool { return c.queryCount("SELECT COUNT(*) FROM jobs WHERE status <> 'done'") == 0 })
	c.awaitSettled()
	for id, runs := range c.runs() {
		if len(runs) != 1 {
			c.fail("row %d ran %d times", id, len(runs))
		}
	}
	if failedCount := c.queryCount("SELECT COUNT(*) FROM jobs WHERE result <> 'ok'"); failedCount > 0 {
		c.fail("%d rows failed", failedCount)
	}
}

// outlast waits for the length of an outage.
func outlast(d time.Duration) { <-time.After(d) }

// TestLongOutageSettlesNoLivingDaemon: after an outage that is longer than a lease, all leases have
// expired, but no daemon may settle the rows of another living daemon.
func TestLongOutageSettlesNoLivingDaemon(t *testing.T) {
	server := mariadbtest.New(t, "--innodb-flush-log-at-trx-commit=1")
	for name, outage := range map[string]struct{ begin, end func(*testSite) }{
		"away": {
			func(*testSite) { server.Stop() },
			func(s *testSite) {
				if err := server.Launch(); err != nil {
					s.t.Fatal(err)
				}
			},
		},
		"read-only": {
			func(s *testSite) { s.exec("SET GLOBAL read_only = 1") },
			func(s *testSite) { s.exec("SET GLOBAL read_only = 0") },
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newTestSite(t, server)
			s.exec("CREATE OR REPLACE USER app@'127.0.0.1'; GRANT ALL ON " + s.database + ".* TO app@'127.0.0.1'; CREATE OR REPLACE USER app@localhost; GRANT ALL ON " + s.database + ".* TO app@localhost")
			job := "#!/bin/sh\nwhile [ ! -e " + s.dir + "/go ]; do sleep 0.02; done\necho out $1\n"
			if err := os.WriteFile(filepath.Join(s.dir, "job"), []byte(job), 0o755); err != nil {
				t.Fatal(err)
			}
			s.exec("INSERT INTO jobs (target) SELECT 'a' FROM seq_1_to_6")
			for _, name := range []string{"A", "B", "C"} {
				cfg := s.config(name, "fail", 2)
				cfg.MySQL.FetchLimit, cfg.MySQL.User = 2, "app"
				<-s.start(cfg).ready
			}
			eventually(t, "all rows run", func() bool { return s.queryCount("SELECT COUNT(*) FROM jobs WHERE status = 'running'") == 6 })
			outage.begin(s)
			outlast(4 * time.Second) // two leases
			outage.end(s)
			// Each daemon checks for dead daemons several times before the rows end.
			outlast(3 * time.Second)
			if n := s.queryCount("SELECT COUNT(*) FROM jobs WHERE status = 'running'"); n != 6 {
				t.Fatalf("%d of 6 rows still run", n)
			}
			touch(t, s.dir, "go")
			eventually(t, "all is done", func() bool {
				return s.queryCount("SELECT COUNT(*) FROM jobs WHERE status = 'done' AND result = 'ok'") == 6
			})
		})
	}
}

// TestCrashWithOtherWorkers kills a daemon whose rows are with workers of a
// shared broker.
func TestCrashWithOtherWorkers(t *testing.T) {
	for _, orphans := range []string{"fail", "requeue"} {
		for _, name := range []string{"remote: running", "remote: submitted", "remote: ended", "slot: finished"} {
			t.Run(orphans+"/"+name, func(t *testing.T) {
				t.Parallel()
				b := newRestartableBroker(t)
				c := newCrashScenario(t, orphans)
				var doubleRuns atomic.Int64
				var isBusy [64]atomic.Bool
				b.startWorker("rows.a", 4, func(_ context.Context, job *gloom.Job) (any, error) {
					var id int
					fmt.Sscanf(string(job.Body), `{"id":%d`, &id)
					if isBusy[id].Swap(true) {
						doubleRuns.Add(1)
					}
					defer isBusy[id].Store(false)
					outlast(time.Duration(rand.N(20)) * time.Millisecond)
					return fmt.Sprintf("out %d\n", id), nil
				})
				cfg := c.config(crashOwner, 3)
				b.configure(&cfg)
				cfg.Launcher = ""
				cfg.Broker.IDPrefix = c.database + "/"
				v := c.start(cfg, fmt.Sprintf("%s=%s:2", envFault, name))
				c.victims = append(c.victims, v)
				v.await(name)
				c.victims = append(c.victims, c.start(cfg))
				eventually(t, "all is done", func() bool {
					return c.queryCount("SELECT COUNT(*) FROM jobs WHERE status <> 'done' AND target = 'a'")+c.queryCount("SELECT COUNT(*) FROM jobs_claims WHERE id >= 0") == 0
				})
				if doubleRuns.Load() > 0 {
					c.fail("%d rows ran beside themselves", doubleRuns.Load())
				}
				failed := c.queryCount("SELECT COUNT(*) FROM jobs WHERE result = 'fail'")
				if orphans == "requeue" && failed > 0 || failed > 3 || failed != c.queryCount("SELECT COUNT(*) FROM jobs WHERE stderr LIKE '%died%'") {
					c.fail("%d rows failed", failed)
				}
			})
		}
	}
}

// TestWithoutCompanionTable: without the companion table rows run, but rows of dead daemons are
// not settled.
func TestWithoutCompanionTable(t *testing.T) {
	s := newTestSite(t, mariadbtest.Shared(t))
	for _, host := range []string{"localhost", "127.0.0.1"} {
		s.exec(fmt.Sprintf("CREATE USER p%s@'%s'; GRANT SELECT, UPDATE ON %s.jobs TO p%[1]s@'%[2]s'", s.database, host, s.database))
		t.Cleanup(func() { s.db.Exec(fmt.Sprintf("DROP USER p%s@'%s'", s.database, host)) })
	}
	s.exec("INSERT INTO jobs (target) SELECT 'a' FROM seq_1_to_20")
	s.exec("INSERT INTO jobs (target, status) VALUES ('b', 'manual')")
	cfg := s.config("A", "requeue", 3)
	cfg.MySQL.User = "p" + s.database
	cfg.SpoolDir = t.TempDir()
	b, err := Open(t.Context(), cfg, zerolog.Nop(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	eventually(t, "all is done", func() bool { return s.queryCount("SELECT COUNT(*) FROM jobs WHERE status = 'done'") == 20 })
	id := int64(s.queryCount("SELECT MAX(id) FROM jobs"))
	if got, texts, err := b.RunManual(t.Context(), []int64{id}); err != nil || got[id].Result != "ok" {
		t.Fatal(got, texts, err)
	}
	if _, err := b.Recover(t.Context()); err == nil {
		t.Error("Recover returned no error, although it can recover nothing")
	}
	if err := b.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestOpenFails(t *testing.T) {
	s := newTestSite(t, mariadbtest.Shared(t))
	for name, change := range map[string]func(*config.Worker){
		"no table":  func(c *config.Worker) { c.MySQL.Table = "nope" },
		"no server": func(c *config.Worker) { c.MySQL.Port = 1 },
		"no user":   func(c *config.Worker) { c.MySQL.User = "nobody"; c.MySQL.Password = "hush-hush" },
		"no spool":  func(c *config.Worker) { c.SpoolDir = "/proc/nope" },
		"no CA": func(c *config.Worker) {
			c.Broker.SubmitAddr, c.Broker.WorkerAddr, c.Broker.TLSCA = "x:1", "x:2", "/nope"
		},
		"target twice": func(c *config.Worker) { c.Targets = append(c.Targets, c.Targets[0]) },
	} {
		cfg := s.config("A", "fail", 1)
		change(&cfg)
		b, err := Open(t.Context(), cfg, zerolog.Nop(), nil)
		if err == nil {
			b.Close()
			t.Errorf("%s: opened", name)
		}
	}
	if n := s.queryCount("SELECT COUNT(*) FROM jobs_claims WHERE id > -9223372036854775808"); n != 0 { // the smallest id is that of the record with the table's number
		t.Errorf("%d records are left", n)
	}
}

// TestRowsRunOnceDatabaseIsThere starts a daemon before its database: rows run soon after the database is
// there. An error of the database itself ends the daemon.
func TestRowsRunOnceDatabaseIsThere(t *testing.T) {
	server := mariadbtest.New(t)
	site := newTestSite(t, server)
	site.exec("INSERT INTO jobs (target) VALUES ('a'), ('a')")
	cfg := site.config("late", "fail", 1)
	wrongCfg := cfg
	wrongCfg.MySQL.Password = "no such"
	if _, err := Await(t.Context(), wrongCfg, zerolog.Nop(), nil, func(err error) { t.Errorf("waits for %v", err) }); err == nil {
		t.Fatal("Await succeeded with a wrong password")
	}
	server.Stop()
	waits := make(chan error, 100)
	opened := make(chan control.Daemon)
	go func() {
		b, err := Await(t.Context(), cfg, zerolog.Nop(), nil, func(err error) { waits <- err })
		if err != nil {
			t.Error(err)
		}
		opened <- b
	}()
	if err := <-waits; err == nil {
		t.Error("Await waited without giving an error")
	}
	if err := server.Launch(); err != nil {
		t.Fatal(err)
	}
	b := (<-opened).(*Bridge)
	if b == nil {
		return
	}
	defer b.Close()
	eventually(t, "the rows are done", func() bool { return site.queryCount("SELECT COUNT(*) FROM jobs WHERE status = 'done'") == 2 })
}
