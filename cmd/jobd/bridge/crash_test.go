package bridge

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"gloom/bench/throwaway/mariadbtest"
	"gloom/cmd/jobd/config"
	"gloom/cmd/jobd/store"
)

const (
	crashRows     = 14 // rows of target a; two more, of target b, are run by hand
	settleTimeout = time.Minute
	crashOwner    = "A"
	crashPeer     = "B"
)

// crashScenario is one scenario: daemon A dies at a point while B shares its target, and A
// comes back.
type crashScenario struct {
	*testSite
	orphans string
	victims []*child // lives of A
	peer    *child
}

func newCrashScenario(t *testing.T, orphans string) *crashScenario {
	s := newTestSite(t, mariadbtest.Shared(t))
	s.exec("INSERT INTO jobs (target) SELECT 'a' FROM seq_1_to_14")
	s.exec("INSERT INTO jobs (target, status) VALUES ('b', 'manual'), ('b', 'manual')")
	return &crashScenario{testSite: s, orphans: orphans}
}

// config has a long lease: with a short lease, a daemon that gets no processor time for seconds would
// count as dead. Rows of a daemon whose process has ended are settled at once.
func (c *crashScenario) config(name string, concurrency int) config.Worker {
	cfg := c.testSite.config(name, c.orphans, concurrency)
	cfg.Lease = 10 * time.Second
	return cfg
}

func (c *crashScenario) startVictim(env ...string) *child {
	c.t.Helper()
	// Each life of A marks its runs, so that they can be distinguished.
	cfg := c.config(crashOwner, 3)
	cfg.LauncherEnv = []string{fmt.Sprintf("WHO=%s%d", crashOwner, len(c.victims)+1)}
	v := c.start(cfg, env...)
	c.victims = append(c.victims, v)
	return v
}

func (c *crashScenario) fail(format string, args ...any) {
	c.t.Helper()
	for _, v := range c.victims {
		v.logOutput()
	}
	if c.peer != nil {
		c.peer.logOutput()
	}
	c.t.Fatalf(format, args...)
}

// awaitSettled waits until all rows have ended, and checks their ends.
func (c *crashScenario) awaitSettled() {
	c.t.Helper()
	deadline := time.Now().Add(settleTimeout)
	for c.queryCount("SELECT COUNT(*) FROM jobs WHERE status <> 'done' AND NOT (status = 'manual' AND target = 'b')") > 0 ||
		c.queryCount("SELECT COUNT(*) FROM jobs_claims WHERE id >= 0") > 0 {
		if time.Now().After(deadline) {
			rows, _ := c.db.Query("SELECT id, status FROM jobs WHERE status <> 'done'")
			for rows.Next() {
				var id int64
				var status string
				rows.Scan(&id, &status)
				c.t.Logf("row %d is %s", id, status)
			}
			rows.Close()
			c.fail("not settled in %s, %d claims", settleTimeout, c.queryCount("SELECT COUNT(*) FROM jobs_claims WHERE id >= 0"))
		}
		time.Sleep(5 * time.Millisecond)
	}
	runs := c.runs()
	rows, err := c.db.Query("SELECT id, status, COALESCE(result, ''), COALESCE(stdout, ''), COALESCE(stderr, '') FROM jobs")
	if err != nil {
		c.t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var id int64
		var status, result, stdout, stderr string
		if err := rows.Scan(&id, &status, &result, &stdout, &stderr); err != nil {
			c.t.Fatal(err)
		}
		c.checkRow(id, status, result, stdout, stderr, runs[id])
	}
}

func (c *crashScenario) checkRow(id int64, status, result, stdout, stderr string, runs []run) {
	c.t.Helper()
	text := fmt.Sprintf("row %d: %s %s %q %q, runs %v", id, status, result, stdout, stderr, runs)
	died := strings.Contains(stderr, "died")
	switch {
	case status == store.Manual: // with requeue the row may have run before
		if len(runs) > 0 && c.orphans != "requeue" {
			c.fail("%s: it ran", text)
		}
	case result == "ok":
		if len(runs) == 0 || !runs[len(runs)-1].hasEnded || stdout != fmt.Sprintf("out %d\n", id) {
			c.fail("%s: not what an ok row looks like", text)
		}
	case !died || c.orphans == "requeue":
		c.fail("%s: no reason to fail", text)
	}
	if len(runs) > 1 && (c.orphans == "fail" || len(runs) > len(c.victims)) {
		c.fail("%s: it ran too often", text)
	}
	for i, r := range runs {
		last := i == len(runs)-1
		if !last && strings.HasPrefix(r.worker, crashPeer) {
			c.fail("%s: the row of a living daemon was touched", text)
		}
	}
	if died && len(runs) == 1 && strings.HasPrefix(runs[0].worker, crashPeer) {
		c.fail("%s: the row of a living daemon was touched", text)
	}
}

