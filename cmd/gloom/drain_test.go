package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
)

// TestDrainReplaced: a drained broker counts as gone, even if another broker answers at its address
// before the first check.
func TestDrainReplaced(t *testing.T) {
	var looks atomic.Int32
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		answer := `{"draining":true,"ledger":{"running":1}}`
		switch {
		case r.Method == http.MethodPost:
			w.WriteHeader(http.StatusAccepted)
			answer = `{"draining":true}`
		case r.URL.Path == "/v1/status" && looks.Add(1) > 1:
			answer = `{"draining":false}`
		}
		_, _ = w.Write([]byte(answer))
	}))
	t.Cleanup(srv.Close)
	ctx, stop := context.WithTimeout(t.Context(), patience)
	defer stop()
	cmd := exec.CommandContext(ctx, filepath.Join(bin, "gloom"), "drain", "--wait")
	cmd.Env = append(os.Environ(), "HOME="+t.TempDir(), "GLOOM_HTTP_ADDR="+strings.TrimPrefix(srv.URL, "http://"))
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "1 running") || !strings.HasSuffix(string(out), "the broker has stopped, and another one is running at its address\n") {
		t.Errorf("%v\n%s", err, out)
	}
}
