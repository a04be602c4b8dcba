package bridge

import (
	"fmt"
	"testing"

	"gloom/cmd/internal/testing/storetest"
)

// TestRemovedTargetsLeaveNoCounters: however many targets were added and removed, a look at those that there
// are leaves no counters behind.
func TestRemovedTargetsLeaveNoCounters(t *testing.T) {
	cfg := configFor(t, "a=1")
	writeLauncher(t, &cfg, printAndExit)
	f := startBridge(t, storetest.NewTable(), cfg)
	for i := range 2 * maxTargetLabels {
		name := fmt.Sprint("target ", i)
		f.withMachine(func() {
			if err := f.machine.Add(name, 1); err != nil {
				t.Error(err)
			}
		})
		f.Overview()
		f.withMachine(func() { f.machine.Remove(name) })
	}
	families, err := f.reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if n := len(family.GetMetric()); n > maxTargetLabels {
			t.Errorf("%s has %d series", family.GetName(), n)
		}
	}
}
