package probe

import (
	"strings"
	"testing"
)

// TestValidHandlersAreAccepted: valid handlers are accepted, and the API shows them and their
// versions.
func TestValidHandlersAreAccepted(t *testing.T) {
	d := sharedDaemon(t)
	client := freshClient()
	add := "/" + client + "/handler/add/h"
	t.Run("unknown", func(t *testing.T) {
		d.expectError(t, 404, "unknown_handler", "GET", "/"+client+"/handler/get/h", "")
		d.expectError(t, 404, "unknown_handler", "DELETE", "/"+client+"/handler/del/h", "")
	})
	t.Run("get", func(t *testing.T) {
		d.expect(t, 200, "PUT", add+"/add", `{"lang":"sh","body":"exit 0","eid":"e","before":"b","beforeEach":"be","afterEach":"ae","options":{"batch":true,"timeout":"5s"}}`, "Content-Type: application/json")
		r := d.expect(t, 200, "GET", "/"+client+"/handler/get/h", "")
		for key, want := range map[string]string{"lang": "sh", "body": "exit 0", "eid": "e", "before": "b", "beforeEach": "be", "afterEach": "ae", "type": "h"} {
			if r.text(key) != want {
				t.Errorf("%s is %v, want %s", key, r.json[key], want)
			}
		}
		for _, key := range []string{"id", "dt", "options"} {
			if r.json[key] == nil {
				t.Errorf("no %s in %s", key, r)
			}
		}
	})
	t.Run("a source", func(t *testing.T) {
		d.expect(t, 200, "POST", add+"?lang=sh", "exit 65", "Content-Type: text/plain")
		if r := d.expect(t, 200, "GET", "/"+client+"/handler/get/h", ""); r.text("body") != "exit 65" {
			t.Errorf("the newest does not win: %s", r)
		}
		d.awaitEnd(t, client, d.addOne(t, client, "h", "x"), "failed")
	})
	t.Run("all versions go", func(t *testing.T) {
		r := d.expect(t, 200, "POST", "/"+client+"/handler/del/h/delete", "")
		if r.json["deleted"] != 2.0 {
			t.Errorf("%s, want 2", r)
		}
		d.expectError(t, 404, "unknown_handler", "GET", "/"+client+"/handler/get/h", "")
	})
	t.Run("ten are kept", func(t *testing.T) {
		for range 13 {
			d.addHandler(t, client, "ten", "sh", "exit 0")
		}
		if r := d.expect(t, 200, "DELETE", "/"+client+"/handler/del/ten", ""); r.json["deleted"] != 10.0 {
			t.Errorf("%s, want 10", r)
		}
	})
	for _, c := range []struct {
		name   string
		status int
		code   string
		path   string
		body   string
		kind   string
	}{
		{"no JSON", 400, "invalid_json", add, `{`, "application/json"},
		{"no object", 400, "invalid_json", add, `[]`, "application/json"},
		{"no lang", 400, "missing_field", add, `{"body":"x"}`, "application/json"},
		{"no body", 400, "missing_field", add, `{"lang":"sh"}`, "application/json"},
		{"an unknown lang", 400, "invalid_lang", add, `{"lang":"cobol","body":"x"}`, "application/json"},
		{"no URL", 400, "invalid_value", add, `{"lang":"http","body":"ftp://127.0.0.1/"}`, "application/json"},
		{"a bad method", 400, "invalid_value", add + "?method=FROB", `{"lang":"http","body":"http://127.0.0.1:1/"}`, "application/json"},
		{"a bad timeout", 400, "invalid_value", add, `{"lang":"sh","body":"x","options":{"timeout":"long"}}`, "application/json"},
		{"a bad next", 400, "", add, `{"lang":"sh","body":"x","options":{"next":"a,b"}}`, "application/json"},
		{"an unknown key", 400, "invalid_value", add, `{"lang":"sh","body":"x","befor":"y"}`, "application/json"},
		{"an unknown option", 400, "invalid_value", add, `{"lang":"sh","body":"x","options":{"retries":3}}`, "application/json"},
		{"an unknown parameter", 400, "invalid_value", add + "?language=sh", `{"lang":"sh","body":"x"}`, "application/json"},
		{"node that does not parse", 400, "invalid_value", add + "?lang=node", `return ][`, "text/plain"},
		{"python that does not parse", 400, "invalid_value", add + "?lang=python", `return ][`, "text/plain"},
		{"PHP that does not parse", 400, "invalid_value", add + "?lang=php", `return ][;`, "text/plain"},
		{"sh that does not parse", 400, "invalid_value", add + "?lang=sh", `if; fi`, "text/plain"},
		{"a source without lang", 400, "missing_field", add, `exit 0`, "text/plain"},
		{"a malformed client", 400, "invalid_client", "/a-b/handler/add/h", `{"lang":"sh","body":"x"}`, "application/json"},
		{"a malformed type", 400, "invalid_type", "/" + client + "/handler/add/a,b", `{"lang":"sh","body":"x"}`, "application/json"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := d.ask(t, "POST", c.path, c.body, "Content-Type: "+c.kind)
			if r.status != c.status || c.code != "" && r.text("error") != c.code || r.text("reason") == "" {
				t.Errorf("%s, want %d %s", r, c.status, c.code)
			}
		})
	}
	t.Run("none of these was added", func(t *testing.T) {
		d.expectError(t, 404, "unknown_handler", "GET", "/"+client+"/handler/get/h", "")
	})
	t.Run("jobs wait for a handler", func(t *testing.T) {
		id := d.addOne(t, client, "later", "x")
		if r := d.job(t, client, id); r.text("state") != "waiting" {
			t.Fatalf("%s", r)
		}
		d.addHandler(t, client, "later", "sh", "exit 0")
		d.awaitEnd(t, client, id, "ok")
	})
	t.Run("a wrong verb", func(t *testing.T) {
		if r := d.ask(t, "GET", add, ""); r.status != 405 || !strings.Contains(r.header.Get("Allow"), "POST") || !strings.Contains(r.header.Get("Allow"), "PUT") {
			t.Errorf("%s, Allow %q", r, r.header.Get("Allow"))
		}
	})
}
