package broker

import "testing"

// TestIdleWorkerCountIncludesPatterns: Idle counts workers with room for each type that they serve, whether the core knows
// the type or not.
func TestIdleWorkerCountIncludesPatterns(t *testing.T) {
	b := New(Config{MaxTypes: 100, MaxPairs: 1000})
	plainWorker, patternWorker := b.AddWorker(), b.AddWorker()
	b.Join(0, plainWorker, &JoinRequest{Type: []byte("a-b"), Prefetch: 1})
	b.Join(0, patternWorker, &JoinRequest{Types: [][]byte{[]byte("a-*")}, Except: [][]byte{[]byte("a-c")}, Prefetch: 1})
	expect := func(moment string, want map[string]int) {
		t.Helper()
		for name, n := range want {
			if got := b.IdleWorkerCount([]byte(name)); got != n {
				t.Errorf("%s: %d idle workers for %s, want %d", moment, got, name, n)
			}
		}
	}
	expect("at first", map[string]int{"a-b": 2, "a-new": 1, "a-c": 0, "b-a": 0})
	b.Submit(1, b.AddSubmitter(), &Submission{ID: []byte("j"), Type: []byte("a-b"), Body: []byte("1")})
	expect("one at work", map[string]int{"a-b": 1})
	b.Submit(2, b.AddSubmitter(), &Submission{ID: []byte("k"), Type: []byte("a-b"), Body: []byte("1")})
	expect("both at work", map[string]int{"a-b": 0, "a-new": 0})
}
