package throwaway

import (
	"flag"
	"fmt"
	"os"
)

// Main runs a package's tests with a directory, *dir, that is gone when they are
// over. It returns the exit code; an error of run is printed, and is a failure.
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

// Parallel lets n tests run at a time, unless the command line says how many: most
// of those that have processes wait, and a slot per processor would serialise them.
// The flags must have been parsed.
func Parallel(n int) {
	if p := flag.Lookup("test.parallel"); p.Value.String() == p.DefValue {
		_ = p.Value.Set(fmt.Sprint(n))
	}
}
