package broker

import (
	"fmt"
	"testing"
	"time"
)

// TestOverdueRunBlocksWorker: whatever happens, a worker with an overdue run is handed no job
// before it has answered that run.
func TestOverdueRunBlocksWorker(t *testing.T) {
	joinRequest := func(prefetch int) *JoinRequest { return &JoinRequest{Type: []byte("t"), Prefetch: prefetch} }
	for _, prefetch := range []int{0, 1, 3} {
		for _, cancelled := range []bool{false, true} {
			t.Run(fmt.Sprintf("prefetch=%d,cancelled=%v", prefetch, cancelled), func(t *testing.T) {
				b := New(Config{Retries: 3})
				sub, lender, w := b.AddSubmitter(), b.AddLender(), b.AddWorker()
				submit := func(id, typ string, timeout time.Duration) {
					b.Submit(0, sub, &Submission{ID: []byte(id), Type: []byte(typ), Body: []byte("1"), Retries: -1, Timeout: timeout})
				}
				b.Join(0, w, joinRequest(prefetch))
				submit("late", "t", time.Second)
				if prefetch > 1 {
					submit("beside", "t", 0)
				}
				if cancelled {
					b.Cancel(0, sub, []byte("late"))
				}
				now := int64(time.Second)
				jobs := func(name string, effects []Effect) {
					t.Helper()
					for _, e := range effects {
						if e.Op == OpJob {
							t.Errorf("%s hands out %s", name, e.ID)
						}
					}
				}
				jobs("the timeout", b.Tick(now))
				if _, overdueRuns := b.RunCount(w); overdueRuns != 1 {
					t.Fatalf("%d runs are overdue", overdueRuns)
				}
				for _, typ := range []string{"t", "u"} {
					submit("next-"+typ, typ, 0)
				}
				if prefetch > 1 {
					jobs("a release beside it", b.Release(now, w, &ReleaseRequest{ID: []byte("beside")}))
				}
				jobs("a join", b.Join(now, w, joinRequest(prefetch)))
				jobs("another type", b.Join(now, w, &JoinRequest{Type: []byte("u"), Prefetch: prefetch}))
				jobs("several types", b.Join(now, w, &JoinRequest{Types: [][]byte{[]byte("*")}, Prefetch: max(prefetch, 1) + 5}))
				jobs("leave", b.Leave(now, w))
				jobs("a join after leave", b.Join(now, w, &JoinRequest{Types: [][]byte{[]byte("t"), []byte("u")}, Prefetch: 8}))
				jobs("credit", b.SetCredit(now, w, 1<<20))
				jobs("a retry", b.Tick(now+int64(time.Hour)))
				now += int64(time.Hour)
				b.Submit(now, sub, &Submission{ID: []byte("third"), Type: []byte("v"), Body: []byte("1")})
				jobs("a new type", b.Join(now, w, &JoinRequest{Types: [][]byte{[]byte("v")}, Prefetch: 8}))
				if _, run, why := b.Borrow(now, lender, &Submission{ID: []byte("lent"), Type: []byte("v"), Body: []byte("1")}); run != 0 || why != NoIdleWorker {
					t.Errorf("a borrowed job: run %d, %d", run, why)
				}
				if effects := b.Release(now, w, &ReleaseRequest{ID: []byte("late")}); len(effects) != 2 || effects[0].Op != OpOK || effects[1].Op != OpJob {
					t.Errorf("the answer for it: %+v", effects)
				}
			})
		}
	}
}
