package job

import (
	"testing"
	"time"
)

// TestIDs: ids grow whatever the clock does, even after a new sysid or a restart.
func TestIDs(t *testing.T) {
	now := time.UnixMilli(1_800_000_000_000)
	ids := NewIDSource("zzzzzz", func() time.Time { return now })
	var last ID
	next := func(n int) {
		t.Helper()
		first := ids.Next(n)
		if _, err := ParseID(string(first)); err != nil {
			t.Fatalf("%q: %v", first, err)
		}
		if first <= last {
			t.Fatalf("%q after %q", first, last)
		}
		last = first.Add(n - 1)
		if got, ok := last.OffsetFrom(first); !ok || got != n-1 {
			t.Fatalf("%q is %d behind %q, want %d", last, got, first, n-1)
		}
	}
	next(1)
	next(1000)
	now = now.Add(time.Second)
	next(1)
	now = now.Add(-time.Hour)
	next(1)
	next(maxSeq + 2) // more ids than one millisecond has
	next(1)
	ids.SetSysid("000000")
	next(1)
	ids = NewIDSource("111111", func() time.Time { return now })
	ids.RaiseAbove(last)
	next(1)
	if got, _, _, _ := last.parts(); got < 1_800_000_001_000 {
		t.Errorf("the time of %q is %d", last, got)
	}
}

func TestParseID(t *testing.T) {
	for _, s := range []string{
		"", "1m817brr7-rseydg-0000", "1m817brr7-rseydg-000000", "1m817brr7_rseydg-00000", "1m817brr7-rseydg_00000",
		"1m817brri-rseydg-00000", "1M817BRR7-RSEYDG-00000", "1m817brr7-rseyd\n-00000",
	} {
		if id, err := ParseID(s); err == nil {
			t.Errorf("%q is taken for %q", s, id)
		}
	}
}
