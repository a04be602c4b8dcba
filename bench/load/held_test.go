package load

import (
	"fmt"
	"testing"
)

func TestHeldJobsKeepOrderAndBytes(t *testing.T) {
	var h heldJobs
	w := &Worker{}
	scratch := make([]byte, 0, 64)
	pushCount, popCount := 0, 0
	for round := range 200 {
		for range round % 7 {
			scratch = fmt.Appendf(scratch[:0], "id%d reply%d body%d", pushCount, pushCount, pushCount) // the slice is reused, so push must copy it
			id, reply := len(fmt.Sprint("id", pushCount)), len(fmt.Sprint("reply", pushCount))
			h.push(int64(pushCount), w, Job{ID: scratch[:id], Reply: scratch[id+1 : id+1+reply], Body: scratch[id+reply+2:]})
			pushCount++
		}
		for range round % 5 {
			if h.count == 0 {
				break
			}
			if h.nextDue() != int64(popCount) {
				t.Fatalf("next is due at %d, want %d", h.nextDue(), popCount)
			}
			j := h.pop().job
			got := fmt.Sprintf("%s %s %s", j.ID, j.Reply, j.Body)
			if want := fmt.Sprintf("id%d reply%d body%d", popCount, popCount, popCount); got != want {
				t.Fatalf("got %q, want %q", got, want)
			}
			popCount++
		}
	}
	if h.count != pushCount-popCount || popCount == 0 {
		t.Fatalf("%d held, %d pushed, %d popped", h.count, pushCount, popCount)
	}
}
