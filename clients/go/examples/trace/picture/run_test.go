package main

import (
	"os"
	"testing"
)

// TestTrace sends a request through broker and worker, and checks the spans of both.
func TestTrace(t *testing.T) {
	if err := os.Chdir(".."); err != nil {
		t.Fatal(err)
	}
	answer, all, err := run(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if want := `"a thumbnail of sea.jpg"`; answer != want {
		t.Errorf("the answer is %s, want %s", answer, want)
	}
	if len(all) != wanted {
		t.Fatalf("%d spans, want %d: %+v", len(all), wanted, all)
	}
	parent := caller
	for i, want := range []struct{ service, name string }{
		{"web", "GET /thumbnail"}, {"web", "job thumbnail"}, {"worker", "run thumbnail"}, {"worker", "fetch"}, {"worker", "shrink"},
	} {
		s := all[i]
		if s.Service != want.service || s.Name != want.name || s.Parent != parent || s.Trace != trace {
			t.Errorf("span %d is %+v, want %v in %s, a child of %s in trace %s", i, s, want.name, want.service, parent, trace)
		}
		if i < 3 { // both steps are children of the run
			parent = s.ID
		}
	}
	arrows := 0
	for _, e := range events(all) {
		if e.Phase == "s" || e.Phase == "f" {
			arrows++
		}
	}
	if arrows != 4 {
		t.Errorf("%d ends of arrows, want two there and two back", arrows)
	}
}
