package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gloom/cmd/internal/testing/peertest"
)

// pty opens a pseudo-terminal and returns both ends.
func pty(t *testing.T) (master, tty *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { master.Close() })
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	tty, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tty.Close() })
	return master, tty
}

// read reads from a terminal until isEnough returns true for the text.
func read(t *testing.T, from *os.File, isEnough func(string) bool) string {
	t.Helper()
	output := make(chan string)
	go func() {
		var out strings.Builder
		buf := make([]byte, 4096)
		for !isEnough(out.String()) {
			n, err := from.Read(buf)
			out.Write(buf[:n])
			if err != nil {
				break
			}
		}
		output <- out.String()
	}()
	select {
	case text := <-output:
		return text
	case <-time.After(45 * time.Second):
		t.Fatal("the terminal does not say it")
		return ""
	}
}

func TestColoursOnATerminal(t *testing.T) {
	w := newWorld(t)
	if err := w.engine.SetConcurrency("any", 100); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		env    []string
		args   []string
		colour bool
	}{
		{nil, nil, true},
		{[]string{"NO_COLOR=1"}, nil, false},
		{[]string{"TERM=dumb"}, nil, false},
		{nil, []string{"--no-color"}, false},
	} {
		master, tty := pty(t)
		cmd := exec.Command(binary, append([]string{"list-targets"}, tc.args...)...)
		cmd.Env = append([]string{"HOME=" + w.home, "TERM=xterm"}, tc.env...)
		cmd.Stdout = tty
		if err := cmd.Run(); err != nil {
			t.Fatal(err)
		}
		got := read(t, master, func(s string) bool { return strings.Count(s, "\n") == 4 })
		if colour := strings.Contains(got, "\x1b["); colour != tc.colour {
			t.Errorf("%v %v: %q", tc.env, tc.args, got)
		}
		if !tc.colour && !strings.Contains(got, "any               100      12  no\r\n") {
			t.Errorf("not aligned: %q", got)
		}
	}
}

func TestPasswordIsNotShown(t *testing.T) {
	w := newWorld(t)
	master, tty := pty(t)
	cmd := exec.Command(binary, "--config", "/dev/null", "--port", strconv.Itoa(w.worker), "--password", "poll", "any")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = tty, tty, tty
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	screen := read(t, master, func(s string) bool { return strings.Contains(s, "Enter password: ") })
	// Type only after the prompt, when echo is off: the terminal would echo anything typed
	// before.
	peertest.WaitUntil(t, "the terminal is silent", func() bool {
		state, err := unix.IoctlGetTermios(int(tty.Fd()), unix.TCGETS)
		return err == nil && state.Lflag&unix.ECHO == 0
	})
	if _, err := io.WriteString(master, password+"\n"); err != nil {
		t.Fatal(err)
	}
	screen += read(t, master, func(s string) bool { return strings.Contains(s, "ok") })
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(screen, password) {
		t.Errorf("the terminal shows the password: %q", screen)
	}
	state, err := unix.IoctlGetTermios(int(tty.Fd()), unix.TCGETS)
	if err != nil || state.Lflag&unix.ECHO == 0 {
		t.Errorf("the terminal is left silent (%v)", err)
	}
}
