package probe

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"regexp"
	"strings"
	"testing"
	"time"

	gloom "gloom/clients/go"
)

// stall is a condition in which jobs do not progress, and the finding that the page must
// show: its subject, and a pattern for its words.
type stall struct {
	name, subject, wantText string
	args                    []string
	stage                   func(*broker)
	resolve                 func(*broker) // ends the condition; nil if it cannot be ended
}

// jobsOfType returns n jobs of a type.
func jobsOfType(typ string, n int, edit func(*gloom.Job)) (jobs []gloom.Job) {
	for i := range n {
		j := gloom.Job{ID: fmt.Sprintf("%s-%d", typ, i), Type: typ}
		if edit != nil {
			edit(&j)
		}
		jobs = append(jobs, j)
	}
	return jobs
}

// submitSteadily submits a job of a type every 20 ms until the test ends.
func (b *broker) submitSteadily(typ string, edit func(*gloom.Job)) {
	s := b.submitter()
	b.stops = append(b.stops, func() { _ = s.Close() })
	ctx, end := context.WithCancel(context.Background())
	b.t.Cleanup(end)
	b.stops = append(b.stops, end)
	go func() {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for i := 0; ; i++ {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				j := gloom.Job{ID: fmt.Sprintf("%s-steady-%d", typ, i), Type: typ}
				if edit != nil {
					edit(&j)
				}
				_, _ = s.TrySubmit(j)
			}
		}
	}()
}

// openRaw opens a connection, sends frames and reads nothing.
func (b *broker) openRaw(addr string, frames ...string) net.Conn {
	b.t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = c.Close() })
	for _, f := range frames {
		if _, err := c.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(f))), f...)); err != nil {
			b.t.Fatal(err)
		}
	}
	return c
}

