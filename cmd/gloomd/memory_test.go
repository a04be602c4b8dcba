package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gloom/broker/settings"
)

const (
	mib = 1 << 20
	gib = 1 << 30
)

// memoryFigures holds the memory limits of a broker.
type memoryFigures struct {
	Memory, Bytes, Submitter, Unread, Inbound, Dead int64
	Outbound                                        int
}

func memoryFiguresOf(o settings.Options) memoryFigures {
	return memoryFigures{o.MaxMemory, o.MaxBytes, o.MaxSubmitterBytes, o.MaxUnread, o.MaxInbound, o.DeadBytes, o.MaxOutbound}
}

// TestLimitsAreSharesOfBudget: limits that are not set are shares of the budget, and limits that
// are set are kept. Together they never exceed the budget, on which operators rely.
func TestLimitsAreSharesOfBudget(t *testing.T) {
	for _, c := range []struct {
		args string
		want memoryFigures
	}{
		{"", memoryFigures{8 * gib, 4 * gib, 2 * gib, gib, gib, 512 * mib, 64 * mib}}, // on a host with 16 GiB
		{"--max-memory=256MiB", memoryFigures{256 * mib, 128 * mib, 64 * mib, 32 * mib, 32 * mib, 16 * mib, 8 * mib}},
		{"--max-memory=64MiB", memoryFigures{64 * mib, 32 * mib, 16 * mib, 8 * mib, 16 * mib, 4 * mib, 2 * mib}},
		{"--max-memory=1GiB --max-bytes=100MiB", memoryFigures{gib, 100 * mib, 256 * mib, 128 * mib, 128 * mib, 64 * mib, 32 * mib}},
		{"--max-memory=1GiB --max-submitter-bytes=0 --max-outbound=1MiB", memoryFigures{gib, 512 * mib, 0, 128 * mib, 128 * mib, 64 * mib, mib}},
		{"--max-memory=1GiB --max-bytes=1GiB", memoryFigures{gib, gib, 256 * mib, 32 * mib, 32 * mib, 16 * mib, 32 * mib}},
		// Without a budget, an operator relies on the limits that are set.
		{"--max-bytes=32GiB", memoryFigures{32 * gib, 32 * gib, 8 * gib, gib, gib, 512 * mib, 64 * mib}},
		{"--max-bytes=0", memoryFigures{8 * gib, 0, 2 * gib, gib, gib, 512 * mib, 64 * mib}},
	} {
		t.Run(c.args, func(t *testing.T) {
			o, err := parseCommandLine(t, strings.Fields(c.args)...)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, memoryFiguresOf(o)); diff != "" {
				t.Error(diff)
			}
			if sum := o.MaxBytes + o.MaxUnread + o.MaxInbound + o.DeadBytes; strings.Contains(c.args, "max-memory") && sum > o.MaxMemory+o.MaxMemory/8 {
				t.Errorf("the limits add up to %d", sum)
			}
		})
	}
}

// TestUnlimitedTypesFitBudget: types that are not limited fit in a quarter of a small budget.
func TestUnlimitedTypesFitBudget(t *testing.T) {
	for _, c := range []struct {
		args string
		want int
	}{
		{"", 100_000},
		{"--max-memory=2GiB", 100_000},
		{"--max-memory=256MiB", 16_384},
		{"--max-memory=64MiB", 4096},
		{"--max-memory=256MiB --max-types=50000", 50_000},
	} {
		o, err := parseCommandLine(t, strings.Fields(c.args)...)
		if err != nil {
			t.Fatal(err)
		}
		if o.MaxTypes != c.want {
			t.Errorf("%s: %d types, want %d", c.args, o.MaxTypes, c.want)
		}
	}
}

// TestHistoryIsQuarterOfBudget: the default is a quarter of a small budget, and a value that is set
// is kept.
func TestHistoryIsQuarterOfBudget(t *testing.T) {
	for args, want := range map[string]int64{"": 64 * mib, "--max-memory=128MiB": 32 * mib, "--max-memory=1GiB": 64 * mib, "--max-memory=1GiB --history=256MiB": 256 * mib, "--history=0": 0} {
		o, err := parseCommandLine(t, strings.Fields(args)...)
		if err != nil || o.History != want {
			t.Errorf("%s: a history of %d, want %d, %v", args, o.History, want, err)
		}
	}
}

// TestContradictoryLimitsAreNamed: the error names both of two limits that contradict each other.
func TestContradictoryLimitsAreNamed(t *testing.T) {
	for _, c := range []struct{ args, flag, want string }{
		{"--max-memory=1GiB --max-bytes=2GiB", "max-memory", "--max-memory 1.0GiB: is less than --max-bytes 2.0GiB"},
		{"--max-memory=1GiB --max-bytes=900MiB --max-inbound=200MiB", "max-memory", "is less than --max-bytes 900MiB and --max-inbound 200MiB"},
		{"--max-memory=1GiB --max-bytes=0", "max-bytes", "--max-bytes 0: means no limit, which contradicts --max-memory"},
		{"--max-memory=1MiB", "max-memory", "--max-memory 1.0MiB: must be at least 16MiB"},
		{"--max-memory=0", "max-memory", "--max-memory 0B: must be at least 16MiB"},
		{"--max-memory=128MiB --history=64MiB", "history", "--history 64MiB: must be at most a quarter of --max-memory 128MiB"},
		{"--max-memory=32MiB", "max-frame", "--max-frame 16MiB: must be at most a quarter of --max-memory 32MiB, 8192KiB"},
	} {
		t.Run(c.args, func(t *testing.T) {
			_, err := parseCommandLine(t, strings.Fields(c.args)...)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("error %v, want %q", err, c.want)
			}
			if flag := blamedOption(t, err); flag != c.flag {
				t.Errorf("blames --%s, not --%s", flag, c.flag)
			}
		})
	}
}
