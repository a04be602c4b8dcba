package schedule

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func acceptAnyJob(json.RawMessage) error { return nil }

// TestParseErrorNamesField: an error names the field, its value and the allowed values.
func TestParseErrorNamesField(t *testing.T) {
	s, err := Parse([]byte(`{"cron":"0 3 * * 7","job":{"a":1},"until":"2027-01-01T00:00:00+02:00","zone":null}`), acceptAnyJob)
	if err != nil || s.Zone != "UTC" || s.CatchUp != catchUpNone || s.Overlap != overlapAllow || s.WindowMS != 3_600_000 || s.Until.Format(time.RFC3339) != "2026-12-31T22:00:00Z" {
		t.Errorf("%+v, %v", s, err)
	}
	for text, want := range map[string][]string{
		`[]`:                                                                   {"", "JSON object"},
		`null`:                                                                 {"", "JSON object"},
		`{"cron":"* * * * *"`:                                                  {"", "JSON object"},
		"{\"cron\":\"\xff\"}":                                                  {"", "UTF-8"},
		`{"job":1}`:                                                            {"cron", "missing"},
		`{"cron":"* * * * *"}`:                                                 {"job", "missing"},
		`{"cron":"61 * * * *","job":1}`:                                        {"cron", "61", "59"},
		`{"cron":"* * * *","job":1}`:                                           {"cron", "five fields"},
		`{"cron":"* * * * * *","job":1}`:                                       {"cron", "five fields"},
		`{"cron":"@reboot","job":1}`:                                           {"cron", "@reboot"},
		`{"cron":"TZ=UTC * * * * *","job":1}`:                                  {"cron", "zone"},
		`{"cron":"0 0 30 2 *","job":1}`:                                        {"cron", "no date matches"},
		`{"cron":"@every 10ms","job":1}`:                                       {"cron", "10ms", "1s to 8760h"},
		`{"cron":"@every 1","job":1}`:                                          {"cron", "1s to 8760h"},
		`{"cron":1,"job":1}`:                                                   {"cron", "a string", "1"},
		`{"cron":"@daily","Job":1}`:                                            {"Job", "its keys are catch_up, cron"},
		`{"cron":"@daily","job":1,"zone":"Loc"}`:                               {"zone", "Loc", "Europe/Berlin"},
		`{"cron":"@daily","job":1,"zone":""}`:                                  {"zone"},
		`{"cron":"@daily","job":1,"zone":"Local"}`:                             {"zone", "Local"},
		`{"cron":"@daily","job":1,"zone":"../../etc/hosts"}`:                   {"zone"},
		`{"cron":"@daily","job":1,"catch_up":"some"}`:                          {"catch_up", "none, one or all", "some"},
		`{"cron":"@daily","job":1,"overlap":"some"}`:                           {"overlap", "allow, skip or queue", "some"},
		`{"cron":"@daily","job":1,"window_ms":0}`:                              {"window_ms", "1 to 31622400000", "0"},
		`{"cron":"@daily","job":1,"window_ms":1.5}`:                            {"window_ms", "whole number", "1.5"},
		`{"cron":"@daily","job":1,"paused":"no"}`:                              {"paused", "true or false"},
		`{"cron":"@daily","job":1,"until":"2027-01-01"}`:                       {"until", "zone", "2027-01-01"},
		`{"cron":"@daily","job":1,"until":"9999-12-31T23:59:59-01:00"}`:        {"until", "9999", "10000"},
		`{"cron":"@daily","job":1,"until":"0001-01-01T00:00:00+01:00"}`:        {"until", "year 1", "0"},
		`{"cron":"@daily","job":1,"note":"` + strings.Repeat("x", 1025) + `"}`: {"note", "1024", "1025"},
	} {
		_, err := Parse([]byte(text), acceptAnyJob)
		var f *FieldError
		if !errors.As(err, &f) || f.Field != want[0] {
			t.Errorf("%s: %v, want a fault of %q", text, err, want[0])
			continue
		}
		for _, part := range want[1:] {
			if !strings.Contains(f.Reason, part) {
				t.Errorf("%s: %q lacks %q", text, f.Reason, part)
			}
		}
	}
	for range 100 { // each request gets the same answer
		_, err := Parse([]byte(`{}`), acceptAnyJob)
		var f *FieldError
		if !errors.As(err, &f) || f.Field != "cron" {
			t.Fatal(err)
		}
	}
	for name, ok := range map[string]bool{"a": true, strings.Repeat("ä", 64): true, "": false, strings.Repeat("x", 129): false, "a\n": false, "\xff": false} {
		if err := CheckName(name); (err == nil) != ok {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// TestFileIsAcceptedAsWhole: a file is accepted as a whole. The error of an invalid file names the
// place, and nothing changes.
func TestFileIsAcceptedAsWhole(t *testing.T) {
	path := filepath.Join(t.TempDir(), "schedules.toml")
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const good = "[schedules.acme.\"every night\"]\ncron = \"0 3 * * *\"\nuntil = 2027-01-01T00:00:00Z\nwindow_ms = 5\njob = {type = \"x\"}\n"
	write(good)
	refuse := errors.New("refused")
	f, err := OpenFile(path, true, func(k Key, job json.RawMessage) error {
		if k != (Key{"acme", "every night"}) || string(job) != `{"type":"x"}` {
			return refuse
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	oldSpecs := f.All()
	if s := oldSpecs[Key{"acme", "every night"}]; len(oldSpecs) != 1 || s.WindowMS != 5 || s.Until.Year() != 2027 {
		t.Fatalf("%+v", oldSpecs)
	}
	<-f.Changed()
	for text, want := range map[string]string{
		"[schedules":                                       "line 1",
		"[schedule.acme.x]\ncron = \"@daily\"\n":           `unknown key "schedule"`,
		"schedules = 1\n":                                  "[schedules.CLIENT.NAME]",
		"[schedules]\nacme = 1\n":                          "schedules.acme must be a section",
		"[schedules.acme]\ncron = \"@daily\"\n":            "schedules.acme.cron must be a section",
		"[schedules.acme.x]\ncron = \"61 * * * *\"\njob=1": `schedules.acme.x: cron "61 * * * *"`,
		"[schedules.acme.x]\ncron = \"@daily\"\njob = 1":   "schedules.acme.x: refused",
		"[schedules.acme.x]\ncrom = \"@daily\"\n":          `no key "crom"`,
		"[schedules.acme.\"\"]\ncron = \"@daily\"\n":       "name must have 1 to 128 bytes",
		good + "[schedules.b.x]\ncron = \"@daily\"\n":      "schedules.b.x: job is missing",
	} {
		write(text)
		if err := f.Reload(); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	os.Remove(path)
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	f.path = pipe
	if err := f.Reload(); err == nil || !strings.Contains(err.Error(), "pipe") {
		t.Errorf("a pipe: %v", err)
	}
	f.path = path
	if err := f.Reload(); err == nil {
		t.Error("a file that is gone is read")
	}
	if len(f.All()) != 1 || len(f.Changed()) != 0 {
		t.Errorf("%+v", f.All())
	}
	write("")
	if err := f.Reload(); err != nil || len(f.All()) != 0 {
		t.Errorf("%+v, %v", f.All(), err)
	}
	<-f.Changed()
}
