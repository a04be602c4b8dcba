package probe

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// client sends requests to one daemon.
type client struct {
	base    string
	headers http.Header
}

// reply is a reply of a daemon.
type reply struct {
	status int
	header http.Header
	body   string
	json   map[string]any // nil if the body is not a JSON object
}

func (r reply) text(key string) string { s, _ := r.json[key].(string); return s }

func (r reply) String() string { return fmt.Sprintf("%d %.500s", r.status, r.body) }

var transport = &http.Transport{MaxIdleConnsPerHost: 64}

// try sends a request. The headers are written as "Name: value".
func (c *client) try(method, path, body string, headers ...string) (reply, error) {
	req, err := http.NewRequest(method, c.base+path, strings.NewReader(body))
	if err != nil {
		return reply{}, err
	}
	for k, v := range c.headers {
		req.Header[k] = v
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		if name == "Host" {
			req.Host = value
		}
		req.Header.Set(name, value)
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return reply{}, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return reply{}, err
	}
	r := reply{status: resp.StatusCode, header: resp.Header, body: string(b)}
	_ = json.Unmarshal(b, &r.json)
	return r, nil
}

func (c *client) ask(t testing.TB, method, path, body string, headers ...string) reply {
	t.Helper()
	r, err := c.try(method, path, body, headers...)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	return r
}

// expect sends a request and fails the test unless the reply has this status. A store that is slow
// for a moment counts as away, so a read that is refused for this reason is repeated.
func (c *client) expect(t testing.TB, status int, method, path, body string, headers ...string) reply {
	t.Helper()
	r := c.ask(t, method, path, body, headers...)
	for end := time.Now().Add(testTimeout); method == "GET" && status == 200 && r.text("error") == "store_unavailable" && time.Now().Before(end); {
		time.Sleep(100 * time.Millisecond)
		r = c.ask(t, method, path, body, headers...)
	}
	if r.status != status {
		t.Fatalf("%s %s: %s, want %d", method, path, r, status)
	}
	return r
}

// expectError sends a request and expects an error with this status and code, and a reason that
// contains all words.
func (c *client) expectError(t testing.TB, status int, code, method, path, body string, words ...string) {
	t.Helper()
	var headers []string
	for len(words) > 0 && strings.Contains(words[0], ": ") {
		headers, words = append(headers, words[0]), words[1:]
	}
	r := c.ask(t, method, path, body, headers...)
	if r.status != status || r.text("error") != code || r.text("reason") == "" {
		t.Errorf("%s %s: %s, want %d %s", method, path, r, status, code)
		return
	}
	for _, w := range words {
		if !strings.Contains(r.text("reason"), w) {
			t.Errorf("%s %s: %q does not name %q", method, path, r.text("reason"), w)
		}
	}
}

var number atomic.Int64

// freshClient returns a client's name that no other test uses.
func freshClient() string { return fmt.Sprintf("t%d_x.y", number.Add(1)) }

// add adds lines and returns their ids.
func (c *client) add(t testing.TB, client, typ, lines string) []string {
	t.Helper()
	r := c.expect(t, 200, "POST", "/"+client+"/job/"+typ+"/add", lines)
	list, _ := r.json["ids"].([]any)
	ids := make([]string, len(list))
	for i, id := range list {
		ids[i], _ = id.(string)
	}
	if n, _ := r.json["count"].(float64); int(n) != len(ids) || r.json["ok"] != true {
		t.Fatalf("added: %s", r)
	}
	return ids
}

// addOne adds one line and returns the id of its job.
func (c *client) addOne(t testing.TB, client, typ, payload string) string {
	t.Helper()
	ids := c.add(t, client, typ, payload+"\n")
	if len(ids) != 1 {
		t.Fatalf("one line made the jobs %v", ids)
	}
	return ids[0]
}

// addHandler adds a handler in a language.
func (c *client) addHandler(t testing.TB, client, typ, lang, body string, options ...string) {
	t.Helper()
	h := map[string]any{"lang": lang, "body": body}
	for _, o := range options {
		key, value, _ := strings.Cut(o, "=")
		h[key] = value
		if key == "options" {
			h[key] = json.RawMessage(value)
		}
	}
	b, err := json.Marshal(h)
	if err != nil {
		t.Fatal(err)
	}
	c.expect(t, 200, "POST", "/"+client+"/handler/add/"+typ, string(b), "Content-Type: application/json")
}

// job returns the reply of job/get.
func (c *client) job(t testing.TB, client, id string) reply {
	t.Helper()
	return c.expect(t, 200, "GET", "/"+client+"/job/get/"+id, "")
}

// awaitEnd waits until a job has ended in this state, and returns its data.
func (c *client) awaitEnd(t *testing.T, client, id, state string) (data string) {
	t.Helper()
	waitUntil(t, id+" ends "+state, func() error {
		if r := c.job(t, client, id); r.text("state") != state {
			return fmt.Errorf("%s", r)
		}
		return nil
	})
	return c.expect(t, 200, "GET", "/"+client+"/job/result/"+id, "").body
}

// awaitCode waits until a job has this code, which says why the job last stopped.
func (c *client) awaitCode(t *testing.T, client, id, code string) {
	t.Helper()
	waitUntil(t, id+" stops with "+code, func() error {
		r := c.job(t, client, id)
		if r.isSlow() {
			t.Logf("its first run took all the time that it had: %s", r)
		} else if r.text("code") != code {
			return fmt.Errorf("%s", r)
		}
		return nil
	})
}

// isSlow reports whether a job was abandoned after its first run. This happens on a busy machine if
// the run takes longer than the shared daemon's --retry-for.
func (r reply) isSlow() bool {
	created, err1 := time.Parse(time.RFC3339, r.text("create_dt"))
	done, err2 := time.Parse(time.RFC3339, r.text("done_dt"))
	return r.text("state") == "abandoned" && r.json["tries"] == 1.0 && err1 == nil && err2 == nil && done.Sub(created) >= retryFor
}

// counts returns a type's counts, as /state gives them.
func (c *client) counts(t testing.TB, client, typ string) map[string]any {
	t.Helper()
	r := c.expect(t, 200, "GET", "/"+client+"/state", "")
	types, _ := r.json["types"].(map[string]any)
	k, _ := types[typ].(map[string]any)
	return k
}

func query(pairs ...string) string {
	v := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		v.Set(pairs[i], pairs[i+1])
	}
	return "?" + v.Encode()
}
