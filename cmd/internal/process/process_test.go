package process

import (
	"encoding/json"
	"os"
	"os/exec"
	"testing"
	"time"
)

func TestProcessWithOtherStartIsGone(t *testing.T) {
	self := Self()
	if self.Boot == "" || self.PIDNamespace == "" || self.Start == "" || self.IsGone() {
		t.Fatalf("%+v", self)
	}
	laterProcess := self
	laterProcess.Start += "1"
	if !laterProcess.IsGone() {
		t.Error("a process that had our id before us is gone")
	}
	for _, foreignProcess := range []Process{{"another", self.PIDNamespace, 1<<22 + 1, "1"}, {self.Boot, "another", 1<<22 + 1, "1"}, {"", "", 1<<22 + 1, "1"}, {}} {
		if foreignProcess.IsGone() {
			t.Errorf("what cannot be seen is not gone for certain: %+v", foreignProcess)
		}
	}
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	other := self
	other.PID = cmd.Process.Pid
	other.Start, _ = StartTime(other.PID)
	if other.IsGone() {
		t.Error("it lives")
	}
	cmd.Process.Kill()
	for deadline := time.Now().Add(45 * time.Second); !other.IsGone(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("a zombie does not count as gone")
		}
	}
	cmd.Wait()
	if !other.IsGone() {
		t.Error("it is gone")
	}
}

// TestOtherBootClockHidesNoProcess: a process in a time namespace sees other start times. It must
// not conclude that a living process outside the namespace has ended and that its id belongs to a
// new process.
func TestOtherBootClockHidesNoProcess(t *testing.T) {
	if text := os.Getenv("PROCESS_TEST_OUTSIDE"); text != "" {
		var self Process
		if err := json.Unmarshal([]byte(text), &self); err != nil || self.IsGone() || Self().IsGone() {
			t.Fatalf("err %v; seen from %+v, %+v is gone", err, Self(), self)
		}
		return
	}
	unshareArgs := []string{"--time", "--fork", "--boottime", "100000"}
	if err := exec.Command("unshare", append(unshareArgs, "true")...).Run(); err != nil {
		t.Skip("no time namespace can be made here:", err)
	}
	self, err := json.Marshal(Self())
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("unshare", append(unshareArgs, os.Args[0], "-test.run=^"+t.Name()+"$")...)
	cmd.Env = append(os.Environ(), "PROCESS_TEST_OUTSIDE="+string(self))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
