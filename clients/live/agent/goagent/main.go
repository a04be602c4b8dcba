// Command goagent drives the Go client in the tests of all clients, as package agent describes.
package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	gloom "gloom/clients/go"
	"gloom/clients/live/agent"
)

var stdout sync.Mutex

func tell(e map[string]any) {
	line, err := json.Marshal(e)
	if err != nil {
		panic(err)
	}
	stdout.Lock()
	defer stdout.Unlock()
	os.Stdout.Write(append(line, '\n'))
}

func main() {
	var o agent.Options
	if err := json.Unmarshal([]byte(os.Args[2]), &o); err != nil {
		panic(err)
	}
	opts := []gloom.Option{gloom.Addrs(o.Addrs...), gloom.Backoff(ms(o.Backoff[0]), ms(o.Backoff[1]))}
	if o.Token != "" {
		opts = append(opts, gloom.Token(o.Token))
	}
	if o.Heartbeat != 0 {
		opts = append(opts, gloom.Heartbeat(ms(o.Heartbeat)))
	}
	if o.CA != "" {
		pem, err := os.ReadFile(o.CA)
		if err != nil {
			panic(err)
		}
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(pem)
		opts = append(opts, gloom.TLS(&tls.Config{RootCAs: roots}))
	}
	if os.Args[1] == "worker" {
		work(o, opts)
	} else {
		submit(o, opts)
	}
}

func ms(n int) time.Duration { return time.Duration(n) * time.Millisecond }

func failure(err error) map[string]any {
	event := map[string]any{"kind": err.Error()}
	var refusal *gloom.RefusedError
	var job *gloom.JobError
	var lost *gloom.LostError
	switch {
	case errors.As(err, &lost):
		event["kind"], event["acked"], event["sent"] = "lost", lost.Acked, lost.Sent
	case errors.As(err, &refusal):
		event["kind"], event["code"], event["reason"] = "refused", refusal.Code, refusal.Reason
	case errors.As(err, &job):
		event["kind"], event["code"], event["reason"] = "job", job.Code, job.Reason
		event["final"], event["lost"] = job.Final, job.Lost
	case errors.Is(err, gloom.ErrClosed):
		event["kind"] = "closed"
	case errors.Is(err, gloom.ErrNotConnected):
		event["kind"] = "not connected"
	}
	return event
}

func submit(o agent.Options, opts []gloom.Option) {
	if o.Window != 0 {
		opts = append(opts, gloom.Window(o.Window))
	}
	jobs, err := gloom.NewSubmitter(opts...)
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	follow := func(c agent.Command, p *gloom.Pending, err error) error {
		if err != nil {
			return err
		}
		go func() {
			if p.Ack(ctx) == nil {
				tell(map[string]any{"tag": c.Tag, "acked": true})
			}
		}()
		r, err := p.Result(ctx)
		if err == nil {
			tell(map[string]any{"tag": c.Tag, "result": string(r.Body)})
		}
		return err
	}
	progress := func(c agent.Command) func(json.RawMessage) {
		if !c.Progress {
			return nil
		}
		return func(body json.RawMessage) { tell(map[string]any{"tag": c.Tag, "progress": string(body)}) }
	}
	do := func(c agent.Command) error {
		switch c.Do {
		case "submit":
			p, err := jobs.Submit(ctx, job(c, progress(c)))
			return follow(c, p, err)
		case "attach":
			p, err := jobs.Attach(ctx, c.ID, progress(c))
			return follow(c, p, err)
		case "cancel":
			return jobs.Cancel(ctx, c.ID)
		case "change":
			change := gloom.Change{Priority: c.Priority, Groups: c.Groups}
			if c.Delay != nil {
				delay := ms(*c.Delay)
				change.Delay = &delay
			}
			return jobs.Change(ctx, c.ID, change)
		case "ping":
			return jobs.Ping(ctx)
		case "drain":
			return jobs.Drain(ctx)
		case "leave":
			submitCtx, cancel := context.WithTimeout(ctx, 2*time.Second)
			defer cancel()
			jobs.Leave(submitCtx)
			return nil
		case "close":
			return jobs.Close()
		case "bench":
			return bench(ctx, jobs, c)
		}
		return fmt.Errorf("no command %q", c.Do)
	}
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var c agent.Command
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			panic(err)
		}
		go func() {
			if err := do(c); err != nil {
				tell(map[string]any{"tag": c.Tag, "error": failure(err)})
			} else if c.Do != "submit" && c.Do != "attach" && c.Do != "bench" {
				tell(map[string]any{"tag": c.Tag, "ok": true})
			}
		}()
	}
	jobs.Close()
}

