package main

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"

	"gloom/broker"
	"gloom/broker/settings"
)

func writeLimits(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "limits.toml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// makeFIFO makes a named pipe, on which a reader would block.
func makeFIFO(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestTOMLNotationsAreEqual: a file means the same in each of TOML's notations.
func TestTOMLNotationsAreEqual(t *testing.T) {
	want := settings.FileLimits{
		Types: map[string]settings.TypeSettings{
			"mail":    {Limits: broker.TypeLimits{Concurrency: 2, Rate: 5, Burst: 10}, Fair: true},
			"a/b.c":   {Fair: true},
			`\"say\"`: {Limits: broker.TypeLimits{Rate: 0.5}},
		},
		Groups: map[string]broker.Rule{
			"tenant-*": {Concurrency: 0},
			"é":        {Concurrency: -1, Rate: 1e9, Burst: 1e6},
		},
	}
	for name, text := range map[string]string{
		"tables": `
[types.mail]
concurrency = 2
rate = 5
burst = 10
fair = true
[types."a/b.c"]
fair = true
[types.'"say"']
rate = 0.5
[groups."tenant-*"]
concurrency = 0
[groups."é"]
rate = 1e9
burst = 1_000_000
`,
		"dots": `
types.mail.concurrency = 2
types.mail.rate = 5.0
types.mail.burst = 0xA
types.mail.fair = true
types."a/b.c".fair = true
types."\"say\"".rate = 5e-1
groups.'tenant-*'.concurrency = 0
groups."\u00e9" = { rate = 1000000000, burst = 1000000 }
`,
		"braces": `
types = { mail = { concurrency = 2, rate = 5, burst = 10, fair = true }, "a/b.c" = { fair = true }, '"say"' = { rate = 0.5 } }
groups = { "tenant-*" = { concurrency = 0 }, "é" = { rate = 1e9, burst = 1000000 } }
`,
	} {
		got, err := readLimits(writeLimits(t, text))
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v\n got %+v\nwant %+v", name, err, got, want)
		}
	}
}

// TestLimitsMistakesAreReported: a mistake is reported with its line, its value and the allowed
// values, and keeps the broker from starting.
func TestLimitsMistakesAreReported(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"\n[type.mail]\nrate = 5", `limits.toml:2: unknown section "type"; the sections are types and groups`},
		{"types = 5", "limits.toml:1: types must be a section"},
		{"[types]\n\nmail = 5", "limits.toml:3: types.mail must be a section"},
		{"[types.mail]\nrat = 5", `limits.toml:2: unknown key "rat"; did you mean rate?`},
		{"[types.mail]\nconcurrency = -1", "limits.toml:2: concurrency must be an integer from 0 to 1000000000, got -1"},
		{"[types.mail]\nconcurrency = 1.0", "limits.toml:2: concurrency must be an integer"},
		{"[types.mail]\nfair = 1", "limits.toml:2: fair must be true or false, got 1"},
		{"[groups.x]\nfair = true", `limits.toml:2: unknown key "fair"; the keys are concurrency, rate, burst`},
		{"[groups.x]", `limits.toml:1: the rule for "x" needs concurrency or rate`},
		{"[groups.x]\nrate = 0", "limits.toml:2: rate must be a number above 0, at most 1e+09, got 0"},
		{"[groups.x]\nrate = nan", "limits.toml:2: rate must be a number above 0"},
		{"[groups.x]\nrate = \"5\"", `limits.toml:2: rate must be a number above 0, at most 1e+09, got "5"`},
		{"[groups.x]\nconcurrency = \"5\"", `limits.toml:2: concurrency must be an integer from 0 to 1000000000, got "5"`},
		{"[groups.x]\nburst = 5", "limits.toml:2: burst needs a rate"},
		{"[groups.x]\nrate = 1\nburst = 0", "limits.toml:3: burst must be an integer from 1 to 1000000, got 0"},
		{"groups = { y = { rate = 1 }, x = { rate = -1 } }", "limits.toml:1: rate must be a number above 0"},
		{"[groups.\"\"]\nrate = 1", "limits.toml:1: a name in groups has 0 bytes"},
		{"[groups." + strings.Repeat("x", 1025) + "]\nrate = 1", "has 1025 bytes; it must have from 1 to 1024"},
		{"[groups.x]\nrate = ", "limits.toml:2"},
		{"[groups.x]\nrate = 1\n[groups.x]\nrate = 2", "limits.toml:3"},
	} {
		_, err := parseCommandLine(t, "--limits", writeLimits(t, c.text))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want %q", c.text, err, c.want)
		}
	}
	if _, err := parseCommandLine(t, "--limits", filepath.Join(t.TempDir(), "none.toml")); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("no file: %v", err)
	}
	if _, err := parseCommandLine(t, "--limits", makeFIFO(t)); err == nil || !strings.Contains(err.Error(), "is not a regular file") {
		t.Errorf("a FIFO: %v", err)
	}
}
