package broker

import (
	"fmt"
	"testing"
)

// TestUnusedHoldingIsNotCounted: when a holding becomes empty, the memory that it frees is no longer
// counted, however often jobs of many priorities come and go.
func TestUnusedHoldingIsNotCounted(t *testing.T) {
	b := New(Config{})
	p, w := b.AddSubmitter(), b.AddWorker()
	b.Join(0, w, &JoinRequest{Type: []byte("t"), Prefetch: 100})
	var after [2]int64
	for round := range 1000 {
		for i := range 7 {
			id := []byte(fmt.Sprint(round, "-", i))
			b.Pause(0, []byte("t"), i < 6)
			b.Submit(0, p, &Submission{ID: id, Type: []byte("t"), Body: []byte("1"), Priority: int64(i), Groups: [][]byte{[]byte("g")}})
		}
		for i := range 7 {
			b.Respond(0, w, []byte(fmt.Sprint(round, "-", i)), []byte("1"), false)
		}
		if queued, _ := b.Usage(); queued != 0 {
			t.Fatalf("%d jobs are left", queued)
		}
		after[min(round, 1)] = b.Memory().Queues
	}
	if submitters, _ := b.Submitters(nil, 0, 10); len(submitters) != 1 || submitters[0].Types != 0 {
		t.Errorf("a submitter without jobs: %+v", submitters)
	}
	if after[0] != after[1] {
		t.Errorf("holdings take %d bytes once they were empty, %d after 1,000 times", after[0], after[1])
	}
}
