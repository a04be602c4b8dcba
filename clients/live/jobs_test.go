package live

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"gloom/broker/settings"
	gloom "gloom/clients/go"
	"gloom/clients/live/agent"
)

// hostile has bodies that a client could change by mistake.
var hostile = []string{
	`null`, `true`, `""`, `0`, `-0`, `[]`, `{}`, ` { "a" : [ 1 ,2 ] } `,
	`123456789012345678901234567890`, `9007199254740993`, `1E400`, `1.10`, `-1e-400`,
	`"\u00e9\/\"\\"`, `"\ud800"`, `"\udc00x"`, "\"\u2028\u2029\"", `"\u0000"`, `"é漢😀"`,
	`{"z":1,"a":2,"z":3}`, `{"__proto__":{"x":1},"constructor":null}`, `{"":0,"0":1}`,
	`{"error":"job_failed","id":"x","ok":true,"action":"ping"}`, "[1,\n\t2\r\n]", `"\u0062ody"`,
	strings.Repeat("[", 1000) + strings.Repeat("]", 1000), `"` + strings.Repeat("x", 1<<20) + `"`,
}

func bodies(w *world) {
	srv := w.broker()
	w.worker(workers("echo")(srv))
	s := w.submitter(addrs(srv))
	for _, body := range hostile {
		tag := s.do(agent.Command{Do: "submit", Type: "echo", Body: body})
		s.wantAnswer(tag, strings.TrimSpace(body))
	}
}

func manyJobs(w *world) {
	srv := w.broker()
	work := workers("echo")(srv)
	work.Concurrency = 16
	w.worker(work)
	to := addrs(srv)
	to.Window = 50
	s := w.submitter(to)
	var tags []string
	for i := range 500 {
		tags = append(tags, s.do(agent.Command{Do: "submit", Type: "echo", Body: fmt.Sprint(i)}))
	}
	for i, tag := range tags {
		s.wantAnswer(tag, fmt.Sprint(i))
	}
}

func handlersFail(w *world) {
	srv := w.broker()
	w.worker(workers("echo")(srv))
	jobs := w.jobs(srv)
	var jobErr *gloom.JobError
	_, err := jobs.Do(w.within(), gloom.Job{Type: "echo", Body: json.RawMessage(`{"fail":"disk full: é"}`), Retries: 2})
	if !errors.As(err, &jobErr) || !strings.Contains(jobErr.Reason, "disk full: é") || jobErr.Final {
		w.Errorf("fail: %v", err)
	}
	_, err = jobs.Do(w.within(), gloom.Job{Type: "echo", Body: json.RawMessage(`{"fatal":"no such file"}`), Retries: 1000, Backoff: time.Hour})
	if !errors.As(err, &jobErr) || jobErr.Reason != "no such file" || !jobErr.Final {
		w.Errorf("fatal: %v", err)
	}
	// An hour of backoff is replaced by the delay that the handler asks for.
	start := time.Now()
	_, err = jobs.Do(w.within(), gloom.Job{Type: "echo", Body: json.RawMessage(`{"retry_after":150}`), Retries: 1, Backoff: time.Hour})
	if !errors.As(err, &jobErr) || !jobErr.Later || time.Since(start) < 150*time.Millisecond {
		w.Errorf("retry_after: %v after %v", err, time.Since(start))
	}
	r, err := jobs.Do(w.within(), gloom.Job{Type: "echo", Body: json.RawMessage(`{"release":50}`), Retries: gloom.NoRetries})
	if err != nil || string(r.Body) != `{"release":50}` {
		w.Errorf("release: %s, %v", r.Body, err)
	}
	// The same from the submitter's side.
	s := w.submitter(addrs(srv))
	noRetries := 0
	failure := s.wantFailure(s.do(agent.Command{Do: "submit", Type: "echo", Body: `{"fail":"why"}`, Retries: &noRetries}), "job", "job_failed")
	if !strings.Contains(failure.Reason, "why") || failure.Lost {
		w.Errorf("told %+v", failure)
	}
}

func cancelWaiting(w *world) {
	s := w.submitter(addrs(w.broker()))
	tag := s.do(agent.Command{Do: "submit", ID: "a", Type: "nobody"})
	s.awaitAck(tag)
	s.wantDone(s.do(agent.Command{Do: "cancel", ID: "a"}))
	s.wantFailure(tag, "job", "cancelled")
	s.wantFailure(s.do(agent.Command{Do: "cancel", ID: "a"}), "refused", "unknown_id")
}

