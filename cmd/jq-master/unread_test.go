package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"gloom/cmd/jq-master/job"
	"gloom/cmd/jq-master/pack"
)

// TestUnreadReplies: however many clients ask for a large reply and do not read it, few replies are
// made.
func TestUnreadReplies(t *testing.T) {
	t.Parallel()
	const maxBody = 1 << 20
	const room = 32 * maxBody // how many bytes of jobs' data package web allows at a time
	const argument = `"argument":{"a":"`
	text := strings.Repeat(`\u0001`, maxBody-1000) // in JSON it is longer than the system's socket buffers
	for name, one := range map[string]struct {
		bytes int // of jobs' data in a reply
		make  func(c *client) (path string)
	}{
		"job": {maxBody, func(c *client) string {
			return "/v1/jobs/" + c.enqueue(`{"name":"large",`+argument+text+`"}}`)
		}},
		"schedule": {len(text), func(c *client) string {
			c.do("PUT", "/v1/schedules/large", `{"cron":"@yearly","job":{"name":"large",`+argument+text+`"}}}`).wantStatus(200)
			return "/v1/schedules/large"
		}},
		"schedules": {2 * len(text), func(c *client) string {
			for _, name := range []string{"a", "b"} {
				c.do("PUT", "/v1/schedules/"+name, `{"cron":"@yearly","job":{"name":"large",`+argument+text+`"}}}`).wantStatus(200)
			}
			return "/v1/schedules"
		}},
		"messages": {300 * job.MaxMessage, func(c *client) string {
			for range 300 {
				c.enqueue(`{"name":"fails","argument":{},"max_retry":0}`)
			}
			w := c.register(`{"name":"w","max_jobs":300}`)
			for left := 300; left > 0; {
				ids := c.pull(w, 300)
				left -= len(ids)
				for _, id := range ids {
					report := `{"job_id":"` + id + `","type":"failure","reason":"other","should_retry":false,"message":"` + text[:6*job.MaxMessage] + `"}`
					r, err := http.NewRequest("POST", c.daemon.url+"/done", strings.NewReader(report))
					if err != nil {
						t.Fatal(err)
					}
					r.Header.Set("Content-Type", jsonType)
					r.Header.Set("Worker-Id", w)
					reported, err := http.DefaultClient.Do(r)
					if err != nil {
						t.Fatal(err)
					}
					if reported.Body.Close(); reported.StatusCode != http.StatusNoContent {
						t.Fatal(reported.Status)
					}
				}
			}
			return "/v1/jobs?limit=300"
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := start(t, "--max-body", strconv.Itoa(maxBody))
			c := d.client(t, msgpackType)
			path, budget := one.make(c), room/one.bytes
			begun := make(chan struct{}, 2*budget)
			for range 2 * budget {
				conn, err := net.Dial("tcp", strings.TrimPrefix(d.url, "http://"))
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				_ = conn.(*net.TCPConn).SetReadBuffer(4 << 10)
				fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", path)
				go func() {
					if _, err := conn.Read(make([]byte, 1)); err == nil {
						begun <- struct{}{}
					}
				}()
			}
			for range budget {
				select {
				case <-begun:
				case <-time.After(testTimeout):
					t.Fatalf("fewer than %d replies begin", budget)
				}
			}
			select {
			case <-begun:
				t.Error("a further reply begins")
			case <-time.After(time.Second):
			}
			if name == "job" {
				c.do("GET", path+"?bodies=false", "").wantStatus(200)
			}
		})
	}
}

// TestLargePullIsCut: a pull gets at most a quarter of the room for arguments that are being written. The
// other jobs are queued as before.
func TestLargePullIsCut(t *testing.T) {
	t.Parallel()
	const maxBody, count = 64 << 10, 20
	c := start(t, "--max-body", strconv.Itoa(maxBody)).client(t, jsonType)
	ids := map[string]bool{}
	for range count {
		ids[c.enqueue(`{"name":"large","argument":{"a":"`+strings.Repeat("x", maxBody-1000)+`"},"timeout":600}`)] = true
	}
	w := c.register(`{"name":"w","max_jobs":100}`)
	for range 3 {
		jobs := c.do("POST", "/worker/jobs?wait=30&max=100", "", "worker-id", w).wantStatus(200).decode()["jobs"].([]any)
		if len(jobs) == 0 || len(jobs) > 8 {
			t.Errorf("a pull gets %d jobs", len(jobs))
		}
		for _, j := range jobs {
			if v := j.(map[string]any); !ids[v["id"].(string)] || v["attempt"] != 1.0 {
				t.Errorf("job %v at attempt %v", v["id"], v["attempt"])
			} else {
				delete(ids, v["id"].(string))
			}
		}
	}
	if len(ids) > 0 {
		t.Errorf("%d jobs are left", len(ids))
	}
}

