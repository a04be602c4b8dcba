// Command worker is a worker that jq-master pushes jobs to.
package main

import (
	"bytes"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"

	"github.com/vmihailenco/msgpack/v5"
)

const maxJobs = 4

// job is what the master pushes.
type job struct {
	ID       string         `msgpack:"job_id"`
	Name     string         `msgpack:"name"`
	Argument map[string]any `msgpack:"argument"`
	Attempt  int            `msgpack:"attempt"`
}

var handlers = map[string]func(argument map[string]any) (any, error){
	"greet": func(argument map[string]any) (any, error) {
		return fmt.Sprintf("hello %v", argument["whom"]), nil
	},
}

// worker runs jobs for a master.
type worker struct{ master, id string }

func main() {
	w := &worker{master: "http://127.0.0.1:9996"}
	if len(os.Args) > 1 {
		w.master = os.Args[1]
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	var reply struct {
		ID string `msgpack:"worker_id"`
	}
	err = w.ask("/worker", map[string]any{
		"name": "a worker in Go", "max_jobs": maxJobs, "names": []string{"greet"}, "port": ln.Addr().(*net.TCPAddr).Port,
	}, &reply)
	if err != nil {
		log.Fatal(err)
	}
	w.id = reply.ID
	fmt.Println("registered as", w.id)
	log.Fatal(http.Serve(ln, w))
}

// ServeHTTP accepts a job, and runs it after the reply.
func (w *worker) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	var j job
	if err := msgpack.NewDecoder(r.Body).Decode(&j); err != nil {
		http.Error(rw, err.Error(), http.StatusBadRequest)
		return
	}
	handler := handlers[j.Name]
	if handler == nil {
		http.Error(rw, "no such name", http.StatusNotFound)
		return
	}
	rw.WriteHeader(http.StatusAccepted)
	go func() {
		report := map[string]any{"job_id": j.ID, "attempt": j.Attempt, "type": "success"}
		result, err := handler(j.Argument)
		if err != nil {
			report["type"], report["reason"], report["should_retry"], report["message"] = "failure", "other", true, err.Error()
		} else {
			report["result"] = result
		}
		if err := w.ask("/done", report, nil); err != nil {
			log.Print(err) // for example because the report came too late
		}
	}()
}

// ask sends a request to the master.
func (w *worker) ask(path string, body, reply any) error {
	data, err := msgpack.Marshal(body)
	if err != nil {
		return err
	}
	req, err := http.NewRequest(http.MethodPost, w.master+path, bytes.NewReader(data))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/msgpack")
	req.Header.Set("worker-id", w.id)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode >= 300:
		return fmt.Errorf("%s: %s", path, resp.Status)
	case reply == nil:
		return nil
	}
	return msgpack.NewDecoder(resp.Body).Decode(reply)
}
