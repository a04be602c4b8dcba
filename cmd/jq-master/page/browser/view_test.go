package browser

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gloom/broker/page/pagetest"
)

// TestEveryViewInEveryTheme checks every view in both themes and several widths.
func TestEveryViewInEveryTheme(t *testing.T) {
	w, ids := startBusy(t)
	b := w.open("")
	b.Ignore("404 (Not Found)") // the view of a job that does not exist
	widths := []int64{320, 390, 1280}
	for _, v := range []struct {
		route string
		texts []string
	}{
		{"#/", []string{"One thing is wrong", "no worker serves the name", "per-user", "holds back 1 of its ", "Does it keep up?", "It adds up: no job is lost", "report"}},
		{"#/jobs", []string{"gateway is busy", "thumbnail", "queued"}},
		{"#/jobs?status=error", []string{"no such mailbox", "Retry all that match"}},
		{"#/jobs?match=" + `%7B%22field%22%3A%22%2Fargument%2Fof%22%2C%22op%22%3A%22ge%22%2C%22value%22%3A6%7D`, []string{"report", "Priority of all that match"}},
		{"#/names", []string{"report", "no worker", "4 names"}},
		{"#/workers", []string{"mailer on host-7", "sms*", "it asks", "1 of 2"}},
		{"#/constraints", []string{"per-user", "0 at a time for each /argument/user", "/argument/user", "They are in memory only"}},
		{"#/schedules", []string{"nightly", "30 2 * * *", "Europe/Berlin"}},
		{"#/schedules/nightly", []string{"for the boss", "Due next", "9223372036854775809"}},
		{"#/job/" + ids["held"], []string{"the constraint per-user holds it back", "Cancel", `"user": 7`}},
		{"#/job/" + ids["queued"], []string{"no worker serves its name", "Priority"}},
		{"#/job/" + ids["running"], []string{"run 1: running"}},
		{"#/job/" + ids["done"], []string{"run 1: answered", "9223372036854775809", `"sent": 18446744073709551615`, "kept until it is fetched"}},
		{"#/job/" + ids["error"], []string{"run 1: failed", "no such mailbox", "550", "Retry"}},
		{"#/job/" + ids["retrying"], []string{"The last run failed: gateway is busy", "it is not due yet", "Run now"}},
		{"#/job/nosuch", []string{"There is no job with this id"}},
		{"#/nosuch", []string{"There is no such view"}},
	} {
		b.GoTo(v.route)
		b.WaitForText(v.texts...)
		for name, id := range ids {
			v.route = strings.ReplaceAll(v.route, id, name)
		}
		b.CheckView(v.route, *shots, widths...)
	}
	b.CheckPolicy()
	if v := w.ask("GET", "/job/"+ids["done"]+"?peek=true", nil); v["result"] == nil {
		t.Error("a look at the job has fetched its result")
	}
}

// TestFirstVisit checks how many requests a first visit needs.
func TestFirstVisit(t *testing.T) {
	w, _ := startBusy(t)
	pagetest.FirstVisit(t, chromium, w.url+"/", "Does it keep up?", "Names with most jobs")
}

// TestChangesShowWithoutReload: changes are shown without a reload, and a master that is away is
// shown as away.
func TestChangesShowWithoutReload(t *testing.T) {
	w := start(t)
	b := w.open("")
	b.WaitForText("Everything is healthy", "There is no job.")
	b.CheckAccessible("empty")
	w.job(`{"name":"mail","argument":{}}`)
	b.WaitForText("One thing is wrong", "no worker serves the name")
	worker := w.worker("one", 1, "*")
	b.WaitForText("Everything is healthy")
	id := w.take(worker, 1)[0]
	b.GoTo("#/job/" + id)
	b.WaitForText("run 1: running")
	w.reportDone(worker, id, `{"type":"success"}`)
	b.WaitForText("run 1: answered")
	b.Ignore("net::ERR", "Failed to fetch")
	w.d.Kill()
	b.WaitForText("The master does not answer")
	b.GoTo("#/")
	b.WaitForText("Not known: the master is away")
	b.CheckPolicy()
}

