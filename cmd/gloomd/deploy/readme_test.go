package deploy

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestReadmeExample: the README's example that starts a broker prints, as a script, the answer in
// the README, ten times out of ten.
func TestReadmeExample(t *testing.T) {
	data, err := os.ReadFile("../../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(data), "## A first job\n\n```sh\n")
	script, _, _ := strings.Cut(rest, "```\n")
	_, want, _ := strings.Cut(script, "\n# ") // the answer is a comment at the end
	if !found || !strings.Contains(script, "gloomd &") || want == "" {
		t.Fatalf("the README does not have a first job and its answer:\n%s\n%s", script, want)
	}
	bin := t.TempDir()
	buildPrograms(t, bin)
	for range 10 {
		dir, err := os.MkdirTemp("", "gloom") // a short path, because a unix socket's path has at most 107 bytes
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		var out, errs bytes.Buffer
		cmd := exec.Command("sh", "-c", script)
		cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "HOME="+dir, "XDG_RUNTIME_DIR="+dir,
			"GLOOM_SUBMIT_ADDR=unix:"+dir+"/s", "GLOOM_WORKER_ADDR=unix:"+dir+"/w", "GLOOM_HTTP_ADDR=unix:"+dir+"/h")
		cmd.Stdout, cmd.Stderr = &out, &errs
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		cmd.WaitDelay = 20 * time.Second
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		killTimer := time.AfterFunc(30*time.Second, func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
		state, err := cmd.Process.Wait()
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) // the script's background processes
		_ = cmd.Wait()
		killTimer.Stop()
		if err != nil || !state.Success() || !strings.HasSuffix(out.String(), want) {
			t.Fatalf("%v, %v\n%s\n%s", state, err, out.String(), errs.String())
		}
	}
}
