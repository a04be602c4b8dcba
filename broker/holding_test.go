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

// TestSubmittersOfTypeAreListed: the submitters of a type are those that have jobs of it, waiting or
// running, also if they have jobs in very many groups. These are listed piece by piece.
func TestSubmittersOfTypeAreListed(t *testing.T) {
	b := New(Config{Retries: 3, MaxUnusedTypes: 8})
	worker, submitter := b.AddWorker(), b.AddSubmitter()
	b.Join(0, worker, &JoinRequest{Type: []byte("t")})
	check := func(typ string, want, wantPieces int) {
		t.Helper()
		listed, pieces := 0, 0
		for from := 0; from >= 0; pieces++ {
			var found []SubmitterInfo
			found, from = b.Submitters([]byte(typ), from, 10)
			listed += len(found)
		}
		if listed != want || pieces != wantPieces {
			t.Errorf("%d submitters of type %s are listed in %d pieces, want %d in %d", listed, typ, pieces, want, wantPieces)
		}
	}
	submit := func(id, typ string) {
		b.Submit(0, submitter, &Submission{ID: []byte(id), Type: []byte(typ), Body: []byte("1"), Groups: [][]byte{[]byte(id)}})
	}
	submit("runs", "t")
	check("t", 1, 1)
	const jobs = 3 * lookVisits
	for i := range jobs {
		submit(fmt.Sprint(i), "u")
	}
	check("t", 1, 1+jobs/lookVisits)
	check("u", 1, 1)
	check("v", 0, 1+jobs/lookVisits)
	if found, _ := b.Submitters(nil, 0, 10); found[0].Types != 1 {
		t.Errorf("jobs of type u in %d groups have %d types", lookVisits, found[0].Types)
	}
}
