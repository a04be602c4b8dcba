package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"gloom/bench/throwaway"
	"gloom/cmd/serverlessd/job"
	"gloom/cmd/serverlessd/journal"

	"github.com/rs/zerolog"
)

// smallDisk returns a directory on a disk of this many bytes.
func smallDisk(t *testing.T, bytes int) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d,mode=700", bytes)); err != nil {
		t.Skipf("a small disk is needed, and only root can mount one: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// fill fills a directory's disk as it is now: space that is freed meanwhile stays free.
func fillDisk(t *testing.T, dir string) (filler string) {
	t.Helper()
	filler = filepath.Join(dir, "filler")
	f, err := os.Create(filler)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var disk syscall.Statfs_t
	if err := syscall.Statfs(dir, &disk); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(make([]byte, disk.Bavail*uint64(disk.Bsize))); err != nil && !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	return filler
}

func addOne(t *testing.T, e *Engine) error {
	_, err := e.Add(t.Context(), []journal.Batch{{Jobtype: "a-x", Lines: [][]byte{[]byte(strings.Repeat("x", 900))}}})
	if err != nil && !errors.Is(err, journal.ErrFull) {
		t.Fatal(err)
	}
	return err
}

// TestFullDisk: a daemon starts on a disk that is full of its journal, refuses adds, writes the
// journal's jobs to its stores, and so makes room for adds again.
func TestFullDisk(t *testing.T) {
	for _, c := range []struct {
		name        string
		stores      int
		missingDirs []string // removed, so that the start has to create them on the full disk
	}{
		{"as it was", 1, nil},
		{"without its own files", 1, []string{"routes.json", "routes.json.new", "sysids", "node", "events.log"}},
		{"two stores", 2, []string{"sysids", "node"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir, otherDir := smallDisk(t, 2<<20), t.TempDir()
			open := func(there bool) *Engine {
				var stores []*gatedStore
				for i := range c.stores {
					s := sqlite(t, filepath.Join(otherDir, fmt.Sprint(i)))
					s.isAway.Store(!there)
					stores = append(stores, s)
				}
				return startEngine(t, dir, stores...)
			}
			e := open(false)
			n := 0
			for addOne(t, e) == nil {
				n++
			}
			e.Shutdown(context.Background())
			for _, name := range c.missingDirs {
				if err := os.Remove(filepath.Join(dir, name)); err != nil && !os.IsNotExist(err) {
					t.Fatal(err)
				}
			}
			fillDisk(t, dir)
			e = open(true)
			defer func() { e.Shutdown(context.Background()) }()
			e.Stop()
			waitUntil(t, "all has gone to the stores", func() error {
				if left := e.journal.Stats().Jobs; left > 0 {
					return fmt.Errorf("%d are left", left)
				}
				return nil
			})
			waitUntil(t, "adds are taken again", func() error { return addOne(t, e) })
			waitUntil(t, "all is well", e.Health)
			types, err := e.State(t.Context(), "")
			if err != nil || types["a-x"].Added != int64(n)+1 {
				t.Errorf("%d jobs were added: %+v, %v", n+1, types, err)
			}
		})
	}
}

// TestFullDiskOfTheStore: if the store is on the same full disk, it cannot write, either. The
// daemon starts, says why it is not ready, and continues by itself once there is room.
func TestFullDiskOfTheStore(t *testing.T) {
	dir := smallDisk(t, 8<<20)
	path := filepath.Join(dir, "store.db")
	e := startEngine(t, dir, sqlite(t, path))
	waitUntil(t, "there is a handler", func() error {
		return e.PutHandler(t.Context(), &job.Handler{Jobtype: "a-x", Source: job.Source{Lang: job.Shell, Body: "exit 0"}})
	})
	e.Stop()
	filler := fillDisk(t, dir)
	n := 0
	for addOne(t, e) == nil {
		n++
	}
	e.Shutdown(context.Background())
	e = startEngine(t, dir, sqlite(t, path))
	defer func() { e.Shutdown(context.Background()) }()
	waitUntil(t, "it is told", func() error {
		if err := e.Health(); err == nil || !strings.Contains(err.Error(), "full") && !strings.Contains(err.Error(), "I/O") {
			return fmt.Errorf("health: %v", err)
		}
		return nil
	})
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	waitUntil(t, "adds are taken again", func() error { return addOne(t, e) })
	waitUntil(t, "all has run", func() error {
		types, err := e.State(t.Context(), "")
		if c := types["a-x"]; err == nil && c.OK != int64(n)+1 {
			err = fmt.Errorf("%+v", c)
		}
		return err
	})
	waitUntil(t, "all is well", e.Health)
}

// TestDrainedJournalFreesItsDisk: on a full disk the journal frees the space of jobs that have gone
// to the stores, even if there are no more adds.
func TestDrainedJournalFreesItsDisk(t *testing.T) {
	dir := smallDisk(t, 4<<20)
	e := startEngine(t, dir, sqlite(t, filepath.Join(t.TempDir(), "jobs.db")))
	defer e.Shutdown(context.Background())
	waitUntil(t, "there is a handler", func() error {
		return e.PutHandler(t.Context(), &job.Handler{Jobtype: "a-x", Source: job.Source{Lang: job.Shell, Body: "exit 0"}})
	})
	e.Stop()
	// The job that runs needs less space than the journal frees: b-x has no handler.
	line := [][]byte{[]byte(strings.Repeat("x", 450_000))}
	_, err := e.Add(t.Context(), []journal.Batch{{Jobtype: "a-x", Lines: line}, {Jobtype: "b-x", Lines: line}})
	if err != nil {
		t.Fatal(err)
	}
	waitUntil(t, "all has gone to the store", func() error {
		if left := e.journal.Stats().Jobs; left > 0 {
			return fmt.Errorf("%d are left", left)
		}
		return nil
	})
	fillDisk(t, dir)
	e.Start()
	waitUntil(t, "it has run", func() error {
		types, err := e.State(t.Context(), "")
		if c := types["a-x"]; err == nil && c.OK != 1 {
			err = fmt.Errorf("%+v", c)
		}
		return err
	})
}

// TestFullDiskOfProcesses: while the disk has too little room for a job to begin, the job loses no
// try, and the log reports the lack of room once. The job runs once there is room.
func TestFullDiskOfProcesses(t *testing.T) {
	dir := smallDisk(t, 2<<20)
	var log throwaway.Log
	s := sqlite(t, filepath.Join(t.TempDir(), "jobs.db"))
	e := startEngineTo(t, &log, dir, func(*Config) {}, s)
	defer e.Shutdown(context.Background())
	waitUntil(t, "there is a handler", func() error {
		return e.PutHandler(t.Context(), &job.Handler{Jobtype: "a-x", Source: job.Source{Lang: job.Shell, Body: "exit 0"}})
	})
	e.Stop()
	id := add(t, e, "a-x", strings.Repeat("x", 10_000))[0]
	waitUntil(t, "it is ingested", func() error { return e.journal.AwaitStored(t.Context(), id) })
	fillDisk(t, dir)
	e.journal.FreeDisk()
	filler := fillDisk(t, dir)
	e.Start()
	noticeCount := func() int { return strings.Count(log.String(), "jobs cannot begin on this host") }
	waitUntil(t, "it was tried twice", func() error {
		if err := e.hostHealth(); noticeCount() == 0 || err == nil || !strings.Contains(err.Error(), "no space") || s.takeCalls.Load() < 2 {
			return fmt.Errorf("told %d times, taken %d times: %v", noticeCount(), s.takeCalls.Load(), err)
		}
		return nil
	})
	waitUntil(t, "all reasons are told", func() error {
		_, _ = e.Add(t.Context(), []journal.Batch{{Jobtype: "a-y", Lines: [][]byte{[]byte("y")}}})
		if err := e.Health(); e.journal.LastRefusal() == nil || err == nil || !strings.Contains(err.Error(), "cannot begin on this host") || !strings.Contains(err.Error(), e.journal.LastRefusal().Error()) {
			return fmt.Errorf("%v", err)
		}
		return nil
	})
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	waitUntil(t, "it has run", func() error {
		rec, err := e.Job(t.Context(), id)
		if err == nil && (rec.State != job.Succeeded || rec.Tries != 1) {
			err = fmt.Errorf("%s after %d tries", rec.State, rec.Tries)
		}
		return err
	})
	waitUntil(t, "all is well", e.Health)
	if n := noticeCount(); n != 1 {
		t.Errorf("told %d times:\n%s", n, log.String())
	}
}

// TestEventsOnFullDisk: lines that are cut short on a full disk spoil no others, even if the daemon
// is killed then.
func TestEventsOnFullDisk(t *testing.T) {
	dir := smallDisk(t, 1<<20)
	path, ids := filepath.Join(dir, "events.log"), job.NewIDSource("0d0d0d", time.Now)
	log := func(e *events, n int) {
		for range n {
			e.logAdded(ids.Next(1), "a-x")
		}
	}
	e := openEvents(path, zerolog.Nop())
	for _, kill := range []bool{false, true} {
		log(e, 7)
		e.flush()
		filler := fillDisk(t, dir)
		log(e, 2000) // more than the buffer has
		e.flush()
		if text, err := os.ReadFile(path); err != nil || bytes.HasSuffix(text, []byte("\n")) {
			t.Fatal("no line is cut short", err)
		}
		if err := os.Remove(filler); err != nil {
			t.Fatal(err)
		}
		if kill {
			_ = e.file.Close()
			e = openEvents(path, zerolog.Nop())
		}
	}
	log(e, 2000)
	e.Close()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	bad := 0
	for line := range bytes.Lines(text) {
		if !json.Valid(line) {
			bad++
			if bytes.Count(line, []byte("time")) > 1 {
				t.Errorf("%s", line)
			}
		}
	}
	if bad != 2 {
		t.Errorf("%d lines were cut short", bad)
	}
}
