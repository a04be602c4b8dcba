package throwaway

import (
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// TrackSources makes all files of this module inputs of the running test. go test reuses a cached
// result while a test's inputs are unchanged. By itself, go test tracks the files that the test
// opens, but not the sources of programs that the test builds and starts. In TestMain, before the
// first test has begun, TrackSources has no effect. Start calls it.
func TrackSources() { trackSources() }

var trackSources = sync.OnceFunc(func() {
	if flag.Lookup("test.v") == nil {
		return
	}
	root, err := filepath.Abs(".")
	for err == nil {
		if _, err = os.Stat(filepath.Join(root, "go.mod")); err == nil {
			break
		}
		if parent := filepath.Dir(root); parent != root {
			root, err = parent, nil
		}
	}
	if err != nil { // a test binary outside of the module, whose results go test does not cache
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
