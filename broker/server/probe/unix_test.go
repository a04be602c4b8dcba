package probe

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestUnixSocketsAreServed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	sub, work := filepath.Join(dir, "submit.sock"), filepath.Join(dir, "work.sock")
	b := start(t, "--submit-addr=unix:"+sub, "--worker-addr=unix:"+work)
	if !strings.Contains(b.submitAddr, sub) || !strings.Contains(b.workerAddr, work) {
		t.Errorf("start-up line says %q and %q", b.submitAddr, b.workerAddr)
	}
	b.submitAddr, b.workerAddr = "unix:"+sub, "unix:"+work
	typ := freshName("unix")
	s, w := b.submitter(t), b.servingWorker(t, typ)
	t.Run("round trip", func(t *testing.T) {
		for range 20 {
			checkServes(t, s, w, typ)
		}
	})
	t.Run("a body of 1 MiB", func(t *testing.T) {
		body := quote(strings.Repeat("u", 1<<20))
		id := s.submitFresh(typ, body)
		if _, got := w.nextJob(); got != body {
			t.Fatalf("body of %d bytes", len(got))
		}
		w.respond(body)
		s.wantResult(id, body)
	})
	t.Run("mode 0600", func(t *testing.T) {
		for _, path := range []string{sub, work} {
			info, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			if info.Mode().Perm() != 0o600 {
				t.Errorf("%s has mode %v", path, info.Mode())
			}
		}
	})
	t.Run("a lost worker's job goes on", func(t *testing.T) {
		id := s.submitFresh(typ, `1`)
		w.wantJob(id)
		w.close()
		successor := b.servingWorker(t, typ)
		successor.wantJob(id)
		successor.respond(`2`)
		s.wantResult(id, `2`)
	})
	t.Run("errors and the end", func(t *testing.T) {
		stranger := b.submitter(t)
		stranger.writeRaw(announceFrame(0x7fffffff))
		stranger.wantError("size_error")
		stranger.wantEOF()
	})
	t.Run("a socket in use is not taken", func(t *testing.T) {
		text := refusedWith(t, 0, daemonSpec{flags: []string{"--submit-addr=unix:" + sub}})
		if !strings.Contains(text, sub) {
			t.Errorf("the error does not name %s:\n%s", sub, text)
		}
		b.checkAlive(t)
	})
	t.Run("a dead socket is replaced", func(t *testing.T) {
		path := filepath.Join(dir, "dead.sock")
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		l.SetUnlinkOnClose(false)
		_ = l.Close()
		b := start(t, "--submit-addr=unix:"+path)
		b.submitAddr = "unix:" + path
		b.checkAlive(t)
	})
	t.Run("a file is not replaced", func(t *testing.T) {
		path := filepath.Join(dir, "file")
		if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
			t.Fatal(err)
		}
		text := refusedWith(t, 0, daemonSpec{flags: []string{"--worker-addr=unix:" + path}})
		if !strings.Contains(text, path) {
			t.Errorf("the error does not name %s:\n%s", path, text)
		}
		if got, _ := os.ReadFile(path); string(got) != "precious" {
			t.Errorf("the file is %q now", got)
		}
	})
	t.Run("a directory is not replaced", func(t *testing.T) {
		path := filepath.Join(dir, "dir")
		if err := os.Mkdir(path, 0o755); err != nil {
			t.Fatal(err)
		}
		refusedWith(t, 0, daemonSpec{flags: []string{"--submit-addr=unix:" + path}})
		if info, err := os.Stat(path); err != nil || !info.IsDir() {
			t.Errorf("the directory is gone: %v", err)
		}
	})
	t.Run("a directory that is not there", func(t *testing.T) {
		refusedWith(t, 0, daemonSpec{flags: []string{"--submit-addr=unix:" + filepath.Join(dir, "no", "such", "sock")}})
	})
}
