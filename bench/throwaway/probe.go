package throwaway

import (
	"flag"
	"os"
	"os/exec"
	"sync"
)

// Probe runs a package's tests of one of our programs, which runs in processes of its
// own and does not know who started it.
type Probe struct {
	// Name is the program's, below cmd.
	Name string
	// Dir is removed when the tests have ended.
	Dir string

	once sync.Once
	path string
	err  error
}

// Main is the Main of the tests, of which n run at a time.
func (p *Probe) Main(n int, run func() (int, error)) int {
	flag.Parse()
	Parallel(n)
	return Main(&p.Dir, run)
}

// Command is a run of the program, which is built at the first call. Of the environment
// it gets only PATH.
func (p *Probe) Command(args ...string) (*exec.Cmd, error) {
	p.once.Do(func() { p.path, p.err = Build(p.Dir, p.Name, Race) })
	cmd := exec.Command(p.path, args...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + p.Dir, "TMPDIR=" + p.Dir}
	return cmd, p.err
}
