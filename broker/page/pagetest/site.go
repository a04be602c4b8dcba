package pagetest

import (
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"gloom/broker/page"
)

// Get sends a request for a file of a page, and returns the reply.
func Get(site *page.Site, method, path string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, nil)
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	site.ServeHTTP(w, r)
	return w
}

const wantPolicy = "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// maxPageBytes bounds the compressed size of a page. A first visit loads less, because other views
// are loaded when they are opened.
const maxPageBytes = 80_000

// CheckSite fails unless every file of a page is served unchanged, compressed if the client accepts
// that, with 304 to clients that have it, and under a policy that admits nothing from other
// hosts. It also fails if a script of ours could turn text into code.
func CheckSite(t *testing.T, site *page.Site) {
	t.Helper()
	sum := 0
	for _, name := range site.Paths() {
		body := Get(site, "GET", name)
		if body.Code != http.StatusOK {
			t.Errorf("%s: status %d", name, body.Code)
		}
		for key, want := range map[string]string{
			"Content-Security-Policy": wantPolicy, "X-Content-Type-Options": "nosniff", "Cache-Control": "no-cache", "Referrer-Policy": "no-referrer",
		} {
			if slices.Contains([]string{"Content-Security-Policy", "Referrer-Policy"}, key) && name != "/index.html" && name != "/worker.js" {
				continue
			}
			if got := body.Header().Get(key); got != want {
				t.Errorf("%s: %s is %q", name, key, got)
			}
		}
		compressed := Get(site, "GET", name, "Accept-Encoding", "br, gzip")
		z, err := gzip.NewReader(compressed.Body)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if !strings.HasSuffix(name, "LICENSE") {
			sum += compressed.Body.Len()
		}
		if data, err := io.ReadAll(z); err != nil || string(data) != body.Body.String() {
			t.Errorf("%s: with gzip %d bytes, %v", name, len(data), err)
		}
		tag := compressed.Header().Get("ETag")
		if tag == body.Header().Get("ETag") || Get(site, "GET", name, "Accept-Encoding", "gzip", "If-None-Match", tag).Code != http.StatusNotModified {
			t.Errorf("%s: the tag %s", name, tag)
		}
		if path.Dir(name) != "/lib" {
			checkNoInlineCode(t, name, body.Body.String())
		}
	}
	if sum > maxPageBytes {
		t.Errorf("the page has %d bytes with gzip, more than %d", sum, maxPageBytes)
	}
	t.Logf("%d files, %d bytes with gzip", len(site.Paths()), sum)
	checkPreloads(t, site)
	for path, want := range map[string]int{"/nosuch": 404, "/page.go": 404, "/lib/": 404, "/../page.go": 404, "/lib/VERSIONS": 404} {
		if got := Get(site, "GET", path).Code; got != want {
			t.Errorf("%s: status %d, want %d", path, got, want)
		}
	}
	if got := Get(site, "POST", "/index.html").Code; got != http.StatusMethodNotAllowed {
		t.Errorf("POST: status %d", got)
	}
}

// checkNoInlineCode fails if a file has inline code or style, or loads something from another host.
func checkNoInlineCode(t *testing.T, name, text string) {
	t.Helper()
	var findings []string
	switch path.Ext(name) {
	case ".html":
		findings = []string{"<style", "style=", "onload", "onclick", "http:", "https:", "javascript:", "<script>"}
	case ".js":
		findings = []string{"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function", "dangerouslySetInnerHTML", "localStorage", "sessionStorage", "document.cookie", "https://"}
	}
	for _, pattern := range findings {
		if strings.Contains(text, pattern) {
			t.Errorf("%s has %s", name, pattern)
		}
	}
}

var (
	importPattern   = regexp.MustCompile(`(?m)^(?:import|export) .*from '(.+)';$`)
	preloadPattern  = regexp.MustCompile(`rel="modulepreload" href="(.+)"`)
	templatePattern = regexp.MustCompile(`\{[a-z]+\}`)
)

// checkPreloads fails unless index.html preloads exactly the files that the first view needs.
func checkPreloads(t *testing.T, site *page.Site) {
	t.Helper()
	required := map[string]bool{}
	var walk func(name string)
	walk = func(name string) {
		script := Get(site, "GET", name)
		if script.Code != http.StatusOK {
			t.Errorf("there is no %s, which a script imports", name)
		}
		for _, m := range importPattern.FindAllStringSubmatch(script.Body.String(), -1) {
			if dep := path.Join(path.Dir(name), m[1]); !required[dep] {
				required[dep] = true
				walk(dep)
			}
		}
	}
	walk("/app.js")
	index := Get(site, "GET", "/index.html").Body.String()
	for _, m := range preloadPattern.FindAllStringSubmatch(index, -1) {
		if !required["/"+m[1]] {
			t.Errorf("index.html preloads %s, which app.js does not import", m[1])
		}
		delete(required, "/"+m[1])
	}
	for name := range required {
		t.Errorf("index.html does not preload %s", name)
	}
	if placeholder := templatePattern.FindString(index); placeholder != "" {
		t.Errorf("index.html still has %s", placeholder)
	}
}
