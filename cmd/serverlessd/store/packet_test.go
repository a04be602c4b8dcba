package store_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"gloom/bench/throwaway/mariadbtest"
	"gloom/cmd/serverlessd/journal"
)

// TestSmallPackets: what goes out together fits into what the server takes.
func TestSmallPackets(t *testing.T) {
	for _, p := range []string{"256K", "512K", "1M", "16M"} {
		t.Run(p, func(t *testing.T) {
			server := mariadbtest.New(t, "--max-allowed-packet="+p)
			s := opened(t, address(t, server))
			var list []journal.Entry
			for i := range 40 {
				list = append(list, entry("a-x", fmt.Sprint(i)+strings.Repeat("'", 20_000)))
			}
			for i := range list {
				list[i].End = 1
			}
			_, err := s.Ingest(t.Context(), journal.Range{Segment: "p", To: 1}, list, time.Now)
			if err != nil {
				t.Errorf("together: %v", err)
			}
			for i, e := range list[:3] {
				if _, err := s.Ingest(t.Context(), journal.Range{Segment: fmt.Sprint("q", i), To: 1}, []journal.Entry{e}, time.Now); err != nil {
					t.Errorf("alone: %v", err)
				}
			}
		})
	}
}
