package live

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestReadmeExamplesOfClients runs the examples of the clients' READMEs as they are, except for the
// ports. Examples named …_worker run beside the others until they are stopped; the others must
// print the text block that follows them.
func TestReadmeExamplesOfClients(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range []struct{ name, block, command string }{
		{"node", "js", "node"}, {"php", "php", "php"},
	} {
		t.Run(l.name, func(t *testing.T) {
			w := &world{T: t}
			srv := w.broker()
			text, err := os.ReadFile(filepath.Join(root, "clients", l.name, "README.md"))
			if err != nil {
				t.Fatal(err)
			}
			folder := t.TempDir()
			if err := os.Symlink(filepath.Join(root, "clients"), filepath.Join(folder, "clients")); err != nil {
				t.Fatal(err)
			}
			if err := os.MkdirAll(filepath.Join(folder, "node_modules"), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(filepath.Join(root, "clients/node"), filepath.Join(folder, "node_modules/gloom")); err != nil {
				t.Fatal(err)
			}
			ports := strings.NewReplacer("127.0.0.1:9998", srv.SubmitAddr().String(), "127.0.0.1:9999", srv.WorkerAddr().String())
			blocks := regexp.MustCompile("(?ms)^```("+l.block+"|text)\n(.*?)^```$").FindAllStringSubmatch(string(text), -1)
			named := regexp.MustCompile(`^(?:<\?php )?// (\w+\.(?:mjs|php))\n`)
			type program struct{ name, want string }
			var programs []program
			for _, b := range blocks {
				if b[1] == "text" {
					// A text block after a worker's example belongs to the program before that
					// example.
					for i := len(programs) - 1; i >= 0; i-- {
						if !strings.Contains(programs[i].name, "_worker") {
							programs[i].want = b[2]
							break
						}
					}
					continue
				}
				name := named.FindStringSubmatch(b[2])
				if name == nil {
					continue // an excerpt, not a program
				}
				programs = append(programs, program{name: name[1]})
				if err := os.WriteFile(filepath.Join(folder, name[1]), []byte(ports.Replace(b[2])), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if len(programs) < 6 {
				t.Fatalf("found %v", programs)
			}
			var workers []*exec.Cmd
			run := func(name string) (*exec.Cmd, *bytes.Buffer) {
				cmd := exec.Command(l.command, name)
				out := &bytes.Buffer{}
				cmd.Dir, cmd.Stdout, cmd.Stderr = folder, out, out
				cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				return cmd, out
			}
			for _, p := range programs {
				if strings.Contains(p.name, "_worker") {
					cmd, _ := run(p.name)
					workers = append(workers, cmd)
				}
			}
			for _, p := range programs {
				if strings.Contains(p.name, "_worker") {
					continue
				}
				cmd, out := run(p.name)
				killTimer := time.AfterFunc(patience, func() { cmd.Process.Kill() })
				if err := cmd.Wait(); err != nil || out.String() != p.want {
					t.Errorf("%s: %v, printed\n%s\nwant\n%s", p.name, err, out, p.want)
				}
				killTimer.Stop()
			}
			for _, cmd := range workers {
				cmd.Process.Signal(syscall.SIGTERM)
				if err := cmd.Wait(); err != nil {
					t.Errorf("%v: %v", cmd.Args, err)
				}
			}
		})
	}
}

// TestReadmePrograms runs the programs of the README as they are, except for the ports: the Go
// worker serves the Python submitter.
func TestReadmePrograms(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	srv := (&world{T: t}).broker()
	ports := strings.NewReplacer("127.0.0.1:9998", srv.SubmitAddr().String(), "127.0.0.1:9999", srv.WorkerAddr().String())
	source := func(language string) string {
		block := regexp.MustCompile("(?ms)^```" + language + "\n(.*?)^```$").FindStringSubmatch(string(text))
		if block == nil {
			t.Fatalf("the README has no program in %s", language)
		}
		return ports.Replace(block[1])
	}
	folder := t.TempDir()
	file, program := filepath.Join(folder, "shout.go"), filepath.Join(folder, "shout")
	if err := os.WriteFile(file, []byte(source("go")), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("go", "build", "-o", program, file).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	worker := exec.Command(program)
	worker.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := worker.Start(); err != nil {
		t.Fatal(err)
	}
	defer worker.Wait()
	defer worker.Process.Kill()
	ask := exec.Command("python3", "-c", source("python"))
	ask.Env = append(os.Environ(), "PYTHONPATH="+filepath.Join(root, "clients/python/src"))
	if out, err := ask.CombinedOutput(); err != nil || string(out) != "HELLO\n" {
		t.Errorf("%v, printed %q", err, out)
	}
}
