package store_test

import (
	"bytes"
	"path/filepath"
	"syscall"
	"testing"

	"gloom/cmd/serverlessd/job"
	. "gloom/cmd/serverlessd/store"
)

// TestSmallDisk: much more data than the disk holds can pass through a store, as long as the data
// that it keeps fits.
func TestSmallDisk(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=16m,mode=700"); err != nil {
		t.Skipf("a small disk is needed, and only root can mount one: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	s, err := Open("sqlite:" + filepath.Join(dir, "store.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	e := entry("a-x", "")
	e.Payload = bytes.Repeat([]byte("x"), 1<<20)
	ingest(t, s, e) // it is kept
	for range 30 {
		e.ID = ids.Next(1)
		ingest(t, s, e)
		run := take(t, s, testSysid, "a-x", 1, testTTL)[0].Run
		end(t, s, testSysid, RunEnd{Run: run, Action: EndArchive, Code: job.CodeOK, Status: 200})
		w := laxSweep
		w.KeepDone = 0
		sweep(t, s, w)
	}
}