func cancelRunning(w *world) {
	srv := w.broker()
	a := w.worker(workers("echo")(srv))
	s := w.submitter(addrs(srv))
	tag := s.do(agent.Command{Do: "submit", ID: "a", Type: "echo", Body: `{"progress":1,"unwanted":true}`, Progress: true})
	s.awaitBegun(tag)
	s.wantDone(s.do(agent.Command{Do: "cancel", ID: "a"}))
	s.wantFailure(tag, "job", "cancelled")
	w.awaitEvent(a, "that it is unwanted", func(e agent.Event) bool { return e.Unwanted == "a" })
	s.wantAnswer(s.do(agent.Command{Do: "submit", Type: "echo", Body: `1`}), `1`)
}

func runTakesTooLong(w *world) {
	srv := w.broker()
	a := w.worker(workers("echo")(srv))
	s := w.submitter(addrs(srv))
	noRetries := 0
	tag := s.do(agent.Command{Do: "submit", ID: "slow", Type: "echo", Body: `{"unwanted":true}`, Timeout: 100, Retries: &noRetries})
	s.wantFailure(tag, "job", "job_failed")
	w.awaitEvent(a, "that it is unwanted", func(e agent.Event) bool { return e.Unwanted == "slow" })
	// Its worker has answered in the end, and takes further jobs.
	s.wantAnswer(s.do(agent.Command{Do: "submit", Type: "echo", Body: `2`}), `2`)
}

func jobExpires(w *world) {
	s := w.submitter(addrs(w.broker()))
	s.wantFailure(s.do(agent.Command{Do: "submit", Type: "nobody", Expires: 50}), "job", "expired")
}

func progressArrives(w *world) {
	srv := w.broker()
	w.worker(workers("echo")(srv))
	s := w.submitter(addrs(srv))
	tag := s.do(agent.Command{Do: "submit", Type: "echo", Body: `{"progress":{"done": 0.50}}`, Progress: true})
	e := s.next(tag)
	for e.Acked {
		e = s.next(tag)
	}
	var news any
	if e.Progress == nil || json.Unmarshal([]byte(*e.Progress), &news) != nil || fmt.Sprint(news) != "map[done:0.5]" {
		w.Errorf("told %s", show(e))
	}
	s.wantAnswer(tag, `{"progress":{"done": 0.50}}`)
	// Nobody asked for progress here, and none comes.
	s.wantAnswer(s.do(agent.Command{Do: "submit", Type: "echo", Body: `{"progress":1}`}), `{"progress":1}`)
}

func optionsReachBroker(w *world) {
	srv := w.broker()
	s := w.submitter(addrs(srv))
	lowPriority, highPriority := int64(-5), int64(1)<<53-1
	longDelay, noDelay := 3_600_000, 0
	order := []agent.Command{
		{ID: "low", Priority: &lowPriority}, {ID: "first"}, {ID: "second"}, {ID: "high", Priority: &highPriority},
		{ID: "old", Age: 60_000}, {ID: "changed", Delay: &longDelay}, {ID: "detached", Detach: true},
	}
	for _, c := range order {
		c.Do, c.Type, c.Body = "submit", "echo", `"`+c.ID+`"`
		tag := s.do(c)
		if c.Detach { // the job ends with its ack
			if e := s.end(tag); e.Result == nil {
				w.Errorf("detached: %s", show(e))
			}
		} else {
			s.awaitAck(tag)
		}
	}
	smallPriority := int64(10)
	s.wantDone(s.do(agent.Command{Do: "change", ID: "changed", Priority: &smallPriority, Delay: &noDelay, Groups: []string{"a", "b"}}))
	s.wantDone(s.do(agent.Command{Do: "ping"}))
	var runIDs []string
	allRan := make(chan struct{})
	w.serve(srv, &gloom.Worker{Type: "echo", Handler: func(_ context.Context, job *gloom.Job) (any, error) {
		if runIDs = append(runIDs, job.ID); len(runIDs) == len(order) {
			close(allRan)
		}
		return job.Body, nil
	}})
	select {
	case <-allRan:
	case <-time.After(patience):
		w.Fatal("not all ran")
	}
	if got := strings.Join(runIDs, " "); got != "high changed old first second detached low" {
		w.Errorf("ran %s", got)
	}
}

