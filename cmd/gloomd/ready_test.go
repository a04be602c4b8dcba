package main

import (
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"gloom/bench/throwaway"
	"gloom/broker/server"
	"gloom/broker/settings"
	"gloom/cmd/internal/daemon"
)

// TestReadyLineForPeopleAndPrograms: people get a short line with the addresses, and the settings
// at level debug; programs get all of it in one line.
func TestReadyLineForPeopleAndPrograms(t *testing.T) {
	opt := settings.Default()
	opt.SubmitAddr, opt.WorkerAddr, opt.HTTPAddr = "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"
	srv, err := server.Start(opt, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	defer srv.Close()
	for _, c := range []struct {
		format, level string
		first, second string // a field of either line
	}{
		{"json", "info", `"max_memory"`, ""},
		{"console", "info", "", ""},
		{"console", "debug", "", "max_memory="},
	} {
		out := &throwaway.Log{}
		log, err := daemon.OpenLog(daemon.LogConfig{LevelConsole: c.level, Format: c.format}, out)
		if err != nil {
			t.Fatal(err)
		}
		announce(srv, log)
		first, second, _ := strings.Cut(out.String(), "\n")
		for _, a := range []string{srv.SubmitAddr().String(), srv.WorkerAddr().String(), srv.HTTPAddr().String(), "gloomd is ready", c.first} {
			if !strings.Contains(first, a) {
				t.Errorf("%s: no %s in %s", c.format, a, first)
			}
		}
		if c.first == "" && len(first) > 140 {
			t.Errorf("%d bytes for a person: %s", len(first), first)
		}
		if (c.second == "") != (second == "") || !strings.Contains(second, c.second) {
			t.Errorf("%s at level %s: second line %q", c.format, c.level, second)
		}
	}
}
