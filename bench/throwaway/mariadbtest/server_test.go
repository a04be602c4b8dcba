package mariadbtest

import (
	"os"
	"testing"
	"time"

	"gloom/bench/throwaway"
)

func TestMain(m *testing.M) { os.Exit(Main(m)) }

func TestSharedServerGivesSeparateDatabases(t *testing.T) {
	s := Shared(t)
	a, b := s.Database(t), s.Database(t)
	if a == b {
		t.Fatalf("two databases are both named %s", a)
	}
	s.Exec(t, a, "CREATE TABLE x (id INT PRIMARY KEY)")
	s.Exec(t, b, "CREATE TABLE x (id INT PRIMARY KEY)")
	if Shared(t) != s {
		t.Fatal("a second server was started")
	}
}

func TestDataSurvivesStopAndKill(t *testing.T) {
	s := New(t)
	name := s.Database(t)
	s.Exec(t, name, "CREATE TABLE x (id INT PRIMARY KEY) ENGINE=InnoDB")
	s.Stop()
	db, err := s.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := db.Ping(); err == nil {
		t.Fatal("a stopped server answers")
	}
	if err := s.Launch(); err != nil {
		t.Fatal(err)
	}
	s.Exec(t, name, "INSERT INTO x VALUES (1)")
	s.Exec(t, name, "FLUSH TABLES")
	s.Stop()
	if err := s.Launch(); err != nil {
		t.Fatal(err)
	}
	s.Kill()
	if err := s.Launch(); err != nil {
		t.Fatal(err)
	}
	var n int
	if err := db.QueryRow("SELECT COUNT(*) FROM x").Scan(&n); err != nil || n != 1 {
		t.Fatalf("%d rows, %v", n, err)
	}
}

// TestCopiesAtTheSameTime: a server whose data directory need only be copied waits for nobody.
func TestCopiesAtTheSameTime(t *testing.T) {
	s := Shared(t)
	err := throwaway.WithCacheDir(cacheName, func(string) error {
		done := make(chan error, 1)
		go func() {
			_, err := s.emptyData(throwaway.Lookup(installNames...))
			done <- err
		}()
		select {
		case err := <-done:
			return err
		case <-time.After(10 * time.Second):
			t.Error("it waits for the lock")
			return nil
		}
	})
	if err != nil {
		t.Fatal(err)
	}
}