func headersReachWorker(w *world) {
	srv := w.broker()
	work := workers("echo")(srv)
	work.Headers = true
	w.worker(work)
	s := w.submitter(addrs(srv))
	tag := s.do(agent.Command{
		Do: "submit", Type: "echo", Body: `{"headers":true}`, Groups: []string{"tenant-1", "é"},
		Headers: json.RawMessage(`{"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01","n":[1]}`),
	})
	e := s.end(tag)
	var got map[string]any
	if e.Result == nil || json.Unmarshal([]byte(*e.Result), &got) != nil || len(got) != 2 || got["traceparent"] != "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01" {
		w.Errorf("told %s", show(e))
	}
	s.wantAnswer(s.do(agent.Command{Do: "submit", Type: "echo", Body: `{"headers":true}`}), `{}`)
	groupsTag := s.do(agent.Command{Do: "submit", Type: "echo", Groups: []string{"a", "a"}})
	if e := s.end(groupsTag); e.Error == nil {
		w.Errorf("a group named twice: %s", show(e))
	}
}

func workerServesPatterns(w *world) {
	srv := w.broker()
	work := workers("mail-*", "sms")(srv)
	work.Except = []string{"mail-test"}
	w.worker(work)
	s := w.submitter(addrs(srv))
	s.wantAnswer(s.do(agent.Command{Do: "submit", Type: "mail-welcome", Body: `{"type":true}`}), `"mail-welcome"`)
	s.wantAnswer(s.do(agent.Command{Do: "submit", Type: "sms", Body: `{"type":true}`}), `"sms"`)
	s.wantFailure(s.do(agent.Command{Do: "submit", Type: "mail-test", Expires: 100}), "job", "expired")
}

func idIsHeld(w *world) {
	srv := w.broker()
	s, other := w.submitter(addrs(srv)), w.submitter(addrs(srv))
	tag := s.do(agent.Command{Do: "submit", ID: "twin", Type: "nobody"})
	s.awaitAck(tag)
	s.wantFailure(s.do(agent.Command{Do: "submit", ID: "twin", Type: "nobody"}), "refused", "id_exists")
	other.wantFailure(other.do(agent.Command{Do: "submit", ID: "twin", Type: "nobody"}), "refused", "id_exists")
	other.wantFailure(other.do(agent.Command{Do: "cancel", ID: "twin"}), "refused", "unknown_id")
	s.wantDone(s.do(agent.Command{Do: "cancel", ID: "twin"}))
	other.awaitAck(other.do(agent.Command{Do: "submit", ID: "twin", Type: "nobody"}))
}

func fullBrokerRefuses(w *world) {
	s := w.submitter(addrs(w.broker(func(o *settings.Options) { o.MaxJobs = 2 })))
	for range 2 {
		s.awaitAck(s.do(agent.Command{Do: "submit", Type: "nobody"}))
	}
	if failure := s.wantFailure(s.do(agent.Command{Do: "submit", Type: "nobody"}), "refused", "overloaded"); !strings.Contains(failure.Reason, "2") {
		w.Errorf("the reason names no limit: %q", failure.Reason)
	}
	s.wantDone(s.do(agent.Command{Do: "ping"}))
}

func tooLargeIsRefused(w *world) {
	srv := w.broker(func(o *settings.Options) { o.MaxFrame = 64 << 10 })
	large := `"` + strings.Repeat("x", 64<<10) + `"`
	var to atomic.Int32
	w.serve(srv, &gloom.Worker{Type: "small", Handler: func(_ context.Context, job *gloom.Job) (any, error) {
		to.Add(1)
		return job.Body, nil
	}})
	// Heartbeats make every client ask for the limits.
	options := addrs(srv)
	options.Heartbeat = 60_000
	s := w.submitter(options)
	s.wantAnswer(s.do(agent.Command{Do: "submit", Type: "small", Body: `0`}), `0`)
	s.wantFailure(s.do(agent.Command{Do: "submit", Type: "small", Body: large}), "refused", "size_error")
	s.wantAnswer(s.do(agent.Command{Do: "submit", Type: "small", Body: `1`}), `1`)
	if n := to.Load(); n != 2 {
		w.Errorf("%d jobs ran", n)
	}
}

