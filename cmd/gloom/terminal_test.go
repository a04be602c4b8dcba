package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/creack/pty"
	"github.com/hinshun/vt10x"
)

// terminal is a program that runs on its own terminal.
type terminal struct {
	t    *testing.T
	cmd  *exec.Cmd
	tty  *os.File
	done chan error

	screen vt10x.Terminal // the visible text

	mu  sync.Mutex
	out strings.Builder // all output
}

// onTerminal starts the tool on a terminal of 80 columns and 12 lines.
func onTerminal(t *testing.T, b *broker, args ...string) *terminal {
	t.Helper()
	x := &terminal{t: t, done: make(chan error, 1), screen: vt10x.New(vt10x.WithSize(80, 12))}
	x.cmd = exec.Command(filepath.Join(bin, "gloom"), args...)
	x.cmd.Env = append(os.Environ(), "TERM=xterm", "NO_COLOR=", "GORACE=atexit_sleep_ms=0",
		"GLOOM_SUBMIT_ADDR="+b.submit, "GLOOM_WORKER_ADDR="+b.worker, "GLOOM_HTTP_ADDR="+b.http)
	var err error
	if x.tty, err = pty.StartWithSize(x.cmd, &pty.Winsize{Cols: 80, Rows: 12}); err != nil {
		t.Fatal(err)
	}
	go func() {
		io.Copy(x, x.tty)
		x.done <- x.cmd.Wait()
	}()
	t.Cleanup(func() {
		x.cmd.Process.Kill()
		x.tty.Close()
	})
	return x
}

func (x *terminal) Write(p []byte) (int, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.screen.Write(p)
	return x.out.Write(p)
}

// awaitScreen waits until the screen matches.
func (x *terminal) awaitScreen(re string) {
	x.t.Helper()
	want := regexp.MustCompile(re)
	for deadline := time.Now().Add(patience); !want.MatchString(x.screen.String()); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			x.t.Fatalf("no %q on\n%s", re, x.screen)
		}
	}
}

func (x *terminal) text() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.out.String()
}

// expect waits until the output matches after an offset, and returns the end of the match.
func (x *terminal) expect(from int, re string) int {
	x.t.Helper()
	want := regexp.MustCompile(re)
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		out := x.text()
		if at := want.FindStringIndex(out[from:]); at != nil {
			return from + at[1]
		}
		if time.Now().After(deadline) {
			x.t.Fatalf("no %q in %q", re, out[from:])
		}
	}
}

func (x *terminal) exit() error {
	x.t.Helper()
	select {
	case err := <-x.done:
		return err
	case <-time.After(patience):
		x.t.Fatalf("still running; it said %q", x.text())
		return nil
	}
}

func someBroker(t *testing.T) *broker {
	t.Helper()
	b, err := startBroker(t.TempDir(), "--submit-addr", "127.0.0.1:0", "--worker-addr", "127.0.0.1:0", "--http-addr", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.kill)
	return b
}

func TestTopOnTerminal(t *testing.T) {
	b := someBroker(t)
	for _, typ := range []string{"a-type-with-a-long-name", "mail"} {
		x := onTerminal(t, b, "submit", typ, "x", "--detach")
		if err := x.exit(); err != nil {
			t.Fatalf("submit: %v: %s", err, x.text())
		}
	}
	x := onTerminal(t, b, "top", "--interval", "100ms")
	x.awaitScreen(`(?s)2 types, 0 workers.*\(no worker\) a-type-….*\(no worker\) mail .*q quit .* sort by queued`)
	x.tty.WriteString("\x1b[D")
	x.awaitScreen(`sort by type`)
	x.tty.WriteString("r")
	x.awaitScreen(`(?s)\(no worker\) mail .*\(no worker\) a-type-…`)
	x.screen.Resize(120, 12)
	pty.Setsize(x.tty, &pty.Winsize{Cols: 120, Rows: 12})
	x.awaitScreen(`\(no worker\) a-type-with-a-long-name `)
	b.Kill()
	x.awaitScreen(`no update: no broker reached at`)
	x.tty.WriteString("q")
	if err := x.exit(); err != nil {
		t.Errorf("top: %v", err)
	}
	x.expect(0, `\x1b\[\?1049l`)
	x.awaitScreen(`^\s*$`)
}

// TestTopFilters: typing a part of a name filters, and keys scroll.
func TestTopFilters(t *testing.T) {
	b := someBroker(t)
	for i := range 20 {
		x := onTerminal(t, b, "pause", fmt.Sprintf("type-%02d", i))
		if err := x.exit(); err != nil {
			t.Fatalf("pause: %v: %s", err, x.text())
		}
	}
	x := onTerminal(t, b, "top", "--sort", "type")
	x.awaitScreen(`(?s)type-00.*1–7 of 20 types`)
	for _, c := range []struct{ keys, text string }{
		{"\x1b[B", `(?s)type-01.*type-07.*2–8 of 20 types`},
		{"\x1b[6~", `(?s)type-08.*type-14.*9–15 of 20 types`},
		{"\x1b[F", `(?s)type-13.*type-19.*14–20 of 20 types`},
		{"\x1b[H", `(?s)type-00.*type-06.*1–7 of 20 types`},
		{"/7", `(?s)type-07.*type-17.*/7▏`},
		{"\r", `(?s)type-07.*type-17.*/7 \(esc drops it\)`},
		{"/x", `no type has that in its name`},
		{"\x7f\r", `(?s)type-07.*type-17`},
		{"\x1b", `1–7 of 20 types`},
	} {
		x.tty.WriteString(c.keys)
		x.awaitScreen(c.text)
	}
	x.tty.WriteString("q")
	if err := x.exit(); err != nil {
		t.Errorf("top: %v", err)
	}
}

