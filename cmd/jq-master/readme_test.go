package main

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/pflag"
)

func readme(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

var (
	idPattern   = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)
	timePattern = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z`)
)

// withoutIDs replaces all ids and times in a reply, so that replies can be compared.
func withoutIDs(text string) string {
	return strings.TrimSpace(timePattern.ReplaceAllString(idPattern.ReplaceAllString(text, "ID"), "TIME"))
}

// TestReadmeExamples runs the README's examples step by step. The replies must be those that the
// README shows, except for ids and times.
func TestReadmeExamples(t *testing.T) {
	t.Parallel()
	d := start(t)
	text := strings.ReplaceAll(readme(t), "http://127.0.0.1:9996", d.url)
	ids := map[string]string{}
	var runCount int
	steps := regexp.MustCompile("(?ms)^```(sh|python)\n(.*?)^```\n(?:```\n(.*?)^```\n)?").FindAllStringSubmatch(text, -1)
	for _, s := range steps {
		kind, step, want := s[1], s[2], s[3]
		if step == "jq-master &\n" {
			continue
		}
		cmd := exec.Command("sh", "-euc", step)
		if kind == "python" {
			cmd = exec.Command("python3", "-c", step)
		}
		cmd.Env = append(os.Environ(), "ID="+ids["job_id"], "WORKER="+ids["worker_id"])
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s%v\n%s", step, err, out)
		}
		if kind == "python" {
			want = "ID"
		}
		if withoutIDs(string(out)) != withoutIDs(want) {
			t.Fatalf("%s\ngave\n%s\nwant\n%s", step, out, want)
		}
		if m := regexp.MustCompile(`^\{"(job_id|worker_id)":"([^"]+)"`).FindStringSubmatch(string(out)); m != nil {
			ids[m[1]] = m[2]
		}
		runCount++
	}
	if runCount != 7 {
		t.Errorf("%d steps of the README were run, want 7", runCount)
	}
}

// TestReadmeOptions: all options that the README names exist.
func TestReadmeOptions(t *testing.T) {
	opt := defaults()
	known := map[string]bool{"target": true, "help": true}
	command(&opt, nil).Flags().VisitAll(func(f *pflag.Flag) { known[f.Name] = true })
	ownText := regexp.MustCompile("`gloom(-bench)? [^`]*`").ReplaceAllString(readme(t), "")
	names := regexp.MustCompile(`--([a-z]+(?:-[a-z]+)*)`).FindAllStringSubmatch(ownText, -1)
	for _, m := range names {
		if !known[m[1]] {
			t.Errorf("the README names --%s, which there is not", m[1])
		}
	}
	if len(names) < 15 {
		t.Errorf("the README names %d options", len(names))
	}
}

// TestWorkersOfExamples: the workers of the examples run jobs and report those that they cannot
// run.
func TestWorkersOfExamples(t *testing.T) {
	t.Parallel()
	program := filepath.Join(t.TempDir(), "worker")
	if out, err := exec.Command("go", "build", "-o", program, "./examples/worker").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for name, args := range map[string][]string{"python": {"/usr/bin/python3", "examples/worker.py"}, "go": {program}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := start(t)
			cmd := exec.Command(args[0], append(args[1:], d.url)...)
			cmd.Stderr = os.Stderr
			cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatalf("%v (Debian: python3-msgpack; make deps installs it)", err)
			}
			t.Cleanup(func() {
				_ = cmd.Process.Kill()
				_ = cmd.Wait()
			})
			registered := make(chan string, 1)
			go func() {
				line, _ := bufio.NewReader(out).ReadString('\n')
				registered <- line
			}()
			select {
			case line := <-registered:
				if !strings.HasPrefix(line, "registered as ") {
					t.Fatalf("the worker says %q (Debian: python3-msgpack; make deps installs it)", line)
				}
			case <-time.After(testTimeout):
				t.Fatal("the worker has not registered")
			}
			c := d.client(t, msgpackType)
			id := c.enqueue(`{"name":"greet","argument":{"whom":"you"},"keep_result":true}`)
			c.do("GET", "/job/"+id+"/polling?timeout=40", "").wantStatus(200).has(`{"status":"done","result":"hello you"}`)
			other := c.enqueue(`{"name":"unknown","argument":{}}`)
			c.do("GET", "/job/"+other, "").wantStatus(200).has(`{"status":"queued"}`)
		})
	}
}
