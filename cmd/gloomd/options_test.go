package main

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"gloom/broker/guard"
	"gloom/broker/settings"
	"gloom/cmd/internal/cli"
)

// testHostMemory is the memory of the host in the tests.
const testHostMemory = 16 << 30

// parseCommandLine runs the command line up to the point where the broker would start.
func parseCommandLine(t *testing.T, args ...string) (settings.Options, error) {
	t.Helper()
	opt := settings.Default()
	cmd := newCommand(&opt, testHostMemory, func() error { return nil })
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetArgs(args)
	err := cmd.Execute()
	return opt, err
}

// TestSampleConfigNamesEveryOption: the shipped file names every option, with its default.
func TestSampleConfigNamesEveryOption(t *testing.T) {
	got, err := parseCommandLine(t, "--config", "gloomd.toml")
	if err != nil {
		t.Fatal(err)
	}
	if want, err := parseCommandLine(t); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("gloomd.toml gives\n%+v\nthe defaults are\n%+v, %v", got, want, err)
	}
	data, err := os.ReadFile("gloomd.toml")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range fileFlags(t) {
		line := `(?m)^` + f.Name + ` = `
		if f.Value.String() != f.DefValue { // computed: shown in help, but not the flag's value
			line = `(?m)^# ` + f.Name + ` = .* # ` + regexp.QuoteMeta(f.DefValue) + `$`
		}
		if !regexp.MustCompile(line).Match(data) {
			t.Errorf("gloomd.toml has no line %s", line)
		}
	}
}

// fileFlags returns the options that a config file may have.
func fileFlags(t *testing.T) []*pflag.Flag {
	t.Helper()
	opt := settings.Default()
	var list []*pflag.Flag
	newCommand(&opt, testHostMemory, nil).Flags().VisitAll(func(f *pflag.Flag) {
		if f.Name != "config" && f.Name != "healthcheck" {
			list = append(list, f)
		}
	})
	if len(list) < 20 {
		t.Fatalf("only %d flags", len(list))
	}
	return list
}

// TestDocumentedOptionsExist: every option in the documents exists.
func TestDocumentedOptionsExist(t *testing.T) {
	opt := settings.Default()
	known := newCommand(&opt, testHostMemory, nil).Flags()
	for _, path := range []string{"../../README.md", "../../broker/admin/OPERATING.md", "../../wire/PROTOCOL.md"} {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		matches := regexp.MustCompile("`--([a-z-]+)").FindAllStringSubmatch(string(data), -1)
		if len(matches) == 0 {
			t.Errorf("%s names no option", path)
		}
		for _, m := range matches {
			if known.Lookup(m[1]) == nil && m[1] != "help" {
				t.Errorf("%s names --%s", path, m[1])
			}
		}
	}
}

// TestFlagOverridesEnvironmentAndFile: flag over environment over file over default.
func TestFlagOverridesEnvironmentAndFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "c.toml")
	if err := os.WriteFile(file, []byte("max-jobs = 1\nretries = 1\nmax-frame = \"1MiB\"\ninsecure = true\ndrain-timeout = \"1s\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("GLOOM_MAX_JOBS", "2")
	t.Setenv("GLOOM_RETRIES", "2")
	t.Setenv("GLOOM_CONFIG", file)
	got, err := parseCommandLine(t, "--max-jobs", "3")
	if err != nil {
		t.Fatal(err)
	}
	if got.MaxJobs != 3 || got.Retries != 2 || got.MaxFrame != 1<<20 || !got.Insecure || got.DrainTimeout.Seconds() != 1 || got.MaxConns != 0 {
		t.Errorf("got %+v", got)
	}
}

// blamedOption returns the option that an error is about.
func blamedOption(t *testing.T, err error) string {
	t.Helper()
	var fault *cli.Fault
	if !errors.As(err, &fault) || fault.Code != cli.ExitUsage {
		t.Fatalf("error %v", err)
	}
	var judged *guard.OptionError
	var unread *cli.OptionError
	var file *cli.FileError
	switch {
	case errors.As(err, &judged):
		return judged.Flag
	case errors.As(err, &unread):
		return unread.Option
	case errors.As(err, &file):
		return "config"
	}
	t.Fatalf("error %v", err)
	return ""
}

// TestErrorNamesFlagValueAndLimit: an error names flag, value and limit.
func TestErrorNamesFlagValueAndLimit(t *testing.T) {
	dir := t.TempDir()
	file := func(name, content string) string {
		p := filepath.Join(dir, name)
		if err := os.WriteFile(p, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return p
	}
	for _, c := range []struct {
		env  string
		args []string
		flag string
		want []string
	}{
		{"", []string{"--max-frame", "10"}, "max-frame", []string{"10", "1024"}},
		{"", []string{"--loops", "257"}, "loops", []string{"257", "0 to 256"}},
		{"", []string{"--retries", "1001"}, "retries", []string{"1001", "1000"}},
		{"", []string{"--submit-addr", "0.0.0.0:1"}, "submit-addr", []string{"0.0.0.0:1", "--insecure"}},
		{"", []string{"--worker-addr", ":9999"}, "worker-addr", []string{":9999", "--token-file"}},
		{"", []string{"--submit-addr", "nowhere"}, "submit-addr", []string{"nowhere", "host:port"}},
		{"", []string{"--submit-addr", "127.0.0.1:99999"}, "submit-addr", []string{"99999"}},
		{"", []string{"--http-addr", "unix:"}, "http-addr", []string{"path"}},
		{"", []string{"--tls-cert", "x"}, "tls-cert", []string{"--tls-key"}},
		{"", []string{"--tls-client-ca", "x"}, "tls-client-ca", []string{"--tls-cert"}},
		{"", []string{"--default-type", strings.Repeat("x", 1025)}, "default-type", []string{"1025", "1024"}},
		{"", []string{"--config", dir + "/none"}, "config", []string{"none"}},
		{"", []string{"--config", file("a", "max-jbos = 1\n")}, "config", []string{"a:1", "max-jbos", "did you mean max-jobs?"}},
		{"", []string{"--config", file("b", "\nmax-jobs = [1]\n")}, "config", []string{"b:2", "max-jobs"}},
		{"", []string{"--config", file("c", "max-jobs = \n")}, "config", []string{"c:1"}},
		{"", []string{"--config", file("d", "max-jobs = \"many\"\n")}, "max-jobs", []string{"many", "d:1"}},
		{"GLOOM_LOG_LEVEL=loud", nil, "log-level", []string{"loud", "GLOOM_LOG_LEVEL", "debug"}},
		{"GLOOM_MAX_BYTES=-1", nil, "max-bytes", []string{"-1", "GLOOM_MAX_BYTES"}},
	} {
		t.Run(strings.Join(append(c.args, c.env), " "), func(t *testing.T) {
			if k, v, ok := strings.Cut(c.env, "="); ok {
				t.Setenv(k, v)
			}
			_, err := parseCommandLine(t, c.args...)
			if flag := blamedOption(t, err); flag != c.flag {
				t.Errorf("blames --%s, not --%s: %v", flag, c.flag, err)
			}
			for _, s := range c.want {
				if !strings.Contains(err.Error(), s) {
					t.Errorf("%q does not say %q", err, s)
				}
			}
		})
	}
}
