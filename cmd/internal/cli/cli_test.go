package cli

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"
)

// testProgram returns the root command of a small program. Its output goes to out.
func testProgram(out *bytes.Buffer) *cobra.Command {
	var n int
	var wait time.Duration
	root := &cobra.Command{Use: "prog", Short: "Try things"}
	root.SetOut(out)
	run := &cobra.Command{Use: "run", Short: "Run", Long: "Runs as in\n    prog run MY_BIG_JOB\nand ends.", Args: cobra.NoArgs, RunE: func(*cobra.Command, []string) error {
		switch n {
		case 1:
			return errors.New("it broke")
		case 2:
			return Failf(4, "denied").SetHint("ask\x1b[31m nicely")
		case 3:
			return SilentExit(7)
		}
		return nil
	}}
	run.Flags().IntVar(&n, "number", 0, "what happens")
	run.Flags().Int("tries", 3, "how often")
	run.Flags().DurationVar(&wait, "wait", 0, "how much `time` passes")
	group := &cobra.Command{Use: "dead", Short: "Look at the dead"}
	group.AddCommand(&cobra.Command{Use: "list", Short: "List", ValidArgs: []string{"types", "workers"}, RunE: func(*cobra.Command, []string) error { return nil }})
	root.AddCommand(run, group)
	SetWordHint(root, "begin", "it has begun")
	SetWordHint(run, "--numbers", "one is enough")
	SetWordHint(run, "-n", "it has a long name")
	return root
}

// TestExitStatusOfEachFailure checks the exit status and the text for every way to fail.
func TestExitStatusOfEachFailure(t *testing.T) {
	for _, c := range []struct {
		args string
		code int
		want string // the whole of stderr
	}{
		{"run", 0, ""},
		{"run --number 1", 1, "prog: it broke\n"},
		{"run --number 2", 4, "prog: denied\nhint: ask\\x1b[31m nicely\n"},
		{"run --number 3", 7, ""},
		{"run --number many", 2, "prog: --number \"many\": must be a whole number\nhint: prog run --help lists the options with their defaults\n"},
		{"run --number 99999999999999999999", 2, "prog: --number \"99999999999999999999\": is too large\nhint: prog run --help lists the options with their defaults\n"},
		{"run --wait long", 2, "prog: --wait \"long\": must be a time such as 1m30s, 5s or 200ms\nhint: prog run --help lists the options with their defaults\n"},
		{"run --wait 30", 2, "prog: --wait \"30\": must be a time such as 1m30s, 5s or 200ms\nhint: did you mean --wait 30s?\n"},
		{"run --nubmer 1", 2, "prog: unknown flag: --nubmer\nhint: did you mean --number?\n"},
		{"run --wait", 2, "prog: flag needs an argument: --wait\nhint: --wait time: how much time passes\n"},
		{"run -x", 2, "prog: unknown shorthand flag: 'x' in -x\nhint: prog run --help lists the options with their defaults\n"},
		{"run --numbers 1", 2, "prog: unknown flag: --numbers\nhint: one is enough\n"},
		{"run -n1", 2, "prog: unknown shorthand flag: 'n' in -n1\nhint: it has a long name\n"},
		{"run extra", 2, "prog: unexpected argument \"extra\"\nhint: prog run [flags]\n"},
		{"man", 2, "prog: man needs an argument\nhint: prog man DIR\n"},
		{"rnu", 2, "prog: unknown command \"rnu\"\nhint: did you mean run?\n"},
		{"dead lits", 2, "prog: unknown command \"dead lits\"\nhint: did you mean list?\n"},
		{"dead workers", 2, "prog: unknown command \"dead workers\"\nhint: did you mean prog dead list workers?\n"},
		{"list", 2, "prog: unknown command \"list\"\nhint: did you mean prog dead list?\n"},
		{"begin", 2, "prog: unknown command \"begin\"\nhint: it has begun\n"},
		{"run begin", 2, "prog: unexpected argument \"begin\"\nhint: prog run [flags]\n"},
		{"nosuch --help", 2, "prog: unknown command \"nosuch\"\nhint: prog --help lists all commands\n"},
		{"dead nosuch -h", 2, "prog: unknown command \"dead nosuch\"\nhint: prog dead --help lists all commands\n"},
		{"dead --help", 0, ""},
		{"run extra --help", 0, ""},
		{"help nosuch", 2, "prog: unknown command \"nosuch\"\nhint: prog --help lists all commands\n"},
		{"help dead nosuch", 2, "prog: unknown command \"dead nosuch\"\nhint: prog dead --help lists all commands\n"},
		{"help run", 0, ""},
		{"completion frob", 2, "prog: unknown command \"completion frob\"\nhint: prog completion --help lists all commands\n"},
		{"completion bash", 0, ""},
		{"", 0, ""},
		{"dead", 0, ""},
	} {
		t.Run(c.args, func(t *testing.T) {
			var out, errs bytes.Buffer
			code := Execute(testProgram(&out), strings.Fields(c.args), &errs)
			if code != c.code || errs.String() != c.want {
				t.Errorf("exit status %d, want %d; stderr\n%s\nwant\n%s", code, c.code, errs.String(), c.want)
			}
		})
	}
}

// brokenOutput is a standard output that cannot be written.
type brokenOutput struct{ err error }

func (b brokenOutput) Write([]byte) (int, error) { return 0, b.err }

