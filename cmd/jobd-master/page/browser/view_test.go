package browser

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gloom/broker/page/pagetest"
)

// TestEveryViewInEveryTheme checks every view in both themes and several widths, then visits them
// by keyboard.
func TestEveryViewInEveryTheme(t *testing.T) {
	w, _, ids := startBusyFleet(t)
	b := w.openPage("")
	b.Ignore("404 (Not Found)") // for the row and the target that do not exist
	pdf := fmt.Sprintf("#/row/pdf/%d", ids["running"])
	for i, v := range []struct {
		route string
		texts []string
	}{
		{"#/", []string{"One thing is wrong", "2 rows are waiting, and no worker serves it", "is paused, and 60 rows are waiting", "rows are waiting to be run by hand", "Does it keep up?", "Busiest targets"}},
		{"#/targets", []string{"report", "paused", "nobody", "no worker", "5 targets"}},
		{"#/targets?part=hig", []string{"1/high", "1 target"}},
		{"#/workers", []string{"web-1", "web-2", "1/high", "2 workers"}},
		{"#/target/mail", []string{"web-1", "web-2", "of 8", "No rows of mail have this status.", "by hand 2"}},
		{"#/target/mail?status=done", []string{"done", "failed", "Look again"}},
		{"#/target/mail?status=fail", []string{"failed", "3"}},
		{"#/target/mail?status=manual", []string{"manual"}},
		{"#/target/report", []string{"is paused, and 60 rows are waiting", "Resume", "More"}},
		{"#/target/nobody", []string{"no worker serves it", "waiting 2", "Poke"}},
		{"#/target/nosuch", []string{"No worker serves this target"}},
		{fmt.Sprintf("#/row/mail/%d", ids["fail"]), []string{"no such mailbox", "Exit code", "Its own columns", fmt.Sprintf("user%d@example.org", ids["fail"])}},
		{fmt.Sprintf("#/row/mail/%d", ids["ok"]), []string{"sent to nobody", "and a warning", "15 B"}},
		{pdf, []string{"running", "Its output is written when it has ended."}},
		{"#/row/mail/999999", []string{"There is no such row"}},
		{fmt.Sprintf("#/row/nobody/%d", ids["unserved"]), []string{"waiting"}},
		{"#/nosuch", []string{"There is no such view"}},
	} {
		b.GoTo(v.route)
		b.WaitForText(v.texts...)
		widths := []int64{320, 1280}
		if i < 4 {
			widths = []int64{320, 390, 1280}
		}
		b.CheckView(v.route, *pictureDir, widths...)
	}
	b.SetTheme("light")
	b.GoTo("#/")
	b.SendKeys("?")
	b.WaitForText("find a row by its id, or a target")
	b.SendKeys("\x1b")
	b.WaitUntil(`!document.querySelector('dialog')`)
	for i, name := range []string{"Overview", "Targets", "Workers"} {
		b.SendKeys(fmt.Sprint(i + 1))
		b.WaitUntil(`document.querySelector('nav [aria-current]')?.innerText.startsWith($0)`, name)
	}
	find := func(name string) {
		t.Helper()
		b.SendKeys("/")
		b.WaitUntil(`document.activeElement.id === 'find'`)
		b.SendKeys(name)
	}
	find(fmt.Sprint(ids["fail"], "\r"))
	b.WaitForText("no such mailbox")
	find("hig")
	b.WaitUntil(`[...document.querySelectorAll('#hits li')].some(e => e.innerText.includes('1/high'))`)
	b.SendKeys("\r")
	b.WaitUntil(`location.hash === '#/target/1%2Fhigh'`)
	// The view of a running row shows when the row ends.
	b.GoTo(pdf)
	b.WaitForText("running")
	w.exec("UPDATE app."+w.table+" SET status = 'done', result = 'ok', return_code = 0, stdout = 'at last', time_finished = unix_timestamp() WHERE id = ?", ids["running"])
	b.WaitForText("at last")
	b.CheckPolicy()
}

// TestPictureOfReadme takes the picture of the README, and counts the requests of a first visit.
func TestPictureOfReadme(t *testing.T) {
	w := start(t)
	w.startWorker("web-1", "[targets]", "mail = 6", "thumbnail = 3")
	w.startWorker("web-2", "[targets]", "mail = 6", "invoice = 2", "report = 2")
	pagetest.FirstVisit(t, chromium, w.url+"/", "Everything is healthy", "Does it keep up?", "Busiest targets")

	b := w.openPage("")
	b.SetTheme("light")
	b.SetSize(1000, 700)
	span := 2 * time.Second
	if *pictureDir != "" {
		span = 60 * time.Second
	}
	w.exec("INSERT INTO app." + w.table + " (id, target, time_created) SELECT 100000 + seq, 'archive', unix_timestamp() - 240 FROM app.seq_1_to_3")
	for i, end := 0, time.Now().Add(span); time.Now().Before(end); i++ {
		for k := range 2 + (i/25)%3*2 {
			w.addRow([]string{"mail", "mail", "thumbnail", "report"}[k%4], "waiting", "sleep 0.2")
		}
		if i%8 == 3 {
			w.addRow("invoice", "waiting", "exit 1")
		}
		w.poke("mail", "thumbnail", "report", "invoice")
		time.Sleep(250 * time.Millisecond)
	}
	b.WaitForText("archive", "3 rows are waiting, and no worker serves it")
	if *pictureDir != "" {
		file := filepath.Join(*pictureDir, "readme-jobd.png")
		b.Screenshot(file)
		shrinkPicture(t, file)
		if at, err := os.Stat(file); err != nil || at.Size() > 60_000 {
			t.Errorf("the picture has more than 60 kB: %v", err)
		}
	}
	b.CheckPolicy()
}

