package link

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	gloom "gloom/clients/go"
)

// longPast is the time, relative to now, of files that are older than any daemon.
const longPast = -2 * time.Hour

// makeFiles makes old files below a directory.
func makeFiles(t *testing.T, dir string, files ...string) {
	t.Helper()
	for _, name := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("precious\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	old := time.Now().Add(longPast)
	_ = filepath.WalkDir(dir, func(path string, _ fs.DirEntry, _ error) error { return os.Chtimes(path, old, old) })
}

// openLink opens a link with an embedded broker, as a door does.
func openLink(t *testing.T) *Link {
	t.Helper()
	l, err := Open(Config{Program: "serverlessd"}, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestForeignFoldersStay: when a door starts, it removes only files that an earlier start has
// made. All other files are kept, whatever their name and however long they have been unlocked.
func TestForeignFoldersStay(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	paths := []string{
		"serverlessd-data/lock", "serverlessd-data/journal/0001", "serverlessd-data/store.db", // of another daemon
		folderPrefix + "of-mine/lock", folderPrefix + "of-mine/thesis", // such a name without a mark
		folderPrefix + "other/" + markName, folderPrefix + "other/submit", // another program's mark
	}
	makeFiles(t, tmp, paths...)
	// This is a daemon's folder to which another program has added a file.
	used := newFolder(t)
	makeFiles(t, used, "notes")
	// Files behind a symbolic link must not be removed.
	otherDir := t.TempDir()
	target := newFolder(t)
	if err := os.Rename(target, filepath.Join(otherDir, "target")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(otherDir, "target"), target); err != nil {
		t.Fatal(err)
	}
	openLink(t).Close()
	for _, path := range append(paths, filepath.Base(used)+"/notes", filepath.Base(used)+"/"+markName, filepath.Base(target)+"/"+markName) {
		if _, err := os.Stat(filepath.Join(tmp, path)); err != nil {
			t.Error(err)
		}
	}
}

// newFolder makes a folder as a killed daemon leaves it.
func newFolder(t *testing.T) string {
	t.Helper()
	f, err := makeFolder()
	if err != nil {
		t.Fatal(err)
	}
	f.lock.Close()
	old := time.Now().Add(longPast)
	if err := os.Chtimes(filepath.Join(f.dir, markName), old, old); err != nil {
		t.Fatal(err)
	}
	return f.dir
}

// TestStaleFoldersAreRemoved: a daemon removes its folder when it ends. A later start removes the
// folder of a killed daemon, but not the folder of a daemon that runs or is starting.
func TestStaleFoldersAreRemoved(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	freshFolder := newFolder(t)
	if err := os.Chtimes(filepath.Join(freshFolder, markName), time.Now(), time.Now()); err != nil {
		t.Fatal(err)
	}
	liveLink := openLink(t)
	leftFolder, old := newFolder(t), time.Now().Add(longPast)
	if err := os.Chtimes(filepath.Join(liveLink.folder.dir, markName), old, old); err != nil {
		t.Fatal(err)
	}
	openLink(t).Close()
	entries, err := os.ReadDir(tmp)
	var names []string
	for _, e := range entries {
		names = append(names, filepath.Join(tmp, e.Name()))
	}
	want := []string{freshFolder, liveLink.folder.dir}
	slices.Sort(want)
	if err != nil || !slices.Equal(names, want) {
		t.Errorf("%q, %v; without %s there should be %q", names, err, leftFolder, want)
	}
	liveLink.Close()
	if _, err := os.Stat(liveLink.folder.dir); !os.IsNotExist(err) {
		t.Errorf("a daemon that has ended left its folder: %v", err)
	}
}

// TestOutageIsLoggedOnce: the log has the first failed attempt of each outage, and its end.
func TestOutageIsLoggedOnce(t *testing.T) {
	var log bytes.Buffer
	l, err := Open(Config{SubmitAddr: "127.0.0.1:1", SubmitOnly: true}, zerolog.New(&log))
	if err != nil {
		t.Fatal(err)
	}
	const outages, attempts = 2, 5
	for range outages {
		l.handleNotice(SubmitterSide, gloom.Notice{Event: gloom.EventLost, Err: errors.New("cut")})
		for range attempts {
			l.handleNotice(SubmitterSide, gloom.Notice{Event: gloom.EventFailed, Err: errors.New("refused")})
			l.handleNotice("slots", gloom.Notice{Event: gloom.EventFailed, Err: errors.New("late")})
		}
		for range 2 {
			l.handleNotice(SubmitterSide, gloom.Notice{Event: gloom.EventConnected})
			l.handleNotice("slots", gloom.Notice{Event: gloom.EventJoined})
		}
	}
	for text, want := range map[string]int{"cut": outages, "refused": outages, "late": outages, "has been reached": 2 * outages} {
		if n := strings.Count(log.String(), text); n != want {
			t.Errorf("the log has %q %d times, want %d:\n%s", text, n, want, log.String())
		}
	}
}