// TestPurgeAsks: on a terminal purge asks first, and does nothing if the answer is no.
func TestPurgeAsks(t *testing.T) {
	b := someBroker(t)
	for range 2 {
		if x := onTerminal(t, b, "submit", "mail", "x", "--detach"); x.exit() != nil {
			t.Fatalf("submit: %s", x.text())
		}
	}
	x := onTerminal(t, b, "purge", "mail")
	x.awaitScreen(`cancel 2 waiting jobs of mail at \S+\? \[y/N\]`)
	x.tty.WriteString("\n")
	if x.exit() == nil {
		t.Error("purge without a yes succeeds")
	}
	x.awaitScreen("nothing was done")
	x = onTerminal(t, b, "purge", "mail")
	x.awaitScreen(`cancel 2 waiting jobs of mail`)
	x.tty.WriteString("y\n")
	if err := x.exit(); err != nil {
		t.Errorf("purge: %v", err)
	}
	x.awaitScreen(`cancelled 2 jobs; 0 left that match`)
}

// TestSubmitTellsWhy: on a terminal submit tells why the answer takes so long.
func TestSubmitTellsWhy(t *testing.T) {
	b := someBroker(t)
	w := onTerminal(t, b, "work", "mail", "--", "sh", "-c", "echo disk full >&2; exit 3")
	w.expect(0, `gloom: serving mail`)
	x := onTerminal(t, b, "submit", "mail", "x", "--retries", "1", "--backoff", "1h")
	x.expect(0, `gloom: run 1 of at most 2 failed: exit status 3: disk full; the job is retried\r\n`)
	if p := onTerminal(t, b, "pause", "mail"); p.exit() != nil {
		t.Fatalf("pause: %s", p.text())
	}
	x = onTerminal(t, b, "submit", "mail", "x")
	x.expect(0, `gloom: waiting: its type is paused\r\n`)
	if p := onTerminal(t, b, "resume", "mail"); p.exit() != nil {
		t.Fatalf("resume: %s", p.text())
	}
	x.expect(0, `gloom: run \d of at most 4 failed: exit status 3`)
}

func TestBarOnTerminal(t *testing.T) {
	b := someBroker(t)
	w := onTerminal(t, b, "work", "-j", "2", "shout", "--", "tr", "a-z", "A-Z")
	w.expect(0, `gloom: serving shout at 127.0.0.1:\d+, 2 at a time\r\n`)
	file := filepath.Join(t.TempDir(), "lines")
	if err := os.WriteFile(file, []byte(strings.Repeat("word\n", 200)), 0o600); err != nil {
		t.Fatal(err)
	}
	x := onTerminal(t, b, "submit", "shout", "--lines", file)
	at := x.expect(0, `shout   0% ░+ \(0/200`)
	at = x.expect(at, `WORD\r\n`)
	at = x.expect(at, `shout 100% █+ \(200/200, \d+ jobs/s\)`)
	x.expect(at, `\r\ngloom: 200 jobs in .*s, [\d,]+ a second\r\n$`)
	if err := x.exit(); err != nil {
		t.Error(err)
	}
	if n := strings.Count(x.text(), "WORD\r\n"); n != 200 {
		t.Errorf("%d answers shown, want 200", n)
	}
	// Ctrl-C on the terminal reaches the tool, not its commands.
	w.tty.WriteString("\x03")
	w.expect(0, `gloom: \d+ runs answered\r\n$`)
	if err := w.exit(); err != nil {
		t.Errorf("work: %v", err)
	}
}

func TestTableOnTerminal(t *testing.T) {
	b := someBroker(t)
	if x := onTerminal(t, b, "submit", "a-type-with-a-long-name", "x", "--detach"); x.exit() != nil {
		t.Fatalf("submit: %s", x.text())
	}
	for command, table := range map[string]string{ // they need more columns than there are
		"ls --all":                    `TYPE +WORKERS .*…\r\na-type-wi… +0`,
		"top --once --interval 100ms": `TYPE +QUEUED .* P99 WAIT\r\n\(no worker\) a-type-… +1`,
	} {
		x := onTerminal(t, b, strings.Fields(command)...)
		if err := x.exit(); err != nil {
			t.Errorf("%s: %v", command, err)
		}
		x.expect(0, table)
		for l := range strings.Lines(x.text()) {
			if n := utf8.RuneCountInString(strings.TrimRight(l, "\r\n")); n > 80 {
				t.Errorf("%s: a line of %d characters: %q", command, n, l)
			}
		}
	}
}
