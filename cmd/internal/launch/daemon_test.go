package launch

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// runDaemon is the main function of the test binary in its own process: it starts a process from a
// goroutine that soon ends, and waits to be killed. It starts another process for each line of its
// input.
func runDaemon(command string) {
	guard, err := NewGuard(ownerName(os.Getpid()))
	if err != nil {
		panic(err)
	}
	if os.Getenv("LAUNCH_TEST_NO_GROUP") != "" {
		guard.leaveGroup()
		guard.cgroup = nil
	}
	if limit, err := time.ParseDuration(os.Getenv("LAUNCH_TEST_LIMIT")); err == nil {
		renew := func() { guard.SetDeadline(time.Now().Add(limit)) }
		renew() // before anything is started, as daemons do
		go func() {
			for range time.Tick(limit / 4) {
				renew()
			}
		}()
	}
	pid := make(chan int)
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		go func() {
			p, err := Start(Command{Args: []string{command}, Guard: guard, WatchGroup: os.Getenv("LAUNCH_TEST_WATCHER") != ""})
			if err != nil {
				panic(err)
			}
			pid <- p.Pid()
		}()
		fmt.Println(<-pid)
	}
	select {}
}

func ownerName(pid int) string { return fmt.Sprintf("test-%d", pid) }

// testDaemon is a daemon in its own process.
type testDaemon struct {
	*exec.Cmd
	t      *testing.T
	stdin  io.Writer
	stdout *bufio.Reader
}

func startDaemon(t *testing.T, command string, env ...string) *testDaemon {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	d := &testDaemon{t: t, Cmd: exec.Command(exe)}
	d.Env = append(append(os.Environ(), "LAUNCH_TEST_DAEMON="+command), env...)
	d.Stderr = os.Stderr
	out, err := d.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	in, err := d.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	d.stdin, d.stdout = in, bufio.NewReader(out)
	if err := d.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		d.kill()
		ctx, cancel := context.WithTimeout(context.Background(), 45*time.Second)
		defer cancel()
		KillOrphans(ctx, ownerName(d.Process.Pid))
	})
	return d
}

// start makes the daemon start a process, and returns it.
func (d *testDaemon) start() (pid int) {
	d.t.Helper()
	fmt.Fprintln(d.stdin)
	line, err := d.stdout.ReadString('\n')
	if err != nil {
		d.t.Fatal(err)
	}
	fmt.Sscan(line, &pid)
	return pid
}

func (d *testDaemon) kill() {
	d.Process.Kill()
	d.Wait()
}

// guard returns the id of the daemon's guard; 0 if there is none.
func (d *testDaemon) guard() int {
	for pid, state := range children(d.Process.Pid) {
		if name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)); strings.TrimSpace(string(name)) == guardName && state != "Z" {
			return pid
		}
	}
	return 0
}

func (d *testDaemon) awaitGuard(oldPID int) (pid int) {
	d.t.Helper()
	eventually(d.t, "there is a guard", func() bool { pid = d.guard(); return pid != 0 && pid != oldPID })
	return pid
}

// processes starts a process with a child.
func (d *testDaemon) processes() (child, grandchild int) {
	d.t.Helper()
	child = d.start()
	eventually(d.t, "the process has a child", func() bool {
		for pid := range children(child) {
			grandchild = pid
		}
		return grandchild != 0
	})
	return child, grandchild
}

const twoSleepers = "sleep 1000 & exec sleep 1000"

// withAndWithoutCgroup runs a test once without a control group for the daemon's processes and, if
// this host permits a control group, once with it.
func withAndWithoutCgroup(t *testing.T, f func(t *testing.T, env ...string)) {
	t.Run("without a control group", func(t *testing.T) { f(t, "LAUNCH_TEST_NO_GROUP=1") })
	t.Run("control group", func(t *testing.T) {
		needGroup(t)
		f(t)
	})
}

func needGroup(t *testing.T) {
	dir := makeControlGroup("probe")
	if dir == nil {
		t.Skip("this host has no control groups of the second version for us")
	}
	dir.Close()
	os.Remove(dir.Name())
}

func TestProcessesEndWithDaemon(t *testing.T) {
	withAndWithoutCgroup(t, func(t *testing.T, env ...string) {
		d := startDaemon(t, script(t, twoSleepers), env...)
		child, grandchild := d.processes()
		d.kill()
		eventually(t, "both are gone", func() bool { return isGone(child) && isGone(grandchild) })
	})
}

