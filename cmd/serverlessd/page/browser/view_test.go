package browser

import (
	"bytes"
	"encoding/json"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gloom/broker/page/pagetest"
)

// TestViewsAndActionsOfBusyDaemon goes through all views and actions on one daemon, which has jobs
// in all states.
func TestViewsAndActionsOfBusyDaemon(t *testing.T) {
	w, ids := startBusy(t)
	for _, one := range []struct {
		name string
		test func(*testing.T, *world, map[string]string)
	}{
		{"Cold", checkFirstVisit}, {"Views", checkViews}, {"Keyboard", keyboard}, {"Quiet", testQuiet}, {"Readme", takeReadmePicture},
		{"Job", oneJob}, {"Jobs", manyJobs}, {"Handlers", handlers}, {"Schedules", schedules}, {"Journal", journal}, {"Foreign", foreign}, {"Hostile", checkHostileTexts},
	} {
		t.Run(one.name, func(t *testing.T) { one.test(t, &world{t, w.daemon, w.url}, ids) })
	}
}

// checkViews opens every view, in both themes and in all widths.
func checkViews(t *testing.T, w *world, ids map[string]string) {
	b := w.open("")
	b.Ignore("404 (Not Found)") // views of things that do not exist
	for _, v := range []struct {
		route string
		texts []string
	}{
		{"#/", []string{"One thing is wrong", "acme-report", "the type has no handler", "2 jobs were set aside", "Does it keep up?", "Where all jobs are", "umbrella-mail"}},
		{"#/jobs", []string{"no such mailbox", "acme-greet", "umbrella-mail", "deferred"}},
		{"#/jobs?of=acme&state=failed", []string{"no such mailbox", "Retry all failed"}},
		{"#/types", []string{"acme-report", "none", "7 types of 2 clients"}},
		{"#/handlers", []string{"acme-greet", "sh", "Add a handler"}},
		{"#/handlers/acme/greet", []string{"hello $name", "Versions", "in use", "Try with a line"}},
		{"#/handlers/acme/report", []string{"its jobs wait for one"}},
		{"#/journal", []string{"store.db", "there", "refused", "larger than the database allows", "damaged", "Put back", "cannot be read"}},
		{"#/schedules", []string{"nightly", "30 2 * * *", "acme-report"}},
		{"#/schedules/acme/nightly", []string{"for the boss", "Due next", "9223372036854775809"}},
		{jobPath("acme", ids["ok"]), []string{"run 1: answered", "world", "hello world"}},
		{jobPath("acme", ids["failed"]), []string{"run 1: failed", "550 no such mailbox", `"n": 9223372036854775809`, "Its standard error", "Retry"}},
		{jobPath("acme", ids["deferred"]), []string{"the gateway is busy", "it is tried again at", "Cancel"}},
		{jobPath("acme", ids["running"]), []string{"run 1: running", "holiday.mp4"}},
		{jobPath("acme", ids["waiting"]), []string{"its type has no handler", "add one", "Cancel"}},
		{jobPath("umbrella", ids["other"]), []string{`"sent": 18446744073709551615`}},
		{"#/job/acme/nosuch", []string{"There is no job with this id"}},
		{"#/nosuch", []string{"There is no such view"}},
	} {
		b.GoTo(v.route)
		b.WaitForText(v.texts...)
		for name, id := range ids {
			v.route = strings.ReplaceAll(v.route, id, name)
		}
		b.CheckView(v.route, *shots, 320, 1280)
	}
	b.CheckPolicy()
}

// checkFirstVisit checks what a first visit loads.
func checkFirstVisit(t *testing.T, w *world, _ map[string]string) {
	pagetest.FirstVisit(t, chromium, w.url+"/", "Does it keep up?", "Types with most jobs")
}

// takeReadmePicture takes the screenshot for README.md while jobs are added and end.
func takeReadmePicture(t *testing.T, w *world, _ map[string]string) {
	if *picture == "" {
		t.Log("no -picture: none is kept")
		return
	}
	b := w.open("")
	b.SetSize(1080, 780)
	b.WaitForText("Types with most jobs")
	for i := range 150 {
		w.add("acme", "greet", strings.Repeat("you\n", 3+i%7), "")
		time.Sleep(150 * time.Millisecond)
	}
	b.Screenshot(*picture)
	shrinkPicture(t, *picture)
}

