package guard

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"
)

// TestUnixSocketIsPrivate: the broker's socket is accessible only to its user, and replaces only a
// socket on which no process listens.
func TestUnixSocketIsPrivate(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	if err := os.WriteFile(path("file"), []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(path("folder"), 0o700); err != nil {
		t.Fatal(err)
	}
	usedListener, err := net.Listen("unix", path("taken"))
	if err != nil {
		t.Fatal(err)
	}
	defer usedListener.Close()
	staleListener, err := net.Listen("unix", path("dead"))
	if err != nil {
		t.Fatal(err)
	}
	staleListener.(*net.UnixListener).SetUnlinkOnClose(false)
	_ = staleListener.Close()
	datagrams, err := net.ListenPacket("unixgram", path("datagrams"))
	if err != nil {
		t.Fatal(err)
	}
	defer datagrams.Close()
	if err := os.Symlink("dead", path("link")); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, wantError string }{
		{"file", "is not a socket"}, {"folder", "is not a socket"}, {"link", "is not a socket"},
		{"taken", "another process listens"}, {"datagrams", "wrong type"},
		{"none/socket", "no such file"}, {strings.Repeat("x", 200), "invalid argument"},
	} {
		before, _ := os.Lstat(path(c.name))
		l, err := ListenUnix(path(c.name))
		if err == nil {
			_ = l.Close()
		}
		if err == nil || !strings.Contains(err.Error(), c.wantError) {
			t.Errorf("%.20s: %v, want %q", c.name, err, c.wantError)
		}
		if after, _ := os.Lstat(path(c.name)); before != nil && (after == nil || !os.SameFile(before, after)) {
			t.Errorf("%.20s is another one now", c.name)
		}
	}
	for _, name := range []string{"dead", "fresh"} {
		l, err := ListenUnix(path(name))
		if err != nil {
			t.Fatal(err)
		}
		if fi, err := os.Lstat(path(name)); err != nil || fi.Mode() != os.ModeSocket|0o600 {
			t.Errorf("%s: %v %v, want a socket for its user alone", name, fi.Mode(), err)
		}
		_ = l.Close()
		if _, err := os.Lstat(path(name)); !os.IsNotExist(err) {
			t.Errorf("%s stays behind: %v", name, err)
		}
	}
	// The process's umask must not change, because other goroutines create files at the same time.
	end := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-end:
				return
			default:
			}
			if l, err := ListenUnix(path("again")); err != nil {
				t.Error(err)
			} else {
				_ = l.Close()
			}
		}
	})
	defer wg.Wait()
	defer close(end)
	for i := range 1000 {
		other := path(fmt.Sprint("other", i))
		if err := os.WriteFile(other, nil, 0o644); err != nil {
			t.Error(err)
		}
		if fi, err := os.Lstat(other); err != nil || fi.Mode() != 0o644 {
			t.Fatalf("a file made meanwhile has the mode %v, %v", fi.Mode(), err)
		}
	}
}

// TestClosedListenerRemovesOnlyItsSocket: a listener that is closed removes its own socket. It
// removes neither a successor's socket nor a file that has taken the socket's place.
func TestClosedListenerRemovesOnlyItsSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	listen := func() net.Listener {
		l, err := ListenUnix(path)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	first := listen()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	second := listen()
	for range 2 {
		_ = first.Close()
	}
	if c, err := net.Dial("unix", path); err != nil {
		t.Errorf("the successor cannot be reached: %v", err)
	} else {
		_ = c.Close()
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	_ = second.Close()
	if text, err := os.ReadFile(path); string(text) != "mine" {
		t.Errorf("the file is %q now: %v", text, err)
	}
}

func TestFileLimitIsDivided(t *testing.T) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
			t.Fatal(err)
		}
	}()
	for _, c := range []struct{ files, option, wantOption, want, others int }{
		{1024, 0, 0, 896, 0}, {1024, 100, 0, 100, 0}, {1024, 896, 0, 896, 0}, {1024, 897, 0, 896, 0}, {1024, 1 << 20, 0, 896, 0},
		{256, 0, 0, 192, 0}, {64, 0, 0, 40, 0}, {25, 0, 0, 1, 0}, {24, 0, 0, 0, 0}, {10, 5, 0, 0, 0},
		{20000, 0, 256, 19616, 256}, {1024, 0, 256, 640, 256}, {1024, 700, 256, 640, 256}, {256, 0, 256, 64, 128}, {25, 0, 256, 1, 12},
	} {
		rlimit := limit
		rlimit.Cur = uint64(c.files)
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &rlimit); err != nil {
			t.Fatal(err)
		}
		var log bytes.Buffer
		got, others, err := DivideFileLimit("--max-conns", c.option, c.wantOption, zerolog.New(&log))
		if warned := log.Len() > 0; warned != (c.want > 0 && (c.option > c.want || c.option == 0 && c.want < 64)) {
			t.Errorf("--max-conns %d becomes %d, the log has %s", c.option, got, log.String())
		} else if warned && !strings.Contains(log.String(), fmt.Sprintf(`"max_conns":%d,`, got)) {
			t.Errorf("the warning of %d connections is %s", got, log.String())
		}
		if got != c.want || others != c.others || (err == nil) != (c.want > 0) {
			t.Errorf("of %d files and --max-conns %d come %d connections and %d other files, %v; want %d and %d", c.files, c.option, got, others, err, c.want, c.others)
		}
		if err != nil && !strings.Contains(err.Error(), "ulimit -n") {
			t.Errorf("%v does not say what to raise", err)
		}
	}
}