// failpointsPassed returns the failpoints that a life of A passes, in the order of their first
// passage. It leaves out the kinds in leaveOut.
func failpointsPassed(t *testing.T, leaveOut ...string) []string {
	t.Helper()
	c := newCrashScenario(t, "fail")
	path := filepath.Join(c.dir, "points")
	v := c.startVictim(envPoints+"="+path, envManual+"=[15,16]")
	c.awaitSettled()
	v.cmd.Process.Signal(syscall.SIGTERM)
	v.await("graceful stop")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for line := range bytes.Lines(text) {
		name := string(bytes.TrimSpace(line))
		kind, _, _ := strings.Cut(name, ":")
		if !slices.Contains(names, name) && !slices.Contains(leaveOut, kind) {
			names = append(names, name)
		}
	}
	return names
}

// TestCrashAtEveryPoint kills A at every point between two writes.
func TestCrashAtEveryPoint(t *testing.T) {
	names := failpointsPassed(t, "settle", "leave", "resolve")
	if len(names) < 15 {
		t.Fatalf("only %d points: %v", len(names), names)
	}
	t.Logf("%d points: %v", len(names), names)
	for _, orphans := range []string{"fail", "requeue"} {
		for _, name := range names {
			for _, count := range []int{1, 2} {
				t.Run(fmt.Sprintf("%s/%s/%d", orphans, strings.ReplaceAll(name, ": ", "-"), count), func(t *testing.T) {
					t.Parallel()
					c := newCrashScenario(t, orphans)
					v := c.startVictim(fmt.Sprintf("%s=%s:%d", envFault, name, count), envManual+"=[15,16]")
					<-v.ready
					c.peer = c.start(c.config(crashPeer, 1))
					select {
					case <-v.exited:
					case <-time.After(map[int]time.Duration{1: settleTimeout, 2: 3 * time.Second}[count]):
						if count == 1 {
							c.fail("A does not get to %s", name)
						}
						v.kill() // B was faster, so A did not get there a second time
					}
					c.startVictim()
					c.awaitSettled()
				})
			}
		}
	}
}

// TestCrashWhileSettling kills A, restarts it, kills it again while it settles the rows of its
// first life, and then brings it back.
func TestCrashWhileSettling(t *testing.T) {
	for _, orphans := range []string{"fail", "requeue"} {
		for _, name := range []string{"settle: before commit", "settle: after commit", "settle: rows locked", "settle: before the record goes"} {
			for _, count := range []int{1, 2} {
				if count == 2 && (strings.HasSuffix(name, "locked") || strings.HasSuffix(name, "goes")) {
					continue // there is one
				}
				t.Run(fmt.Sprintf("%s/%s/%d", orphans, name, count), func(t *testing.T) {
					t.Parallel()
					c := newCrashScenario(t, orphans)
					c.startVictim(envFault + "=slot: launched:3").await("the first life")
					c.startVictim(fmt.Sprintf("%s=%s:%d", envFault, name, count)).await("the second life")
					c.startVictim()
					c.awaitSettled()
				})
			}
		}
	}
}

// TestCrashWhileStopping kills A at every point of a graceful stop.
func TestCrashWhileStopping(t *testing.T) {
	for _, name := range []string{"write: rows locked", "write: rows updated", "write: before commit", "write: after commit",
		"slot: ended", "slot: finished", "leave: before commit", "leave: after commit"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCrashScenario(t, "fail")
			// The first two passages belong to the writes that start row 1; the third passage belongs to the
			// stop.
			v := c.startVictim(fmt.Sprintf("%s=%s:%d", envFault, name, map[bool]int{true: 3, false: 1}[strings.HasPrefix(name, "write")]))
			<-v.ready
			v.cmd.Process.Signal(syscall.SIGTERM)
			v.await("stop")
			c.startVictim()
			c.awaitSettled()
		})
	}
}

// TestKillAtAnyTime kills and stops daemons at random moments.
func TestKillAtAnyTime(t *testing.T) {
	for i := range 4 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			c := newCrashScenario(t, []string{"fail", "requeue"}[i%2])
			c.peer = c.start(c.config(crashPeer, 1))
			for range 4 {
				v := c.startVictim()
				<-v.ready
				time.Sleep(time.Duration(i*7+len(c.victims)*5) * time.Millisecond) // the moment to die
				v.kill()
			}
			c.startVictim()
			c.awaitSettled()
		})
	}
}

