package gloom_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	gloom "gloom/clients/go"
	"gloom/wire"
)

// All clients share the golden frames. The meaning of a broker's frame must reach the
// caller, and the meaning of a call must reach the broker.

type goldenCase struct {
	Name        string          `json:"name"`
	Port        string          `json:"port"`
	Direction   string          `json:"direction"`
	Text        string          `json:"text"`
	Named       bool            `json:"named"`
	DefaultType *string         `json:"default_type"`
	Meaning     *goldenMeaning  `json:"meaning"`
	Error       json.RawMessage `json:"error"`
}

type goldenMeaning struct {
	Verb      string   `json:"verb"`
	Kind      string   `json:"kind"`
	ID        *string  `json:"id"`
	Type      string   `json:"type"`
	Body      string   `json:"body"`
	Priority  int64    `json:"priority"`
	DelayMS   int64    `json:"delay_ms"`
	TimeoutMS int64    `json:"timeout_ms"`
	Retries   *int     `json:"retries"`
	BackoffMS int64    `json:"backoff_ms"`
	ExpiresMS int64    `json:"expires_ms"`
	Detach    bool     `json:"detach"`
	Ack       *bool    `json:"ack"`
	Progress  bool     `json:"progress"`
	Prefetch  int      `json:"prefetch"`
	Reason    string   `json:"reason"`
	Retry     *bool    `json:"retry"`
	Token     string   `json:"token"`
	Client    string   `json:"client"`
	Heartbeat int64    `json:"heartbeat_ms"`
	Groups    []string `json:"groups"`
	AgeMS     int64    `json:"age_ms"`
	KeepMS    int64    `json:"keep_ms"`
	Types     []string `json:"types"`
	Except    []string `json:"except"`
	Headers   any      `json:"headers"` // text in a job or submit, true in a join
	State     string   `json:"state"`
	Code      string   `json:"code"`
	Cause     string   `json:"cause"`
}

func loadGolden(t *testing.T, file string) []goldenCase {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "..", "wire", "testdata", file))
	if err != nil {
		t.Fatal(err)
	}
	var doc struct{ Cases []goldenCase }
	if err := json.Unmarshal(data, &doc); err != nil {
		t.Fatal(err)
	}
	if len(doc.Cases) == 0 {
		t.Fatalf("%s has no cases", file)
	}
	return doc.Cases
}

func (m *goldenMeaning) idOr(otherwise string) string {
	if m.ID != nil {
		return *m.ID
	}
	return otherwise
}

// quoted returns an id as a broker may send it.
func quoted(id string) string { return `"` + string(wire.Canonical(nil, id)) + `"` }

func TestGoldenRepliesAreUnderstood(t *testing.T) {
	testedCases := 0
	for _, c := range loadGolden(t, "replies.json") {
		if c.Meaning == nil {
			continue
		}
		testedCases++
		t.Run(c.Name, func(t *testing.T) {
			switch {
			case c.Meaning.Kind == "job" || c.Meaning.Kind == "cancel":
				goldenToWorker(t, c)
			case strings.Contains(c.Text, `"server"`):
				goldenHello(t, c)
			default:
				goldenToSubmitter(t, c)
			}
		})
	}
	if testedCases < 30 {
		t.Errorf("only %d cases", testedCases)
	}
}

