package main

import (
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/goccy/go-json"
	"github.com/rogpeppe/go-internal/testscript"

	"gloom/bench/throwaway"
)

// ready is what daemons say when they serve.
var ready = map[string]string{"jq-master": "jq-master serves"}

// cmdDoor starts a daemon on a free port, and points GLOOM_DOOR at it.
func cmdDoor(ts *testscript.TestScript, neg bool, args []string) {
	cmd := exec.Command(filepath.Join(bin, args[0]), append([]string{"--addr", "127.0.0.1:0"}, args[1:]...)...)
	cmd.Dir = ts.MkAbs(".")
	d, err := throwaway.Start(cmd, ready[args[0]])
	ts.Check(err)
	ts.Defer(func() { ts.Check(d.Stop()) })
	ts.Setenv("GLOOM_DOOR", d.Field("addr"))
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		resp, err := http.Get("http://" + d.Field("addr") + "/readyz")
		if err == nil && resp.Body.Close() == nil && resp.StatusCode == http.StatusOK {
			return
		}
		if time.Now().After(end) {
			ts.Fatalf("%s is not ready: %v", args[0], err)
		}
	}
}

// cmdPost asks the door itself: post [-VAR FIELD] PATH [BODY]. The variable gets the field of the
// answer; of "job_id" the first one wherever it stands. $WORKER is sent as worker-id.
func cmdPost(ts *testscript.TestScript, neg bool, args []string) {
	name, field := "", ""
	if strings.HasPrefix(args[0], "-") {
		name, field, args = args[0][1:], args[1], args[2:]
	}
	body := ""
	if len(args) > 1 {
		body = args[1]
	}
	req, err := http.NewRequest(http.MethodPost, "http://"+ts.Getenv("GLOOM_DOOR")+args[0], strings.NewReader(body))
	ts.Check(err)
	if strings.HasPrefix(body, "{") {
		req.Header.Set("Content-Type", "application/json")
	}
	req.Header.Set("Accept", "application/json")
	for key, of := range map[string]string{"Worker-Id": ts.Getenv("WORKER"), "Authorization": ts.Getenv("BEARER")} {
		if of != "" {
			req.Header.Set(key, of)
		}
	}
	resp, err := (&http.Client{Timeout: patience}).Do(req)
	ts.Check(err)
	defer resp.Body.Close()
	said, err := io.ReadAll(resp.Body)
	ts.Check(err)
	if resp.StatusCode/100 != 2 {
		ts.Fatalf("%s: %s: %s", args[0], resp.Status, said)
	}
	if name == "" {
		return
	}
	_, after, ok := strings.Cut(string(said), fmt.Sprintf(`"%s":`, field))
	var value string
	if !ok || json.NewDecoder(strings.NewReader(strings.TrimPrefix(after, "["))).Decode(&value) != nil {
		ts.Fatalf("%s: no %s in %s", args[0], field, said)
	}
	ts.Setenv(name, value)
}
