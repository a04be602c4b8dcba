package main

import (
	"testing"
	"time"

	"gloom/bench/throwaway/redistest"
)

// TestRatesAfterReload: a master that has lost its store, or its lease, begins to count again. Rates
// are then of what it has counted since.
func TestRatesAfterReload(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	d := start(t, "--redis", server.URL())
	c := d.client(t, jsonType)
	for range 5 {
		c.enqueue(`{"name":"n","argument":{}}`)
	}
	time.Sleep(1500 * time.Millisecond) // the counts are noted every second
	server.Do(t, "FLUSHALL")
	eventually(t, "the master has lost the jobs", func() bool {
		answer := c.do("GET", "/v1/stats", "")
		return answer.status == 200 && answer.decode()["states"].(map[string]any)["queued"] == 0.
	})
	for range 5 {
		time.Sleep(500 * time.Millisecond)
		if rate := c.do("GET", "/v1/stats", "").wantStatus(200).decode()["rates"].(map[string]any)["enqueued"].(float64); rate > 5 {
			t.Errorf("%g jobs per second were enqueued", rate)
		}
	}
}
