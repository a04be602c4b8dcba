// Package browser tests the page of jobd-master in a real Chromium, with the real programs and a
// real table.
package browser

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"flag"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"gloom/bench/throwaway"
	"gloom/bench/throwaway/mariadbtest"
	"gloom/broker/page/pagetest"
)

var pictureDir = flag.String("shots", "", "directory for pictures of every view, light and dark, narrow and wide")

var (
	testDir  string          // for programs, configurations, and the files that say what rows do
	chromium context.Context // parent of the contexts of tabs
	server   *mariadbtest.Server
	db       *sql.DB
)

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(throwaway.Main(&testDir, func() (int, error) {
		for _, name := range []string{"jobd", "jobd-master"} {
			if _, err := throwaway.Build(testDir, name, false); err != nil {
				return 1, err
			}
		}
		var err error
		if server, err = mariadbtest.Start(mariadbtest.Options{}); err != nil {
			return 1, err
		}
		defer server.Close()
		if db, err = server.Open(""); err != nil {
			return 1, err
		}
		defer db.Close()
		if _, err := db.Exec("CREATE DATABASE app CHARACTER SET utf8mb4"); err != nil {
			return 1, err
		}
		// A file named for the row's id says what the row does.
		if err := os.WriteFile(filepath.Join(testDir, "do"), []byte("#!/bin/sh\n[ ! -f "+testDir+"/row-$1 ] || . "+testDir+"/row-$1\n"), 0o700); err != nil {
			return 1, err
		}
		ctx, end, err := pagetest.StartChromium()
		if err != nil {
			return 1, err
		}
		defer end()
		chromium = ctx
		return m.Run(), nil
	}))
}

const tableColumns = `
  id int(10) unsigned NOT NULL AUTO_INCREMENT PRIMARY KEY, target char(16) NOT NULL, time_created int(10) unsigned NOT NULL DEFAULT unix_timestamp(),
  time_started int(10) unsigned NOT NULL DEFAULT 0, time_finished int(10) unsigned NOT NULL DEFAULT 0,
  status enum('waiting','manual','accepted','running','done','ignored') NOT NULL DEFAULT 'waiting', result enum('ok','fail') DEFAULT NULL,
  return_code tinyint(3) unsigned DEFAULT NULL, sig char(10) DEFAULT NULL, stdout mediumtext, stderr mediumtext, recipient text, KEY status_target_idx (status, target, id)`

// world is a master with its own table.
type world struct {
	t      *testing.T
	master *throwaway.Daemon
	url    string
	table  string
}

func writeConfig(t *testing.T, lines ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "test.conf")
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func startDaemon(t *testing.T, name string, lines ...string) *throwaway.Daemon {
	t.Helper()
	d, err := throwaway.Start(exec.Command(filepath.Join(testDir, name), "--config", writeConfig(t, append([]string{"host = 127.0.0.1", "port = 0", "log_level_console = info"}, lines...)...)), name+" is ready")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Kill)
	return d
}

// start starts a master.
func start(t *testing.T, lines ...string) *world {
	t.Helper()
	w := &world{t: t, table: strings.ToLower(t.Name())}
	w.master = startDaemon(t, "jobd-master", append(lines, "http_addr = 127.0.0.1:0")...)
	w.url = "http://" + w.master.Field("http_addr")
	w.exec("CREATE TABLE app." + w.table + " (" + tableColumns + ")")
	t.Cleanup(func() { w.exec("DROP TABLE IF EXISTS app." + w.table + ", app." + w.table + "_claims") })
	return w
}

// startWorker starts a worker and waits until it is registered.
func (w *world) startWorker(name string, lines ...string) *throwaway.Daemon {
	w.t.Helper()
	host, port, _ := net.SplitHostPort(w.master.Field("addr"))
	d := startDaemon(w.t, "jobd", append([]string{"name = " + name, "master_host = " + host, "master_port = " + port, "mysql_host = 127.0.0.1", fmt.Sprintf("mysql_port = %d", server.Port()),
		"mysql_user = root", "mysql_password = ", "mysql_database = app", "mysql_table = " + w.table, "lease = 600", "shutdown_timeout = 0", "launcher = " + testDir + "/do {id}"}, lines...)...)
	if lines[len(lines)-1] != "[targets]" { // without targets it does not register
		if err := w.master.Log.Await("name=" + name); err != nil {
			w.t.Fatal(err)
		}
	}
	return d
}

func (w *world) exec(query string, args ...any) {
	w.t.Helper()
	if _, err := db.Exec(query, args...); err != nil {
		w.t.Fatalf("%.200s: %v", query, err)
	}
}

var lastID int

