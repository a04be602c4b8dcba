package admin_test

import (
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"gloom/broker/settings"
)

// TestTokenFileGuardsAPI: with a token file, /v1 needs a token with the scope admin; health and
// metrics stay open.
func TestTokenFileGuardsAPI(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(file, []byte("root admin\nwork submit,work a*\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	w := start(t, func(o *settings.Options) { o.TokenFile = file })
	w.call("GET", "/v1/status", "", 401)
	w.token = "nobody"
	begin := time.Now()
	w.call("GET", "/v1/status", "", 401)
	if d := time.Since(begin); d < time.Second/2 {
		t.Errorf("a wrong token was refused after %v: guessing is not slowed", d)
	}
	if n := w.srv.Counts().UnauthorizedRequests; n != 2 {
		t.Errorf("%d missing or wrong tokens were counted, want 2", n)
	}
	w.token = "work"
	w.call("GET", "/v1/status", "", 403)
	w.call("POST", "/v1/drain", "", 403)
	w.token = "root"
	w.call("GET", "/v1/status", "", 200)
	w.call("POST", "/v1/types/x/pause", "", 200)
	w.token = ""
	w.call("GET", "/v1/status", "", 200, "Authorization", "bearer root") // the scheme's case does not matter
	for _, path := range []string{"/healthz", "/readyz", "/metrics"} {
		resp, err := http.Get(w.url + path)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Errorf("%s: %v %v", path, resp, err)
		}
	}
}