// TestSuspendedDaemonLosesItsRows: a stopped daemon is considered dead. Its process is killed before its row
// runs again elsewhere, although the daemon itself cannot kill it. When the daemon continues, it
// finds its rows gone and keeps working.
func TestSuspendedDaemonLosesItsRows(t *testing.T) {
	c := newCrashScenario(t, "requeue")
	c.exec("UPDATE jobs SET status = 'ignored' WHERE target = 'a' AND id > 1")
	job := "#!/bin/sh\n[ $WHO = A ] || { grep -q '^State:.[^Z]' /proc/$(cat " + c.dir + "/pid.A)/status && echo beside; echo out $1; exit; } 2>/dev/null\n" +
		"echo $$ > " + c.dir + "/pid.$WHO\nexec sleep 1000\n"
	if err := os.WriteFile(filepath.Join(c.dir, "job"), []byte(job), 0o755); err != nil {
		t.Fatal(err)
	}
	a := c.start(c.testSite.config("A", "requeue", 1))
	<-a.ready
	eventually(t, "A runs the row", func() bool { _, err := os.Stat(filepath.Join(c.dir, "pid.A")); return err == nil })
	<-c.start(c.testSite.config("B", "requeue", 1)).ready
	a.cmd.Process.Signal(syscall.SIGSTOP)
	eventually(t, "B has run the row", func() bool { return c.queryCount("SELECT COUNT(*) FROM jobs WHERE id = 1 AND status = 'done'") == 1 })
	var out string
	if err := c.db.QueryRow("SELECT stdout FROM jobs WHERE id = 1").Scan(&out); err != nil || out != "out 1\n" {
		t.Fatalf("%q %v", out, err)
	}
	a.cmd.Process.Signal(syscall.SIGCONT)
	eventually(t, "A lives again", func() bool {
		return c.queryCount("SELECT COUNT(*) FROM jobs_claims WHERE id < 0 AND owner = 'A' AND lease > UTC_TIMESTAMP(3)") == 1
	})
	var result string
	if err := c.db.QueryRow("SELECT result FROM jobs WHERE id = 1").Scan(&result); err != nil || result != "ok" {
		t.Fatal(result, err)
	}
}

// TestRowOfResumedDaemonRunsAgain: if the guard kills a process while the daemon is stopped, the
// process's row does not fail, but runs again.
func TestRowOfResumedDaemonRunsAgain(t *testing.T) {
	c := newCrashScenario(t, "requeue")
	c.exec("UPDATE jobs SET status = 'ignored' WHERE target = 'a' AND id > 1")
	job := "#!/bin/sh\n[ -e " + c.dir + "/pid ] && { echo out $1; exit; }\necho $$ > " + c.dir + "/pid.new; mv " + c.dir + "/pid.new " + c.dir + "/pid\nexec sleep 1000\n"
	if err := os.WriteFile(filepath.Join(c.dir, "job"), []byte(job), 0o755); err != nil {
		t.Fatal(err)
	}
	a := c.start(c.testSite.config("A", "requeue", 1))
	var pid int
	eventually(t, "A runs the row", func() bool {
		text, _ := os.ReadFile(filepath.Join(c.dir, "pid"))
		n, _ := fmt.Sscan(string(text), &pid)
		return n == 1
	})
	a.cmd.Process.Signal(syscall.SIGSTOP)
	eventually(t, "the guard has killed the job", func() bool { // the job stays a zombie, as A is stopped and cannot reap it
		stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return strings.Contains(string(stat), ") Z ") // a live process may also be in D, as while it begins to sleep
	})
	a.cmd.Process.Signal(syscall.SIGCONT)
	eventually(t, "the row is done", func() bool { return c.queryCount("SELECT COUNT(*) FROM jobs WHERE id = 1 AND status = 'done'") == 1 })
	var result, out string
	if err := c.db.QueryRow("SELECT result, stdout FROM jobs WHERE id = 1").Scan(&result, &out); err != nil || result != "ok" || out != "out 1\n" {
		t.Fatalf("%s %q %v", result, out, err)
	}
}

// TestLivingNamesakeIsNotSettled: a living daemon of the same name is not a dead predecessor.
func TestLivingNamesakeIsNotSettled(t *testing.T) {
	c := newCrashScenario(t, "requeue")
	for range 2 {
		c.victims = append(c.victims, c.start(c.config(crashOwner, 2)))
	}
	c.awaitSettled()
	for id, runs := range c.runs() {
		if len(runs) != 1 {
			c.fail("row %d ran %d times", id, len(runs))
		}
	}
}
