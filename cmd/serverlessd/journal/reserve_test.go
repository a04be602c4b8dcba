package journal_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"gloom/cmd/serverlessd/job"
	. "gloom/cmd/serverlessd/journal"

	"github.com/rs/zerolog"
)

// sharedDisk is a disk on which other files take up space, too.
type sharedDisk struct {
	*disk
	free int64
}

func (s *sharedDisk) Space() (size, free int64, err error) { return 1 << 20, s.free, nil }

// TestReserveOfADrainedJournal: adds to an empty journal must not use the space that is reserved
// for the store.
func TestReserveOfADrainedJournal(t *testing.T) {
	d := &sharedDisk{newDisk(), 1 << 19}
	j, err := Open(Options{Files: d, IDs: job.NewIDSource(job.NewSysid(), time.Now), Log: zerolog.Nop(), ReserveBytes: 64 << 10})
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	add(t, j, batch("a-x", "line"))
	equal(t, "lines", len(readRest(t, j)), 1)
	d.free = 1000
	for range 3 {
		if _, err := j.Append(t.Context(), []Batch{batch("a-x", "line")}); !errors.Is(err, ErrNoSpace) {
			t.Errorf("with less than the reserve free: %v", err)
		}
	}
	d.free = 1 << 19
	add(t, j, batch("a-x", "line"))
}

// TestFullAtTheStart: a journal on a full disk says before the first add that it has no room,
// unless it can make room by removing segments.
func TestFullAtTheStart(t *testing.T) {
	d := &sharedDisk{newDisk(), 1 << 19}
	reserve := int64(64 << 10)
	start := func() *Journal {
		j, err := Open(Options{Files: d, IDs: job.NewIDSource(job.NewSysid(), time.Now), Log: zerolog.Nop(), ReserveBytes: reserve})
		if err != nil {
			t.Fatal(err)
		}
		return j
	}
	checkRefuses := func(j *Journal, want bool) {
		t.Helper()
		if err := j.LastRefusal(); errors.Is(err, ErrNoSpace) != want {
			t.Errorf("with %d bytes free: %v", d.free, err)
		}
	}
	j := start()
	checkRefuses(j, false)
	d.free = 100 << 10
	checkRefuses(j, true)
	d.free = 1 << 19
	add(t, j, batch("a-x", strings.Repeat("x", 100<<10)))
	checkRefuses(j, false)
	j.Close()
	d.disk, d.free = d.restart(false, nil), 100<<10
	j = start()
	checkRefuses(j, true)
	equal(t, "lines", len(readRest(t, j)), 1)
	checkRefuses(j, false)
	d.free = 1000
	checkRefuses(j, true)
	j.Close()
	d.disk, reserve = newDisk(), 0
	j = start()
	defer j.Close()
	checkRefuses(j, true)
	d.free = 64 << 10
	checkRefuses(j, false)
}
