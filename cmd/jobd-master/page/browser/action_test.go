package browser

import (
	"fmt"
	"strings"
	"testing"

	"gloom/broker/page/pagetest"
)

// TestActionsAreConfirmedAndUndone: actions take effect, are confirmed and, if possible, can be
// undone; refusals of a worker are shown.
func TestActionsAreConfirmedAndUndone(t *testing.T) {
	w, first, ids := startBusyFleet(t)
	paused := func(target string) bool {
		_, reply := w.callHTTP("GET", "/v1/targets/"+target, "")
		return strings.Contains(reply, `"paused":true`)
	}
	b := w.openPage("")
	b.WaitForText("is paused, and 60 rows are waiting")
	pagetest.Eval[any](b, `[...document.querySelectorAll('.findings li')].find(e => e.innerText.includes('is paused')).querySelector('button').click()`)
	b.WaitForText("report is resumed.")
	b.ClickButton("Undo")
	b.WaitForText("Undone.")
	if !paused("report") {
		t.Error("the pause did not come back")
	}
	b.GoTo("#/target/report")
	b.ClickButton("Resume")
	b.WaitForText("report is resumed.")
	b.ClickButton("Poke")
	b.WaitForText("report is poked.")
	b.GoTo("#/target/mail")
	b.ClickButton("Pause")
	b.WaitForText("mail is paused: running rows continue.", "is paused")
	if !paused("mail") {
		t.Error("it is not paused")
	}
	b.ClickButton("Resume")
	b.WaitForText("mail is resumed.")
	b.GoTo("#/target/nobody")
	b.ClickButton("Poke")
	b.WaitForText("No worker serves nobody: the poke is remembered.")

	// Rows are run by hand in three ways: by typed ids, by a choice in the list, and from the view of
	// the row. One of the typed ids is refused.
	b.GoTo("#/target/mail?status=manual")
	b.ClickButton("Run by hand")
	b.CheckAccessible("by hand")
	b.Fill("ids", fmt.Sprint(ids["ok"]))
	b.ClickButton("Run")
	b.WaitForText("Not done: 1 not run", "status = done != manual")
	b.Fill("ids", fmt.Sprintf("%d, %d", ids["ok"], ids["manual"]))
	b.ClickButton("Run")
	b.WaitForText("1 row succeeded; 1 not run")
	b.WaitUntil(`document.querySelectorAll('[aria-label=Rows] tbody tr').length === 1`)
	b.WaitUntil(`[...document.querySelectorAll('.pick input')].slice(1).map(e => e.checked || e.click()).length`)
	b.ClickButton("Run 1 selected")
	b.ClickButton("Run")
	b.WaitForText("1 row failed.", "No rows of mail have this status.")
	long := w.addRow("mail", "manual", "exec sleep 600")
	b.GoTo(fmt.Sprintf("#/row/mail/%d", long))
	b.ClickButton("Run by hand")
	b.ClickButton("Run")
	b.WaitForText("1 row is still running.", "running")

	// One worker is gone, and one is stopped.
	b.Ignore("502 (Bad Gateway)", "404 (Not Found)")
	b.GoTo("#/target/1%2Fhigh")
	b.WaitForText("Run by hand")
	first.Signal(19) // SIGSTOP
	b.ClickButton("Pause")
	b.WaitForText("Not done: worker 'web-1'", "no answer within 1s")
	first.Kill()
	b.WaitForText("its last worker left")
	b.CheckPolicy()
}