var stalls = []stall{
	{name: "no worker", subject: "report", wantText: "no worker serves",
		stage:   func(b *broker) { b.submitAcked(jobsOfType("report", 3, nil)...) },
		resolve: func(b *broker) { b.startWorker(&gloom.Worker{Type: "report", Handler: quickHandler}) }},
	{name: "paused", subject: "mail", wantText: "paused",
		stage: func(b *broker) {
			b.startWorker(&gloom.Worker{Type: "mail", Handler: quickHandler})
			b.mustRequest("POST", "/v1/types/mail/pause", "{}")
			b.submitAcked(jobsOfType("mail", 3, nil)...)
		},
		resolve: func(b *broker) { b.mustRequest("POST", "/v1/types/mail/resume", "{}") }},
	{name: "concurrency limit", subject: "mail", wantText: "has reached its concurrency",
		stage: func(b *broker) {
			b.startWorker(&gloom.Worker{Type: "mail", Handler: stuckHandler, Concurrency: 3})
			b.mustRequest("PUT", "/v1/types/mail/limits", `{"concurrency":1}`)
			b.submitAcked(jobsOfType("mail", 5, nil)...)
		},
		resolve: func(b *broker) {
			b.mustRequest("PUT", "/v1/types/mail/limits", `{"concurrency":0}`)
			b.startWorker(&gloom.Worker{Type: "mail", Handler: stuckHandler, Concurrency: 5})
		}},
	{name: "limit of rate", subject: "mail", wantText: "a second|rate",
		stage: func(b *broker) {
			b.startWorker(&gloom.Worker{Type: "mail", Handler: quickHandler, Concurrency: 3})
			b.mustRequest("PUT", "/v1/types/mail/limits", `{"rate":0.01}`)
			b.submitAcked(jobsOfType("mail", 20, nil)...)
		},
		resolve: func(b *broker) { b.mustRequest("PUT", "/v1/types/mail/limits", `{"rate":0}`) }},
	{name: "group held", subject: "customer-7", wantText: "held|holds|rule",
		stage: func(b *broker) {
			b.startWorker(&gloom.Worker{Type: "mail", Handler: quickHandler})
			b.mustRequest("PUT", "/v1/groups/customer-*", `{"concurrency":0}`)
			b.submitAcked(jobsOfType("mail", 4, func(j *gloom.Job) { j.Groups = []string{"customer-7"} })...)
		},
		resolve: func(b *broker) { b.mustRequest("DELETE", "/v1/groups/customer-*", "") }},
	{name: "all busy", subject: "mail", wantText: "all workers.*at work|busy",
		stage: func(b *broker) {
			b.startWorker(&gloom.Worker{Type: "mail", Handler: stuckHandler})
			b.submitAcked(jobsOfType("mail", 5, nil)...)
		},
		resolve: func(b *broker) { b.startWorker(&gloom.Worker{Type: "mail", Handler: quickHandler, Concurrency: 4}) }},
	{name: "worker that never answers", subject: "scan", wantText: "overdue|timeout|passed",
		stage: func(b *broker) {
			b.openRaw(b.worker, `{"action":"join","type":"scan"}`)
			b.submitAcked(jobsOfType("scan", 1, func(j *gloom.Job) { j.Timeout = 200 * time.Millisecond })...)
		}},
	{name: "workers that have gone", subject: "mail", wantText: "no worker|gone|left|lost",
		stage: func(b *broker) {
			stop := b.startWorker(&gloom.Worker{Type: "mail", Handler: quickHandler})
			b.submitAcked(jobsOfType("mail", 1, nil)...)
			stop()
			b.submitAcked(jobsOfType("mail", 4, nil)[1:]...) // the first id may still be in use
		},
		resolve: func(b *broker) { b.startWorker(&gloom.Worker{Type: "mail", Handler: quickHandler}) }},
	{name: "all fail", subject: "mail", wantText: "fail",
		stage: func(b *broker) {
			b.startWorker(&gloom.Worker{Type: "mail", Handler: func(_ context.Context, j *gloom.Job) (any, error) {
				return nil, gloom.Fatal(errors.New("no route to host"))
			}})
			b.submitSteadily("mail", nil)
		},
		resolve: func(b *broker) { b.disconnectAll() }},
	{name: "the same reason again", subject: "mail", wantText: "no route to host",
		stage: func(b *broker) {
			b.startWorker(&gloom.Worker{Type: "mail", Handler: func(_ context.Context, j *gloom.Job) (any, error) {
				return nil, gloom.Fatal(errors.New("no route to host"))
			}})
			b.submitSteadily("mail", nil)
		}},
	{name: "deadlines that pass", subject: "mail", wantText: "deadline|expire",
		stage: func(b *broker) {
			b.startWorker(&gloom.Worker{Type: "mail", Handler: stuckHandler})
			b.submitSteadily("mail", func(j *gloom.Job) { j.Expires = 50 * time.Millisecond })
		},
		resolve: func(b *broker) { b.disconnectAll() }},
	{name: "given back again and again", subject: "mail", wantText: "jobs of it without running them",
		stage: func(b *broker) {
			b.startWorker(&gloom.Worker{Type: "mail", Handler: func(context.Context, *gloom.Job) (any, error) {
				return nil, gloom.Release(20 * time.Millisecond)
			}})
			b.submitAcked(jobsOfType("mail", 20, nil)...)
		},
		resolve: func(b *broker) { b.disconnectAll() }},
	{name: "close to a limit", subject: "broker", wantText: "max-jobs", args: []string{"--max-jobs", "100"},
		stage: func(b *broker) { b.submitAcked(jobsOfType("report", 97, nil)...) },
		resolve: func(b *broker) {
			b.startWorker(&gloom.Worker{Type: "report", Handler: quickHandler, Concurrency: 4})
		}},
	{name: "refused at a limit", subject: "", wantText: "refused|full", args: []string{"--max-jobs", "20"},
		stage: func(b *broker) {
			b.submitAcked(jobsOfType("report", 20, nil)...)
			b.submitSteadily("mail", nil)
		}},
	{name: "connections turned away", subject: "broker", wantText: "max-conns|connection", args: []string{"--max-conns", "8"},
		stage: func(b *broker) {
			for range 12 {
				b.openRaw(b.submit, `{"action":"ping"}`)
			}
		}},
	{name: "wrong tokens", subject: "", wantText: "token",
		args: []string{"--token-file", "TOKENS"},
		stage: func(b *broker) {
			for range 5 {
				b.openRaw(b.worker, `{"action":"hello","token":"wrong"}`)
			}
		}},
	{name: "submitter that does not read", subject: "", wantText: "read",
		stage: func(b *broker) {
			body := `"` + strings.Repeat("x", 100_000) + `"`
			b.startWorker(&gloom.Worker{Type: "mail", Concurrency: 2, Handler: func(_ context.Context, j *gloom.Job) (any, error) { return j.Body, nil }})
			var frames []string
			for i := range 450 {
				frames = append(frames, fmt.Sprintf(`{"action":"submit","id":"u%d","type":"mail","ack":false,"body":%s}`, i, body))
			}
			c := b.openRaw(b.submit, `{"action":"hello","client":"deaf"}`)
			_ = c.(*net.TCPConn).SetReadBuffer(4096)
			go func() {
				for _, f := range frames {
					if _, err := c.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(f))), f...)); err != nil {
						return
					}
				}
			}()
		}},
	{name: "draining", subject: "", wantText: "drain", args: []string{"--drain-timeout", "10m"},
		stage: func(b *broker) {
			b.startWorker(&gloom.Worker{Type: "mail", Handler: stuckHandler})
			b.submitAcked(jobsOfType("mail", 1, nil)...)
			b.mustRequest("POST", "/v1/drain", "{}")
			b.t.Cleanup(b.Kill)
		}},
	{name: "dead letters", subject: "mail", wantText: "fail|dead",
		stage: func(b *broker) {
			stop := b.startWorker(&gloom.Worker{Type: "mail", Concurrency: 4, Handler: func(_ context.Context, j *gloom.Job) (any, error) {
				return nil, gloom.Fatal(errors.New("disk full"))
			}})
			b.submitAcked(jobsOfType("mail", 50, func(j *gloom.Job) { j.Detach = true })...)
			b.waitUntil("/v1/status", func(v map[string]any) bool { return number(v, "dead") == 50 })
			stop()
		}},
}

