package probe

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// TestOperatorsSeeAllClients: operators can make requests about all clients, and read a job's
// payload and a handler's versions.
func TestOperatorsSeeAllClients(t *testing.T) {
	d, client, other := sharedDaemon(t), freshClient(), freshClient()
	for range 12 {
		d.addHandler(t, client, "op", "sh", `echo "R: 200 old"`)
	}
	d.addHandler(t, client, "op", "sh", `echo "R: 400 no"`)
	payload := "a|b \x00 " + strings.Repeat("x", 3000)
	id := d.addOne(t, client, "op", payload)
	if r := d.expect(t, 200, "GET", "/"+client+"/job/payload/"+id, ""); r.body != payload || r.header.Get("Content-Type") != "application/octet-stream" {
		t.Errorf("%s %v", r, r.header)
	}
	d.expectError(t, 404, "unknown_job", "GET", "/"+other+"/job/payload/"+id, "", id)
	d.awaitEnd(t, client, id, "failed")
	if r := d.job(t, client, id); r.json["payload_bytes"] != float64(len(payload)) || r.json["data_bytes"] != 2.0 {
		t.Errorf("%s", r)
	}
	if r := d.expect(t, 200, "GET", "/"+client+"/job/payload/"+id, ""); r.body != payload {
		t.Errorf("after its end: %s", r)
	}
	var list struct {
		Jobs []struct{ ID, Type, State string }
	}
	if err := json.Unmarshal([]byte(d.expect(t, 200, "GET", "/jobs?id="+id, "").body), &list); err != nil || fmt.Sprint(list.Jobs) != fmt.Sprintf("[{%s %s-op failed}]", id, client) {
		t.Errorf("%v, %v", list, err)
	}
	d.expectError(t, 404, "unknown_job", "GET", "/jobs?id=nosuch", "", "nosuch")
	found := false
	for after := ""; ; {
		r := d.expect(t, 200, "GET", "/jobs"+query("state", "failed", "limit", "20", "after", after), "")
		found = found || strings.Contains(r.body, `"id":"`+id+`","type":"`+client+`-op"`)
		if after = r.text("after"); after == "" {
			break
		}
	}
	if !found {
		t.Errorf("%s is not among the jobs of all clients", id)
	}

	r := d.expect(t, 200, "GET", "/"+client+"/handler/versions/op", "")
	versions, _ := r.json["versions"].([]any)
	if len(versions) != 10 {
		t.Fatalf("%s", r)
	}
	oldest := versions[9].(map[string]any)["id"].(string)
	if r := d.expect(t, 200, "GET", "/"+client+"/handler/get/op?id="+oldest, ""); r.text("body") != `echo "R: 200 old"` || r.text("id") != oldest {
		t.Errorf("%s", r)
	}
	d.expectError(t, 404, "unknown_handler", "GET", "/"+client+"/handler/get/op?id=nosuch", "", client)
	d.expectError(t, 404, "unknown_handler", "GET", "/"+client+"/handler/versions/nosuch", "", client)
	if r := d.expect(t, 200, "GET", "/handlers?part="+client, ""); !strings.Contains(r.body, `{"items":[{"type":"`+client+`-op","id":"`+versions[0].(map[string]any)["id"].(string)) {
		t.Errorf("%s", r)
	}

	for _, c := range []string{client, other} {
		d.expect(t, 200, "PUT", "/"+c+"/schedule/op", `{"cron":"@yearly","job":{"type":"x"}}`)
	}
	seen := ""
	for cursor := ""; ; {
		r := d.expect(t, 200, "GET", "/schedules"+query("limit", "1", "cursor", cursor), "")
		items, _ := r.json["items"].([]any)
		for _, s := range items {
			seen += fmt.Sprint(s.(map[string]any)["client"], "/", s.(map[string]any)["name"], " ")
		}
		if cursor = r.text("cursor"); cursor == "" {
			break
		}
	}
	if !strings.Contains(seen, client+"/op ") || !strings.Contains(seen, other+"/op ") {
		t.Errorf("schedules: %s", seen)
	}

	if r := d.expect(t, 200, "GET", "/v1/status", ""); fmt.Sprint(r.json["scopes"]) != "[submit handler read admin]" {
		t.Errorf("%s", r)
	}
	waitUntil(t, "the jobs are counted", func() error {
		r := d.expect(t, 200, "GET", "/v1/stats"+query("types", "1", "part", client+"-op"), "")
		types, _ := r.json["types"].([]any)
		if len(types) != 1 {
			return fmt.Errorf("%s", r)
		}
		if firstType := types[0].(map[string]any); firstType["failed"] != 1.0 || firstType["lang"] != "sh" {
			return fmt.Errorf("%s", r)
		}
		return nil
	})
}