func goldenToSubmitter(t *testing.T, c goldenCase) {
	m := c.Meaning
	s, broker := dial(t, newFakeBroker(t))
	news := make(chan string, 1)
	id := m.idOr("unnamed")
	p := submit(t, s, gloom.Job{ID: id, Type: "t", OnProgress: func(b json.RawMessage) { news <- string(b) }})
	broker.read()
	ack, result := `{"ok":true,"id":`+quoted(id)+`}`, `{"id":`+quoted(id)+`,"body":0}`
	switch m.Kind {
	case "ok":
		if m.State != "" { // the reply to an attach, after a submit was refused because of a kept job
			broker.send(errorFrame("id_exists", id))
			wantError(t, resultError(t, p), gloom.ErrIDExists)
			var err error
			if p, err = s.Attach(waitContext(t), id, nil); err != nil {
				t.Fatal(err)
			}
			broker.read()
		}
		broker.send(c.Text)
		if err := p.Ack(waitContext(t)); err != nil {
			t.Fatal(err)
		}
	case "result":
		broker.send(ack, c.Text)
		wantResult(t, p, m.Body)
	case "progress":
		broker.send(ack, c.Text)
		if got := receive(t, news, "progress"); got != m.Body {
			t.Errorf("progress %s, want %s", got, m.Body)
		}
	case "ping":
		broker.send(c.Text)
		broker.expect(`{"action":"pong"}`)
	case "error":
		if code, known := wire.ParseCode(m.Code); known && (code.EndsJob() || code == wire.TakenOver) {
			broker.send(ack)
		}
		broker.send(c.Text)
		goldenError(t, resultError(t, p), m)
		return
	default:
		t.Fatalf("unknown kind %q", m.Kind)
	}
	if m.Kind == "ok" {
		broker.send(result)
		wantResult(t, p, "0")
	}
}

func goldenError(t *testing.T, err error, m *goldenMeaning) {
	wantError(t, err, gloom.Code(m.Code))
	var (
		refusal    *gloom.RefusedError
		job        *gloom.JobError
		reason, id string
	)
	switch {
	case errors.As(err, &refusal):
		reason, id = refusal.Reason, refusal.ID
	case errors.As(err, &job):
		reason, id = job.Reason, job.ID
		if job.Lost != (m.Cause == wire.CauseLost) {
			t.Errorf("lost is %v, the cause %q", job.Lost, m.Cause)
		}
	}
	if reason != m.Reason || m.ID != nil && id != *m.ID {
		t.Errorf("reason %q, id %q; want %q, %q", reason, id, m.Reason, m.idOr(""))
	}
}

func goldenHello(t *testing.T, c goldenCase) {
	f := newFakeBroker(t)
	go func() {
		broker := f.accept()
		broker.read()
		broker.send(c.Text)
	}()
	s, err := gloom.Dial(waitContext(t), gloom.Addrs(f.addr()), gloom.ClientName("golden"))
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
}

func goldenToWorker(t *testing.T, c goldenCase) {
	m := c.Meaning
	type seenJob struct{ id, typ, body, headers string }
	got, cancelled := make(chan seenJob, 1), make(chan struct{})
	broker := startJoinedWorker(t, newFakeBroker(t), &gloom.Worker{Handler: func(ctx context.Context, job *gloom.Job) (any, error) {
		got <- seenJob{job.ID, job.Type, string(job.Body), string(job.Headers)}
		<-ctx.Done()
		if errors.Is(context.Cause(ctx), gloom.ErrCancelled) {
			close(cancelled)
		}
		return nil, nil
	}})
	if m.Kind == "cancel" {
		broker.send(jobFrame(m.idOr(""), "1"))
		receive(t, got, "the job")
		broker.send(c.Text)
		receive(t, cancelled, "the end of the context")
		return
	}
	broker.send(c.Text)
	headers, _ := m.Headers.(string)
	if job := receive(t, got, "the job"); job != (seenJob{m.idOr(""), m.Type, m.Body, headers}) {
		t.Errorf("the handler got %q", job)
	}
}

func TestGoldenSubmitsAreSent(t *testing.T) {
	testedCases := 0
	for _, c := range loadGolden(t, "submitter.json") {
		if c.Meaning == nil {
			continue
		}
		testedCases++
		t.Run(c.Name, func(t *testing.T) {
			m := c.Meaning
			s, broker := dial(t, newFakeBroker(t))
			switch m.Verb {
			case "submit":
				submit(t, s, m.toJob())
			case "cancel":
				go s.Cancel(waitContext(t), m.idOr(""))
			case "change":
				go s.Change(waitContext(t), m.idOr(""), m.toChange(c.Text))
			case "attach":
				var news func(json.RawMessage)
				if m.Progress {
					news = func(json.RawMessage) {}
				}
				if _, err := s.Attach(waitContext(t), m.idOr(""), news); err != nil {
					t.Fatal(err)
				}
			default:
				t.Fatalf("no way to send %s", m.Verb)
			}
			sameMeaning(t, c, wire.SubmitPort, broker.read())
		})
	}
	if testedCases < 40 {
		t.Errorf("only %d cases", testedCases)
	}
}