// TestOrphansAreKilled kills daemon and guard at once: the kernel ends the process, and
// the next KillOrphans its child.
func TestOrphansAreKilled(t *testing.T) {
	withAndWithoutCgroup(t, func(t *testing.T, env ...string) {
		d := startDaemon(t, script(t, twoSleepers), env...)
		child, grandchild := d.processes()
		d.Process.Signal(syscall.SIGSTOP) // so that it cannot replace the guard
		syscall.Kill(d.awaitGuard(0), syscall.SIGKILL)
		d.kill()
		eventually(t, "the process is gone", func() bool { return isGone(child) })
		if isGone(grandchild) {
			t.Fatal("its child is gone already: nothing is left to find")
		}
		ctx, cancel := context.WithTimeout(context.Background(), 45*time.Second)
		defer cancel()
		if n, err := KillOrphans(ctx, ownerName(d.Process.Pid)); err != nil || n < 1 {
			t.Fatalf("%d killed, %v", n, err)
		}
		if !isGone(grandchild) {
			t.Fatal("its child is still there")
		}
	})
}

// TestGroupWatcherOutlivesGuard kills daemon and guard at once: the process's child ends although no
// daemon looks for orphans.
func TestGroupWatcherOutlivesGuard(t *testing.T) {
	withAndWithoutCgroup(t, func(t *testing.T, env ...string) {
		d := startDaemon(t, script(t, twoSleepers), append(env, "LAUNCH_TEST_WATCHER=1")...)
		child, grandchild := d.processes()
		d.Process.Signal(syscall.SIGSTOP) // so that it cannot replace the guard
		syscall.Kill(d.awaitGuard(0), syscall.SIGKILL)
		d.kill()
		eventually(t, "both are gone", func() bool { return isGone(child) && isGone(grandchild) })
	})
}

// TestGroupWatcherEndsWithProcess: the watcher causes no delay, and kills no descendants that should
// continue.
func TestGroupWatcherEndsWithProcess(t *testing.T) {
	p, err := Start(Command{Args: []string{script(t, "sleep 1000 >/dev/null 2>&1 & exit 3")}, WatchGroup: true})
	if err != nil {
		t.Fatal(err)
	}
	if r := p.Result(); r.Code != 3 {
		t.Fatalf("%+v", r)
	}
	if !isGone(p.watcher.process.Pid) {
		t.Error("the group watcher is still there")
	}
	if err := syscall.Kill(-p.Pid(), syscall.SIGKILL); err != nil {
		t.Errorf("what the process left behind is gone: %v", err)
	}
}

// TestGuardEndsProcessesOfStoppedDaemon stops the daemon without killing it: when the limit has passed,
// the guard ends the daemon's processes and their children.
func TestGuardEndsProcessesOfStoppedDaemon(t *testing.T) {
	withAndWithoutCgroup(t, func(t *testing.T, env ...string) {
		d := startDaemon(t, script(t, twoSleepers), append(env, "LAUNCH_TEST_LIMIT=300ms")...)
		child, grandchild := d.processes()
		d.Process.Signal(syscall.SIGSTOP)
		eventually(t, "both are gone", func() bool { return isGone(child) && isGone(grandchild) })
	})
}

// TestProcessesWithoutMarkEnd: a process that left its group and its environment ends,
// too.
func TestProcessesWithoutMarkEnd(t *testing.T) {
	needGroup(t)
	note := filepath.Join(t.TempDir(), "pid")
	d := startDaemon(t, script(t, "env -i setsid sh -c 'echo $$ > "+note+".new; mv "+note+".new "+note+"; exec sleep 1000' & exec sleep 1000"))
	d.start()
	var hiddenPID int
	eventually(t, "the disguised process runs", func() bool {
		text, err := os.ReadFile(note)
		fmt.Sscan(string(text), &hiddenPID)
		return err == nil
	})
	d.kill()
	eventually(t, "it is gone", func() bool { return isGone(hiddenPID) })
	if group := controlGroupOf(ownerName(d.Process.Pid)); group != "" {
		eventually(t, "its control group is gone", func() bool { _, err := os.Stat(group); return os.IsNotExist(err) })
	}
}

// TestGuardIsReplaced kills or stops the guard, and then the daemon: processes can still be
// launched, and all of them end.
func TestGuardIsReplaced(t *testing.T) {
	for _, signal := range []syscall.Signal{syscall.SIGKILL, syscall.SIGSTOP} {
		t.Run(signal.String(), func(t *testing.T) {
			d := startDaemon(t, script(t, twoSleepers), "LAUNCH_TEST_NO_GROUP=1")
			child, grandchild := d.processes()
			first := d.awaitGuard(0)
			syscall.Kill(first, syscall.SIGTERM) // ignored
			syscall.Kill(first, signal)
			d.start()
			d.awaitGuard(first)
			d.kill()
			eventually(t, "all are gone", func() bool { return isGone(child) && isGone(grandchild) })
		})
	}
}

