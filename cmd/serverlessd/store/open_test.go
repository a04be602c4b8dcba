package store_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gloom/cmd/serverlessd/journal"
	. "gloom/cmd/serverlessd/store"
)

func TestInvalidAddressesAreRefused(t *testing.T) {
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
	checkError(t, err, ErrAway)
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
	checkError(t, err, ErrAway)
}

// TestFileReplaced: a file that was removed or replaced under a running daemon is no longer
// written: the data would be lost with the process, and other connections would read another file.
// When the file is put back, the daemon continues.
func TestFileReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	s := openStore(t, "sqlite:"+path)
	ingest(t, s, entry("a-x", "before"))
	otherPath := path + ".away"
	for _, replace := range []func() error{
		func() error { return nil },
		func() error { return os.WriteFile(path, nil, 0o600) },
	} {
		if err := errors.Join(os.Rename(path, otherPath), replace()); err != nil {
			t.Fatal(err)
		}
		_, err := s.Counts(t.Context(), "a-x")
		checkError(t, err, ErrUnwell)
		_, err = s.Ingest(t.Context(), journal.Range{Segment: "other", To: 1}, []journal.Entry{entry("a-x", "lost")}, time.Now)
		checkError(t, err, ErrUnwell)
		if !strings.Contains(err.Error(), "removed or replaced") {
			t.Errorf("the reason is %v", err)
		}
		if err := os.Rename(otherPath, path); err != nil {
			t.Fatal(err)
		}
		checkEqual(t, "the waiting", counts(t, s, "a-x").Waiting, 1)
	}
}

// TestDamagedFile: the error says that the file is damaged. It is damaged, too, if it is replaced by
// an old backup while the WAL of the newer file stands beside it.
func TestDamagedFile(t *testing.T) {
	for name, damage := range map[string]func(file []byte){
		"no database": func(file []byte) { copy(file, "junk") },
		"lost pages":  func(file []byte) { clear(file[4096:]) },
	} {
		path := filepath.Join(t.TempDir(), "store.db")
		s := openStore(t, "sqlite:"+path)
		ingest(t, s, entry("a-x", "before"))
		s.Close()
		file, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		damage(file)
		if err := os.WriteFile(path, file, 0o600); err != nil {
			t.Fatal(err)
		}
		_, err = openStore(t, "sqlite:"+path).Ingest(t.Context(), journal.Range{Segment: "other", To: 1}, []journal.Entry{entry("a-x", "lost")}, time.Now)
		if checkError(t, err, ErrDamaged); !errors.Is(err, ErrUnwell) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestWALRemoved: once the WAL of the database file has been removed, the store refuses all writes.
// When the daemon stops, the file has what was in the WAL.
func TestWALRemoved(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	s := openStore(t, "sqlite:"+path)
	ingest(t, s, entry("a-x", "before"))
	refused := func() {
		t.Helper()
		_, err := s.Ingest(t.Context(), journal.Range{Segment: "other", To: 1}, []journal.Entry{entry("a-x", "lost")}, time.Now)
		checkError(t, err, ErrUnwell)
		if !strings.Contains(err.Error(), "-wal file beside it) was removed") {
			t.Errorf("the reason is %v", err)
		}
	}
	if err := os.Rename(path+"-wal", path+".away"); err != nil {
		t.Fatal(err)
	}
	refused()
	if err := os.Rename(path+".away", path+"-wal"); err != nil {
		t.Fatal(err)
	}
	ingest(t, s, entry("a-x", "put back"))
	if err := os.Remove(path + "-wal"); err != nil {
		t.Fatal(err)
	}
	refused()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	checkEqual(t, "the waiting", counts(t, openStore(t, "sqlite:"+path), "a-x").Waiting, 2)
}

// TestInterruptedConnections: connections that are closed because their queries took too long do
// not remove the WAL, even if no other connection was open.
func TestInterruptedConnections(t *testing.T) {
	s := openStore(t, "sqlite:"+filepath.Join(t.TempDir(), "store.db"))
	ingest(t, s, entry("a-x", "1"))
	if err := Exec(t.Context(), s, "PRAGMA wal_checkpoint(FULL)"); err != nil {
		t.Fatal(err)
	}
	Interrupt(t.Context(), s)
	checkEqual(t, "waiting", counts(t, s, "a-x").Waiting, 1)
}

// TestFilesBesideReplaced: a WAL that was replaced counts as removed: the open connections still
// have the old WAL. So does the file in which processes share their locks.
func TestFilesBesideReplaced(t *testing.T) {
	for _, end := range []string{"-wal", "-shm"} {
		for _, link := range []bool{false, true} {
			for _, replace := range []func(string) error{
				func(string) error { return nil },
				func(name string) error { return os.WriteFile(name, nil, 0o600) },
			} {
				target := filepath.Join(t.TempDir(), "store.db")
				path := target
				if link {
					path = filepath.Join(t.TempDir(), "link.db")
					if err := os.Symlink(target, path); err != nil {
						t.Fatal(err)
					}
				}
				s := openStore(t, "sqlite:"+path)
				ingest(t, s, entry("a-x", "before"))
				if err := errors.Join(os.Rename(target+end, target+".away"), replace(target+end)); err != nil {
					t.Fatal(err)
				}
				for range 2 {
					_, err := s.Ingest(t.Context(), journal.Range{Segment: "other", To: 1}, []journal.Entry{entry("a-x", "lost")}, time.Now)
					checkError(t, err, ErrUnwell)
					if !strings.Contains(err.Error(), end+" file beside it) was removed or replaced") {
						t.Errorf("the reason is %v", err)
					}
				}
				if err := os.Rename(target+".away", target+end); err != nil {
					t.Fatal(err)
				}
				ingest(t, s, entry("a-x", "put back"))
				checkEqual(t, "the waiting", counts(t, s, "a-x").Waiting, 2)
			}
		}
	}
}
