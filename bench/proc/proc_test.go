package proc

import (
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The clock of another process advances with its work, in steps much smaller than a tick.
func TestCPUOfAnotherProcess(t *testing.T) {
	cmd := exec.Command("sh", "-c", "while :; do :; done")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	const enough = 5 * time.Millisecond
	fine := false
	for deadline := time.Now().Add(45 * time.Second); time.Now().Before(deadline); {
		used, err := CPU(cmd.Process.Pid)
		if err != nil {
			t.Fatal(err)
		}
		fine = fine || used%(10*time.Millisecond) != 0
		if used > enough && fine {
			return
		}
	}
	t.Errorf("a busy process used less than %v in 45 s, or its clock ticks (fine: %v)", enough, fine)
}

func TestCPUOfMissingProcess(t *testing.T) {
	for _, pid := range []int{-1, 0, maxPID, 1 << 30} {
		if used, err := CPU(pid); err == nil {
			t.Errorf("CPU found process %d, which does not exist: %v", pid, used)
		}
	}
}

func TestUsageCountsMemoryAndTime(t *testing.T) {
	before, err := UsageOf(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	const size = 64 << 20
	block, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Munmap(block) }()
	for i := 0; i < len(block); i += 4096 {
		block[i] = 1
	}
	f, err := os.Open(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	after, err := UsageOf(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if growth := after.RSS - before.RSS; growth < size/2 || growth > 2*size {
		t.Errorf("RSS grew by %d after touching %d bytes", growth, size)
	}
	if after.Descriptors <= before.Descriptors {
		t.Errorf("descriptors %d, then %d with one more open", before.Descriptors, after.Descriptors)
	}
}

func TestListenerPIDOfPort(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	if pid, err := ListenerPID(port); err != nil || pid != os.Getpid() {
		t.Errorf("process %d, %v, want %d", pid, err, os.Getpid())
	}
	l.Close()
	if pid, err := ListenerPID(port); err == nil {
		t.Errorf("process %d still counts as listener after the close", pid)
	}
}

func TestPinToOneProcessor(t *testing.T) {
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	cpuList := func() string {
		status, err := os.ReadFile("/proc/" + strconv.Itoa(cmd.Process.Pid) + "/status")
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(status), "Cpus_allowed_list:\t")
		list, _, _ := strings.Cut(rest, "\n")
		return list
	}
	free := cpuList()
	if err := Pin(cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	if got := cpuList(); strings.ContainsAny(got, ",-") || got == "" {
		t.Errorf("pinned to %q, want one processor", got)
	}
	if err := Unpin(cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	if got := cpuList(); got != free {
		t.Errorf("set free to %q, was %q", got, free)
	}
}

func TestNeedFiles(t *testing.T) {
	if err := RaiseFileLimit(64); err != nil {
		t.Error(err)
	}
	if err := RaiseFileLimit(1 << 40); err == nil || !strings.Contains(err.Error(), "ulimit") {
		t.Errorf("error %v should say what helps", err)
	}
}
