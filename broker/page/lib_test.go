package page_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"flag"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var registry = flag.Bool("registry", false, "compare what others made with the packages that npm fetches")

// TestLibraryFilesHaveVersions: lib/VERSIONS names each library file; with -registry, each file is
// equal to the one in its package.
func TestLibraryFilesHaveVersions(t *testing.T) {
	data, err := os.ReadFile("lib/VERSIONS")
	if err != nil {
		t.Fatal(err)
	}
	versionFiles := []string{"VERSIONS"}
	packages := map[string]map[string][]byte{}
	for line := range strings.Lines(string(data)) {
		f := strings.Fields(line)
		if line[0] == '#' {
			continue
		}
		if len(f) != 4 {
			t.Fatalf("%q has %d fields, want 4", line, len(f))
		}
		local, err := os.ReadFile(filepath.Join("lib", f[3]))
		if err != nil {
			t.Error(err)
		}
		versionFiles = append(versionFiles, f[3])
		if !*registry {
			continue
		}
		name := f[0] + "@" + f[1]
		if packages[name] == nil {
			packages[name] = fetchPackage(t, name)
		}
		if content, ok := packages[name]["package/"+f[2]]; !ok || !bytes.Equal(local, content) {
			t.Errorf("%s is not what %s has as %s (there: %v)", f[3], name, f[2], ok)
		}
	}
	files, err := os.ReadDir("lib")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if !slices.Contains(versionFiles, f.Name()) {
			t.Errorf("lib/VERSIONS does not say where %s is from", f.Name())
		}
	}
}

// fetchPackage returns the files of a package.
func fetchPackage(t *testing.T, name string) map[string][]byte {
	t.Helper()
	dir := t.TempDir()
	cmd := exec.Command("npm", "pack", "--silent", name)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("npm pack %s: %v\n%s", name, err, out)
	}
	archives, err := filepath.Glob(dir + "/*.tgz")
	if err != nil || len(archives) != 1 {
		t.Fatalf("npm pack %s made %v, %v", name, archives, err)
	}
	f, err := os.Open(archives[0])
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if files[h.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
}
