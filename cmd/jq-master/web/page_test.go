package web

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"gloom/cmd/jq-master/page"
)

// TestPageMetrics: the metrics count requests for files of the page by status.
func TestPageMetrics(t *testing.T) {
	getTag := func(tag string) (status int, got string) {
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodGet, "/style.css", nil)
		r.Header.Set("If-None-Match", tag)
		x := &exchange{w: w, r: r}
		status, err := plainOperations(page.Site.ServeHTTP)[http.MethodGet].serve(x)
		if err != nil || x.status != w.Code {
			t.Errorf("%v; %d is counted, %d was sent", err, x.status, w.Code)
		}
		return status, w.Header().Get("ETag")
	}
	status, tag := getTag("")
	if status != http.StatusOK || tag == "" {
		t.Errorf("%d, tag %s", status, tag)
	}
	if status, _ = getTag(tag); status != http.StatusNotModified {
		t.Errorf("again: %d", status)
	}
}
