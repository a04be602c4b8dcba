package throwaway

import (
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// Sources makes all files of this module inputs of the running test. go test shows an earlier
// result again while a test's inputs are the same, and it knows only those that the test itself
// has opened: not what the programs that it builds and starts are made of. Before the first test
// has begun, in TestMain, it has no effect. Start calls it.
func Sources() { sources() }

var sources = sync.OnceFunc(func() {
	if flag.Lookup("test.v") == nil {
		return
	}
	root, err := filepath.Abs(".")
	for err == nil {
		if _, err = os.Stat(filepath.Join(root, "go.mod")); err == nil {
			break
		}
		if above := filepath.Dir(root); above != root {
			root, err = above, nil
		}
	}
	if err != nil { // a test binary elsewhere, whose results go test does not keep
		return
	}
	// The names, sizes and times in a directory that is read are part of the test's inputs.
	_ = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && path != root && strings.HasPrefix(d.Name(), ".") {
			return filepath.SkipDir
		}
		return nil
	})
})