// TestPlotHistory: plots have data from before the page was opened, and from the time when its tab
// was hidden.
func TestPlotHistory(t *testing.T) {
	w := start(t)
	for range 3 {
		w.job(`{"name":"mail","argument":{}}`)
	}
	time.Sleep(7 * time.Second) // one moment
	worker := w.worker("one", 1, "sms")
	w.job(`{"name":"sms","argument":{}}`)
	w.reportDone(worker, w.take(worker, 1)[0], `{"type":"success"}`)
	time.Sleep(9 * time.Second) // two more
	b := w.open("")
	b.WaitForText("3 waiting")
	b.WaitUntil(`(await import('/live.js')).series.t.length > 0`)
	for _, k := range []string{"wait95", "run50"} {
		if !pagetest.Eval[bool](b, `const { series: s } = await import('/live.js'); return s.of[$0].some((v, i) => v !== null && s.t[i] < Date.now() / 1000 - 3)`, k) {
			t.Errorf("%s was not known before the page was opened", k)
		}
	}
	// known returns how many seconds the plot of waiting jobs goes back without a gap.
	known := func() float64 {
		return pagetest.Eval[float64](b, `const { series: s } = await import('/live.js');
			let i = s.t.length;
			while (i > 0 && s.of.queued[i - 1] === 3) i--;
			return i < s.t.length ? Date.now() / 1000 - s.t[i] : 0`)
	}
	if secondsAgo := known(); secondsAgo < 5 {
		t.Errorf("only the last %.1f s are known", secondsAgo)
	}
	hideScript := `Object.defineProperty(document, 'hidden', { configurable: true, get: () => $0 });
		document.dispatchEvent(new Event('visibilitychange'))`
	pagetest.Eval[any](b, hideScript, true)
	time.Sleep(20 * time.Second)
	pagetest.Eval[any](b, hideScript, false)
	for end := time.Now().Add(pagetest.WaitTimeout); known() < 25; time.Sleep(200 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("after a while hidden, only the last %.1f s are known", known())
		}
	}
	b.CheckPolicy()
}

// TestHiddenTabSendsNoRequests: a hidden tab sends no requests.
func TestHiddenTabSendsNoRequests(t *testing.T) {
	w, _ := startBusy(t)
	b := w.open("")
	b.WaitForText("Names with most jobs")
	pagetest.Eval[any](b, `Object.defineProperty(document, 'hidden', { get: () => window.hide ?? true });
		document.dispatchEvent(new Event('visibilitychange'))`)
	time.Sleep(time.Second) // requests in progress may still be counted
	before, _ := b.Traffic()
	time.Sleep(6 * time.Second)
	if after, _ := b.Traffic(); after != before {
		t.Errorf("a hidden tab has made %d requests", after-before)
	}
	pagetest.Eval[any](b, `window.hide = false; document.dispatchEvent(new Event('visibilitychange'))`)
	w.job(`{"name":"news","argument":{}}`)
	b.WaitForText("news")
}

// TestWholePageByKeyboard uses the whole page by keyboard.
func TestWholePageByKeyboard(t *testing.T) {
	w, ids := startBusy(t)
	b := w.open("")
	b.WaitForText("Names with most jobs")
	b.SendKeys("?")
	b.WaitForText("find a job by its id, or a name")
	b.SendKeys("\x1b")
	b.WaitUntil(`!document.querySelector('dialog')`)
	for i, name := range []string{"Overview", "Jobs", "Names", "Workers", "Constraints", "Schedules"} {
		b.SendKeys(fmt.Sprint(i + 1))
		b.WaitUntil(`document.querySelector('nav [aria-current]')?.innerText === $0`, name)
	}
	b.SendKeys("/")
	b.WaitUntil(`document.activeElement.id === 'find'`)
	b.SendKeys(ids["error"] + "\r")
	b.WaitForText("no such mailbox")
	b.SendKeys("/")
	b.WaitUntil(`document.activeElement.id === 'find'`)
	b.SendKeys("thumb")
	b.WaitForText("thumbnail")
	b.SendKeys("\r")
	b.WaitUntil(`location.hash.includes('glob')`)
	b.WaitForText("running")
	b.CheckPolicy()
}