// TestChangesShowWithoutReload: changes are shown without a reload, hidden tabs send no requests,
// and the page says when the master does not answer.
func TestChangesShowWithoutReload(t *testing.T) {
	w := start(t)
	b := w.openPage("")
	b.WaitForText("One thing is wrong", "no worker is registered", "There is no target.")
	b.CheckAccessible("empty")
	d := w.startWorker("one", "[targets]", "mail = 1")
	b.WaitForText("Everything is healthy")
	w.addRow("mail", "waiting", "exec sleep 600")
	w.addRow("mail", "waiting", "")
	w.poke("mail")
	b.WaitForText("its only slot is taken, and 1 row is waiting")
	pagetest.Eval[any](b, `Object.defineProperty(document, 'hidden', { get: () => window.hide ?? true });
		document.dispatchEvent(new Event('visibilitychange'))`)
	time.Sleep(time.Second) // requests that are in progress may end
	before, _ := b.Traffic()
	time.Sleep(5 * time.Second)
	if after, _ := b.Traffic(); after != before {
		t.Errorf("a hidden tab has made %d requests", after-before)
	}
	d.Kill()
	pagetest.Eval[any](b, `window.hide = false; document.dispatchEvent(new Event('visibilitychange'))`)
	b.WaitForText("no worker is registered", "its last worker left")
	b.Ignore("net::ERR", "Failed to fetch")
	w.master.Kill()
	b.WaitForText("The master does not answer", "Not known: the master is away")
	b.CheckPolicy()
}

// TestPageAsksForPassword: if the master has a password, the page asks for it. Visitors from the
// master's own host do not need it if the configuration says so.
func TestPageAsksForPassword(t *testing.T) {
	w := start(t, "password = open sesame # not this")
	b := w.openPage("")
	b.Ignore("401 (Unauthorized)")
	b.WaitForText("This master needs a token with the scope admin: the password of the master.")
	b.CheckAccessible("the door")
	b.Fill("token", "wrong")
	b.ClickButton("Go in")
	b.WaitForText("does not know this token")
	b.Fill("token", "open sesame")
	b.ClickButton("Go in")
	b.WaitForText("no worker is registered")
	if pagetest.Eval[bool](b, `return JSON.stringify([localStorage, sessionStorage, document.cookie, location.href]).includes('sesame')`) {
		t.Error("the password was kept")
	}
	b.CheckPolicy()
	b = (&world{t: t, url: "http://" + startDaemon(t, "jobd-master", "password = open sesame", "always_allow_localhost = 1", "http_addr = 127.0.0.1:0").Field("http_addr")}).openPage("")
	b.WaitForText("no worker is registered")
}

// hostileTargets holds targets that do harm unless they are shown as plain text. A target has at most 16
// characters.
var hostileTargets = []string{`<img src=x>`, `"><b>bold`, `${alert(1)}`, "\u202eturned", `../v1/x?y#z`, `..`, `%2e%2e%2f`, `javascript:x`, strings.Repeat("W", 16)}

// TestHostileTextsAreShownAsText uses hostile texts everywhere where other people choose the text.
func TestHostileTextsAreShownAsText(t *testing.T) {
	w := start(t)
	const harm = `<img src=x onerror="window.harm=1"></pre><script>window.harm=2</script><b>bold`
	d := w.startWorker(`<script>harm=3</script>"><b>x`, "[targets]")
	var ids []int
	for _, target := range hostileTargets {
		sendRequest(t, d.Field("addr"), "add-target", map[string]any{"target": target, "concurrency": 1})
		ids = append(ids, w.addRow(target, "waiting", "cat <<'END'\n"+harm+"\nEND\ncat "+testDir+"/row-$1 >&2; exit 1"))
		w.addRow(target, "manual", "")
	}
	w.exec("UPDATE app."+w.table+" SET recipient = ?", harm)
	w.poke(hostileTargets...)
	for _, id := range ids {
		w.waitUntil(id, "done")
	}
	b := w.openPage("#/targets")
	harmless := func(place string) {
		t.Helper()
		if pagetest.Eval[bool](b, `return 'harm' in window || document.querySelector('main script, main img, main b b') !== null`) {
			t.Errorf("%s did harm", place)
		}
		b.CheckFits(320)
	}
	for i, target := range hostileTargets {
		b.GoTo("#/targets")
		b.WaitUntil(`[...document.querySelectorAll('main td a.name')].length > 8`)
		pagetest.Eval[any](b, `[...document.querySelectorAll('main td a.name')].find(a => decodeURIComponent(a.getAttribute('href')) === '#/target/' + $0).click()`, target)
		b.WaitForText("by hand 1")
		harmless(target)
		b.GoTo(pagetest.Eval[string](b, `return '#/row/' + encodeURIComponent($0) + '/' + $1`, target, ids[i]))
		b.WaitForText("onerror", "Exit code")
		harmless(target)
	}
	for route, texts := range map[string]string{"#/": "run by hand", "#/workers": "<script>"} {
		b.GoTo(route)
		b.WaitForText(texts)
		harmless(route)
	}
	b.CheckAccessible("hostile")
	b.CheckPolicy()
}