// TestStallsAreNamedUntilResolved stages stalls while a page is open. The page names each one and
// says what to do, and the finding disappears when the stall has been resolved.
func TestStallsAreNamedUntilResolved(t *testing.T) {
	t.Parallel()
	for _, s := range stalls {
		if testing.Short() && s.name != "no worker" && s.name != "the same reason again" {
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			args := s.args
			token := ""
			if len(args) > 1 && args[1] == "TOKENS" {
				b, file := startGuardedBroker(t)
				_ = b.Stop()
				args, token = []string{args[0], file}, "worker"
			}
			b := start(t, args...)
			b.token = token
			p := newPageUser(t)
			p.Ignore("status of 401", "status of 503", "net::ERR")
			p.goTo(b.url(""))
			if token != "" {
				p.enterToken("looker")
			}
			p.await("heading", healthyPattern)
			s.stage(b)
			stagedAt := time.Now()
			wantPattern := regexp.MustCompile("(?is)" + s.wantText)
			var found finding
			p.waitUntil("a finding of "+s.subject+" that fits "+s.wantText, func() bool {
				for _, f := range p.findings() {
					if wantPattern.MatchString(f.text) && strings.Contains(f.text, s.subject) || s.subject == "broker" && wantPattern.MatchString(f.text) {
						found = f
						return true
					}
				}
				return false
			})
			t.Logf("after %s: %s", time.Since(stagedAt).Round(10*time.Millisecond), found.text)
			if found.advice == "" {
				t.Errorf("it does not say what to do: %q", found.text)
			}
			if s.resolve == nil {
				return
			}
			s.resolve(b)
			resolved := time.Now()
			p.waitUntil("no finding of "+s.subject+" that fits "+s.wantText, func() bool {
				for _, f := range p.findings() {
					if wantPattern.MatchString(f.text) && strings.Contains(f.text, s.subject) {
						return false
					}
				}
				return true
			})
			t.Logf("gone %s after it was resolved", time.Since(resolved).Round(10*time.Millisecond))
		})
	}
}

// healthyPattern is a pattern for the heading when nothing is wrong; it allows one finding, because the
// machine may be slow.
const healthyPattern = "Everything is healthy|One thing needs attention"

// finding is a finding that the page lists: its text, which begins with the severity, and its
// advice.
type finding struct{ text, advice string }

// findings returns the findings that the page lists: each has a severity, a paragraph about the
// problem, and a paragraph with advice.
func (p *pageUser) findings() (findings []finding) {
	p.t.Helper()
	var item *element
	paragraph := 0
	for _, x := range p.elements() {
		switch {
		case x.role == "listitem":
			item, paragraph = x, 0
		case x.role == "StaticText" && x.parent == item && (x.name == "severe" || x.name == "warning" || x.name == "info"):
			findings = append(findings, finding{text: x.name + " "})
		case item == nil || len(findings) == 0 || x.parent == item && x.role == "StaticText":
		case x.role == "paragraph" && x.parent == item:
			paragraph++
		case x.role == "StaticText" && paragraph == 1:
			findings[len(findings)-1].text += x.name
		case x.role == "StaticText" && paragraph == 2:
			findings[len(findings)-1].advice += x.name
		case x.depth <= item.depth:
			item = nil
		}
	}
	return findings
}
