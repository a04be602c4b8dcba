package daemon

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"gloom/cmd/internal/cli"
)

// TestHangingLogDelaysNobody: wherever lines go, nobody waits for long when they cannot be written.
func TestHangingLogDelaysNobody(t *testing.T) {
	terminal, tty, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer terminal.Close()
	defer tty.Close()
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	fifo, fifoReader := silentFifo(t)
	for name, c := range map[string]struct {
		LogConfig
		console *os.File
	}{
		"terminal":                  {LogConfig{}, tty},
		"file":                      {LogConfig{File: fifo, LevelFile: "info"}, null},
		"full disk and a full pipe": {LogConfig{File: "/dev/full", LevelFile: "info"}, null},
	} {
		t.Run(name, func(t *testing.T) {
			c.LevelConsole = "info"
			log, err := OpenLog(c.LogConfig, c.console)
			if err != nil {
				t.Fatal(err)
			}
			errorOutput = cli.NewLossyWriter(fifoReader, consoleTimeout)
			defer func() { errorOutput = cli.NewLossyWriter(os.Stderr, consoleTimeout) }()
			done := make(chan struct{})
			go func() {
				defer close(done)
				for range 3000 {
					log.Audit.Info().Msg("written or lost, but without waiting for it")
				}
			}()
			select {
			case <-done:
			case <-time.After(20 * time.Second):
				t.Fatal("the log waits")
			}
		})
	}
}

// TestFullPipeDelaysNobody: a full pipe delays nobody. The first line after lost lines tells
// exactly how many lines were lost, however many goroutines log.
func TestFullPipeDelaysNobody(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	w.Fd() // blocking, as standard error is
	log, err := OpenLog(LogConfig{LevelConsole: "info", Format: "json"}, w)
	if err != nil {
		t.Fatal(err)
	}
	const writers, lines = 8, 100
	long := strings.Repeat("x", 10<<10)
	logAll := func() {
		done := make(chan struct{})
		go func() {
			defer close(done)
			var all sync.WaitGroup
			for range writers {
				all.Go(func() {
					for range lines {
						log.Audit.Info().Str("long", long).Msg("written or lost")
					}
				})
			}
			all.Wait()
		}()
		select {
		case <-done:
		case <-time.After(10 * time.Second):
			t.Fatal("the log waits for its reader")
		}
	}
	logAll()
	read := make(chan struct{})
	lineCount, noticeCount, ends := 0, 0, 0
	go func() {
		defer close(read)
		for in := bufio.NewReader(r); ; {
			line, err := in.ReadBytes('\n')
			var l struct {
				Message string
				Lost    int `json:"console_lines_lost"`
				Ends    int
			}
			if err != nil || json.Unmarshal(line, &l) != nil {
				t.Errorf("a line is torn: %.100q, %v", line, err)
				return
			}
			noticeCount += l.Lost
			switch l.Message {
			case "the end":
				ends = l.Ends
				return
			case "written or lost":
				lineCount++
			}
		}
	}()
	logAll()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for n, reading := 0, true; reading; n++ {
		log.Audit.Info().Int("ends", n).Msg("the end") // lost, too, until the reader has made room
		select {
		case <-read:
			reading = false
		case <-tick.C:
		}
	}
	if lineCount == 0 || noticeCount == 0 || lineCount+noticeCount != 2*writers*lines+ends {
		t.Errorf("%d lines of %d were written and %d were said to be lost", lineCount, 2*writers*lines+ends, noticeCount)
	}
	w.Close()
}

// TestLostLinesAreReported: the console reports the lines that the file has lost, and names the
// file as the cause.
func TestLostLinesAreReported(t *testing.T) {
	fifo, _ := silentFifo(t)
	var console strings.Builder
	log, err := OpenLog(LogConfig{File: fifo, LevelFile: "info", LevelConsole: "info", Format: "json"}, &console)
	if err != nil {
		t.Fatal(err)
	}
	for range 30 { // more than a pipe holds
		log.Audit.Info().Str("long", strings.Repeat("x", 10<<10)).Msg("lost in the file")
	}
	if s := console.String(); !strings.Contains(s, `"file_lines_lost_so_far":`) || strings.Contains(s, "console_lines_lost") {
		t.Errorf("%d bytes do not say that the file has lost lines, or say that the console has", len(s))
	}
}

// silentFifo returns a named pipe that is open and that nobody reads.
func silentFifo(t *testing.T) (name string, f *os.File) {
	t.Helper()
	name = filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(name, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return name, f
}

// TestSlowLogFileDoesNotDelayStart: a log file that cannot be opened because nobody reads the pipe does
// not hold up the start. The console reports it, and a reader that comes later gets the later lines.
func TestSlowLogFileDoesNotDelayStart(t *testing.T) {
	dir := t.TempDir()
	fifo := filepath.Join(dir, "log")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	console, err := os.Create(filepath.Join(dir, "console"))
	if err != nil {
		t.Fatal(err)
	}
	defer console.Close()
	opened := make(chan *Log)
	go func() {
		log, err := OpenLog(LogConfig{File: fifo, LevelFile: "info", LevelConsole: "info", Format: "json"}, console)
		if err != nil {
			t.Error(err)
		}
		opened <- log
	}()
	var log *Log
	select {
	case log = <-opened:
	case <-time.After(20 * time.Second):
		t.Fatal("the log waits for a reader")
	}
	text, err := os.ReadFile(console.Name())
	if err != nil || !strings.Contains(string(text), "the log file cannot be opened yet") || !strings.Contains(string(text), fifo) {
		t.Errorf("console: %s, %v", text, err)
	}
	r, err := os.OpenFile(fifo, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := r.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	gotLine := make(chan struct{})
	go func() { // lines are lost until the log has noticed the reader
		for lines := bufio.NewScanner(r); lines.Scan(); {
			if strings.Contains(lines.Text(), "there is a reader now") {
				close(gotLine)
				return
			}
		}
		t.Error("no line has come")
		close(gotLine)
	}()
	for {
		log.Info().Msg("there is a reader now")
		select {
		case <-gotLine:
			return
		case <-time.After(10 * time.Millisecond):
		}
	}
}
