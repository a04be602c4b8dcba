package daemon

import (
	"bufio"
	"bytes"
	"encoding/json"
	stdlog "log"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/creack/pty"
	"github.com/rs/zerolog"
)

// TestLogFloodIsLimited: lines beyond the rate are dropped and counted; actions of operators are always
// written.
func TestLogFloodIsLimited(t *testing.T) {
	var out bytes.Buffer
	log, err := OpenLog(LogConfig{LevelConsole: "info", Format: "json"}, &out)
	if err != nil {
		t.Fatal(err)
	}
	const flood = 10 * logRate
	for range flood {
		log.Warn().Msg("a bad peer")
	}
	log.Audit.Info().Msg("an operator paused a type")
	log.Error().Msg("it is broken")
	text := out.String()
	if n := strings.Count(text, "a bad peer"); n < logRate || n >= flood/2 {
		t.Errorf("%d lines of %d passed", n, flood)
	}
	for _, want := range []string{"an operator paused a type", "it is broken"} {
		if !strings.Contains(text, want) {
			t.Errorf("the flood hides %q", want)
		}
	}
}

// TestLibraryLinesAreLogged: what libraries print with package log, as net/http does about a server that
// answers twice, has the log's format and is limited like everything else.
func TestLibraryLinesAreLogged(t *testing.T) {
	var out bytes.Buffer
	if _, err := OpenLog(LogConfig{LevelConsole: "info", Format: "json"}, &out); err != nil {
		t.Fatal(err)
	}
	const flood = 10 * logRate
	for range flood {
		stdlog.Print("Unsolicited response received")
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if n := len(lines); n < logRate || n >= flood/2 {
		t.Errorf("%d lines of %d passed", n, flood)
	}
	for _, line := range lines {
		if !json.Valid([]byte(line)) || !strings.Contains(line, `"level":"warn"`) {
			t.Fatalf("got %q", line)
		}
	}
}

// TestFileAndConsoleHaveOwnLevels: file and console have their own levels, and only a terminal gets escape sequences.
func TestFileAndConsoleHaveOwnLevels(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "log")
	console, err := os.Create(filepath.Join(dir, "console"))
	if err != nil {
		t.Fatal(err)
	}
	defer console.Close()
	log, err := OpenLog(LogConfig{File: path, LevelFile: "debug", LevelConsole: "warn", Format: "console"}, console)
	if err != nil {
		t.Fatal(err)
	}
	log.Debug().Msg("small")
	log.Warn().Str("peer", "a").Msg("large")
	log.Reopen()
	log.Warn().Msg("after")
	for file, want := range map[string][3]bool{path: {true, true, true}, console.Name(): {false, true, true}} {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for i, word := range []string{"small", "large", "after"} {
			if bytes.Contains(data, []byte(word)) != want[i] {
				t.Errorf("%s: %q: want %v\n%s", file, word, want[i], data)
			}
		}
		if bytes.ContainsRune(data, '\x1b') {
			t.Errorf("%s has escape sequences: %q", file, data)
		}
	}
	if _, err := OpenLog(LogConfig{File: "/no/such/dir/log"}, console); err == nil || !strings.Contains(err.Error(), "/no/such/dir/log") {
		t.Errorf("got %v", err)
	}
}

// TestReadyLineForPeopleAndPrograms: people get a short line with the addresses, and the settings
// at level debug; programs get all of it in one line.
func TestReadyLineForPeopleAndPrograms(t *testing.T) {
	for _, c := range []struct{ format, level, want string }{
		{"json", "info", `{"level":"info","addr":"a:1","version":"v1","message":"x is ready"}` + "\n"},
		{"console", "info", "INF x is ready addr=a:1\n"},
		{"console", "debug", "INF x is ready addr=a:1\nDBG settings version=v1\n"},
	} {
		var out bytes.Buffer
		log, err := OpenLog(LogConfig{LevelConsole: c.level, Format: c.format}, &out)
		if err != nil {
			t.Fatal(err)
		}
		log.Announce("x is ready", func(e *zerolog.Event) { e.Str("addr", "a:1") }, func(e *zerolog.Event) { e.Str("version", "v1") })
		stamp := regexp.MustCompile(`(?m)^\S+ (INF|DBG)|"time":"[^"]*",`)
		if got := stamp.ReplaceAllString(out.String(), "$1"); got != c.want {
			t.Errorf("%s at level %s: got %q, want %q", c.format, c.level, got, c.want)
		}
	}
}

// TestTerminalGetsLinesForPeople: a terminal gets lines for people, a pipe gets JSON.
func TestTerminalGetsLinesForPeople(t *testing.T) {
	terminal, console, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer terminal.Close()
	defer console.Close()
	read, pipe, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	defer pipe.Close()
	for _, c := range []struct {
		to, from *os.File
		format   string
		json     bool
	}{
		{console, terminal, "auto", false}, {console, terminal, "json", true},
		{pipe, read, "auto", true}, {pipe, read, "console", false},
	} {
		log, err := OpenLog(LogConfig{LevelConsole: "info", Format: c.format}, c.to)
		if err != nil {
			t.Fatal(err)
		}
		log.Info().Msg("here")
		line, err := bufio.NewReader(c.from).ReadString('\n')
		if err != nil || log.IsJSON != c.json || strings.HasPrefix(line, "{") != c.json || !strings.Contains(line, "here") {
			t.Errorf("%s to %s: %q, %v", c.format, c.to.Name(), line, err)
		}
	}
}