// TestUnreadPulls: however many jobs a worker pulls and does not read, few replies are made. Jobs that
// cannot be written are given back.
func TestUnreadPulls(t *testing.T) {
	t.Parallel()
	const maxBody = 1 << 20
	const budget, more = 32, 3 // see TestUnreadReplies
	d := start(t, "--max-body", strconv.Itoa(maxBody))
	c := d.client(t, msgpackType)
	w := c.register(`{"name":"w","max_jobs":100}`)
	large, fault := pack.FromJSON([]byte(`{"name":"large","argument":{"a":"` + strings.Repeat(`\u0001`, maxBody-1000) + `"},"timeout":600}`))
	if fault != nil {
		t.Fatal(fault)
	}
	statuses := make(chan string, budget+more)
	for range budget + more {
		enqueued, err := http.Post(d.url+"/job", msgpackType, bytes.NewReader(large))
		if err != nil {
			t.Fatal(err)
		}
		enqueued.Body.Close()
		conn, err := net.Dial("tcp", strings.TrimPrefix(d.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_ = conn.(*net.TCPConn).SetReadBuffer(4 << 10)
		fmt.Fprintf(conn, "POST /worker/jobs?wait=60 HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: application/json\r\nWorker-Id: %s\r\nContent-Length: 0\r\n\r\n", w)
		go func() {
			line := make([]byte, len("HTTP/1.1 200"))
			_, _ = io.ReadFull(conn, line)
			statuses <- string(line[len("HTTP/1.1 "):])
		}()
	}
	got := map[string]int{}
	for range budget + more {
		select {
		case status := <-statuses:
			got[status]++
		case <-time.After(testTimeout):
			t.Fatalf("there are only the replies %v", got)
		}
	}
	if got["200"] != budget || got["503"] != more {
		t.Errorf("the replies are %v", got)
	}
	jobs := c.do("GET", "/v1/jobs?status=queued", "").wantStatus(200).decode()["jobs"].([]any)
	for _, j := range jobs {
		if attempt := j.(map[string]any)["attempt"]; attempt != 0.0 {
			t.Errorf("a job that was given back is at attempt %v", attempt)
		}
	}
	if len(jobs) != more {
		t.Errorf("%d jobs were given back, not %d", len(jobs), more)
	}
}

// TestStuckPulls: workers that do not read the jobs that they pulled keep large jobs from others only for
// a short time.
func TestStuckPulls(t *testing.T) {
	t.Parallel()
	const maxBody, stuck = 1 << 20, 4 // each has a quarter of the room
	d := start(t, "--max-body", strconv.Itoa(maxBody))
	c := d.client(t, jsonType)
	for range 8*stuck + 1 {
		c.enqueue(`{"name":"large","argument":{"a":"` + strings.Repeat("x", maxBody-1000) + `"},"timeout":600}`)
	}
	w := c.register(`{"name":"stuck","max_jobs":100}`)
	for range stuck {
		conn, err := net.Dial("tcp", strings.TrimPrefix(d.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_ = conn.(*net.TCPConn).SetReadBuffer(4 << 10)
		fmt.Fprintf(conn, "POST /worker/jobs?wait=60&max=100 HTTP/1.1\r\nHost: 127.0.0.1\r\nWorker-Id: %s\r\nContent-Length: 0\r\n\r\n", w)
		if _, err := conn.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
	}
	other := c.register(`{"name":"other","max_jobs":1}`)
	begun := time.Now()
	for {
		if answer := c.do("POST", "/worker/jobs?wait=60", "", "worker-id", other); answer.status == http.StatusOK {
			break
		}
		if time.Since(begun) > time.Minute {
			t.Fatal("another worker gets no job")
		}
		time.Sleep(100 * time.Millisecond)
	}
}
