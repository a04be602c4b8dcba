package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/goccy/go-json"
	"github.com/rogpeppe/go-internal/testscript"

	"gloom/bench/throwaway"
	"gloom/bench/throwaway/mariadbtest"
)

// ready holds the log lines of daemons that are ready.
var ready = map[string]string{"jq-master": "jq-master is ready", "serverlessd": "serverlessd is ready"}

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

// cmdJobd starts MariaDB with a table, a jobd-master and a jobd, and points GLOOM_DOOR at the master.
// launch.sh runs the rows; row 2 fails.
func cmdJobd(ts *testscript.TestScript, neg bool, args []string) {
	db, err := mariadbtest.Start(mariadbtest.Options{})
	ts.Check(err)
	ts.Defer(db.Close)
	ts.Setenv("SOCKET", db.Socket())
	ts.Check(query(db.Socket(), "CREATE DATABASE app"))
	table, err := os.ReadFile("../jobd/config/examples/jobs.sql")
	ts.Check(err)
	ts.Check(query(db.Socket(), "USE app; "+string(table)))
	ts.Check(os.WriteFile(ts.MkAbs("launch.sh"), []byte("[ $1 != 2 ] || { echo bad row >&2; exit 3; }; echo row $1\n"), 0o600))
	start := func(program, conf string) *throwaway.Daemon {
		path := ts.MkAbs(program + ".conf")
		ts.Check(os.WriteFile(path, []byte("host = 127.0.0.1\nport = 0\nlog_level_console = info\n"+conf), 0o600))
		cmd := exec.Command(filepath.Join(bin, program), "--config", path)
		cmd.Dir = ts.MkAbs(".")
		d, err := throwaway.Start(cmd, program+" is ready")
		ts.Check(err)
		ts.Defer(func() { ts.Check(d.Stop()) })
		return d
	}
	master := start("jobd-master", "http_addr = 127.0.0.1:0\npoke_throttle_interval = 0.1\n")
	_, port, _ := strings.Cut(master.Field("addr"), ":")
	c := db.Config("app")
	start("jobd", fmt.Sprintf("name = w1\nmaster_host = 127.0.0.1\nmaster_port = %s\nmysql_host = 127.0.0.1\nmysql_port = %d\n"+
		"mysql_user = %s\nmysql_password = \"%s\"\nmysql_database = app\nmysql_table = jobs\nlauncher = sh launch.sh {id}\n"+
		"[targets]\nlow = 2\nhigh = 1\n", port, db.Port(), c.User, c.Passwd))
	ts.Setenv("GLOOM_DOOR", master.Field("http_addr"))
}

func cmdSQL(ts *testscript.TestScript, neg bool, args []string) {
	ts.Check(query(ts.Getenv("SOCKET"), "USE app; "+args[0]))
}

// query runs statements as root.
func query(socket, text string) error {
	out, err := exec.Command("mariadb", "--no-defaults", "--socket="+socket, "-u", "root", "-e", text).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, out)
	}
	return err
}

// cmdPost sends a request to the door itself: post [-VAR FIELD] PATH [BODY]. The variable is set to
// the field of the answer; for "job_id", to the first such field at any depth. $WORKER is sent as
// worker-id.
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
	for key, headerValue := range map[string]string{"Worker-Id": ts.Getenv("WORKER"), "Authorization": ts.Getenv("BEARER")} {
		if headerValue != "" {
			req.Header.Set(key, headerValue)
		}
	}
	resp, err := (&http.Client{Timeout: patience}).Do(req)
	ts.Check(err)
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	ts.Check(err)
	if resp.StatusCode/100 != 2 {
		ts.Fatalf("%s: %s: %s", args[0], resp.Status, answer)
	}
	if name == "" {
		return
	}
	_, after, ok := strings.Cut(string(answer), fmt.Sprintf(`"%s":`, field))
	var value string
	if !ok || json.NewDecoder(strings.NewReader(strings.TrimPrefix(after, "["))).Decode(&value) != nil {
		ts.Fatalf("%s: no %s in %s", args[0], field, answer)
	}
	ts.Setenv(name, value)
}
