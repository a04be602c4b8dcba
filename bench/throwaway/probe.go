package throwaway

import (
	"flag"
	"os"
	"os/exec"
	"sync"
)

// Probe runs tests against a program of this repository. The program runs in processes of its own,
// outside of the test binary.
type Probe struct {
	// Name is the program's directory in cmd.
	Name string
	// Dir is removed when the tests have ended.
	Dir string

	buildOnce sync.Once
	path      string
	err       error
}

// Main runs the tests, n at a time.
func (p *Probe) Main(n int, run func() (int, error)) int {
	flag.Parse()
	LimitParallel(n)
	return Main(&p.Dir, run)
}

// Command returns a command that runs the program, which is built at the first call. It gets PATH
// from the environment, and p.Dir as its HOME and TMPDIR.
func (p *Probe) Command(args ...string) (*exec.Cmd, error) {
	p.buildOnce.Do(func() { p.path, p.err = Build(p.Dir, p.Name, Race) })
	cmd := exec.Command(p.path, args...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + p.Dir, "TMPDIR=" + p.Dir}
	return cmd, p.err
}