// TestSuspendedGuardDelaysNothing: the guard is stopped without notice, as when the system freezes it;
// launching continues when its pipe is full.
func TestSuspendedGuardDelaysNothing(t *testing.T) {
	g, err := NewGuard("still")
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	g.mu.Lock()
	first, pipe := g.pid, g.pipe
	g.pipe = w // the process that reads the pipe is stopped
	g.mu.Unlock()
	defer pipe.Close()
	for range 5000 {
		g.SetDeadline(time.Now().Add(time.Hour))
	}
	eventually(t, "the guard is replaced", func() bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		return g.pid != 0 && g.pid != first
	})
}

func TestGuardNeedsMain(t *testing.T) {
	mainCalled = false
	defer func() { mainCalled = true }()
	if _, err := NewGuard("x"); err == nil || !strings.Contains(err.Error(), "launch.Main") {
		t.Fatal(err)
	}
}

// TestCloseKeepsProcesses: processes that a process has left behind may continue.
func TestCloseKeepsProcesses(t *testing.T) {
	g, err := NewGuard(ownerName(os.Getpid()))
	if err != nil {
		t.Fatal(err)
	}
	p := start(t, Command{Args: []string{"sleep", "1000"}, Guard: g})
	g.Close()
	if !p.SignalGroup(syscall.SIGKILL) || endResult(t, p).Signal != syscall.SIGKILL {
		t.Fatal("it was gone")
	}
	if _, err := KillOrphans(context.Background(), ownerName(os.Getpid())); err != nil {
		t.Fatal(err) // KillOrphans also removes the control group
	}
}

// TestRemovedControlGroupIsNotNeeded: after the control group was removed, processes can still be started,
// and still end with the daemon.
func TestRemovedControlGroupIsNotNeeded(t *testing.T) {
	needGroup(t)
	d := startDaemon(t, script(t, twoSleepers))
	d.awaitGuard(0)
	group := controlGroupOf(ownerName(d.Process.Pid))
	if err := os.Remove(group); err != nil {
		t.Fatal(err)
	}
	child, grandchild := d.processes()
	d.kill()
	eventually(t, "both are gone", func() bool { return isGone(child) && isGone(grandchild) })
}

// TestOrphansAreReaped makes a process adopt orphans, like the process with the id 1.
func TestOrphansAreReaped(t *testing.T) {
	if os.Getenv("LAUNCH_TEST_ADOPT") == "" {
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(self, "-test.run=^TestOrphansAreReaped$", "-test.v")
		cmd.Env = append(os.Environ(), "LAUNCH_TEST_ADOPT=1")
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "PASS: TestOrphansAreReaped") {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	reapsOrphans = func() bool { return true }
	job := script(t, `(sleep 0.0$(($1 % 5)); exit 3) & echo $!; exit $1`)
	var orphans []int
	for code := range 50 {
		r := run(t, job, fmt.Sprint(code))
		var pid int
		fmt.Sscan(r.stdout, &pid)
		if r.Code != code || pid == 0 {
			t.Fatalf("%+v", r)
		}
		orphans = append(orphans, pid)
	}
	eventually(t, "no orphan is left", func() bool {
		for _, pid := range orphans {
			if state, _, _ := readState(pid); state != "" {
				return false
			}
		}
		return true
	})
}

// TestProlongedLimitStopsKilling extends a limit that has passed, while processes are
// started all the time: the guard stops killing them.
func TestProlongedLimitStopsKilling(t *testing.T) {
	g, err := NewGuard(ownerName(os.Getpid()) + "-prolonged")
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	g.SetDeadline(time.Now())
	deaths := 0
	for prolonged := false; ; {
		p := start(t, Command{Args: []string{"sleep", "1000"}, Guard: g, Name: "x"})
		select {
		case <-p.Ended():
			if deaths++; deaths == 20 && !prolonged {
				g.SetDeadline(time.Now().Add(time.Hour))
				prolonged, deaths = true, 0
			}
			if prolonged && deaths > 0 {
				t.Fatalf("the guard goes on killing: %+v", p.Result())
			}
		case <-time.After(2 * time.Second):
			p.Kill(context.Background())
			if !prolonged {
				t.Fatal("the guard does not kill")
			}
			return
		}
	}
}

// TestLapsedSince: a limit that had passed when a process started counts as passed, even after a
// later limit was set.
func TestLapsedSince(t *testing.T) {
	g := &Guard{}
	g.SetDeadline(time.Now().Add(time.Hour))
	n := g.Lapses()
	if g.LapsedSince(n) {
		t.Error("a limit has passed that lies ahead")
	}
	g.SetDeadline(time.Now().Add(-time.Millisecond))
	n = g.Lapses()
	for _, moved := range []bool{false, true} {
		if moved {
			g.SetDeadline(time.Now().Add(time.Hour))
		}
		if !g.LapsedSince(n) {
			t.Errorf("no limit has passed, moved: %v", moved)
		}
	}
}
