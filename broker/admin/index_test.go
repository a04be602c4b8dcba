package admin_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gloom/broker/settings"
)

// document requests the page, and returns it and the data embedded in it.
func (w *world) document() (text string, first map[string]any) {
	w.t.Helper()
	resp, err := http.Get(w.url + "/")
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK || resp.Header.Get("Cache-Control") != "no-store" || resp.Header.Get("Content-Security-Policy") == "" {
		w.t.Fatal(resp, err)
	}
	_, after, _ := bytes.Cut(data, []byte(`<template id="first">`))
	object, _, _ := bytes.Cut(after, []byte("</template>"))
	if err := json.Unmarshal(object, &first); err != nil {
		w.t.Fatalf("%v: %s", err, object)
	}
	return string(data), first
}

// TestDocumentHasFirstFigures: the page contains its first figures. If a token is needed, the page
// says only that, and a request without a token does not count as a refusal.
func TestDocumentHasFirstFigures(t *testing.T) {
	w := start(t, nil)
	const hostile = `</template><script>alert(1)</script>&lt;`
	w.call("POST", "/v1/jobs", `{"type":"`+hostile+`","body":1}`, 202)
	eventually(t, "the type in the document", func() bool {
		text, first := w.document()
		if strings.Contains(text, hostile) || strings.Count(text, "<script") != 1 {
			t.Fatalf("a name is more than text:\n%s", text)
		}
		top := first["look"].(map[string]any)["top"].([]any)
		return first["status"].(map[string]any)["version"] != "" && first["history"] != nil && len(top) == 1 && top[0].(map[string]any)["type"] == hostile
	})

	file := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(file, []byte("root admin\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	w = start(t, func(o *settings.Options) { o.TokenFile = file })
	if _, first := w.document(); len(first) != 1 || first["guarded"] != true {
		t.Errorf("a client without a token is told %v", first)
	}
	if n := w.srv.Counts().UnauthorizedRequests; n != 0 {
		t.Errorf("a visit is counted as %d wrong tokens", n)
	}
}
