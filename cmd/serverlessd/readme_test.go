package main

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"gloom/bench/throwaway"
)

// testTimeout bounds every wait, even on a busy machine.
const testTimeout = 45 * time.Second

var idPattern = regexp.MustCompile(`[0-9a-z]{9}-[0-9a-z]{6}-[0-9a-z]{5}`)

// TestReadmeExample runs the README's example against a daemon, step by step. The answers must be
// those that the README shows, except for the ids.
func TestReadmeExample(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	program, err := throwaway.Build(dir, "serverlessd", false)
	if err != nil {
		t.Fatal(err)
	}
	port, err := throwaway.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	addr := fmt.Sprint("127.0.0.1:", port)
	_, text, _ := strings.Cut(string(readme), "## An example\n")
	text, _, _ = strings.Cut(text, "\n## ")
	steps := blocks(strings.ReplaceAll(text, "127.0.0.1:3001", addr))
	if len(steps) != 7 || !strings.HasSuffix(steps[0], "--dir data &\n") {
		t.Fatalf("the README's example has other steps than this test knows: %q", steps)
	}
	args := strings.Fields(strings.TrimSuffix(strings.TrimPrefix(steps[0], "serverlessd "), "&\n"))
	cmd := exec.Command(program, append(args, "--addr", addr)...)
	cmd.Dir = dir
	d, err := throwaway.Start(cmd, "serverlessd is ready")
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		d.Kill()
		if t.Failed() {
			t.Logf("the daemon's log:\n%s", &d.Log)
		}
	}()
	await(t, "http://"+addr+"/readyz")
	id := ""
	for i := 1; i+1 < len(steps); i += 2 {
		step := exec.Command("sh", "-c", steps[i])
		step.Env = append(os.Environ(), "ID="+id)
		out, err := step.Output()
		if err != nil {
			t.Fatalf("%s%v\n%s", steps[i], err, out)
		}
		got, want := strings.TrimSpace(idPattern.ReplaceAllString(string(out), "ID")), idPattern.ReplaceAllString(steps[i+1], "ID")
		if got != strings.TrimSpace(want) {
			t.Fatalf("%s\ngave\n%s\nwant\n%s", steps[i], got, want)
		}
		if ids := idPattern.FindAllString(string(out), 2); len(ids) == 2 {
			id = ids[1]
		}
	}
}

// blocks returns the code blocks of a Markdown text.
func blocks(text string) (code []string) {
	for i, part := range regexp.MustCompile("(?m)^```(?:sh)?\n").Split(text, -1) {
		if i%2 == 1 {
			code = append(code, part)
		}
	}
	return code
}

func await(t *testing.T, url string) {
	t.Helper()
	for end := time.Now().Add(testTimeout); ; time.Sleep(20 * time.Millisecond) {
		resp, err := http.Get(url)
		if err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return
			}
		}
		if time.Now().After(end) {
			t.Fatalf("%s does not answer: %v", url, err)
		}
	}
}