// TestUnwritableOutputIsAnError: help, versions and completion scripts that cannot be written end in
// an error. If their reader has gone, the error has no text.
func TestUnwritableOutputIsAnError(t *testing.T) {
	for _, args := range []string{"--help", "help run", "run --help", "--version", "dead", "completion bash", "completion zsh", "completion fish"} {
		for _, c := range []struct {
			err  error
			text string
		}{
			{syscall.ENOSPC, "prog: writing the output: no space left on device\n"},
			{&os.PathError{Op: "write", Path: "|1", Err: syscall.EPIPE}, ""},
		} {
			root := testProgram(nil)
			root.SetOut(brokenOutput{c.err})
			var errs bytes.Buffer
			root.SetErr(&errs)
			if code := Execute(root, strings.Fields(args), &errs); code != ExitFailed || errs.String() != c.text {
				t.Errorf("%s, %v: exit status %d, stderr %q, want %q", args, c.err, code, errs.String(), c.text)
			}
		}
	}
}

// TestEveryCommandHasManualPage: every command that is not hidden has a page.
func TestEveryCommandHasManualPage(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "man")
	var out, errs bytes.Buffer
	if code := Execute(testProgram(&out), []string{"man", dir}, &errs); code != 0 {
		t.Fatal(code, errs.String())
	}
	pages, err := filepath.Glob(filepath.Join(dir, "*.1"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, p := range pages {
		names = append(names, filepath.Base(p))
	}
	if got := strings.Join(names, " "); !strings.Contains(got, "prog-dead-list.1") || !strings.Contains(got, "prog-run.1") || strings.Contains(got, "man.1") || strings.Contains(got, "completion") {
		t.Errorf("pages %s", got)
	}
	data, err := os.ReadFile(filepath.Join(dir, "prog-run.1"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"number\\fP=int", "MY_BIG_JOB", "wait\\fP=time", "(default 3)"} {
		if !bytes.Contains(data, []byte(want)) {
			t.Errorf("no %s in\n%s", want, data)
		}
	}
}

func TestSuggestFindsSimilarName(t *testing.T) {
	names := []string{"zob", "nobs", "job", "jobs", "ls", "top", "max-jobs", "max-bytes", "max-conns", "retries"}
	for typed, want := range map[string]string{
		"nob": "nobs", "frob": "", "xy": "", "l": "", "lss": "ls", "tpo": "top", "jbos": "jobs", "jo": "job", "retr": "retries", "max-bites": "max-bytes", "max-bittes": "max-bytes", "max-bitteres": "",
		"max-cons": "max-conns", "max-jbos": "max-jobs", "retrys": "retries", "colour": "", "MAX-JOBS": "max-jobs",
		"to": "top", "max-b": "max-bytes", "Zobs": "zob", strings.Repeat("x", 1<<16): "",
	} {
		if got := Suggest(typed, names); got != want {
			t.Errorf("%s: %q, want %q", typed, got, want)
		}
	}
}

// TestSuggestIsCheap: a file may have thousands of keys that are like none.
func TestSuggestIsCheap(t *testing.T) {
	var names []string
	for c := 'a'; c <= 'z'; c++ {
		names = append(names, strings.Repeat(string(c), 12), strings.Repeat(string(c), 20))
	}
	if n := testing.AllocsPerRun(10, func() { Suggest("unknown_key_1", names) }); n > float64(len(names)) {
		t.Errorf("%v allocations for %d names", n, len(names))
	}
}

// TestHelpHasHeadingsAndTopics: help lists flags below their headings, and names the topics of a
// command; "help NAME" prints a topic, completion knows it, and the manual page has headings and
// topics.
func TestHelpHasHeadingsAndTopics(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "man")
	var out, errs bytes.Buffer
	for _, c := range []struct{ args, want string }{
		{"run --help", "\n\nFlags:\n      --number int   what happens\n\nTime and tries:\n      --tries int    how often (default 3)\n      --wait time    how much time passes\n  -h, --help         help for run\n\nWhat running means: prog help running\n"},
		{"--help", "\nWhat running means: prog help running\n"},
		{"help running", "Legs:\nThey move * or PROG_LEG, *\nPROG_ stand.\n"},
		{"__complete help ru", "run\tRun\nrunning\tWhat running means\n"},
		{"help runing", "did you mean running?"},
		{"__complete run --w", "--wait\thow much time passes\n"},
		{"man " + dir, ""},
	} {
		out.Reset()
		errs.Reset()
		root := testProgram(&out)
		run, _, err := root.Find([]string{"run"})
		if err != nil {
			t.Fatal(err)
		}
		SetHeadings(run.Flags(), map[string]string{"tries": "Time and tries"})
		SetTopics(run, Topic{Name: "running", Short: "What running means", Text: "Legs:\nThey move * or PROG_LEG, *\nPROG_ stand."})
		Execute(root, strings.Fields(c.args), &errs)
		if text := out.String() + errs.String(); !strings.Contains(text, c.want) {
			t.Errorf("%s: no %q in\n%s", c.args, c.want, text)
		}
	}
	page, err := os.ReadFile(filepath.Join(dir, "prog-run.1"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{".SS Legs\nThey move * or PROG_LEG, *\nPROG_ stand.\n", "\n.SS Time and tries\n.TP\n\\fB--tries\\fP=int\nhow often (default 3)\n"} {
		if !bytes.Contains(page, []byte(want)) {
			t.Errorf("no %q in\n%s", want, page)
		}
	}
}
