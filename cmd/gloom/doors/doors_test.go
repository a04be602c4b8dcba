package doors

import (
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"gloom/broker/admin/api"
)

// ask sends a request through the door of a daemon that answers with serve.
func ask(t *testing.T, name string, serve http.HandlerFunc, method, path, body string, out any) error {
	t.Helper()
	daemon := httptest.NewServer(serve)
	defer daemon.Close()
	d, err := ForStatus(json.RawMessage(`{"name":"`+name+`"}`), http.DefaultTransport, daemon.URL, "")
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), method, daemon.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := d.RoundTrip(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if data, _ := io.ReadAll(resp.Body); json.Unmarshal(data, out) != nil {
		t.Fatalf("%s: %s", resp.Status, data)
	}
	return nil
}

// TestEndedJobsShowTheirLastRun: a list says how long jobs of serverlessd waited and ran, as far as
// that is known.
func TestEndedJobsShowTheirLastRun(t *testing.T) {
	const times = `"type":"a-x","create_dt":"2026-01-01T00:00:00.000Z","done_dt":"2026-01-01T00:00:10.000Z","lock":"__done",`
	lists := map[string]string{
		"ok": `{"id":"first",` + times + `"state":"ok","code":"ok","tries":1,"runs":[{"n":1,"started_at":"2026-01-01T00:00:08.000Z"}]},` +
			`{"id":"second",` + times + `"state":"ok","code":"ok","tries":2,"last":{"try":2,"at":"2026-01-01T00:00:10.000Z","took_ms":3000}}`,
		"failed":    `{"id":"failed",` + times + `"state":"failed","code":"failed","tries":1,"last":{"try":1,"at":"2026-01-01T00:00:10.000Z","took_ms":4000}}`,
		"abandoned": `{"id":"lost",` + times + `"state":"abandoned","code":"lock_expired","tries":2,"last":{"try":1,"at":"2026-01-01T00:00:02.000Z","took_ms":1000}}`,
	}
	got := make(map[string]api.Ended)
	for _, outcome := range []string{"answered", "failed"} {
		for place := "start"; place != ""; {
			var p page[api.Ended]
			query := "?state=ended&outcome=" + outcome
			if place != "start" {
				query += "&cursor=" + strings.ReplaceAll(place, " ", "+")
			}
			if err := ask(t, "serverlessd", func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.WriteString(w, `{"jobs":[`+lists[r.URL.Query().Get("state")]+`]}`)
			}, "GET", "/v1/jobs"+query, "", &p); err != nil {
				t.Fatal(err)
			}
			for _, j := range p.Items {
				got[j.ID] = j
			}
			place = p.Place
		}
	}
	for id, want := range map[string][2]int64{"first": {8000, 2000}, "second": {7000, 3000}, "failed": {6000, 4000}, "lost": {10000, 0}} {
		j, ok := got[id]
		if !ok || j.WaitedMS != want[0] || j.RanMS != want[1] || (j.StartedAt != nil) != (want[1] > 0) {
			t.Errorf("%s: %+v, want %v", id, j, want)
		}
	}
}

// TestCutChange: if the connection breaks during a change of many jobs, the error says that jobs may
// have been changed, and how many are known.
func TestCutChange(t *testing.T) {
	for name, answers := range map[string][]string{
		"jq-master":   {`{"affected":2,"cursor":"c"}`},
		"serverlessd": {`{"jobs":[{"id":"1"},{"id":"2"},{"id":"3"}]}`, `{}`, `{}`},
	} {
		for cut := range len(answers) + 1 {
			n := 0
			err := ask(t, name, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Query().Get("state") == "deferred" || r.URL.Query().Get("state") == "abandoned" {
					_, _ = io.WriteString(w, `{}`)
					return
				}
				if n == cut || n == len(answers) {
					panic(http.ErrAbortHandler)
				}
				n++
				_, _ = io.WriteString(w, answers[n-1])
			}, "POST", "/v1/types/a-x/jobs/cancel", `{}`, &api.Many{})
			known := map[string][]int{"jq-master": {0, 2}, "serverlessd": {-1, 0, 1, 2}}[name][cut]
			e := (*CutError)(nil)
			if err == nil || errors.As(err, &e) != (known >= 0) || e != nil && e.Done != known {
				t.Errorf("%s, cut at %d: %v, want %d", name, cut, err, known)
			}
		}
	}
}

// TestAllTargets: jobs of all types are those of all targets, even if these are more than one page.
func TestAllTargets(t *testing.T) {
	var seen []string
	for place := ""; len(seen) < 9; {
		var page struct {
			Items []api.Job `json:"items"`
			Place string    `json:"place"`
		}
		err := ask(t, "jobd-master", func(w http.ResponseWriter, r *http.Request) {
			switch target := strings.TrimSuffix(strings.TrimPrefix(r.URL.Path, "/v1/targets/"), "/rows"); {
			case target != r.URL.Path:
				_, _ = io.WriteString(w, `{"items":[{"id":1,"target":"`+target+`","status":"waiting"}]}`)
			case cmp.Or(r.URL.Query().Get("cursor"), "0") == "0":
				_, _ = io.WriteString(w, `{"items":[{"target":"a"},{"target":"b"}],"next":2}`)
			default:
				_, _ = io.WriteString(w, `{"items":[{"target":"c"}]}`)
			}
		}, "GET", "/v1/jobs?state=queued&cursor="+url.QueryEscape(place), "", &page)
		if err != nil {
			t.Fatal(err)
		}
		for i := range page.Items {
			seen = append(seen, page.Items[i].Type)
		}
		if place = page.Place; place == "" {
			break
		}
	}
	if got := strings.Join(seen, " "); got != "a b c" {
		t.Errorf("jobs of %q", got)
	}
}

// TestTypesThatAreNotListed: a list of serverlessd's types says that there are more of them.
func TestTypesThatAreNotListed(t *testing.T) {
	asked := ""
	serve := func(w http.ResponseWriter, r *http.Request) {
		asked = r.URL.RawQuery
		_, _ = io.WriteString(w, `{"types":[{"type":"a-x"},{"type":"a-y"}],"all_types":3}`)
	}
	var page api.List[api.Type]
	if err := ask(t, "serverlessd", serve, "GET", "/v1/types?limit=2", "", &page); err != nil || len(page.Items) != 2 || page.Next == nil || asked != "types=2" {
		t.Errorf("%+v, %v, asked for %s", page, err, asked)
	}
	if err := ask(t, "serverlessd", serve, "GET", "/v1/types?limit=2&cursor=2", "", &page); err == nil || !strings.Contains(err.Error(), "1,000 types") {
		t.Errorf("the second page: %v", err)
	}
}
