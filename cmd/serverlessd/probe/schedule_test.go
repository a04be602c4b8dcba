package probe

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestInvalidSchedulesAreRefused: valid schedules are accepted, invalid ones are refused, and the
// answers are right.
func TestInvalidSchedulesAreRefused(t *testing.T) {
	d, client := sharedDaemon(t), freshClient()
	at := "/" + client + "/schedule/every%20night"
	r := d.expect(t, 200, "PUT", at, `{"cron":"0 3 * * 7","zone":"Europe/Berlin","job":{"type":"report","payload":"a|b"},"note":"<b>"}`)
	next, _ := r.json["next"].([]any)
	if r.text("name") != "every night" || len(next) != 5 || r.json["until"] != nil || r.json["window_ms"] != 3.6e6 || fmt.Sprint(r.json["last"]) != "[]" {
		t.Errorf("%s", r)
	}
	if got := d.expect(t, 200, "GET", at, ""); got.body != r.body {
		t.Errorf("%s, put was %s", got, r)
	}
	for _, name := range []string{"b", "a"} {
		d.expect(t, 200, "PUT", "/"+client+"/schedule/"+name, `{"cron":"@every 1h","job":{"type":"x"}}`)
	}
	list := "/" + client + "/schedule"
	r = d.expect(t, 200, "GET", list+"?limit=2", "")
	items, _ := r.json["items"].([]any)
	if len(items) != 2 || r.text("cursor") != "b" {
		t.Errorf("%s", r)
	}
	r = d.expect(t, 200, "GET", list+"?limit=2&cursor=b", "")
	if items, _ := r.json["items"].([]any); len(items) != 1 || r.json["cursor"] != nil {
		t.Errorf("%s", r)
	}
	if r := d.expect(t, 200, "DELETE", at, ""); r.body != `{"deleted":1}`+"\n" {
		t.Errorf("%s", r)
	}
	for _, method := range []string{"GET", "DELETE"} {
		d.expectError(t, 404, "unknown_schedule", method, at, "", "every night")
	}
	d.expectError(t, 405, "method_not_allowed", "POST", at, "{}", "GET, HEAD, PUT, DELETE")
	d.expectError(t, 400, "invalid_value", "GET", list+"?limit=1001", "", "1001", "1000")
	d.expectError(t, 400, "invalid_value", "GET", at+"?limit=1", "", "limit")
	d.expectError(t, 400, "invalid_value", "PUT", "/"+client+"/schedule/"+strings.Repeat("x", 129), `{}`, "128", "129")
	for body, words := range map[string]string{
		`{"job":{"type":"x"}}`:                                  "missing_field cron",
		`{"cron":"@daily"}`:                                     "missing_field job",
		`{"cron":"@daily","job":{}}`:                            "missing_field job.type",
		`{"cron":"61 * * * *","job":1}`:                         "invalid_value cron 61 59",
		`{"cron":"@daily","job":1}`:                             "invalid_value job",
		`{"cron":"@daily","job":{"type":"x","payload":1}}`:      "invalid_value job.payload string",
		`{"cron":"@daily","job":{"type":"x","payload":"a\nb"}}`: "invalid_value job.payload newline",
		`{"cron":"@daily","job":{"type":"x","payload":"` + strings.Repeat("x", 4097) + `"}}`: "invalid_value job.payload 4097 4096",
		`{"cron":"@daily","job":{"type":"a b"}}`:                                             "invalid_value job.type a_b",
		`{"cron":"@daily","job":{"type":"x"},"Zone":"UTC"}`:                                  "invalid_value Zone overlap",
		`not JSON`: "invalid_value JSON",
	} {
		want := strings.Fields(strings.ReplaceAll(words, "_b", " b"))
		if strings.HasSuffix(words, "a_b") {
			want = []string{"invalid_value", "job.type", "a b"}
		}
		d.expectError(t, 400, want[0], "PUT", at, body, want[1:]...)
	}
}

// TestSchedulesOfAFile: the schedules of a file are stored at the start and at SIGHUP, and nothing
// else changes them; an invalid file changes nothing.
func TestSchedulesOfAFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, tokens := filepath.Join(dir, "schedules.toml"), filepath.Join(dir, "tokens")
	write := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const x = "[schedules.acme.x]\ncron = \"@daily\"\njob = {type = \"a\"}\n"
	write(file, x)
	write(tokens, "s-secret submit,read acme-a\nr-secret read\n")
	d := startIn(t, filepath.Join(dir, "data"), "--schedules="+file, "--token-file="+tokens)
	s, r := "Authorization: Bearer s-secret", "Authorization: Bearer r-secret"
	names := func() string {
		a := d.ask(t, "GET", "/acme/schedule", "", r)
		items, _ := a.json["items"].([]any)
		text := ""
		for _, i := range items {
			text += fmt.Sprint(i.(map[string]any)["name"], " ")
		}
		return text
	}
	waitUntil(t, "the file is put", func() error {
		if got := names(); got != "x " {
			return errors.New(got)
		}
		return nil
	})
	d.expectError(t, 409, "from_file", "PUT", "/acme/schedule/x", `{"cron":"@hourly","job":{"type":"a"}}`, s)
	d.expectError(t, 409, "from_file", "DELETE", "/acme/schedule/x", "", s)
	d.expectError(t, 403, "forbidden", "PUT", "/acme/schedule/y", `{"cron":"@hourly","job":{"type":"a"}}`, r)
	d.expectError(t, 403, "forbidden", "PUT", "/acme/schedule/y", `{"cron":"@hourly","job":{"type":"b"}}`, s, "acme-b")
	d.expectError(t, 403, "forbidden", "GET", "/acme/schedule", "", s)
	d.expectError(t, 401, "unauthorized", "GET", "/acme/schedule/x", "")
	d.expect(t, 200, "PUT", "/acme/schedule/y", `{"cron":"@hourly","job":{"type":"a"}}`, s)
	hup := func() {
		t.Helper()
		if err := syscall.Kill(d.PID(), syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
	}
	write(file, x+"paused = 1\n")
	hup()
	waitUntil(t, "the file is refused", func() error {
		if text := d.Log.String(); !strings.Contains(text, "schedules.acme.x: paused must be true or false, not 1") {
			return errors.New("it is not")
		}
		return nil
	})
	if got := names(); got != "x y " {
		t.Errorf("schedules: %s", got)
	}
	write(file, strings.ReplaceAll(x, "acme.x", "acme.z"))
	hup()
	waitUntil(t, "the file is put again", func() error {
		if got := names(); got != "y z " {
			return errors.New(got)
		}
		return nil
	})
	write(file, "[schedules.acme]\nx = 1\n")
	if _, err := launch(t.TempDir(), "--schedules="+file); err == nil || !strings.Contains(err.Error(), "schedules.acme.x must be a section") {
		t.Errorf("with such a file it starts: %v", err)
	}
	d.headers = map[string][]string{"Authorization": {"Bearer r-secret"}}
}
