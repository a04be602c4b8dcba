package launch

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestKillReachesProcessesOutsideGroup(t *testing.T) {
	g, err := NewGuard(ownerName(os.Getpid()) + "-kill")
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	note := filepath.Join(t.TempDir(), "pid")
	leaverPath := script(t, `setsid sh -c 'echo $$ > $0.new; mv $0.new $0; exec sleep 1000' $1 & exec sleep 1000`)
	start := func(name string) (p *Process, outsiderPID int) {
		p = start(t, Command{Args: []string{leaverPath, note + name}, Guard: g, Name: name})
		eventually(t, "the descendant has a session of its own", func() bool {
			text, err := os.ReadFile(note + name)
			fmt.Sscan(string(text), &outsiderPID)
			return err == nil
		})
		return p, outsiderPID
	}
	p, outsiderPID := start("1")
	other, otherFar := start("12")
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	p.Kill(ctx)
	if !isGone(p.Pid()) || !isGone(outsiderPID) {
		t.Fatal("the process or what left its group is still there")
	}
	if isGone(other.Pid()) || isGone(otherFar) {
		t.Fatal("another command's process is gone")
	}
	other.Kill(ctx)
	if !isGone(otherFar) {
		t.Fatal("what left the group is still there")
	}
}

func TestLimitsApplyToProcess(t *testing.T) {
	job := script(t, `read go <&3; ulimit -n; ulimit -c; (ulimit -n); cat /proc/self/oom_score_adj`)
	ownScore, err := os.ReadFile("/proc/self/oom_score_adj")
	if err != nil {
		t.Fatal(err)
	}
	var score int
	fmt.Sscan(string(ownScore), &score)
	r, w, err := os.Pipe() // waits until the limits are set
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	out := &Capture{Limit: 1000}
	p := start(t, Command{
		Args: []string{job}, Stdout: out, Files: []*os.File{r},
		Limits: []Limit{{unix.RLIMIT_NOFILE, 77}, {unix.RLIMIT_CORE, 0}, {unix.RLIMIT_FSIZE, unix.RLIM_INFINITY}},
	})
	io.WriteString(w, "go\n")
	w.Close()
	endResult(t, p)
	if text, _ := out.TakeText(); text != fmt.Sprintf("77\n0\n77\n%d\n", min(score+500, 1000)) {
		t.Fatalf("limits are %q; the score of this process is %d", text, score)
	}
}

func TestProcessRunsAsUser(t *testing.T) {
	c := Command{Args: []string{"id", "-u"}, User: &syscall.Credential{Uid: 65534, Gid: 65534}}
	if os.Getuid() != 0 {
		if p, err := Start(c); err == nil {
			p.Result()
			t.Fatal("another user's process was started without being root")
		}
		return
	}
	c.Args = []string{"sh", "-c", "id -u; id -G; sleep 1000"}
	r, w := io.Pipe()
	c.Stdout = w
	p := start(t, c)
	buf := make([]byte, 100)
	n, _ := io.ReadAtLeast(r, buf, len("65534\n65534\n"))
	if string(buf[:n]) != "65534\n65534\n" {
		t.Fatalf("user and groups are %q", buf[:n])
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if p.Kill(ctx); !isGone(p.Pid()) {
		t.Fatal("it is still there")
	}
}

func TestMeterCountsTimeOfChildren(t *testing.T) {
	const burn = `i=0; while [ $i -lt 60000 ]; do i=$((i+1)); done;`
	for name, text := range map[string]string{
		"itself": burn, "a child that has ended": "(" + burn + ");", "a child that runs": "(" + burn + " echo burnt; sleep 1000) & wait;",
	} {
		t.Run(name, func(t *testing.T) {
			job := script(t, burn+"echo before; read go <&3;"+text+" echo burnt; exec sleep 1000")
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			defer w.Close()
			out, in := io.Pipe()
			p := start(t, Command{Args: []string{job}, Stdout: in, Files: []*os.File{r}})
			defer p.Kill(context.Background())
			line := make([]byte, 100)
			n, _ := out.Read(line)
			if string(line[:n]) != "before\n" {
				t.Fatalf("%q", line[:n])
			}
			eventually(t, "it waits", func() bool { state, _, _ := readState(p.Pid()); return state == "S" })
			meter := p.Meter()
			if used := meter.Used(); used != 0 {
				t.Fatalf("%v are used before anything was done", used)
			}
			io.WriteString(w, "go\n")
			n, _ = out.Read(line)
			if used := meter.Used(); !strings.HasPrefix(string(line[:n]), "burnt") || used < 20*time.Millisecond {
				t.Fatalf("%v used, %q", used, line[:n])
			}
		})
	}
}
