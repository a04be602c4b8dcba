package probe

import (
	"encoding/json"
	"testing"
)

// cancel cancels a job and reads the ok.
func (s submitter) cancel(id string) {
	s.t.Helper()
	s.send(`{"action":"cancel","id":%s}`, quote(id))
	s.wantAck(id)
}

func (s submitter) cancelFails(code, id string) {
	s.t.Helper()
	s.send(`{"action":"cancel","id":%s}`, quote(id))
	s.wantErrorFor(code, id)
}

// wantProgress reads a progress frame, which must be about this job.
func (s submitter) wantProgress(id, body string) {
	s.t.Helper()
	f := s.want("progress")
	if f.text("id") != id || string(f.keys["progress"]) != body {
		s.t.Fatalf("got %s, want progress of %q: %s", f, id, body)
	}
}

// fail fails a run and reads the ok. The string fields adds keys to the frame.
func (w worker) fail(fields string) {
	w.t.Helper()
	w.send(`{"action":"fail"%s}`, fields)
	w.wantOK()
}

func (w worker) sendProgress(body string) {
	w.t.Helper()
	w.send(`{"action":"progress","body":%s}`, body)
	w.wantOK()
}

func (w worker) leave() {
	w.t.Helper()
	w.send(`{"action":"leave"}`)
	w.wantOK()
}

// wantNotice reads a notice, which must be about this job.
func (w worker) wantNotice(id string) {
	w.t.Helper()
	if f := w.want("cancel"); f.text("id") != id {
		w.t.Fatalf("got %s, want a cancel of %q", f, id)
	}
}

// workerWithPrefetch returns a worker that joined with prefetch.
func (d *daemon) workerWithPrefetch(t tb, typ, prefetch string) worker {
	t.Helper()
	w := d.worker(t)
	w.joinWith(typ, `,"prefetch":`+prefetch)
	return w
}

// hello sends hello and returns the reply.
func (c *conn) hello(fields string) frame {
	c.t.Helper()
	c.send(`{"action":"hello"%s}`, fields)
	f := c.recv()
	if string(f.keys["ok"]) != "true" {
		c.t.Fatalf("hello: %s", f)
	}
	return f
}

func (c *conn) ping() {
	c.t.Helper()
	c.send(`{"action":"ping"}`)
	c.wantOK()
}

// helloLimits returns the limits in the reply to hello.
func helloLimits(t *testing.T, d *daemon) map[string]int64 {
	t.Helper()
	c := d.submitter(t)
	defer c.close()
	f := c.hello("")
	var l map[string]int64
	if err := json.Unmarshal(f.keys["limits"], &l); err != nil {
		t.Fatalf("hello: %s: limits: %v", f, err)
	}
	return l
}
