package jobd

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goccy/go-json"

	"gloom/cmd/jobd/bridge"
)

func TestMain(m *testing.M) {
	bridge.Main()
	os.Exit(m.Run())
}

func TestEachModeRuns(t *testing.T) {
	for _, mode := range []string{ModeBridge, ModeLaunch, ModeOriginal} {
		t.Run(mode, func(t *testing.T) {
			o := DefaultOptions()
			o.Mode, o.Rows, o.Rounds, o.Concurrency, o.Backlog = mode, 300, 2, 4, 10
			rep, err := Run(t.Context(), o, nil)
			if err != nil {
				t.Fatal(err)
			}
			if len(rep.Rounds) != 2 || rep.Rounds[1].Rows != 300 || rep.Rounds[1].Seconds <= 0 || rep.Rounds[1].DatabaseCPU <= 0 || rep.Flush != "1" {
				t.Fatalf("%+v", rep)
			}
		})
	}
}

func TestCommandWritesItsFigures(t *testing.T) {
	cmd := Command()
	path := filepath.Join(t.TempDir(), "out.json")
	cmd.SetArgs([]string{"--rows", "200", "--rounds", "1", "--out", path})
	var out bytes.Buffer
	cmd.SetOut(&out)
	if err := cmd.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "bridge: median") {
		t.Errorf("%s", out.String())
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var rep Report
	if err := json.Unmarshal(text, &rep); err != nil || rep.Rounds[0].Rows != 200 {
		t.Fatalf("%v %s", err, text)
	}
}

func TestInvalidOptions(t *testing.T) {
	for _, change := range []func(*Options){
		func(o *Options) { o.Mode = "fast" }, func(o *Options) { o.Rows = 0 }, func(o *Options) { o.Targets = -1 },
		func(o *Options) { o.Mode, o.Command = ModeLaunch, "" },
	} {
		o := DefaultOptions()
		change(&o)
		if _, err := Run(t.Context(), o, nil); err == nil {
			t.Errorf("%+v was run", o)
		}
	}
}
