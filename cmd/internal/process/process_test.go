package process

import (
	"os/exec"
	"testing"
	"time"
)

func TestGone(t *testing.T) {
	here := Self()
	if here.Boot == "" || here.PIDNamespace == "" || here.Start == "" || here.IsGone() {
		t.Fatalf("%+v", here)
	}
	later := here
	later.Start += "1"
	if !later.IsGone() {
		t.Error("a process that had our id before us is gone")
	}
	for _, elsewhere := range []Process{{"another", here.PIDNamespace, 1<<22 + 1, "1"}, {here.Boot, "another", 1<<22 + 1, "1"}, {"", "", 1<<22 + 1, "1"}, {}} {
		if elsewhere.IsGone() {
			t.Errorf("what cannot be seen is not gone for certain: %+v", elsewhere)
		}
	}
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	other := here
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
