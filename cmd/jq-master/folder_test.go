package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestSocketFolderRemoved: a later start removes the folder with the broker's sockets that a
// killed master has left.
func TestSocketFolderRemoved(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	start(t).Kill()
	folders, err := filepath.Glob(filepath.Join(tmp, "gloom-sockets-*"))
	if err != nil || len(folders) != 1 {
		t.Fatalf("%q, %v", folders, err)
	}
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(filepath.Join(folders[0], "gloom-sockets.mark"), old, old); err != nil {
		t.Fatal(err)
	}
	start(t)
	if _, err := os.Stat(folders[0]); !os.IsNotExist(err) {
		left, _ := os.ReadDir(folders[0])
		t.Errorf("it is left with %v: %v", left, err)
	}
}
