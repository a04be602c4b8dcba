package main

import (
	"errors"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"gloom/broker/guard"
)

// parse parses a command line, and returns the options with which the daemon would start.
func parse(args ...string) error {
	cmd := command()
	cmd.RunE = func(*cobra.Command, []string) error { return nil }
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetArgs(args)
	return cmd.Execute()
}

func TestInvalidOptionsAreRefused(t *testing.T) {
	for _, c := range []struct{ args, option string }{
		{"", ""},
		{"--lock-ttl 250ms", "lock-ttl"},
		{"--retry-for 14d --keep-done 0 --max-result 0", ""},
		{"--sweep 1ms", "sweep"},
		{"--concurrency 0", "concurrency"},
		{"--batch 100000", "batch"},
		{"--langs sh,cobol", "langs"},
		{"--langs=", ""},
		{"--http-allow 10.0.0.0/8,fd00::/8", ""},
		{"--http-allow 10.0.0.0", "http-allow"},
		{"--max-line 32MiB", "max-line"},
		{"--max-lines 0", "max-lines"},
		{"--max-bodies 0", "max-bodies"},
		{"--addr 0.0.0.0:3001", "addr"},
		{"--addr 0.0.0.0:3001 --insecure", ""},
		{"--worker-addr 0.0.0.0:9999", "worker-addr"},
		{"--worker-addr 127.0.0.1:9999", ""},
		{"--broker 10.0.0.1:9998", ""},
		{"--broker 10.0.0.1:9998 --worker-addr 127.0.0.1:9999", "worker-addr"},
		{"--broker unix:/run/gloom/submit.sock", ""},
		{"--tls-cert x", "tls-cert"},
	} {
		t.Run(c.args, func(t *testing.T) {
			err := parse(strings.Fields(c.args)...)
			var option *guard.OptionError
			switch errors.As(err, &option); {
			case c.option == "" && err != nil:
				t.Error(err)
			case c.option != "" && (option == nil || option.Flag != c.option):
				t.Errorf("got %v, want an error about --%s", err, c.option)
			}
		})
	}
}

// TestReadmeOptions: all options that the README names exist.
func TestReadmeOptions(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{"data-binary": true, "target": true, "door": true, "help": true} // options of curl and gloom
	command().Flags().VisitAll(func(f *pflag.Flag) { known[f.Name] = true })
	names := regexp.MustCompile(`--([a-z]+(?:-[a-z]+)*)`).FindAllStringSubmatch(string(readme), -1)
	for _, m := range names {
		if !known[m[1]] {
			t.Errorf("the README names --%s, which there is not", m[1])
		}
	}
	if len(names) < 20 {
		t.Errorf("the README names %d options", len(names))
	}
}
