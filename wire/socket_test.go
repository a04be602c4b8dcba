package wire

import (
	"os"
	"testing"
)

func TestSocketDirectoryFollowsEnvironment(t *testing.T) {
	for runtime, want := range map[string]string{
		"/home/x/run": "/home/x/run/gloom/",
		"":            "/run/gloom/",
		"relative":    "/run/gloom/", // only an absolute path counts
	} {
		if os.Geteuid() == 0 {
			want = "/run/gloom/"
		}
		t.Setenv("XDG_RUNTIME_DIR", runtime)
		for port, name := range map[Port]string{SubmitPort: "submit.sock", WorkerPort: "worker.sock"} {
			if got := port.Socket(); got != want+name {
				t.Errorf("XDG_RUNTIME_DIR=%q, %s: %s, want %s", runtime, port, got, want+name)
			}
		}
	}
}
