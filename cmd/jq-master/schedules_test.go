package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"gloom/bench/throwaway/jqtest"
	"gloom/bench/throwaway/redistest"
)

// TestSchedulesInBothEncodings: schedules are checked, stored and shown, in both encodings.
func TestSchedulesInBothEncodings(t *testing.T) {
	t.Parallel()
	inBothEncodings(t, start(t), func(t *testing.T, c *client) {
		name := "each night " + strings.ReplaceAll(c.mediaType, "/", " ")
		at := "/v1/schedules/" + strings.ReplaceAll(name, " ", "%20")
		const job = `"job":{"name":"report","argument":{"a":{"$bin":"AAE="}},"delay":5}`
		c.do("PUT", at, `{"cron":"0 3 * * 7","zone":"Europe/Berlin",`+job+`,"window_ms":5000.0}`).wantStatus(200).
			has(`{"name":"` + name + `",` + job + `,"cron":"0 3 * * 7","zone":"Europe/Berlin","catch_up":"none","window_ms":5000,"overlap":"allow","paused":false,"until":null,"from_file":false,"queued_at":null,"last":[]}`)
		if next, _ := c.do("GET", at, "").wantStatus(200).decode()["next"].([]any); len(next) != 5 {
			t.Errorf("%v comes next", next)
		}
		r := c.do("GET", "/v1/schedules?limit=1", "").wantStatus(200)
		if items, _ := r.decode()["items"].([]any); len(items) != 1 || r.get("cursor") != name {
			t.Errorf("%s", r.text)
		}
		c.do("GET", "/v1/schedules?limit=1&cursor=f", "").wantStatus(200).has(`{"items":[],"cursor":null}`)
		for _, x := range []struct{ body, code, field string }{
			{`{` + job + `}`, "missing_field", "cron"}, {`{"cron":"@daily"}`, "missing_field", "job"},
			{`{"cron":"61 * * * *",` + job + `}`, "invalid_value", "cron"}, {`{"cron":"@daily",` + job + `,"zone":"Moon"}`, "invalid_value", "zone"},
			{`{"cron":"@daily","job":{"argument":{}}}`, "missing_field", "job.name"}, {`{"cron":"@daily","job":{"name":"x"}}`, "missing_field", "job.argument"},
			{`{"cron":"@daily","job":{"name":"x","argument":{},"unknown":1}}`, "invalid_value", "job.unknown"}, {`{"cron":"@daily","job":{"name":"x","argument":{},"timeout":0}}`, "invalid_value", "job.timeout"},
			{`{"cron":"@daily",` + job + `,"overlaps":"skip"}`, "invalid_value", "overlaps"}, {`[]`, "invalid_value", ""}, {`{"cron":"@daily","job":[]}`, "invalid_type", "job"},
		} {
			c.do("PUT", at, x.body).wantRefusal(400, x.code, x.field)
		}
		c.do("PUT", "/v1/schedules/"+strings.Repeat("x", 129), `{}`).wantRefusal(400, "invalid_value", "name")
		c.do("GET", "/v1/schedules?limit=1001", "").wantRefusal(400, "invalid_value", "limit")
		c.do("POST", at, `{}`).wantRefusal(405, "method_not_allowed", "")
		c.do("DELETE", at, "").wantStatus(200).has(`{"deleted":1}`)
		c.do("DELETE", at, "").wantRefusal(404, "unknown_schedule", "")
		c.do("GET", at, "").wantRefusal(404, "unknown_schedule", "")
	})
}

// TestSchedulesOfAFile: schedules of a file are stored at the start and at SIGHUP, and nothing else
// changes them; an invalid file changes nothing.
func TestSchedulesOfAFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "schedules.toml")
	const x = "[schedules.x]\ncron = \"@daily\"\njob = {name = \"a\", argument = {n = 1}}\n"
	var d *process
	put := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if d == nil {
			return
		}
		if err := syscall.Kill(d.PID(), syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
	}
	put(x)
	d = start(t, "--schedules", file)
	c := d.client(t, jsonType)
	eventually(t, "the file is put", func() bool { return c.do("GET", "/v1/schedules/x", "").status == 200 })
	const other = `{"cron":"@hourly","job":{"name":"a","argument":{}}}`
	c.do("PUT", "/v1/schedules/x", other).wantRefusal(409, "from_file", "name")
	c.do("DELETE", "/v1/schedules/x", "").wantRefusal(409, "from_file", "name")
	c.do("PUT", "/v1/schedules/y", other).wantStatus(200)
	put(x + "paused = 1\n")
	eventually(t, "the file is refused", func() bool {
		return strings.Contains(d.Log.String(), "schedules.x: paused must be true or false, not 1")
	})
	c.do("GET", "/v1/schedules/x", "").wantStatus(200)
	put(strings.ReplaceAll(x, "schedules.x", "schedules.z"))
	eventually(t, "the file is put again", func() bool {
		return c.do("GET", "/v1/schedules/x", "").status == 404 && c.do("GET", "/v1/schedules/z", "").status == 200
	})
	c.do("GET", "/v1/schedules/y", "").wantStatus(200)
}

// TestKillsBetweenDueTimes: masters with the same Redis are killed while they make the jobs of a
// schedule. The next master makes the missing jobs, so that each due time has one job.
func TestKillsBetweenDueTimes(t *testing.T) {
	t.Parallel()
	redis := redistest.New(t, "--appendfsync", "always")
	var servers []*jqtest.Server
	for _, at := range []string{"before settle:2", "after settle:2", "never"} {
		s, err := jqtest.New([]string{os.Args[0], childArg, at}, true, "--redis", redis.URL())
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Launch(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Close)
		eventually(t, "there is a master", func() bool { return len(servers) > 0 || s.Ready(t.Context()) == nil })
		servers = append(servers, s)
	}
	var view struct {
		Created time.Time `json:"created_at"`
		Last    []struct {
			Due     time.Time `json:"due_at"`
			Job     string    `json:"job_id"`
			Skipped *string
		}
	}
	call := func(s *jqtest.Server, method, path, body string, to any) bool {
		req, err := http.NewRequestWithContext(t.Context(), method, "http://"+s.Addr+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", jsonType)
		res, err := httpClient.Do(req)
		if err != nil {
			return false
		}
		defer res.Body.Close()
		return res.StatusCode == 200 && json.NewDecoder(res.Body).Decode(to) == nil
	}
	if !call(servers[0], "PUT", "/v1/schedules/tick", `{"cron":"@every 1s","catch_up":"all","job":{"name":"x","argument":{}}}`, &view) {
		t.Fatal("the schedule is refused")
	}
	last := servers[2]
	eventually(t, "the last master makes jobs", func() bool {
		n := len(view.Last)
		return last.Ready(t.Context()) == nil && call(last, "GET", "/v1/schedules/tick", "", &view) && n > 0 && len(view.Last) > n && n >= 4
	})
	var stats struct{ States map[string]int }
	if !call(last, "GET", "/v1/stats", "", &stats) {
		t.Fatal("no statistics")
	}
	n := int(view.Last[0].Due.Sub(view.Created) / time.Second)
	if got := stats.States["queued"]; got != n && got != n+1 {
		t.Errorf("%d due times, %d jobs", n, got)
	}
	for i, run := range view.Last {
		var job struct{ Status string }
		if !call(last, "GET", "/job/"+run.Job, "", &job) || !run.Due.Equal(view.Last[0].Due.Add(-time.Duration(i)*time.Second)) {
			t.Error(fmt.Sprintf("%+v", run), job)
		}
	}
}
