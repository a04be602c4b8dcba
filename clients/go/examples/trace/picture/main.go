// Command picture makes trace.png: it runs the example, collects the spans of the example's
// programs, and takes a screenshot of the spans in Go's own trace viewer (as in go tool trace).
//
//	cd clients/go/examples/trace && go run ./picture
package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

func main() {
	dir, err := os.MkdirTemp("", "trace")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	answer, all, err := run(dir)
	if err == nil {
		fmt.Println(answer)
		err = draw(dir, all, "trace.png")
	}
	if err != nil {
		log.Print(err)
		os.RemoveAll(dir)
		os.Exit(1)
	}
}

// event is an event of the viewer: a span, one end of an arrow, or a name.
type event struct {
	Name  string            `json:"name"`
	Phase string            `json:"ph"`
	Start float64           `json:"ts"` // microseconds, as Takes
	Takes float64           `json:"dur,omitempty"`
	PID   int               `json:"pid"`
	TID   int               `json:"tid"`
	Cat   string            `json:"cat,omitempty"`
	ID    int               `json:"id,omitempty"`
	Binds string            `json:"bp,omitempty"`
	Args  map[string]string `json:"args,omitempty"`
}

// events returns the spans as events of the viewer, with arrows from one program to another.
func events(all []span) []event {
	var out []event
	services := make(map[string]int)
	by := make(map[string]span)
	first := all[0].Start
	at := func(ns uint64) float64 { return float64(ns-first) / 1000 }
	for _, s := range all {
		by[s.ID] = s
		if services[s.Service] == 0 {
			services[s.Service] = len(services) + 1
			out = append(out, event{Name: "process_name", Phase: "M", PID: services[s.Service], Args: map[string]string{"name": s.Service}})
			out = append(out, event{Name: "thread_name", Phase: "M", PID: services[s.Service], TID: 1, Args: map[string]string{"name": "spans"}})
		}
		out = append(out, event{
			Name: s.Name, Phase: "X", Start: at(s.Start), Takes: float64(s.End-s.Start) / 1000, PID: services[s.Service], TID: 1,
			Args: map[string]string{"trace": s.Trace, "span": s.ID, "parent": s.Parent},
		})
		if p, ok := by[s.Parent]; ok && p.Service != s.Service {
			arrow := func(name string, id int, from, to span, leaves, comes uint64) {
				out = append(out, event{Name: name, Cat: "gloom", Phase: "s", ID: id, Start: at(leaves), PID: services[from.Service], TID: 1},
					event{Name: name, Cat: "gloom", Phase: "f", Binds: "e", ID: id, Start: at(comes), PID: services[to.Service], TID: 1})
			}
			arrow("traceparent", 1, p, s, p.Start+1000, s.Start+1000)
			arrow("answer", 2, s, p, s.End-1000, p.End-1000)
		}
	}
	return out
}

//go:embed viewer.html
var viewer []byte

// draw makes Chromium draw the spans.
func draw(dir string, all []span, file string) error {
	goroot, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return err
	}
	static := filepath.Join(strings.TrimSpace(string(goroot)), "src/internal/trace/traceviewer/static")
	mux := http.NewServeMux()
	mux.Handle("/static/", http.StripPrefix("/static/", http.FileServer(http.Dir(static))))
	mux.HandleFunc("/{$}", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(viewer) })
	mux.HandleFunc("/trace.json", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]any{"displayTimeUnit": "ms", "traceEvents": events(all)})
	})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: mux}
	go server.Serve(ln)
	defer server.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
		"--user-data-dir="+filepath.Join(dir, "chromium"), "--window-size=1000,640", "--virtual-time-budget=300000",
		"--screenshot="+file, "http://"+ln.Addr().String()+"/")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("chromium: %w: %s", err, out)
	}
	info, err := os.Stat(file)
	if err == nil {
		fmt.Printf("%s, %d bytes\n", file, info.Size())
	}
	return err
}
