package replies

import (
	"errors"
	"fmt"
	"testing"
)

// TestReplyIsEncodedOncePerSnapshot: a reply is encoded once per snapshot and request, errors are
// not kept, and the number of replies is bounded.
func TestReplyIsEncodedOncePerSnapshot(t *testing.T) {
	var r Cache[int]
	encoded, first, second := 0, new(int), new(int)
	get := func(snapshot *int, request int, want string) {
		t.Helper()
		got, err := r.Get(snapshot, request, func() ([]byte, error) { encoded++; return fmt.Appendf(nil, "%p %d", snapshot, request), nil })
		if err != nil || want != string(got) {
			t.Errorf("%q %v, want %q", got, err, want)
		}
	}
	failed := errors.New("away")
	if _, err := r.Get(first, 0, func() ([]byte, error) { return nil, failed }); err != failed {
		t.Error(err)
	}
	for range 100 {
		get(first, 0, fmt.Sprintf("%p 0", first))
		get(first, 1, fmt.Sprintf("%p 1", first))
	}
	if encoded != 2 {
		t.Errorf("%d replies were encoded, want 2", encoded)
	}
	for range 100 {
		get(second, 0, fmt.Sprintf("%p 0", second))
	}
	if encoded != 3 || len(r.encodedReplies) != 1 {
		t.Errorf("after the next snapshot %d were encoded, and %d are kept", encoded, len(r.encodedReplies))
	}
	for i := range 3 * maxReplies {
		get(second, i, fmt.Sprintf("%p %d", second, i))
		if len(r.encodedReplies) > maxReplies {
			t.Fatalf("%d replies are kept", len(r.encodedReplies))
		}
	}
}
