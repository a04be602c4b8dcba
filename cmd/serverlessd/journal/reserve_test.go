package journal_test

import (
	"errors"
	"testing"
	"time"

	"gloom/cmd/serverlessd/job"
	. "gloom/cmd/serverlessd/journal"

	"github.com/rs/zerolog"
)

// scarce is a disk on which other files take up space, too.
type scarce struct {
	*disk
	free int64
}

func (s *scarce) Space() (size, free int64, err error) { return 1 << 20, s.free, nil }

// TestReserveOfADrainedJournal: adds to an empty journal must not use the space that is reserved
// for the store.
func TestReserveOfADrainedJournal(t *testing.T) {
	d := &scarce{newDisk(), 1 << 19}
	j, err := Open(Options{Files: d, IDs: job.NewIDs(job.NewSysid(), time.Now), Log: zerolog.Nop(), Reserve: 64 << 10})
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	add(t, j, batch("a-x", "line"))
	equal(t, "lines", len(rest(t, j)), 1)
	d.free = 1000
	for range 3 {
		if _, err := j.Append(t.Context(), []Batch{batch("a-x", "line")}); !errors.Is(err, ErrNoSpace) {
			t.Errorf("with less than the reserve free: %v", err)
		}
	}
	d.free = 1 << 19
	add(t, j, batch("a-x", "line"))
}
