package bridge

import (
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"gloom/cmd/internal/testing/storetest"
	"gloom/cmd/jobd/store"
)

// TestUnstartableRowsGoBack: while this host is out of files, rows go back to the table and /readyz
// says why. The rows run when the host has files again.
func TestUnstartableRowsGoBack(t *testing.T) {
	cfg := configFor(t, "a=2")
	writeLauncher(t, &cfg, "echo done $id")
	f := startBridge(t, storetest.NewTable(), cfg)
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	restore := func() { syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit) }
	defer restore()
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: 1, Max: limit.Max}); err != nil {
		t.Fatal(err)
	}
	f.insert(store.Waiting, "a", 1)
	f.insert(store.Manual, "a", 2)
	_, texts, err := runManual(t, f, 2)
	if err != nil || !strings.Contains(texts[2], "may be run again: cannot launch") || !strings.Contains(texts[2], "too many open files") {
		t.Fatal(texts, err)
	}
	if f.rowStatus(2) != store.Manual {
		t.Fatalf("%+v", f.readRecord(2))
	}
	f.Poll(nil)
	eventually(t, "a row goes back and is tried again", func() bool { return counterValue(f.metrics.endedRows, "a", "requeued") >= 3 })
	f.fetchHealth.record("fetch", store.ErrFenced) // all reasons are told
	if err := f.Health(); err == nil || !strings.Contains(err.Error(), "too many open files") || !strings.Contains(err.Error(), "rows cannot be fetched") {
		t.Fatal(err)
	}
	f.fetchHealth.record("fetch", nil)
	restore()
	f.await(store.Done, 1)
	if r := f.readRecord(1); *r.Result != "ok" || *r.Stdout != "done 1\n" {
		t.Fatalf("%+v", r)
	}
	if err := f.Health(); err != nil {
		t.Fatal(err)
	}

	file, err := os.OpenFile(strings.Fields(cfg.Launcher)[0], os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	f.insert(store.Waiting, "a", 3)
	f.Poll(nil)
	eventually(t, "the launcher that is being written was tried", func() bool { return f.Health() != nil })
	file.Close()
	f.await(store.Done, 3)
	if r := f.readRecord(3); *r.Result != "ok" {
		t.Fatalf("%+v", r)
	}
}

func TestCommandIsSplitAtSpaces(t *testing.T) {
	for command, want := range map[string][]string{
		"php /x.php {id}":          {"php", "/x.php", "37"},
		"  a   b  ":                {"a", "b"},
		`a "b c" 'd'`:              {"a", `"b`, `c"`, "'d'"},
		"a{id}b{id} {ID} $HOME\t*": {"a37b37", "{ID}", "$HOME\t*"},
		"":                         nil,
	} {
		if got := commandArgs(command, 37); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", command, got, want)
		}
	}
}
