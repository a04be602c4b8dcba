package main

import (
	"testing"

	"gloom/broker/admin/api"
	"gloom/cmd/gloom/doors"
)

// TestLimitsInStatus: a status shows a limit from half of its use on, and all limits on demand.
func TestLimitsInStatus(t *testing.T) {
	s := &doors.Status{}
	s.Limits = map[string]int64{"max_jobs": 5, "max_types": 10, "max_conns": 0}
	s.Types = 5
	for queued, want := range map[int64]string{2: "", 3: "5 (60% used)"} {
		s.Ledger = api.Ledger{Queued: uint64(queued)}
		shown := map[string]string{}
		for _, f := range describeLimits(s, false) {
			shown[f.name] = f.value
		}
		if shown["max-jobs"] != want || shown["max-types"] != "10 (50% used)" || shown["max-conns"] != "" {
			t.Errorf("%d queued: %v", queued, shown)
		}
		if all := describeLimits(s, true); len(all) != 3 {
			t.Errorf("all: %v", all)
		}
	}
}
