package probe

import (
	"errors"
	"net/http"
	"syscall"
	"testing"
	"time"
)

// awaitExit waits for the daemon's end and checks its exit code.
func (d *daemon) awaitExit(t *testing.T, limit time.Duration, code int) {
	t.Helper()
	if !d.endsWithin(scaledTime(limit)) {
		t.Fatalf("still running after %s", scaledTime(limit))
	}
	if got := d.State().ExitCode(); got != code {
		t.Errorf("ended with %s, want exit status %d", d.State(), code)
	}
}

// drain sends SIGTERM and waits until the broker refuses new jobs. The broker must have
// accepted the submitter's connection before: closing the listener also closes connections that
// wait in the kernel's backlog.
func (d *daemon) drain(t *testing.T, s submitter) {
	t.Helper()
	s.wantQuiet()
	d.Signal(syscall.SIGTERM)
	waitFor(t, "new submits are refused", func() error {
		id := freshName("late")
		s.sendSubmit(id, freshName("late"), `0`, "")
		f := s.recv()
		if f.kind() == "ack" {
			time.Sleep(time.Millisecond)
			return errNotYet
		}
		if f.text("error") != "draining" || f.text("id") != id {
			t.Fatalf("got %s, want draining for %q", f, id)
		}
		return nil
	})
}

var errNotYet = errors.New("not yet")

func TestDrainFinishesRunningJobs(t *testing.T) {
	t.Parallel()
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		t.Run("idle, "+sig.String(), func(t *testing.T) {
			t.Parallel()
			b := start(t, "--drain-timeout=60s")
			typ := freshName("drain")
			s, w := b.submitter(t), b.servingWorker(t, typ)
			checkServes(t, s, w, typ)
			b.Signal(sig)
			b.awaitExit(t, 5*time.Second, 0)
			s.wantEOF()
			w.wantEOF()
		})
	}
	t.Run("running jobs finish, then it ends at once", func(t *testing.T) {
		t.Parallel()
		b := start(t, "--drain-timeout=60s")
		typ := freshName("drain")
		s, latecomer, w1, w2 := b.submitter(t), b.submitter(t), b.servingWorker(t, typ), b.servingWorker(t, typ)
		id1, id2 := s.submitFresh(typ, `1`), s.submitFresh(typ, `2`)
		w1.wantJob(id1)
		w2.wantJob(id2)
		b.drain(t, latecomer)
		latecomer.close()
		w1.respond(`"one"`)
		s.wantResult(id1, `"one"`)
		w2.respond(`"two"`)
		s.wantResult(id2, `"two"`)
		s.wantEOF()
		w1.wantEOF()
		b.awaitExit(t, 5*time.Second, 0)
	})
	t.Run("leftovers are told", func(t *testing.T) {
		t.Parallel()
		b := start(t, "--drain-timeout=700ms")
		typ := freshName("drain")
		s, w := b.submitter(t), b.servingWorker(t, typ)
		runningID, queuedID := s.submitFresh(typ, `0`), s.submitFresh(freshName("nobody"), `0`)
		w.wantJob(runningID)
		begin := time.Now()
		b.Signal(syscall.SIGTERM)
		notifiedIDs := map[string]bool{}
		for range 2 {
			f := s.wantError("draining")
			notifiedIDs[f.text("id")] = true
		}
		if !notifiedIDs[runningID] || !notifiedIDs[queuedID] {
			t.Errorf("told about %v, want %q and %q", notifiedIDs, runningID, queuedID)
		}
		if d := time.Since(begin); d < 600*time.Millisecond {
			t.Errorf("the running job was given up after %s, drain timeout 700 ms", d)
		}
		s.wantEOF()
		w.wantEOF()
		b.awaitExit(t, 5*time.Second, 0)
	})
	t.Run("delayed and detached ones, too", func(t *testing.T) {
		t.Parallel()
		b := start(t, "--drain-timeout=500ms")
		s, w := b.submitter(t), b.servingWorker(t, freshName("drain"))
		delayedID := s.submitFreshWith(freshName("nobody"), `0`, `,"delay_ms":600000`)
		s.submitFreshWith(freshName("nobody"), `0`, `,"detach":true`)
		b.Signal(syscall.SIGTERM)
		s.wantErrorFor("draining", delayedID)
		s.wantEOF() // no frame about the detached job comes before the end
		w.wantEOF()
		b.awaitExit(t, 5*time.Second, 0)
	})
	t.Run("new submits while others run", func(t *testing.T) {
		t.Parallel()
		b := start(t, "--drain-timeout=60s")
		typ := freshName("drain")
		s, w, latecomer := b.submitter(t), b.servingWorker(t, typ), b.submitter(t)
		id := s.submitFresh(typ, `0`)
		w.wantJob(id)
		b.drain(t, latecomer)
		for range 5 {
			latecomer.sendSubmit("late", typ, `0`, "")
			latecomer.wantErrorFor("draining", "late")
		}
		w.wantQuiet()
		w.send(`{"action":"respond"}`) // requests are served as before
		w.wantError("missing_field")
		w.respond(`1`)
		s.wantResult(id, `1`)
		latecomer.close()
		b.awaitExit(t, 5*time.Second, 0)
	})
	t.Run("a worker lost while draining", func(t *testing.T) {
		t.Parallel()
		b := start(t, "--drain-timeout=1s")
		typ := freshName("drain")
		s, w, latecomer := b.submitter(t), b.servingWorker(t, typ), b.submitter(t)
		id := s.submitFresh(typ, `0`)
		w.wantJob(id)
		b.drain(t, latecomer)
		w.close()
		s.wantErrorFor("draining|job_failed", id)
		b.awaitExit(t, 6*time.Second, 0)
	})
	t.Run("a second signal stops at once", func(t *testing.T) {
		t.Parallel()
		b := start(t, "--drain-timeout=120s")
		typ := freshName("drain")
		s, w, latecomer := b.submitter(t), b.servingWorker(t, typ), b.submitter(t)
		id := s.submitFresh(typ, `0`)
		w.wantJob(id)
		b.drain(t, latecomer)
		b.Signal(syscall.SIGTERM)
		b.awaitExit(t, 3*time.Second, 3) // exit code 3: the drain was cut short
	})
	t.Run("a peer that never reads does not hold it up", func(t *testing.T) {
		t.Parallel()
		b := start(t, "--drain-timeout=1s")
		s := submitter{dialSlowReader(t, b.submitAddr)}
		typ := freshName("drain")
		id := s.submitFresh(typ, `0`)
		w := b.servingWorker(t, typ)
		w.wantJob(id)
		w.respond(quote(string(make([]byte, 1<<20))))
		b.Signal(syscall.SIGTERM)
		b.awaitExit(t, 15*time.Second, 0)
	})
	t.Run("health while draining", func(t *testing.T) {
		t.Parallel()
		b := start(t, "--drain-timeout=60s")
		typ := freshName("drain")
		s, w, latecomer := b.submitter(t), b.servingWorker(t, typ), b.submitter(t)
		id := s.submitFresh(typ, `0`)
		w.wantJob(id)
		b.drain(t, latecomer)
		if status, _, err := b.get("/metrics"); err != nil || status != http.StatusOK {
			t.Errorf("/metrics while draining: status %d, %v", status, err)
		}
		if status, _, err := b.get("/healthz"); err != nil || status != http.StatusOK {
			t.Errorf("/healthz while draining: status %d, %v", status, err)
		}
		w.respond(`1`)
		s.wantResult(id, `1`)
		latecomer.close()
		b.awaitExit(t, 5*time.Second, 0)
	})
}
