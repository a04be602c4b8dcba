package page_test

import (
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"gloom/broker/admin/page"
)

func get(method, path string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, nil)
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	page.ServeHTTP(w, r)
	return w
}

// uncommented empties the lines of a script that are comments and nothing else.
func uncommented(script []byte) []byte {
	lines := strings.Split(string(script), "\n")
	within := false
	for i, line := range lines {
		text := strings.TrimSpace(line)
		begins := strings.HasPrefix(text, "/**")
		_, code, ends := strings.Cut(text, "*/")
		if strings.HasPrefix(text, "//") || (within || begins) && code == "" {
			lines[i] = ""
		}
		within = (within || begins) && !ends
	}
	return []byte(strings.Join(lines, "\n"))
}

// TestFiles: each file of the page is served, small for who can unpack it, once
// for who has it, and under a policy that lets in nothing foreign.
func TestFiles(t *testing.T) {
	var files []string
	for _, pattern := range []string{"*.html", "*.css", "*.js", "*.svg", "view/*.js", "lib/*"} {
		some, err := filepath.Glob(pattern)
		if err != nil || len(some) == 0 {
			t.Fatalf("%s: %v, %v", pattern, some, err)
		}
		files = append(files, slices.DeleteFunc(some, func(name string) bool { return name == "lib/VERSIONS" })...)
	}
	sum := 0
	for _, name := range files {
		plain := get("GET", "/"+name)
		want, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if filepath.Ext(name) == ".js" && filepath.Dir(name) != "lib" {
			want = uncommented(want)
		}
		if plain.Code != http.StatusOK || plain.Body.String() != string(want) {
			t.Errorf("%s: status %d, %d bytes, want %d", name, plain.Code, plain.Body.Len(), len(want))
		}
		for key, want := range map[string]string{
			"Content-Security-Policy": "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
			"X-Content-Type-Options":  "nosniff", "Cache-Control": "no-cache", "Referrer-Policy": "no-referrer",
		} {
			if slices.Contains([]string{"Content-Security-Policy", "Referrer-Policy"}, key) && name != "index.html" && name != "worker.js" {
				continue
			}
			if got := plain.Header().Get(key); got != want {
				t.Errorf("%s: %s is %q", name, key, got)
			}
		}
		small := get("GET", "/"+name, "Accept-Encoding", "br, gzip")
		z, err := gzip.NewReader(small.Body)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if !strings.HasSuffix(name, "LICENSE") {
			sum += small.Body.Len()
		}
		if data, err := io.ReadAll(z); err != nil || string(data) != string(want) {
			t.Errorf("%s: with gzip %d bytes, %v", name, len(data), err)
		}
		tag := small.Header().Get("ETag")
		if tag == plain.Header().Get("ETag") || get("GET", "/"+name, "Accept-Encoding", "gzip", "If-None-Match", tag).Code != http.StatusNotModified {
			t.Errorf("%s: the tag %s", name, tag)
		}
	}
	if sum > 80_000 { // a first visit takes less: views come when they are looked at
		t.Errorf("the page has %d bytes with gzip, more than 80 kB", sum)
	}
	t.Logf("%d files, %d bytes with gzip", len(files), sum)
	for path, want := range map[string]int{"/nosuch": 404, "/page.go": 404, "/lib/": 404, "/../page.go": 404} {
		if got := get("GET", path).Code; got != want {
			t.Errorf("%s: status %d, want %d", path, got, want)
		}
	}
	if got := get("POST", "/index.html").Code; got != http.StatusMethodNotAllowed {
		t.Errorf("POST: status %d", got)
	}
}

// TestStrict: nothing is inline, and nothing comes from elsewhere.
func TestStrict(t *testing.T) {
	index, err := os.ReadFile("index.html")
	if err != nil {
		t.Fatal(err)
	}
	for _, no := range []string{"<style", "style=", "onload", "onclick", "http:", "https:", "javascript:", "<script>"} {
		if strings.Contains(string(index), no) {
			t.Errorf("index.html has %s", no)
		}
	}
	ours, _ := filepath.Glob("*.js")
	views, _ := filepath.Glob("view/*.js")
	for _, name := range append(ours, views...) {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, no := range []string{"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function", "dangerouslySetInnerHTML", "localStorage", "sessionStorage", "document.cookie", "https://"} {
			if strings.Contains(string(data), no) {
				t.Errorf("%s has %s", name, no)
			}
		}
	}
}

// TestPreload: what the first view needs is asked for at once, and nothing else.
func TestPreload(t *testing.T) {
	imports := regexp.MustCompile(`(?m)^(?:import|export) .*from '(.+)';$`)
	need := map[string]bool{}
	var walk func(name string)
	walk = func(name string) {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range imports.FindAllSubmatch(data, -1) {
			if dep := path.Join(path.Dir(name), string(m[1])); !need[dep] {
				need[dep] = true
				walk(dep)
			}
		}
	}
	walk("app.js")
	index, err := os.ReadFile("index.html")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`rel="modulepreload" href="(.+)"`).FindAllSubmatch(index, -1) {
		if !need[string(m[1])] {
			t.Errorf("index.html preloads %s, which app.js does not import", m[1])
		}
		delete(need, string(m[1]))
	}
	for name := range need {
		t.Errorf("index.html does not preload %s", name)
	}
}