func (m *goldenMeaning) toJob() gloom.Job {
	ms := func(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
	job := gloom.Job{
		ID: m.idOr(""), Type: m.Type, Body: json.RawMessage(m.Body), Priority: m.Priority,
		Delay: ms(m.DelayMS), Timeout: ms(m.TimeoutMS), Backoff: ms(m.BackoffMS), Expires: ms(m.ExpiresMS),
		Detach: m.Detach, NoAck: m.Ack != nil, Groups: m.Groups, Age: ms(m.AgeMS), Keep: ms(m.KeepMS),
	}
	if job.Backoff == 0 {
		job.Backoff = gloom.NoBackoff
	}
	if headers, ok := m.Headers.(string); ok {
		job.Headers = gloom.Headers(headers)
	}
	if m.Retries != nil {
		if job.Retries = *m.Retries; job.Retries == 0 {
			job.Retries = gloom.NoRetries
		}
	}
	if m.Progress {
		job.OnProgress = func(json.RawMessage) {}
	}
	return job
}

func (m *goldenMeaning) toChange(text string) (c gloom.Change) {
	if strings.Contains(text, `"priority"`) {
		c.Priority = &m.Priority
	}
	if strings.Contains(text, `"delay_ms"`) {
		c.Delay = new(time.Duration(m.DelayMS) * time.Millisecond)
	}
	c.Groups = m.Groups
	return c
}

// sameMeaning compares the client's frame with the golden frame, as a broker reads them.
func sameMeaning(t *testing.T, c goldenCase, port wire.Port, payload string) {
	t.Helper()
	read := func(payload string) (dec wire.Decoder, r wire.Request) {
		dec.DefaultType = "default"
		if c.DefaultType != nil {
			dec.DefaultType = *c.DefaultType
		}
		if err := dec.Decode([]byte(payload), port, c.Named, &r); err != nil {
			t.Fatalf("%s: %v", payload, err)
		}
		return dec, r
	}
	_, got := read(payload)
	_, want := read(c.Text)
	if port == wire.WorkerPort {
		want.WantCancels = got.WantCancels // a worker always asks for cancel frames
		if want.Verb == wire.Release && want.AfterMS == 0 {
			want.AfterMS = -1 // a delay of 0 is not sent
		}
		if want.Reason == nil {
			want.Reason = []byte(wire.DefaultFailReason)
		}
		if want.Verb != wire.Fail {
			want.Reason = nil
		}
	}
	if !sameRequest(got, want) {
		t.Errorf("sent %s\nfor  %s", payload, c.Text)
	}
}

func sameRequest(a, b wire.Request) bool {
	for _, pair := range [][2]*[]byte{{&a.ID, &b.ID}, {&a.Type, &b.Type}, {&a.Body, &b.Body}, {&a.Reason, &b.Reason},
		{&a.Token, &b.Token}, {&a.Client, &b.Client}} {
		if string(*pair[0]) != string(*pair[1]) {
			return false
		}
		*pair[0], *pair[1] = nil, nil
	}
	x, _ := json.Marshal(a)
	y, _ := json.Marshal(b)
	return string(x) == string(y)
}

func TestGoldenWorkIsSent(t *testing.T) {
	testedCases := 0
	for _, c := range loadGolden(t, "worker.json") {
		if c.Meaning == nil {
			continue
		}
		testedCases++
		t.Run(c.Name, func(t *testing.T) { goldenWork(t, c) })
	}
	if testedCases < 20 {
		t.Errorf("only %d cases", testedCases)
	}
}

// goldenWork makes a worker send a frame with the case's meaning.
func goldenWork(t *testing.T, c goldenCase) {
	m := c.Meaning
	f := newFakeBroker(t)
	w := &gloom.Worker{Type: "echo", Handler: func(_ context.Context, job *gloom.Job) (any, error) {
		switch m.Verb {
		case "progress":
			return nil, job.Progress([]byte(m.Body))
		case "release":
			return nil, gloom.Release(time.Duration(m.DelayMS) * time.Millisecond)
		case "fail":
			err := errors.New(m.Reason)
			if m.Retry != nil && m.DelayMS == 0 {
				return nil, gloom.Fatal(err)
			}
			if strings.Contains(c.Text, `"delay_ms":`) && !strings.Contains(c.Text, `"delay_ms":null`) {
				return nil, gloom.RetryAfter(err, time.Duration(m.DelayMS)*time.Millisecond)
			}
			return nil, err
		}
		return []byte(m.Body), nil
	}}
	if m.Verb == "join" {
		w.Type, w.Types, w.Except, w.Prefetch = m.Type, m.Types, m.Except, m.Prefetch
		w.Headers = m.Headers == true
	} else if c.Named {
		w.Prefetch = 1
	}
	w.Options = []gloom.Option{gloom.Addrs(f.addr())}
	go w.Start(waitContext(t))
	defer func() {
		<-w.Done()
	}()
	now, cancel := context.WithCancel(context.Background())
	cancel()
	defer w.Stop(now)
	broker := f.accept()
	frame := broker.read()
	if m.Verb != "join" {
		broker.send(`{"ok":true}`)
		if m.Verb == "leave" {
			go w.Stop(waitContext(t))
		} else {
			broker.send(`{"action":"job","id":` + quoted(m.idOr("a1")) + `,"type":"echo","body":1}`)
		}
		frame = broker.read()
	}
	if m.Verb == "fail" && m.Retry != nil && m.DelayMS != 0 {
		c.Text = strings.Replace(c.Text, `,"retry":false`, "", 1) // a final failure has no delay here
	}
	sameMeaning(t, c, wire.WorkerPort, frame)
}

func TestGoldenHelloIsSent(t *testing.T) {
	testedCases := 0
	for _, c := range loadGolden(t, "both.json") {
		if c.Meaning == nil || c.Meaning.Verb != "hello" {
			continue
		}
		m := c.Meaning
		if m.Token == "" && m.Client == "" && m.Heartbeat == 0 {
			continue // without options no hello is sent
		}
		testedCases++
		t.Run(c.Name, func(t *testing.T) {
			f := newFakeBroker(t)
			s, err := gloom.NewSubmitter(gloom.Addrs(f.addr()), gloom.Token(m.Token), gloom.ClientName(m.Client),
				gloom.Heartbeat(time.Duration(m.Heartbeat)*time.Millisecond))
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			sameMeaning(t, c, wire.SubmitPort, f.accept().read())
		})
	}
	if testedCases < 3 {
		t.Errorf("only %d cases", testedCases)
	}
}

// The constants must be those of package wire.
func TestCodesAreThoseOfWire(t *testing.T) {
	clientCodes := map[gloom.Code]bool{
		gloom.ErrMissingField: true, gloom.ErrInvalidType: true, gloom.ErrInvalidValue: true, gloom.ErrInvalidAction: true,
		gloom.ErrUnknownAction: true, gloom.ErrInvalidState: true, gloom.ErrIDExists: true, gloom.ErrUnknownID: true,
		gloom.ErrInvalidJSON: true, gloom.ErrSizeError: true, gloom.ErrForbidden: true, gloom.ErrUnauthorized: true,
		gloom.ErrOverloaded: true, gloom.ErrDraining: true, gloom.ErrJobFailed: true, gloom.ErrExpired: true, gloom.ErrCancelled: true,
		gloom.ErrTakenOver: true,
	}
	for _, code := range wire.Codes() {
		if !clientCodes[gloom.Code(code.String())] {
			t.Errorf("no constant for %s", code)
		}
		delete(clientCodes, gloom.Code(code.String()))
	}
	if len(clientCodes) != 0 {
		t.Errorf("constants that are no codes: %v", clientCodes)
	}
}
