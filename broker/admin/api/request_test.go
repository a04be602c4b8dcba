package api_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"gloom/broker/admin/api"
)

// TestNameBecomesOneSegment: any name becomes one segment of a path, which no proxy or router
// cleans.
func TestNameBecomesOneSegment(t *testing.T) {
	for _, name := range []string{"mail", ".", "..", "...", "./..", "/", "//", "a/b", "%2E", "ÿ.", "~."} {
		s := api.Segment(name)
		u, err := url.Parse("http://x/v1/jobs/" + s + "/retry")
		if err != nil {
			t.Fatal(err)
		}
		if got := u.JoinPath().EscapedPath(); got != "/v1/jobs/"+s+"/retry" {
			t.Errorf("%q: the path became %s", name, got)
		}
		for _, s := range []string{s, url.PathEscape(name)} {
			mux, gotPath := http.NewServeMux(), ""
			mux.HandleFunc("/v1/jobs/{id}/retry", func(_ http.ResponseWriter, r *http.Request) { gotPath = api.Name(r.PathValue("id")) })
			r := httptest.NewRequest(http.MethodPost, "/v1/jobs/"+s+"/retry", nil)
			if mux.ServeHTTP(httptest.NewRecorder(), api.MarkSlashes(r)); gotPath != name && s != "." && s != ".." {
				t.Errorf("%q: %s is seen as %q", name, s, gotPath)
			}
		}
		unescaped, err := url.PathUnescape(s)
		if got := api.Name(unescaped); got != name || err != nil {
			t.Errorf("%q came back as %q, %v", name, got, err)
		}
	}
}
