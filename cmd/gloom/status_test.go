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
		texts := map[string]string{}
		for _, f := range describeLimits(s, false) {
			texts[f.name] = f.value
		}
		if texts["max-jobs"] != want || texts["max-types"] != "10 (50% used)" || texts["max-conns"] != "" {
			t.Errorf("%d queued: %v", queued, texts)
		}
		if all := describeLimits(s, true); len(all) != 3 {
			t.Errorf("all: %v", all)
		}
	}
}
