package web

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestSlowBodies: bodies that do not end keep nobody else from adding, nor their own
// client from adding little; it gets its places back when they have ended.
func TestSlowBodies(t *testing.T) {
	const most = 4
	s := &Web{queue: away{}, places: newPlaces(most), opt: Options{MaxBody: 1 << 20, MaxLine: 1 << 20, MaxLines: 1, MaxBodies: most}}
	add := func(client string, body io.Reader) error {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", body)
		return s.add(&request{Request: r, w: httptest.NewRecorder(), client: client, name: "t"})
	}
	large := func() io.Reader { return strings.NewReader(strings.Repeat("a", 2*smallBody)) }
	ended, goesOn := make(chan error, most), make(chan struct{})
	for range most {
		from, to := io.Pipe()
		go func() {
			_, _ = to.Write(make([]byte, smallBody+1))
			<-goesOn
			to.Close()
		}()
		go func() { ended <- add("slow", from) }()
	}
	for range most / 2 {
		if f := faultOf(<-ended); f == nil || f.Code != "overloaded" {
			t.Errorf("beyond half of the places: %v", f)
		}
	}
	for name, err := range map[string]error{
		"a small one": add("slow", strings.NewReader("a\n")), "another's small one": add("other", strings.NewReader("a\n")), "another's large one": add("other", large()),
	} {
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := add("slow", large()); err == nil || faultOf(err).status != http.StatusServiceUnavailable {
		t.Errorf("one more: %v", err)
	}
	close(goesOn)
	for range most - most/2 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	if err := add("slow", large()); err != nil {
		t.Errorf("after them: %v", err)
	}
}
