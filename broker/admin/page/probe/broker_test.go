package probe

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"gloom/bench/throwaway"
	gloom "gloom/clients/go"
)

// broker is a gloomd in a process of its own, which can be restarted at the same addresses.
type broker struct {
	t                    *testing.T
	submit, worker, http string
	token                string // the token of clients and of ask
	args                 []string
	*throwaway.Daemon

	jobs  *gloom.Submitter // of hand
	stops []func()         // of workers
}

func start(t *testing.T, args ...string) *broker {
	t.Helper()
	b := &broker{t: t, submit: "127.0.0.1:0", worker: "127.0.0.1:0", http: "127.0.0.1:0", args: args}
	b.begin()
	t.Cleanup(func() {
		if err := b.Stop(); err != nil {
			t.Error(err)
		}
	})
	return b
}

// begin starts the broker: the first time at any address, later at the same address.
func (b *broker) begin() {
	b.t.Helper()
	cmd := exec.Command(filepath.Join(gloomdDir, "gloomd"), append(append([]string{"--drain-timeout", "1s"}, b.args...), "--submit-addr", b.submit,
		"--worker-addr", b.worker, "--http-addr", b.http)...)
	d, err := throwaway.Start(cmd, "gloomd is ready")
	if err != nil {
		b.t.Fatal(err)
	}
	b.Daemon = d
	b.submit, b.worker, b.http = d.Field("submit_addr"), d.Field("worker_addr"), d.Field("http_addr")
}

func (b *broker) url(path string) string { return "http://" + b.http + "/" + path }

func (b *broker) options(addr string) []gloom.Option {
	o := []gloom.Option{gloom.Addrs(addr), gloom.Backoff(10*time.Millisecond, 100*time.Millisecond)}
	if b.token != "" {
		o = append(o, gloom.Token(b.token))
	}
	return o
}

func (b *broker) ctx() context.Context {
	ctx, end := context.WithTimeout(context.Background(), patience)
	b.t.Cleanup(end)
	return ctx
}

// submitter connects a submitter that closes with the test.
func (b *broker) submitter(o ...gloom.Option) *gloom.Submitter {
	b.t.Helper()
	s, err := gloom.Dial(b.ctx(), append(b.options(b.submit), o...)...)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = s.Close() })
	return s
}

// submitAcked submits jobs, and returns when the broker has acked them.
func (b *broker) submitAcked(jobs ...gloom.Job) {
	b.t.Helper()
	if b.jobs == nil {
		b.jobs = b.submitter(gloom.Window(1 << 20))
	}
	s := b.jobs
	ctx := b.ctx()
	var pendings []*gloom.Pending
	for _, j := range jobs {
		p, err := s.Submit(ctx, j)
		if err != nil {
			b.t.Fatal(err)
		}
		pendings = append(pendings, p)
	}
	for _, p := range pendings {
		if err := p.Ack(ctx); err != nil {
			b.t.Fatal(err)
		}
	}
}

// startWorker starts a worker, and returns a function that stops it.
func (b *broker) startWorker(w *gloom.Worker, o ...gloom.Option) (stop func()) {
	b.t.Helper()
	w.Options = append(b.options(b.worker), o...)
	if err := w.Start(b.ctx()); err != nil {
		b.t.Fatal(err)
	}
	stop = sync.OnceFunc(func() {
		ctx, end := context.WithTimeout(context.Background(), 10*time.Millisecond)
		defer end()
		_ = w.Stop(ctx) // without waiting for the running job
	})
	b.t.Cleanup(stop)
	b.stops = append(b.stops, stop)
	return stop
}

// disconnectAll disconnects all clients.
func (b *broker) disconnectAll() {
	for _, stop := range b.stops {
		stop()
	}
	if b.jobs != nil {
		_ = b.jobs.Close()
	}
	b.jobs, b.stops = nil, nil
}

// stuckHandler is a handler that does not return until it is cancelled.
func stuckHandler(ctx context.Context, _ *gloom.Job) (any, error) {
	<-ctx.Done()
	return nil, context.Cause(ctx)
}

// quickHandler is a handler that returns at once.
func quickHandler(context.Context, *gloom.Job) (any, error) { return "done", nil }

// callAPI requests a path of /v1; an answer that is not an object is returned as nil.
func (b *broker) callAPI(method, path, body string) (status int, answer map[string]any) {
	b.t.Helper()
	req, err := http.NewRequest(method, "http://"+b.http+path, bytes.NewReader([]byte(body)))
	if err != nil {
		b.t.Fatal(err)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	if b.token != "" { // the broker requires a token
		token := "ruler"
		if method == "POST" && path == "/v1/jobs" {
			token = b.token
		}
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		b.t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	_ = json.Unmarshal(data, &answer)
	return resp.StatusCode, answer
}

// mustRequest makes a request to the broker that must succeed, and returns the answer.
func (b *broker) mustRequest(method, path, body string) map[string]any {
	b.t.Helper()
	status, answer := b.callAPI(method, path, body)
	if status/100 != 2 {
		b.t.Fatalf("%s %s: %d %v", method, path, status, answer)
	}
	return answer
}

// waitUntil waits until an answer of /v1 meets a condition.
func (b *broker) waitUntil(path string, isReached func(map[string]any) bool) {
	b.t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(30 * time.Millisecond) {
		status, answer := b.callAPI("GET", path, "")
		if status == 200 && isReached(answer) {
			return
		}
		if time.Now().After(end) {
			b.t.Fatalf("%s never came to it: %d %v", path, status, answer)
		}
	}
}

// number returns a number in an answer, given the keys that lead to it, separated by dots.
func number(v map[string]any, keys ...string) int {
	for _, k := range keys[:len(keys)-1] {
		v, _ = v[k].(map[string]any)
	}
	n, _ := v[keys[len(keys)-1]].(float64)
	return int(n)
}
