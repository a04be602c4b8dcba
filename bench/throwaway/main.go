package throwaway

import (
	"flag"
	"fmt"
	"os"
)

// Main runs a package's tests with a directory, *dir, that is removed when they have
// ended. It returns the exit code; an error of run is printed and counts as a failure.
func Main(dir *string, run func() (int, error)) int {
	var err error
	if *dir, err = os.MkdirTemp("", "gloom-test-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(*dir)
	code, err := run()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// LimitParallel lets n tests run at the same time, unless the command line sets a number. Most tests
// with processes only wait, so one test per processor would be too few. The flags must have been
// parsed.
func LimitParallel(n int) {
	if p := flag.Lookup("test.parallel"); p.Value.String() == p.DefValue {
		_ = p.Value.Set(fmt.Sprint(n))
	}
}
