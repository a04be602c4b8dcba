package store

import (
	"os/exec"
	"testing"
	"time"
)

func TestPlaces(t *testing.T) {
	here := Here()
	if here.Host == "" || here.Start == "" || here.Gone() {
		t.Fatalf("%+v", here)
	}
	if back := parsePlace(here.String()); back != here {
		t.Fatalf("%+v, want %+v", back, here)
	}
	later := here
	later.Start += "1"
	if !later.Gone() {
		t.Error("a process that had our id before us is gone")
	}
	elsewhere := here
	elsewhere.Host, elsewhere.PID = "another", 1<<22+1
	if elsewhere.Gone() {
		t.Error("what cannot be seen is not gone for certain")
	}
	for _, text := range []string{"", "a/b", "a/b/c", "a/b/x/y"} {
		if p := parsePlace(text); p != (Place{}) || p.Gone() {
			t.Errorf("%q: %+v", text, p)
		}
	}
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	other := here
	other.PID = cmd.Process.Pid
	other.Start, _ = startOf(other.PID)
	if other.Gone() {
		t.Error("it lives")
	}
	cmd.Process.Kill()
	for deadline := time.Now().Add(45 * time.Second); !other.Gone(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("a zombie does not count as gone")
		}
	}
	cmd.Wait()
	if !other.Gone() {
		t.Error("it is gone")
	}
}
