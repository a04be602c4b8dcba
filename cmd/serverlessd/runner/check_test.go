package runner

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gloom/cmd/serverlessd/job"
)

func TestCheckRefusesInvalidCode(t *testing.T) {
	r := newRunner(t, func(o *Options) { o.Languages = []string{job.HTTP, job.Gloom, job.Shell} })
	for _, c := range []struct{ lang, body, want string }{
		{"", "x", "missing_field lang"},
		{"cobol", "x", "invalid_lang lang"},
		{job.Node, "x", "invalid_lang lang"},
		{job.Shell, "", "missing_field body"},
		{job.Shell, "if", "invalid_value body"},
		{job.Shell, "if true; then exit 3; fi", ""},
		{job.Gloom, "a note", ""},
		{job.HTTP, "http://a/b", ""},
		{job.HTTP, "https://user:word@a:1/b?c", ""},
		{job.HTTP, "ftp://a/b", "invalid_value body"},
		{job.HTTP, "http:///b", "invalid_value body"},
		{job.HTTP, "http://a:b/", "invalid_value body"},
		{job.HTTP, "a/b", "invalid_value body"},
		{job.HTTP, "http://a\x00/", "invalid_value body"},
	} {
		err := r.Check(t.Context(), &job.Source{Lang: c.lang, Body: c.body})
		got := ""
		if e, ok := err.(*CheckError); ok {
			got = e.Code + " " + e.Field
		}
		if got != c.want || (err != nil) != (got != "") {
			t.Errorf("%s %q: %v, want %q", c.lang, c.body, err, c.want)
		}
	}
}

// TestSyntaxErrorIsRefused: code that does not compile is refused with the line and the error, and
// is not run.
func TestSyntaxErrorIsRefused(t *testing.T) {
	ranPath := filepath.Join(t.TempDir(), "ran")
	for lang, c := range map[string]struct{ good, bad, text string }{
		job.Node:   {"import('fs').then(f => f.writeFileSync('RAN', ''));\nconst x = await 1; return x", "const a = 1;\nconst b = ;\n", "line 2: Unexpected token ';'"},
		job.Python: {"open('RAN', 'w')\nreturn 1", "x = 1\nif x\n  return 2\n", "line 2: expected ':'"},
		job.PHP:    {"<?php touch('RAN');\nreturn 1;", "$a = 1;\n$b = ;\n", "line 2: syntax error, unexpected token \";\""},
		job.Shell:  {"touch RAN\nexit 0", "echo 1\nfi\n", "line 2: Syntax error: \"fi\" unexpected"},
	} {
		t.Run(lang, func(t *testing.T) {
			t.Parallel()
			r := newRunner(t, nil)
			good, hook := strings.ReplaceAll(c.good, "RAN", ranPath), strings.NewReplacer("RAN", ranPath, "; return x", "", "return 1;", "", "return 1", "").Replace(c.good)
			if err := r.Check(t.Context(), &job.Source{Lang: lang, Body: good, Before: hook, AfterEach: hook}); err != nil {
				t.Error(err)
			}
			for field, s := range map[string]job.Source{
				"body": {Body: c.bad}, "before": {Body: good, Before: c.bad}, "beforeEach": {Body: good, BeforeEach: c.bad}, "afterEach": {Body: good, AfterEach: c.bad},
			} {
				s.Lang = lang
				err := r.Check(t.Context(), &s)
				var e *CheckError
				if !errors.As(err, &e) || e.Code != "invalid_value" || e.Field != field || e.Reason != field+" has a syntax error: "+c.text {
					t.Errorf("%s: %v", field, err)
				}
			}
			if _, err := os.Stat(ranPath); err == nil {
				t.Error("it was run")
			}
		})
	}
}

// TestNoInterpreter: a handler whose interpreter is missing is refused, because its
// jobs could not run.
func TestNoInterpreter(t *testing.T) {
	r := newRunner(t, func(o *Options) { o.Path = t.TempDir() })
	for _, lang := range []string{job.Node, job.PHP, job.Python, job.Shell} {
		var e *CheckError
		if err := r.Check(t.Context(), &job.Source{Lang: lang, Body: "1"}); !errors.As(err, &e) || e.Code != "invalid_lang" || !strings.Contains(e.Reason, "is not on this host") {
			t.Errorf("%s: %v", lang, err)
		}
	}
}

// TestCheckFailsWithoutFault: if the compiler cannot start, is killed or does not end in time, the
// check fails with this error, and does not blame the source. If the compiler crashes, the source
// is refused as wrong.
func TestCheckFailsWithoutFault(t *testing.T) {
	for name, c := range map[string]struct{ script, text string }{
		"slow":     {"sleep 1000", "it took longer than 50ms"},
		"killed":   {"kill -KILL $$", "the compiler ended with SIGKILL"},
		"aborted":  {"echo cannot start a thread >&2; kill -ABRT $$", "the compiler ended with SIGABRT: cannot start a thread"},
		"starting": {"", "cannot launch 'php': text file busy"},
		"crashed":  {"kill -SEGV $$", ""},
	} {
		t.Run(name, func(t *testing.T) {
			path := t.TempDir()
			f, err := os.OpenFile(filepath.Join(path, "php"), os.O_CREATE|os.O_WRONLY, 0o755)
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(f, "#!/bin/sh\n%s\n", c.script)
			if name == "starting" { // a file that is open for writing cannot be run
				defer f.Close()
			} else {
				f.Close()
			}
			r := newRunner(t, func(o *Options) {
				o.Path = path + ":/usr/bin:/bin"
				if name == "slow" {
					o.StartTimeout = 50 * time.Millisecond
				}
			})
			err = r.Check(t.Context(), &job.Source{Lang: job.PHP, Body: "1"})
			if c.text == "" {
				if !errors.As(err, new(*CheckError)) {
					t.Error(err)
				}
				return
			}
			if !errors.Is(err, ErrCheckBusy) || !strings.HasSuffix(err.Error(), ": "+c.text) {
				t.Error(err)
			}
		})
	}
}