// addRow adds a row and returns its id.
func (w *world) addRow(target, status, run string) int {
	w.t.Helper()
	lastID++
	if err := os.WriteFile(filepath.Join(testDir, fmt.Sprint("row-", lastID)), []byte(run), 0o600); err != nil {
		w.t.Fatal(err)
	}
	w.exec("INSERT INTO app."+w.table+" (id, target, status, recipient) VALUES (?, ?, ?, ?)", lastID, target, status, fmt.Sprintf("user%d@example.org", lastID))
	return lastID
}

// waitUntil waits for a row's status.
func (w *world) waitUntil(id int, status string) {
	w.t.Helper()
	for end := time.Now().Add(pagetest.WaitTimeout); ; time.Sleep(30 * time.Millisecond) {
		var got string
		if err := db.QueryRow("SELECT status FROM app."+w.table+" WHERE id = ?", id).Scan(&got); err != nil {
			w.t.Fatal(err)
		}
		if got == status {
			return
		}
		if time.Now().After(end) {
			w.t.Fatalf("row %d stayed %s, want %s", id, got, status)
		}
	}
}

// sendRequest sends a request to a control port.
func sendRequest(t *testing.T, addr, typ string, data any) string {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	body, _ := json.Marshal(data)
	fmt.Fprintf(c, `[0,{"no":1,"type":%q,"data":%s}]`+"\x04", typ, body)
	_ = c.SetDeadline(time.Now().Add(pagetest.WaitTimeout))
	answer, err := bufio.NewReader(c).ReadString(4)
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

func (w *world) poke(targets ...string) {
	w.t.Helper()
	sendRequest(w.t, w.master.Field("addr"), "poke", map[string]any{"targets": targets})
}

// callHTTP sends a request to /v1, with headers.
func (w *world) callHTTP(method, path, body string, headers ...string) (int, string) {
	w.t.Helper()
	r, err := http.NewRequest(method, w.url+path, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		if r.Header.Set(headers[i], headers[i+1]); headers[i] == "Host" {
			r.Host = headers[i+1]
		}
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// openPage opens the page in its own browser profile.
func (w *world) openPage(route string) *pagetest.Tab {
	w.t.Helper()
	b := pagetest.NewTab(w.t, chromium, chromedp.WithNewBrowserContext())
	b.Visit(w.url + "/" + route)
	return b
}

// startBusyFleet returns a fleet with rows and workers in every state, and the ids of some rows.
func startBusyFleet(t *testing.T) (w *world, first *throwaway.Daemon, ids map[string]int) {
	t.Helper()
	w = start(t, "worker_timeout = 1")
	ids = map[string]int{}
	first = w.startWorker("web-1", "[targets]", "mail = 4", "report = 2", "1/high = 3")
	w.startWorker("web-2", "[targets]", "mail = 4", "pdf = 1")
	for range 5 {
		ids["ok"] = w.addRow("mail", "waiting", "echo sent to nobody; echo and a warning >&2")
	}
	ids["fail"] = w.addRow("mail", "waiting", "echo no such mailbox >&2; exit 3")
	ids["running"] = w.addRow("pdf", "waiting", "exec sleep 600")
	w.poke("mail", "pdf")
	for _, id := range []int{ids["ok"], ids["fail"]} {
		w.waitUntil(id, "done")
	}
	w.waitUntil(ids["running"], "running")
	for range 3 {
		w.addRow("pdf", "waiting", "")
	}
	ids["manual"] = w.addRow("mail", "manual", "echo by hand")
	w.addRow("mail", "manual", "exit 1")
	sendRequest(t, first.Field("addr"), "pause", map[string]any{"targets": []string{"report"}})
	for range 60 {
		w.addRow("report", "waiting", "")
	}
	for range 2 {
		ids["unserved"] = w.addRow("nobody", "waiting", "")
	}
	return w, first, ids
}

// shrinkPicture reduces a picture to its 256 most frequent colours, because pictures of a README must
// be small.
func shrinkPicture(t *testing.T, file string) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	from, err := png.Decode(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	pixelCounts := map[color.Color]int{}
	size := from.Bounds()
	for y := range size.Max.Y {
		for x := range size.Max.X {
			pixelCounts[from.At(x, y)]++
		}
	}
	colours := slices.SortedFunc(maps.Keys(pixelCounts), func(a, b color.Color) int { return cmp.Compare(pixelCounts[b], pixelCounts[a]) })
	to := image.NewPaletted(size, colours[:min(256, len(colours))])
	at := map[color.Color]uint8{}
	for y := range size.Max.Y {
		for x := range size.Max.X {
			c := from.At(x, y)
			if _, known := at[c]; !known {
				at[c] = uint8(to.Palette.Index(c))
			}
			to.SetColorIndex(x, y, at[c])
		}
	}
	var out bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&out, to); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, out.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}
