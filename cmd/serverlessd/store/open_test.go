package store_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "gloom/cmd/serverlessd/store"
)

func TestAddresses(t *testing.T) {
	for _, address := range []string{"", "x", "memory:", "sqlite:", "mysql://", "mysql://h", "mysql://h/d?x=1", "mysql://u:secret@[/d", "postgres://h/d"} {
		s, err := Open(address)
		if err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v", address, err)
		}
		if s != nil {
			t.Errorf("%q: a store beside an error", address)
		}
	}
	s, err := Open("mysql://user:secret@127.0.0.1:1/d")
	if err != nil || strings.Contains(s.Name(), "secret") {
		t.Fatalf("%v %v", s, err)
	}
	_, err = s.Counts(t.Context(), "")
	fails(t, err, ErrAway)
}

// TestFileIsPrivate: no other user of the host can read the file of the jobs.
func TestFileIsPrivate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	s, err := Open("sqlite:" + path)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ingest(t, s, entry("a-x", "secret"))
	files, err := filepath.Glob(path + "*")
	if err != nil || len(files) < 2 {
		t.Fatalf("%v %v", files, err)
	}
	for _, file := range files {
		if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v %v", file, info.Mode(), err)
		}
	}
	absent, err := Open("sqlite:" + filepath.Join(path, "no", "directory"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = absent.Counts(t.Context(), "")
	fails(t, err, ErrAway)
}
