package durable

import (
	"os"
	"path/filepath"
	"testing"
)

// TestWriteFileIsAtomic: the file has either the new content or the old one, and no other file is left
// beside it.
func TestWriteFileIsAtomic(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	for _, text := range []string{"one", "two"} {
		if err := WriteFile(path, []byte(text)); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != text {
			t.Fatalf("%q, %v", got, err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "taken"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := WriteFile(filepath.Join(dir, "taken"), nil); err == nil {
		t.Error("a directory was replaced")
	}
	if err := WriteFile(filepath.Join(dir, "none", "f"), nil); err == nil {
		t.Error("a file was written where there is no directory")
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 2 {
		t.Errorf("%v, %v", entries, err)
	}
}
