package cli

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

type options struct {
	n      int
	size   int64
	word   string
	addrs  []string
	yes    bool
	frac   float64
	config string
}

func flagsOf(o *options) *pflag.FlagSet {
	f := pflag.NewFlagSet("prog", pflag.ContinueOnError)
	f.IntVar(&o.n, "number", 5, "")
	f.Var(SizeFlag(&o.size, 10, 1<<30), "size", "")
	f.Var(ChoiceFlag(&o.word, "red", "green"), "colour", "")
	f.StringSliceVar(&o.addrs, "addr", nil, "")
	f.BoolVar(&o.yes, "yes", false, "")
	f.Float64Var(&o.frac, "frac", 0, "")
	f.StringVar(&o.config, "config", "", "")
	return f
}

func fileOf(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "prog.toml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// apply sets options as a program would: args, then env, then the file, or one
// of its sections.
func apply(t *testing.T, args, env []string, file, table string) (options, error) {
	t.Helper()
	var o options
	f := flagsOf(&o)
	if err := f.Parse(args); err != nil {
		t.Fatal(err)
	}
	s := Settings{EnvPrefix: "PROG_", Names: []string{"number", "size", "colour", "addr", "yes", "frac"}, Lookup: func(name string) (string, bool) {
		for _, e := range env {
			if k, v, _ := strings.Cut(e, "="); k == name {
				return v, true
			}
		}
		return "", false
	}}
	if file != "" {
		var err error
		if s.File, err = ReadFile(fileOf(t, file)); err != nil {
			return o, err
		}
		if table != "" {
			var ok bool
			if s.File, ok = s.File.Table(table); !ok {
				t.Fatalf("no table %s", table)
			}
		}
	}
	return o, s.Apply(f)
}

// TestFlagOverridesEnvironmentAndFile: a flag takes precedence over the environment, the
// environment over the file, and the file over the default.
func TestFlagOverridesEnvironmentAndFile(t *testing.T) {
	got, err := apply(t, []string{"--size=64KiB"}, []string{"PROG_SIZE=1k", "PROG_COLOUR=red", "PROG_CONFIG=x"},
		"size = 100\ncolour = \"green\"\nyes = true\nfrac = 0.5\naddr = [\"a:1\", \"b:2\"]\n", "")
	if err != nil {
		t.Fatal(err)
	}
	if got.size != 64<<10 || got.word != "red" || !got.yes || got.frac != 0.5 || len(got.addrs) != 2 || got.n != 5 || got.config != "" {
		t.Errorf("got %+v", got)
	}
	if got, err = apply(t, nil, nil, "[home]\nnumber = 7\n[away]\nnumber = 8\n", "away"); err != nil || got.n != 8 {
		t.Errorf("number %d of the table away: %v", got.n, err)
	}
}

// TestSettingsErrorNamesPlace: an error names its place, the option, the value, and a similar
// name.
func TestSettingsErrorNamesPlace(t *testing.T) {
	for _, c := range []struct {
		env, file, table string
		want             string
	}{
		{"PROG_NUMBER=many", "", "", `--number "many": must be a whole number (from PROG_NUMBER)`},
		{"PROG_SIZE=9", "", "", `--size "9": must be a size such as 16MiB, 64k or 1000000, from 10 bytes to 1.0GiB (from PROG_SIZE)`},
		{"PROG_YES=perhaps", "", "", `--yes "perhaps": must be true or false (from PROG_YES)`},
		{"PROG_FRAC=half", "", "", `--frac "half": must be a number (from PROG_FRAC)`},
		{"", "# a comment\n\ncolour = \"blue\"\n", "", `--colour "blue": must be one of red, green (from FILE:3)`},
		{"", "number = 1\ncolor = \"red\"\n", "", `FILE:2: unknown option "color"; did you mean colour?`},
		{"", "number = 1\nspeed = 1\n", "", `FILE:2: unknown option "speed"`},
		{"", "config = \"x\"\n", "", `FILE:1: unknown option "config"`},
		{"", "yes = true\nnumber = [1]\n", "", `FILE:2: option "number" must be a string, a number, true or false, or a list of strings`},
		{"", "[number]\nx = 1\n", "", `FILE:1: option "number" must be a string, a number, true or false, or a list of strings`},
		{"", "yes = true\n\nnumber = \n", "", `FILE:3: `},
		{"", "number = 1\nnumber = 2\n", "", `FILE:2: `},
		{"", "[home]\nnumber = 1\n[away]\n\nnubmer = 1\n", "away", `FILE:5: unknown option "nubmer"; did you mean number?`},
	} {
		t.Run(c.env+c.file, func(t *testing.T) {
			var env []string
			if c.env != "" {
				env = []string{c.env}
			}
			_, err := apply(t, nil, env, c.file, c.table)
			var f *Fault
			if !errors.As(err, &f) || f.Code != ExitUsage {
				t.Fatalf("error %v", err)
			}
			got := err.Error()
			if i := strings.Index(got, "prog.toml"); i >= 0 {
				start := strings.LastIndex(got[:i], " ")
				if at := strings.LastIndex(got[:i], "(from "); at >= 0 {
					start = at + len("(from ") - 1
				}
				got = got[:start+1] + "FILE" + got[i+len("prog.toml"):]
			}
			if got != c.want && !(strings.HasSuffix(c.want, ": ") && strings.HasPrefix(got, c.want)) {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
			if strings.Contains(got, "strconv") || strings.Contains(got, "toml:") {
				t.Errorf("speaks of Go: %s", got)
			}
		})
	}
	if _, err := ReadFile("/does/not/exist"); err == nil || err.Error() != "/does/not/exist: no such file or directory" {
		t.Errorf("got %v", err)
	}
}
