package probe

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestScopesAllowTheirRequests: a token allows only requests of its scopes, for the types that it
// covers.
func TestScopesAllowTheirRequests(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "tokens")
	if err := os.WriteFile(file, []byte("s-secret submit acme-*\nh-secret handler\nr-secret read\na-secret admin\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	d := startIn(t, filepath.Join(dir, "data"), "--token-file="+file)
	handler := `{"lang":"http","body":"http://127.0.0.1:1/"}`
	for _, c := range []struct {
		name, token, method, path, body string
		status                          int
	}{
		{"none", "", "POST", "/acme/job/a/add", "x", 401},
		{"wrong", "frob", "POST", "/acme/job/a/add", "x", 401},
		{"submit may add", "s-secret", "POST", "/acme/job/a/add", "x", 200},
		{"submit, another client", "s-secret", "POST", "/other/job/a/add", "x", 403},
		{"submit may not add handlers", "s-secret", "POST", "/acme/handler/add/a", handler, 403},
		{"submit may not stop", "s-secret", "POST", "/stop", "", 403},
		{"handler may", "h-secret", "POST", "/acme/handler/add/a", handler, 200},
		{"handler may not add jobs", "h-secret", "POST", "/acme/job/a/add", "x", 403},
		{"read may", "r-secret", "GET", "/acme/state", "", 200},
		{"read may not add", "r-secret", "POST", "/acme/job/a/add", "x", 403},
		{"read may not see all", "r-secret", "GET", "/state", "", 403},
		{"admin sees all", "a-secret", "GET", "/state", "", 200},
		{"admin stops", "a-secret", "POST", "/stop", "", 200},
		{"health is open", "", "GET", "/healthz", "", 200},
	} {
		t.Run(c.name, func(t *testing.T) {
			headers := []string{"Content-Type: application/json"}
			if c.token != "" {
				headers = append(headers, "Authorization: Bearer "+c.token)
			}
			if r := d.ask(t, c.method, c.path, c.body, headers...); r.status != c.status {
				t.Errorf("%s, want %d", r, c.status)
			}
		})
	}
	d.headers = http.Header{"Authorization": {"Bearer a-secret"}}
}

// TestForeignPageChangesNothing: no web page of another site can change anything.
func TestForeignPageChangesNothing(t *testing.T) {
	d := sharedDaemon(t)
	client := freshClient()
	handler := `{"lang":"sh","body":"exit 0"}`
	for _, c := range []struct{ name, header string }{
		{"another origin", "Origin: https://evil.example"},
		{"cross-site", "Sec-Fetch-Site: cross-site"},
		{"a name that is not ours", "Host: evil.example"},
	} {
		for _, req := range []struct{ method, path, body string }{
			{"POST", "/" + client + "/job/a/add", "x"}, {"POST", "/" + client + "/handler/add/a", handler},
			{"DELETE", "/" + client + "/handler/del/a", ""}, {"POST", "/stop", ""}, {"GET", "/stop", ""}, {"POST", "/quit", ""}, {"GET", "/quit", ""},
		} {
			t.Run(c.name+" "+req.method+" "+req.path, func(t *testing.T) {
				if r := d.ask(t, req.method, req.path, req.body, c.header, "Content-Type: application/json"); r.status != 403 {
					t.Errorf("%s, want 403", r)
				}
			})
		}
	}
	t.Run("ours may", func(t *testing.T) {
		d.expect(t, 200, "POST", "/"+client+"/job/a/add", "x", "Sec-Fetch-Site: same-origin", "Origin: "+d.base)
	})
}

// TestOnlyAllowedLanguagesRun: code runs only if --langs allows its language.
func TestOnlyAllowedLanguagesRun(t *testing.T) {
	t.Parallel()
	d := start(t, "--langs=http,gloom")
	for _, lang := range []string{"sh", "node", "php", "python"} {
		d.expectError(t, 400, "invalid_lang", "POST", "/c/handler/add/a", `{"lang":"`+lang+`","body":"x"}`, "Content-Type: application/json", lang)
	}
}

// TestFilesArePrivate: no other user of the host can read the daemon's files.
func TestFilesArePrivate(t *testing.T) {
	d := sharedDaemon(t)
	d.expect(t, 200, "POST", "/"+freshClient()+"/job/a/add?wait=store", "x")
	err := filepath.WalkDir(d.dir, func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return nil
		}
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o077 != 0 && !strings.Contains(path, "contexts") {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// TestOptionErrorNamesOption: an error names the option that is invalid, and the program ends.
func TestOptionErrorNamesOption(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ flag, text string }{
		{"--addr=0.0.0.0:0", "addr"},
		{"--max-line=frob", "max-line"},
		{"--lock-ttl=-1s", "lock-ttl"},
		{"--store=frob:x", "store"},
		{"--langs=cobol", "langs"},
		{"--http-allow=10.0.0.0", "http-allow"},
		{"--frob", "frob"},
	} {
		t.Run(c.flag, func(t *testing.T) {
			d, err := launch(t.TempDir(), c.flag)
			if err == nil {
				_ = d.Stop()
				t.Fatal("it has started")
			}
			if code := d.State().ExitCode(); code != 2 || !strings.Contains(d.Log.String(), c.text) {
				t.Errorf("exit %d: %s", code, d.Log.String())
			}
		})
	}
	t.Run("a directory in use", func(t *testing.T) {
		first := start(t)
		d, err := launch(first.dir)
		if err == nil {
			_ = d.Stop()
			t.Fatal("it has started")
		}
		if code := d.State().ExitCode(); code != 1 {
			t.Errorf("exit %d: %s", code, d.Log.String())
		}
	})
}