// shrinkPicture reduces a picture to its 256 most frequent colours, and fails if it is still too
// large.
func shrinkPicture(t *testing.T, file string) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	from, err := png.Decode(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	at, counts := from.Bounds(), map[color.Color]int{}
	for y := at.Min.Y; y < at.Max.Y; y++ {
		for x := at.Min.X; x < at.Max.X; x++ {
			counts[from.At(x, y)]++
		}
	}
	colours := slices.SortedFunc(maps.Keys(counts), func(a, b color.Color) int { return counts[b] - counts[a] })
	to := image.NewPaletted(at, colours[:min(len(colours), 256)])
	draw.Draw(to, at, from, at.Min, draw.Src)
	var out bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&out, to); err != nil {
		t.Fatal(err)
	}
	if out.Len() > 60_000 {
		t.Errorf("the picture has %d bytes", out.Len())
	}
	if err := os.WriteFile(file, out.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

// keyboard uses the page without a pointer.
func keyboard(t *testing.T, w *world, ids map[string]string) {
	b := w.open("")
	b.WaitForText("Types with most jobs")
	b.SendKeys("?")
	b.WaitForText("find a job by its id, or a type")
	b.SendKeys("\x1b")
	b.WaitUntil(`!document.querySelector('dialog')`)
	for i, name := range []string{"Overview", "Jobs", "Types", "Handlers", "Journal", "Schedules"} {
		b.SendKeys(fmt.Sprint(i + 1))
		b.WaitUntil(`document.querySelector('nav [aria-current]')?.innerText === $0`, name)
	}
	find := func(label string) {
		t.Helper()
		b.SendKeys("/")
		b.WaitUntil(`document.activeElement.id === 'find'`)
		b.SendKeys(label)
	}
	find(ids["other"] + "\r")
	b.WaitForText("18446744073709551615")
	find("umbr")
	b.WaitUntil(`document.querySelector('#hits li')?.innerText.includes('umbrella-mail')`)
	b.SendKeys("\r")
	b.WaitUntil(`location.hash === '#/types?part=umbr'`)
	b.CheckPolicy()
}

// testQuiet: a hidden tab sends no requests.
func testQuiet(t *testing.T, w *world, _ map[string]string) {
	b := w.open("")
	b.WaitForText("Types with most jobs")
	pagetest.Eval[any](b, `Object.defineProperty(document, 'hidden', { get: () => window.hide ?? true });
		document.dispatchEvent(new Event('visibilitychange'))`)
	time.Sleep(500 * time.Millisecond) // requests in progress may still be counted
	before, _ := b.Traffic()
	time.Sleep(5 * time.Second)
	if after, _ := b.Traffic(); after != before {
		t.Errorf("a hidden tab has made %d requests", after-before)
	}
	pagetest.Eval[any](b, `window.hide = false; document.dispatchEvent(new Event('visibilitychange'))`)
	w.waitUntil("it looks again", func() bool { after, _ := b.Traffic(); return after > before })
}

// foreign: a page of another site cannot act through a visitor's browser, and a page under a
// foreign name that resolves to this host cannot read.
func foreign(t *testing.T, w *world, ids map[string]string) {
	for _, c := range []struct{ method, path, header, value string }{
		{"POST", "/acme/job/retry/" + ids["ok"], "Origin", "http://127.0.0.1:1"}, {"POST", "/put-back?all=true", "Origin", "http://127.0.0.1:1"}, {"POST", "/stop", "Origin", "http://127.0.0.1:1"},
		{"GET", "/v1/stats", "Host", "evil.example"}, {"GET", "/jobs", "Host", "evil.example"}, {"GET", "/acme/job/payload/" + ids["ok"], "Host", "evil.example"}, {"GET", "/handlers", "Host", "evil.example"}, {"GET", "/schedules", "Host", "evil.example"},
	} {
		r, err := http.NewRequest(c.method, w.url+c.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set(c.header, c.value)
		if c.header == "Host" {
			r.Host = c.value
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusForbidden {
			t.Errorf("%s %s: %d", c.method, c.path, resp.StatusCode)
		}
	}
}

// TestPageSaysWhatIsAway: the page says when a store is away, and when the daemon is.
func TestPageSaysWhatIsAway(t *testing.T) {
	w := start(t, "", "--store=mysql://nobody:none@127.0.0.1:1/none")
	b := w.open("")
	b.WaitForText("One thing is wrong", "is away", "New jobs wait in the journal")
	b.CheckAccessible("away")
	w.ask("POST", "/acme/job/x", "1\n")
	b.WaitForText("1 job in the journal")
	b.GoTo("#/jobs")
	b.Ignore("503 (Service Unavailable)", "net::ERR", "Failed to fetch")
	b.WaitForText("the store is away", "Ask again")
	w.daemon.Kill()
	b.WaitForText("The daemon does not answer")
	b.GoTo("#/")
	b.WaitForText("Not known: the daemon is away")
	b.CheckPolicy()
}

// TestPageAsksForToken: the page asks for a token with the right scope, and hides actions for which
// the token lacks the scope.
func TestPageAsksForToken(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(file, []byte("secret-s submit,read,handler\nsecret-r admin,read\nsecret-a admin,read,submit,handler\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	w := start(t, "", "--token-file", file)
	b := w.open("")
	b.Ignore("401 (Unauthorized)", "403 (Forbidden)")
	enter := func(token string) {
		t.Helper()
		b.Fill("token", token)
		b.ClickButton("Go in")
	}
	b.WaitForText("This daemon needs a token with the scope admin.")
	b.CheckAccessible("the door")
	enter("wrong")
	b.WaitForText("does not know this token")
	enter("secret-s")
	b.WaitForText("This token may not read this page")
	if pagetest.Eval[int](b, `return document.querySelectorAll('button').length`) != 1 {
		t.Errorf("a token that may not read the page is offered more:\n%s", b.Text())
	}
	enter("secret-r")
	b.WaitForText("Everything is healthy", "There is no job and no handler.")
	b.CheckAccessible("empty")
	b.GoTo("#/handlers")
	b.WaitForText("There is no handler.")
	if strings.Contains(b.Text(), "Add a handler") {
		t.Error("a user without the scope handler is offered to add one")
	}
	if pagetest.Eval[bool](b, `return JSON.stringify([localStorage, sessionStorage, document.cookie, location.href]).includes('secret')`) {
		t.Error("the token was kept")
	}
	b.Visit(w.url + "/?again") // a reload clears the tab's memory, so the page asks for the token again
	b.WaitForText("needs a token")
	enter("secret-a")
	b.WaitForText("Everything is healthy")
	b.GoTo("#/handlers")
	b.ClickButton("Add a handler")
	b.Fill("client", "acme")
	b.Fill("type", "x")
	b.Fill("body", "exit 0")
	b.ClickButton("Add it")
	b.WaitForText("The handler of acme-x is added.")
	b.CheckPolicy()
}

// hostile holds texts that do harm unless they are shown as plain text.
var hostile = []string{
	`<img src=x onerror="window.harm=1">`, `"><script>window.harm=2</script>`, `javascript:window.harm=3`, `'-alert(1)-'${window.harm=4}`,
	"\u202eturned", `../../v1/stats?x=%2e%2e#/`, `</textarea></dialog><b>bold`, strings.Repeat("W", 4000),
}

// checkHostileTexts shows hostile texts in every place where a client or a handler chooses the text.
func checkHostileTexts(t *testing.T, w *world, _ map[string]string) {
	w.addHandler("evil", "ok", `read line; printf 'R: 200 %s\n' "$line"`)
	w.addHandler("evil", "no", `read line; printf '%s\n' "$line" >&2; printf 'R: 400 %s\n' "$line"`)
	var ids []string
	for i, text := range hostile {
		typ := []string{"no", "ok"}[i%2]
		id := w.add("evil", typ, text+"\n", "")[0]
		w.awaitState("evil", id, []string{"failed", "ok"}[i%2])
		ids = append(ids, id)
		literal, _ := json.Marshal(text[:min(len(text), 128)])
		name := strings.NewReplacer("%", "%25", "/", "%2F", "?", "%3F", "#", "%23", "<", "%3C", ">", "%3E", `"`, "%22", " ", "%20", "\u202e", "%E2%80%AE").Replace(text[:min(len(text), 128)])
		w.ask("PUT", "/evil/schedule/"+name, fmt.Sprintf(`{"cron":"@yearly","job":{"type":"ok","payload":%s},"note":%s}`, literal, literal))
		w.ask("PUT", fmt.Sprintf("/evil/handler/add/h%d", i), fmt.Sprintf(`{"lang":"http","body":"http://127.0.0.1:1/","before":%s,"eid":%s}`, literal, literal))
	}
	w.ask("PUT", "/evil/handler/add/source?lang=sh", ": '"+strings.Join(hostile[:3], "\n")+"'")
	b := w.open("")
	check := func(place string) {
		t.Helper()
		if pagetest.Eval[bool](b, `return 'harm' in window || document.querySelector('main script, main img, main b b') !== null`) {
			t.Errorf("%s did harm", place)
		}
		b.CheckFits(320)
	}
	for i, id := range ids {
		first := hostile[i]
		if strings.HasPrefix(first, "\u202e") || len(first) > 100 {
			first = first[len("\u202e"):6]
		}
		b.GoTo(jobPath("evil", id))
		b.WaitUntil(`document.querySelector('pre')`)
		b.WaitForText(first, "run 1: ")
		check(hostile[i])
	}
	for _, route := range []string{"#/jobs?of=evil", "#/schedules", "#/handlers/evil/source", "#/handlers/evil/h0"} {
		b.GoTo(route)
		b.WaitForText("onerror")
		check(route)
	}
	b.CheckAccessible("hostile")
	b.GoTo("#/jobs?of=" + `%3Cimg%20src%3Dx%20onerror%3D%22window.harm%3D1%22%3E-%2E%2E`)
	b.Ignore("400 (Bad Request)")
	b.WaitForText("must be 1 to 64")
	check("a hostile name of a client")
	b.CheckPolicy()
}