func keptJobIsTakenOver(w *world) {
	srv := w.broker()
	s, other := w.submitter(addrs(srv)), w.submitter(addrs(srv))
	tag := s.do(agent.Command{Do: "submit", ID: "k", Type: "later", Keep: 60_000})
	s.awaitAck(tag)
	attachTag := other.do(agent.Command{Do: "attach", ID: "k", Progress: true})
	other.awaitAck(attachTag)
	s.wantFailure(tag, "job", "taken_over")
	w.serve(srv, &gloom.Worker{Type: "later", Handler: func(context.Context, *gloom.Job) (any, error) { return "here", nil }})
	other.wantAnswer(attachTag, `"here"`)
	other.wantFailure(other.do(agent.Command{Do: "attach", ID: "k"}), "refused", "unknown_id")
}

func drainAndClose(w *world) {
	srv := w.broker()
	w.serve(srv, &gloom.Worker{Type: "slow", Handler: func(_ context.Context, job *gloom.Job) (any, error) {
		time.Sleep(100 * time.Millisecond)
		return job.Body, nil
	}})
	s := w.submitter(addrs(srv))
	tag := s.do(agent.Command{Do: "submit", Type: "slow", Body: `1`})
	s.awaitAck(tag)
	drained := s.do(agent.Command{Do: "drain"})
	s.wantAnswer(tag, `1`)
	s.wantDone(drained)
	s.wantFailure(s.do(agent.Command{Do: "submit", Type: "slow"}), "closed", "")

	s = w.submitter(addrs(srv))
	tag = s.do(agent.Command{Do: "submit", Type: "nobody"})
	s.awaitAck(tag)
	s.wantDone(s.do(agent.Command{Do: "close"}))
	if failure := s.wantFailure(tag, "lost", ""); !failure.Acked {
		w.Errorf("told %+v of an acked job", failure)
	}
	if err := s.Wait(patience); err != nil {
		w.Errorf("the program: %v", err)
	}
}

// leaves: the broker forgets a kept outcome once it has sent it. A client that leaves still reads
// outcomes that were sent; the broker keeps all other outcomes.
func leaves(w *world) {
	for _, secure := range []bool{false, true} {
		cert := filepath.Join(w.TempDir(), "cert")
		srv := w.broker(func(o *settings.Options) {
			if secure {
				o.TLSCert, o.TLSKey = cert, cert+".key"
				certificate(w, o.TLSCert, o.TLSKey)
			}
		})
		to := addrs(srv)
		if secure {
			to.CA = cert
		}
		s := w.submitter(to)
		const n = 200
		body := `"` + strings.Repeat("x", 10_000) + `"` // large enough that the sockets cannot hold all answers
		tags := make([]string, n)
		for i := range tags {
			tags[i] = s.do(agent.Command{Do: "submit", ID: fmt.Sprint(i), Type: "echo", Body: body, Keep: 600_000})
			s.awaitAck(tags[i])
		}
		s.Stop(syscall.SIGSTOP)
		var options []gloom.Option
		if secure {
			options = append(options, gloom.TLS(&tls.Config{InsecureSkipVerify: true}))
		}
		w.serve(srv, &gloom.Worker{Type: "echo", Handler: echoes, Options: options})
		jobs := w.jobs(srv, options...)
		if _, err := jobs.Do(w.within(), gloom.Job{Type: "echo", Priority: -1}); err != nil { // the others have ended
			w.Fatal(err)
		}
		leaveTag := s.do(agent.Command{Do: "leave"})
		s.Stop(syscall.SIGCONT)
		s.wantDone(leaveTag)
		answers := 0
		for i, tag := range tags {
			if e := s.end(tag); e.Result != nil {
				answers++
				continue
			}
			p, err := jobs.Attach(w.within(), fmt.Sprint(i), nil)
			if err != nil {
				w.Fatal(err)
			}
			if r, err := p.Result(w.within()); err != nil || string(r.Body) != body {
				w.Fatalf("job %d, after %d answers before the end: %v", i, answers, err)
			}
		}
		w.Logf("TLS %t: %d of %d answers came at the end", secure, answers, n)
	}
}
