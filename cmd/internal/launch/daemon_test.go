package launch

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// daemon is what the test binary does in a process of its own: it starts one
// job from a goroutine that is soon gone, and waits to be killed.
func daemon(command string) {
	l, err := New(Options{Command: command, MaxOutput: 1000, Env: []string{Mark("launch-test-" + os.Getenv("LAUNCH_TEST_MARK"))}})
	if err != nil {
		panic(err)
	}
	if limit, err := time.ParseDuration(os.Getenv("LAUNCH_TEST_LIMIT")); err == nil {
		go func() {
			for {
				l.Until(time.Now().Add(limit))
				time.Sleep(limit / 4)
			}
		}()
	}
	pid := make(chan int)
	go func() {
		p, err := l.Start(1)
		if err != nil {
			panic(err)
		}
		pid <- p.Pid()
	}()
	fmt.Println(<-pid)
	select {}
}

// startDaemon starts the daemon and returns it and its job.
func startDaemon(t *testing.T, command string, env ...string) (*exec.Cmd, int) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(append(os.Environ(), "LAUNCH_TEST_DAEMON="+command), env...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	var child int
	fmt.Sscan(line, &child)
	return cmd, child
}

func TestChildrenDieWithTheDaemon(t *testing.T) {
	note := filepath.Join(t.TempDir(), "pid")
	job := script(t, "sh -c 'echo $$ > "+note+".new; mv "+note+".new "+note+"; exec sleep 1000' & exec sleep 1000")
	mark := fmt.Sprint(os.Getpid())
	cmd, child := startDaemon(t, job, "LAUNCH_TEST_MARK="+mark)
	var grandchild int
	eventually(t, "the job's own child runs", func() bool {
		text, err := os.ReadFile(note)
		fmt.Sscan(string(text), &grandchild)
		return err == nil
	})
	if gone(child) {
		t.Fatal("the job did not survive its goroutine")
	}
	// Without the guard, the kernel ends the job but not the job's child.
	for pid := range children(cmd.Process.Pid) {
		if pid != child {
			syscall.Kill(pid, syscall.SIGSTOP)
			t.Cleanup(func() { syscall.Kill(pid, syscall.SIGKILL) })
		}
	}
	cmd.Process.Kill()
	cmd.Wait()
	eventually(t, "the job is gone", func() bool { return gone(child) })
	if gone(grandchild) {
		t.Fatal("the job's child is gone already: nothing to find by its mark")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if n, err := KillMarked(ctx, "launch-test-"+mark); err != nil || n < 1 {
		t.Fatalf("%d killed, %v", n, err)
	}
	if !gone(grandchild) {
		t.Fatal("the job's child is still there")
	}
}

// TestAStoppedDaemonsJobsEnd stops the daemon without killing it: its guard ends
// the jobs, their children too, when their time is over.
func TestAStoppedDaemonsJobsEnd(t *testing.T) {
	job := script(t, "sleep 1000 & exec sleep 1000")
	cmd, child := startDaemon(t, job, "LAUNCH_TEST_LIMIT=300ms")
	var grandchild int
	eventually(t, "the job has a child", func() bool {
		for pid := range children(child) {
			grandchild = pid
		}
		return grandchild != 0
	})
	cmd.Process.Signal(syscall.SIGSTOP)
	eventually(t, "job and child are gone", func() bool { return gone(child) && gone(grandchild) })
}

// TestTheGuardIsReplaced kills the guard, then the daemon: the job's child ends
// all the same, which no parent-death signal reaches.
func TestTheGuardIsReplaced(t *testing.T) {
	cmd, child := startDaemon(t, script(t, "sleep 1000 & exec sleep 1000"))
	var grandchild int
	eventually(t, "the job has a child", func() bool {
		for pid := range children(child) {
			grandchild = pid
		}
		return grandchild != 0
	})
	guards := func() (found []int) {
		for pid := range children(cmd.Process.Pid) {
			if name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)); strings.TrimSpace(string(name)) == guardName {
				found = append(found, pid)
			}
		}
		return found
	}
	eventually(t, "there is a guard", func() bool { return len(guards()) == 1 })
	first := guards()[0]
	syscall.Kill(first, syscall.SIGTERM) // ignored
	syscall.Kill(first, syscall.SIGKILL)
	eventually(t, "there is another one", func() bool { g := guards(); return len(g) == 1 && g[0] != first })
	cmd.Process.Kill()
	eventually(t, "all are gone", func() bool { return gone(child) && gone(grandchild) })
}

// TestOrphansAreReaped has this process adopt, as one with the id 1 does.
func TestOrphansAreReaped(t *testing.T) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	defer unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
	adopts = func() bool { return true }
	defer func() { adopts = func() bool { return false } }()
	l := launcher(t, Options{Command: script(t, `(sleep 0.0$(($1 % 5)); exit 3) & echo $!; exit $1`) + " {id}"})
	var orphans []int
	for id := int64(0); id < 50; id++ {
		r := run(t, l, id)
		var pid int
		fmt.Sscan(r.Stdout, &pid)
		if r.Code != int(id) || pid == 0 {
			t.Fatalf("%+v", r)
		}
		orphans = append(orphans, pid)
	}
	eventually(t, "no orphan is left", func() bool {
		for _, pid := range orphans {
			if state, _ := look(pid); state != "" {
				return false
			}
		}
		return true
	})
}
