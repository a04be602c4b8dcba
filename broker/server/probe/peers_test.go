package probe

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

var nameSerial atomic.Int64

// freshName returns a name for a type or an id that no other test uses.
func freshName(prefix string) string { return fmt.Sprintf("%s-%d", prefix, nameSerial.Add(1)) }

// submitter is a connection on the submit port.
type submitter struct{ *conn }

// worker is a connection on the worker port.
type worker struct{ *conn }

func (d *daemon) submitter(t tb) submitter { t.Helper(); return submitter{dial(t, d.submitAddr)} }
func (d *daemon) worker(t tb) worker       { t.Helper(); return worker{dial(t, d.workerAddr)} }

// servingWorker returns a worker that serves a type.
func (d *daemon) servingWorker(t tb, typ string) worker {
	t.Helper()
	w := d.worker(t)
	w.join(typ)
	return w
}

// sendSubmit sends a submit and reads no reply. The string fields adds keys to the frame.
func (s submitter) sendSubmit(id, typ, body, fields string) {
	s.t.Helper()
	s.send(`{"action":"submit","id":%s,"type":%s,"body":%s%s}`, quote(id), quote(typ), body, fields)
}

// submit submits a job and reads its ack.
func (s submitter) submit(id, typ, body string) {
	s.t.Helper()
	s.sendSubmit(id, typ, body, "")
	s.wantAck(id)
}

// submitWith also sets further keys, written as `,"priority":5`.
func (s submitter) submitWith(id, typ, body, fields string) {
	s.t.Helper()
	s.sendSubmit(id, typ, body, fields)
	s.wantAck(id)
}

// submitFresh submits a job under a new id and returns the id.
func (s submitter) submitFresh(typ, body string) string {
	s.t.Helper()
	id := freshName("job")
	s.submit(id, typ, body)
	return id
}

func (s submitter) submitFreshWith(typ, body, fields string) string {
	s.t.Helper()
	id := freshName("job")
	s.submitWith(id, typ, body, fields)
	return id
}

func (w worker) join(typ string) {
	w.t.Helper()
	w.send(`{"action":"join","type":%s}`, quote(typ))
	w.wantOK()
}

func (w worker) joinWith(typ, fields string) {
	w.t.Helper()
	w.send(`{"action":"join","type":%s%s}`, quote(typ), fields)
	w.wantOK()
}

// nextJob reads the next frame, which must be a job.
func (w worker) nextJob() (id, body string) {
	w.t.Helper()
	f := w.want("job")
	return f.text("id"), string(f.keys["body"])
}

// wantJob reads the next frame, which must be this job.
func (w worker) wantJob(id string) {
	w.t.Helper()
	if got, _ := w.nextJob(); got != id {
		w.t.Fatalf("worker got job %q, want %q", got, id)
	}
}

// respond answers and reads the ok.
func (w worker) respond(body string) {
	w.t.Helper()
	w.send(`{"action":"respond","body":%s}`, body)
	w.wantOK()
}

// respondTo answers the job with this id and reads the ok.
func (w worker) respondTo(id, body string) {
	w.t.Helper()
	w.send(`{"action":"respond","id":%s,"body":%s}`, quote(id), body)
	w.wantOK()
}

// retire makes an idle worker join an unused type, then closes it. Without the join the worker
// might get another job, because the broker notices only later that a connection has closed.
func (w worker) retire() {
	w.t.Helper()
	w.join(freshName("retired"))
	w.close()
}

// checkServes submits and answers one job, to check that both peers still work.
func checkServes(t tb, s submitter, w worker, typ string) {
	t.Helper()
	id := s.submitFresh(typ, `"ping"`)
	w.wantJob(id)
	w.respond(`"pong"`)
	s.wantResult(id, `"pong"`)
}

// checkAlive checks that the daemon serves new peers.
func (d *daemon) checkAlive(t tb) {
	t.Helper()
	typ := freshName("alive")
	s, w := d.submitter(t), d.servingWorker(t, typ)
	checkServes(t, s, w, typ)
	s.close()
	w.retire()
}

// submitWhenFree submits a job under this id until the id is free, and returns the submitter.
func (d *daemon) submitWhenFree(t tb, id, typ string) submitter {
	t.Helper()
	s := d.submitter(t)
	waitFor(t, fmt.Sprintf("id %q is free", id), func() error {
		s.sendSubmit(id, typ, `"claimed"`, "")
		f := s.recv()
		switch {
		case f.kind() == "ack":
			return nil
		case f.text("error") == "id_exists":
			return fmt.Errorf("%s", f)
		}
		t.Fatalf("claim %q: %s", id, f)
		return nil
	})
	return s
}

// waitFor calls check until it returns nil, which must happen in time.
func waitFor(t tb, name string, check func() error) {
	t.Helper()
	end := time.Now().Add(patience)
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("not within %s: %s: %v", patience, name, err)
			return
		}
		time.Sleep(pause)
	}
}

// parallelT is a part of a test that runs in a goroutine of its own. Fatalf ends only that
// goroutine.
type parallelT struct{ *testing.T }

func (f *parallelT) Fatalf(format string, args ...any) {
	f.T.Helper()
	f.T.Errorf(format, args...)
	runtime.Goexit()
}

// runParallel runs do in n goroutines, and waits for all of them.
func runParallel(t *testing.T, n int, do func(f *parallelT, i int)) {
	t.Helper()
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { do(&parallelT{t}, i) })
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
}
