package jq

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gloom/bench/throwaway/redistest"
)

func TestEachLoadRuns(t *testing.T) {
	for _, load := range []string{Push, Batch, Waiting} {
		t.Run(load, func(t *testing.T) {
			o := DefaultOptions()
			o.Load, o.Jobs, o.Rounds, o.Workers, o.Pushers, o.Constraints = load, 2000, 1, 4, 4, 3
			if load == Push {
				o.Systems = append(o.Systems, Asynq)
			}
			rep, err := Run(t.Context(), o, nil)
			if err != nil {
				t.Fatal(err)
			}
			want := len(o.Systems)
			if load == Waiting {
				want *= 2
			}
			if len(rep.Rounds) != want {
				t.Fatalf("%d rounds, not %d", len(rep.Rounds), want)
			}
			for _, r := range rep.Rounds {
				if r.Seconds <= 0 || r.System != Asynq && r.MasterCPU <= 0 || r.System != Memory && r.RedisCPU <= 0 ||
					load == Push && r.P99 <= 0 || load == Waiting && r.Constraints > 0 && r.ChangeMillis <= 0 {
					t.Errorf("%+v", r)
				}
			}
		})
	}
}

// TestFailedPusherEndsRound: the error of a pusher ends a round of asynq at once, not at its time limit.
func TestFailedPusherEndsRound(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	full := &servers{redis: redistest.New(t, "--maxmemory", "1")}
	err := asynqRound(ctx, full, DefaultOptions(), &Round{})
	if err == nil || !strings.Contains(err.Error(), "OOM") || ctx.Err() != nil {
		t.Errorf("%v, and the context: %v", err, ctx.Err())
	}
}

func TestCommandWritesReport(t *testing.T) {
	cmd := Command()
	path := filepath.Join(t.TempDir(), "out.json")
	cmd.SetArgs([]string{"--jobs", "200", "--rounds", "1", "--systems", "memory", "--out", path})
	var out bytes.Buffer
	cmd.SetOut(&out)
	if err := cmd.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "push, memory: median") {
		t.Errorf("%s", out.String())
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var rep Report
	if err := json.Unmarshal(text, &rep); err != nil || rep.Rounds[0].Jobs != 200 {
		t.Fatalf("%v %s", err, text)
	}
}

func TestInvalidOptionsAreRefused(t *testing.T) {
	for name, change := range map[string]func(*Options){
		"load":           func(o *Options) { o.Load = "fast" },
		"jobs":           func(o *Options) { o.Jobs = 0 },
		"no system":      func(o *Options) { o.Systems = nil },
		"system":         func(o *Options) { o.Systems = []string{"sidekiq"} },
		"no modules":     func(o *Options) { o.Systems = []string{BullMQ} },
		"asynq in batch": func(o *Options) { o.Load, o.Systems = Batch, []string{Asynq} },
	} {
		o := DefaultOptions()
		change(&o)
		if _, err := Run(t.Context(), o, nil); err == nil {
			t.Errorf("%s: %+v was run", name, o)
		}
	}
}