// TestMissingScopeIsExplained: a user without the scope sees why, and gets no actions.
func TestMissingScopeIsExplained(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(file, []byte("secret-p push\nsecret-w push,work\nsecret-a admin\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	w := start(t, "--token-file", file)
	b := w.open("")
	b.Ignore("401 (Unauthorized)", "403 (Forbidden)")
	enter := func(token string) {
		t.Helper()
		b.Fill("token", token)
		b.ClickButton("Go in")
	}
	b.WaitForText("This master needs a token with the scope admin.")
	b.CheckAccessible("the door")
	enter("wrong")
	b.WaitForText("does not know this token")
	for _, token := range []string{"secret-p", "secret-w"} {
		enter(token)
		b.WaitForText("This token may not read this page")
		if pagetest.Eval[int](b, `return document.querySelectorAll('button').length`) != 1 {
			t.Errorf("a token that may not read the page is offered more:\n%s", b.Text())
		}
	}
	enter("secret-a")
	b.WaitForText("Everything is healthy")
	if pagetest.Eval[bool](b, `return JSON.stringify([localStorage, sessionStorage, document.cookie, location.href]).includes('secret')`) {
		t.Error("the token was kept")
	}
	b.CheckPolicy()
}

// hostile holds texts that do harm unless they are shown as plain text.
var hostile = []string{
	`<img src=x onerror="window.harm=1">`, `"><script>window.harm=2</script>`, `javascript:window.harm=3`, `'-alert(1)-'${window.harm=4}`,
	"\u202eturned", `../../v1/jobs?x=%2e%2e#/`, `</textarea></dialog><b>bold`, strings.Repeat("W", 190),
}

// TestHostileTextsAreShownAsText uses hostile texts wherever a pusher or a worker chooses the text.
func TestHostileTextsAreShownAsText(t *testing.T) {
	w := start(t)
	worker := ""
	var ids []string
	for i, text := range hostile {
		literal, _ := json.Marshal(text)
		worker = w.worker(text, 1, text)
		ids = append(ids, w.job(fmt.Sprintf(`{"name":%s,"argument":{%s:%s},"keep_result":true,"max_retry":0}`, literal, literal, literal)))
		id := w.take(worker, 1)[0]
		if i%2 == 0 {
			w.reportDone(worker, id, fmt.Sprintf(`{"type":"success","result":%s}`, literal))
		} else {
			w.reportDone(worker, id, fmt.Sprintf(`{"type":"failure","reason":"other","should_retry":false,"message":%s,"error":%s}`, literal, literal))
		}
		rule, _ := json.Marshal(map[string]any{"match": map[string]any{"field": "/argument/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(text), "op": "eq", "value": text}, "concurrency": 1})
		w.ask("PUT", "/v1/constraints/"+strings.NewReplacer("%", "%25", "/", "%2F", "?", "%3F", "#", "%23", "<", "%3C", ">", "%3E", `"`, "%22", " ", "%20", "\u202e", "%E2%80%AE").Replace(text), string(rule))
	}
	b := w.open("")
	harmless := func(place string) {
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
		b.GoTo("#/job/" + id)
		b.WaitUntil(`document.querySelector('pre')`)
		b.WaitForText(first, "run 1: ")
		harmless(hostile[i])
	}
	for _, route := range []string{"#/", "#/jobs", "#/names", "#/workers", "#/constraints"} {
		b.GoTo(route)
		b.WaitForText("onerror")
		harmless(route)
	}
	b.CheckAccessible("hostile")
	b.CheckPolicy()
}