func job(c agent.Command, progress func(json.RawMessage)) gloom.Job {
	j := gloom.Job{
		ID: c.ID, Type: c.Type, Body: json.RawMessage(c.Body),
		Timeout: ms(c.Timeout), Expires: ms(c.Expires), Age: ms(c.Age),
		Keep: ms(c.Keep), AtLeastOnce: c.AtLeastOnce, Detach: c.Detach,
		Groups: c.Groups, Headers: gloom.Headers(c.Headers), OnProgress: progress,
	}
	if c.Priority != nil {
		j.Priority = *c.Priority
	}
	if c.Delay != nil {
		j.Delay = ms(*c.Delay)
	}
	if c.Backoff != nil {
		if j.Backoff = ms(*c.Backoff); j.Backoff == 0 {
			j.Backoff = gloom.NoBackoff
		}
	}
	if c.Retries != nil {
		if j.Retries = *c.Retries; j.Retries == 0 {
			j.Retries = gloom.NoRetries
		}
	}
	return j
}

func bench(ctx context.Context, jobs *gloom.Submitter, c agent.Command) error {
	start := time.Now()
	var firstErr error
	for i := range c.Count {
		j := gloom.Job{Type: c.Type, Body: strconv.AppendInt(nil, int64(i), 10)}
		if c.Window == 1 {
			if _, err := jobs.Do(ctx, j); err != nil {
				return err
			}
			continue
		}
		err := jobs.SubmitFunc(ctx, j, func(_ gloom.Result, err error) {
			if err != nil {
				firstErr = err
			}
		})
		if err != nil {
			return err
		}
	}
	if c.Window != 1 {
		if err := jobs.Drain(ctx); err != nil {
			return err
		}
	}
	tell(map[string]any{"tag": c.Tag, "seconds": time.Since(start).Seconds()})
	return firstErr
}

// instructions is the body of a job that tells the handler what to do.
type instructions struct {
	Fail       string          `json:"fail"`
	Fatal      string          `json:"fatal"`
	RetryAfter int             `json:"retry_after"`
	Release    int             `json:"release"`
	Unwanted   bool            `json:"unwanted"`
	Sleep      int             `json:"sleep"`
	Exit       bool            `json:"exit"`
	Progress   json.RawMessage `json:"progress"`
	Headers    bool            `json:"headers"`
	Type       bool            `json:"type"`
}

func work(o agent.Options, opts []gloom.Option) {
	var releasedJobs sync.Map
	handler := func(ctx context.Context, job *gloom.Job) (any, error) {
		var t instructions
		json.Unmarshal(job.Body, &t) // a body that is not an object leaves t empty
		if t.Progress != nil {
			if err := job.Progress(t.Progress); err != nil {
				return nil, err
			}
		}
		switch {
		case t.Fail != "":
			return nil, errors.New(t.Fail)
		case t.Fatal != "":
			return nil, gloom.Fatal(errors.New(t.Fatal))
		case t.RetryAfter != 0:
			return nil, gloom.RetryAfter(errors.New("later"), ms(t.RetryAfter))
		case t.Release != 0:
			if _, done := releasedJobs.LoadOrStore(job.ID, true); !done {
				return nil, gloom.Release(ms(t.Release))
			}
		case t.Unwanted:
			<-ctx.Done()
			tell(map[string]any{"unwanted": job.ID})
			return nil, context.Cause(ctx)
		case t.Sleep != 0:
			time.Sleep(ms(t.Sleep))
		case t.Exit:
			os.Exit(1)
		case t.Headers:
			if job.Headers == nil {
				return struct{}{}, nil
			}
			return json.RawMessage(job.Headers), nil
		case t.Type:
			return job.Type, nil
		}
		return job.Body, nil
	}
	opts = append(opts, gloom.Notify(func(n gloom.Notice) {
		if n.Event == gloom.EventJoined {
			tell(map[string]any{"joined": true})
		}
	}))
	concurrency := max(o.Concurrency, 1)
	w := &gloom.Worker{Handler: handler, Options: opts, Concurrency: concurrency, Prefetch: concurrency, Headers: o.Headers}
	if len(o.Types) == 1 && !strings.Contains(o.Types[0], "*") {
		w.Type = o.Types[0]
	} else {
		w.Types, w.Except = o.Types, o.Except
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := w.Run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	tell(map[string]any{"left": true})
}
