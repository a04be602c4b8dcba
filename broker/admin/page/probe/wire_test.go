package probe

import (
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/network"
)

// request asks the broker over plain HTTP, with headers in pairs.
func (b *broker) request(method, path string, headers ...string) (*http.Response, string) {
	b.t.Helper()
	req, err := http.NewRequest(method, "http://"+b.http+path, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Host" {
			req.Host = headers[i+1]
		}
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		b.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return resp, string(body)
}

// TestPoliciesSentToBrowsers reads the policies that the page sends to browsers.
func TestPoliciesSentToBrowsers(t *testing.T) {
	t.Parallel()
	b := start(t)
	resp, html := b.request("GET", "/")
	policy := map[string]string{}
	for _, d := range strings.Split(resp.Header.Get("Content-Security-Policy"), ";") {
		name, value, _ := strings.Cut(strings.TrimSpace(d), " ")
		policy[name] = value
	}
	if policy["default-src"] != "'self'" && policy["default-src"] != "'none'" {
		t.Errorf("default-src is %q", policy["default-src"])
	}
	if policy["frame-ancestors"] != "'none'" {
		t.Errorf("frame-ancestors is %q", policy["frame-ancestors"])
	}
	for name, value := range policy {
		if strings.Contains(value, "unsafe") || strings.Contains(value, "*") || strings.Contains(value, "http") {
			t.Errorf("%s is %q", name, value)
		}
	}
	if got := resp.Header.Get("X-Content-Type-Options"); got != "nosniff" {
		t.Errorf("X-Content-Type-Options is %q", got)
	}
	for _, pattern := range []string{`(?i)<script[^>]*>[^<\s]`, `(?i)\son[a-z]+\s*=`, `(?i)\sstyle\s*=`, `(?i)<style`, `(?i)(src|href)\s*=\s*["']?(https?:)?//`} {
		if found := regexp.MustCompile(pattern).FindString(html); found != "" {
			t.Errorf("the page has %q", found)
		}
	}
	for _, c := range []struct {
		name, method, path string
		headers            []string
	}{
		{"a change from another site", "POST", "/v1/types/a/pause", []string{"Origin", "http://evil.example"}},
		{"a change from another site, as newer browsers report it", "POST", "/v1/types/a/pause", []string{"Sec-Fetch-Site", "cross-site"}},
		{"a change under another name", "POST", "/v1/types/a/pause", []string{"Host", "evil.example"}},
		{"a look under another name", "GET", "/v1/status", []string{"Host", "evil.example"}},
		{"a look at the events under another name", "GET", "/v1/events", []string{"Host", "evil.example"}},
	} {
		if resp, body := b.request(c.method, c.path, c.headers...); resp.StatusCode/100 != 4 {
			t.Errorf("%s is answered by %s: %.200s", c.name, resp.Status, body)
		}
	}
	if _, v := b.callAPI("GET", "/v1/types/a", ""); v["paused"] == true {
		t.Error("another site has paused a type")
	}
}

// TestBytesOfColdLoad counts the bytes of a cold load.
func TestBytesOfColdLoad(t *testing.T) {
	t.Parallel()
	b := startBusyBroker(t)
	way := newCable(t, b.http)
	p := newPageUser(t)
	p.goTo("http://" + way.addr + "/")
	p.await("heading", "wrong")
	p.awaitText("jobs per second")
	requests, bytes := p.Traffic()
	t.Logf("a cold load takes %.1f kB in %d requests; %.1f kB have come with the events by now", bytes/1000, requests, float64(way.bytes.Load())/1000)
	if bytes == 0 || bytes > 70_000 {
		t.Errorf("a cold load takes %.1f kB", bytes/1000)
	}
}

// TestForbiddenScript tries to run a script that the policy forbids.
func TestForbiddenScript(t *testing.T) {
	t.Parallel()
	b := startBusyBroker(t)
	p := newPageUser(t)
	p.Ignore("Content Security Policy")
	p.goTo(b.url(""))
	p.await("heading", "wrong")
	p.checkView("overview")
	ran := eval[bool](p, `
		const add = (tag, set) => { const e = document.createElement(tag); set(e); document.body.append(e) };
		add('script', e => e.textContent = 'window.pwned = 1');
		add('script', e => e.src = 'data:text/javascript,window.pwned=1');
		add('div', e => e.innerHTML = '<img src=data:, onerror="window.pwned=1"><svg onload="window.pwned=1"></svg>');
		add('iframe', e => e.srcdoc = '<script>parent.pwned=1</script>');
		await new Promise(r => setTimeout(r, 300));
		return 'pwned' in window`)
	if ran {
		t.Error("an inline script ran")
	}
	if len(p.violations()) < 2 {
		t.Errorf("the policy stopped only %v", p.violations())
	}
}

// TestSlowNetwork loads the page over a slow line: before the data has arrived, the page makes
// no claims, such as that all is well.
func TestSlowNetwork(t *testing.T) {
	skipInShort(t)
	t.Parallel()
	b := startBusyBroker(t)
	p := newPageUser(t)
	runCommand(p, network.EmulateNetworkConditionsByRule, network.EmulateNetworkConditionsByRuleParams{
		MatchedNetworkConditions: []*network.Conditions{{Latency: 400, DownloadThroughput: 40_000, UploadThroughput: 20_000}},
	})
	for _, v := range []struct{ name, route, knownText string }{
		{"overview", "", "no worker serves"}, {"workers", "#/workers", "mailer/1"}, {"dead letters", "#/dead/broken", "mailbox is full"},
		{"jobs", "#/jobs", "mail-7"}, {"type", "#/type/mail", "mail-7"}, {"job", "#/job/mail-9", "Why it waits"},
	} {
		p.goTo("about:blank")
		go p.startGoingTo(b.url(v.route))
		p.waitUntil(v.name+": "+v.knownText, func() bool {
			text := p.textNow()
			for _, falseText := range []string{"Everything is healthy", "0 waiting", "No job", "No worker", "nothing is waiting", "None is kept", "no such"} {
				if strings.Contains(text, falseText) {
					t.Errorf("%s: before it knows, it says %q:\n%s", v.name, falseText, text)
					return true
				}
			}
			return strings.Contains(text, v.knownText)
		})
	}
	p.goTo(b.url("#/"))
	p.await("heading", "wrong")
}

// TestHiddenTabSendsNoRequests: a hidden tab sends no requests.
func TestHiddenTabSendsNoRequests(t *testing.T) {
	skipInShort(t)
	t.Parallel()
	b := startBusyBroker(t)
	way := newCable(t, b.http)
	p := newPageUser(t)
	p.goTo("http://" + way.addr + "/")
	p.await("heading", "wrong")
	show := func(state string) {
		eval[any](p, `Object.defineProperty(document, 'visibilityState', { value: '`+state+`', configurable: true });
			Object.defineProperty(document, 'hidden', { value: document.visibilityState === 'hidden', configurable: true });
			document.dispatchEvent(new Event('visibilitychange'))`)
	}
	// isQuiet reports whether no byte arrives for four intervals of events.
	isQuiet := func() bool {
		before := way.bytes.Load()
		time.Sleep(4 * time.Second)
		return way.bytes.Load() == before
	}
	if isQuiet() {
		t.Fatal("nothing comes to a tab that is seen")
	}
	show("hidden")
	p.waitUntil("nothing that comes to a tab out of sight", isQuiet)
	b.submitAcked(mailJobs(5)...)
	show("visible")
	p.awaitText("16 waiting")
}