// TestForeignPageIsRefused: a page of another site cannot do what the daemon's page may do. Without
// a password only this host is served.
func TestForeignPageIsRefused(t *testing.T) {
	w := start(t)
	w.startWorker("one", "[targets]", "mail = 1")
	for _, c := range []struct {
		method, path string
		headers      []string
		want         int
	}{
		{"GET", "/v1/stats", nil, 200},
		{"GET", "/v1/status", []string{"Host", "evil.example"}, 403},
		{"GET", "/v1/targets/mail/rows?status=done", []string{"Host", "evil.example"}, 403},
		{"POST", "/v1/targets/mail/pause", []string{"Host", "evil.example"}, 403},
		{"POST", "/v1/targets/mail/pause", []string{"Origin", "http://127.0.0.1:1", "Content-Type", "text/plain"}, 403},
		{"POST", "/v1/targets/mail/poke", []string{"Sec-Fetch-Site", "cross-site"}, 403},
		{"POST", "/v1/targets/mail/run", []string{"Sec-Fetch-Site", "same-site"}, 403},
		{"GET", "/v1/targets/mail/pause", nil, 405},
		{"GET", "/v1/stats", []string{"X-Forwarded-For", "10.0.0.1"}, 403},
		{"POST", "/v1/targets/mail/pause", []string{"X-Forwarded-For", "10.0.0.1"}, 403},
		{"GET", "/v1/nosuch", nil, 404},
		{"GET", "/v1//stats", nil, 404},
		{"GET", "/v1/stats?x=1", nil, 400},
		{"GET", "/v1/targets/mail/rows", nil, 400},
		{"GET", "/v1/targets/mail/rows?status=done&limit=201", nil, 400},
		{"GET", "/v1/targets/mail/rows/x", nil, 400},
		{"POST", "/v1/targets/mail/run", nil, 400},
		{"POST", "/v1/targets/nosuch/pause", nil, 404},
		{"GET", "/metrics", []string{"Host", "evil.example", "X-Forwarded-For", "10.0.0.1"}, 200}, // as ever
		{"GET", "/readyz", nil, 200},
		{"GET", "/", nil, 404},
		{"GET", "/", []string{"Accept", "text/html"}, 200},
	} {
		if got, reply := w.callHTTP(c.method, c.path, "", c.headers...); got != c.want {
			t.Errorf("%s %s %q: %d %s, want %d", c.method, c.path, c.headers, got, reply, c.want)
		}
	}
	if _, reply := w.callHTTP("GET", "/v1/targets/mail", ""); strings.Contains(reply, `"paused":true`) {
		t.Error("a foreign page has paused a target")
	}
}

// TestPasswordGuardsAPI: without the password a client gets nothing from /v1, unless it is on this
// host and the configuration exempts this host; and a proxy on this host counts as another host.
func TestPasswordGuardsAPI(t *testing.T) {
	with := func(lines ...string) *world {
		return &world{t: t, url: "http://" + startDaemon(t, "jobd-master", append(lines, "password = s3cret", "http_addr = 127.0.0.1:0")...).Field("http_addr")}
	}
	guardedWorld, local := with(), with("always_allow_localhost = true")
	rightToken, wrongToken := "Bearer s3cret", "Bearer s3cre"
	for _, c := range []struct {
		w       *world
		headers []string
		want    int
	}{
		{guardedWorld, nil, 401}, {guardedWorld, []string{"Authorization", wrongToken}, 401}, {guardedWorld, []string{"Authorization", rightToken}, 200},
		{guardedWorld, []string{"Authorization", rightToken, "Host", "jobs.example.org"}, 200}, {guardedWorld, []string{"Authorization", rightToken, "Origin", "http://evil.example"}, 403},
		{local, nil, 200}, {local, []string{"Host", "evil.example"}, 403}, {local, []string{"Origin", "http://evil.example"}, 403}, {local, []string{"Authorization", wrongToken}, 401},
		{local, []string{"X-Forwarded-For", "10.0.0.1"}, 401}, {local, []string{"Forwarded", "for=10.0.0.1"}, 401},
	} {
		if got, reply := c.w.callHTTP("POST", "/v1/targets/x/poke", "", c.headers...); got != c.want {
			t.Errorf("always_allow_localhost %t, %q: %d %s, want %d", c.w == local, c.headers, got, reply, c.want)
		}
	}
	if got, _ := guardedWorld.callHTTP("GET", "/metrics", ""); got != 200 {
		t.Errorf("metrics: %d", got)
	}
}
