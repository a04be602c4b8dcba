package probe

import (
	"fmt"
	"strings"
	"testing"
)

// attach attaches to a kept job and checks the state in the reply. The string fields adds keys to
// the frame.
func (s submitter) attach(id, state, fields string) {
	s.t.Helper()
	s.send(`{"action":"attach","id":%s%s}`, quote(id), fields)
	s.wantAttached(id, state)
}

func (s submitter) wantAttached(id, state string) {
	s.t.Helper()
	f := s.recv()
	if f.sortedKeys() != "id ok state" || f.text("id") != id || f.text("state") != state {
		s.t.Fatalf("got %s, want ok for %q in state %s", f, id, state)
	}
}

func (s submitter) attachFails(code, id string) frame {
	s.t.Helper()
	s.send(`{"action":"attach","id":%s}`, quote(id))
	return s.wantErrorFor(code, id)
}

func TestAttachTakesJobOver(t *testing.T) {
	t.Parallel()
	b := shared(t)
	t.Run("in every state, and the result comes here", func(t *testing.T) {
		typ := freshName("attach")
		s, w := b.submitter(t), b.worker(t)
		id := s.submitFreshWith(typ, `1`, keepField+`,"delay_ms":60000`)
		b.loseSubmitter(t, s, (*conn).close)
		s1, s2, s3 := b.submitter(t), b.submitter(t), b.submitter(t)
		s1.attach(id, "delayed", "")
		s1.change(id, `"delay_ms":0`)
		b.loseSubmitter(t, s1, (*conn).reset)
		s2.attach(id, "queued", "")
		b.loseSubmitter(t, s2, (*conn).close)
		w.join(typ)
		w.wantJob(id)
		s3.attach(id, "running", "")
		w.respond(`2`)
		s3.wantResult(id, `2`)
		s3.wantQuiet()
	})
	t.Run("taken over while its connection lives", func(t *testing.T) {
		typ := freshName("attach")
		s, successor, w := b.submitter(t), b.submitter(t), b.worker(t)
		id := s.submitFreshWith(typ, `1`, keepField+`,"progress":true`)
		successor.attach(id, "queued", `,"progress":true`)
		s.wantErrorFor("taken_over", id)
		s.cancelFails("unknown_id", id)
		s.changeFails("unknown_id", id, `"priority":1`)
		w.join(typ)
		w.wantJob(id)
		w.sendProgress(`1`)
		successor.wantProgress(id, `1`)
		s.attach(id, "running", "") // and back
		successor.wantErrorFor("taken_over", id)
		w.sendProgress(`2`)
		successor.close() // the successor has lost the job to s, so its end changes nothing
		w.respond(`2`)
		s.wantResult(id, `2`)
		s.wantQuiet()
	})
	t.Run("who lost it may go, the job stays", func(t *testing.T) {
		typ := freshName("attach")
		s, successor := b.submitter(t), b.submitter(t)
		id := s.submitFreshWith(typ, `1`, keepField)
		successor.attach(id, "queued", "")
		s.wantErrorFor("taken_over", id)
		b.loseSubmitter(t, s, (*conn).close)
		successor.attach(id, "queued", "") // has it already
		successor.wantQuiet()
		successor.cancel(id)
		successor.cancelFails("unknown_id", id)
	})
	t.Run("progress is set anew by each", func(t *testing.T) {
		typ := freshName("attach")
		s, w := b.submitter(t), b.servingWorker(t, typ)
		id := s.submitFreshWith(typ, `1`, keepField+`,"progress":true`)
		w.wantJob(id)
		for _, c := range []struct {
			fields        string
			wantsProgress bool
		}{{"", false}, {`,"progress":true`, true}, {`,"progress":false`, false}, {`,"progress":null`, false}, {`,"progress":true`, true}} {
			s.attach(id, "running", c.fields)
			w.sendProgress(`7`)
			if c.wantsProgress {
				s.wantProgress(id, `7`)
			}
			s.wantQuiet()
		}
	})
	t.Run("not there, detached, bound to another", func(t *testing.T) {
		typ := freshName("attach")
		s, other, w := b.submitter(t), b.submitter(t), b.servingWorker(t, freshName("none"))
		other.attachFails("unknown_id", "no such job")
		other.attachFails("unknown_id", s.submitFreshWith(typ, `1`, `,"detach":true`))
		s.attachFails("unknown_id", s.submitFreshWith(typ, `1`, `,"detach":true`))
		id := s.submitFresh(typ, `1`)
		other.attachFails("unknown_id", id)
		s.wantQuiet()
		w.join(typ)
		w.nextJob()
	})
	t.Run("an unwanted run", func(t *testing.T) {
		typ := freshName("attach")
		s, w := b.submitter(t), b.servingWorker(t, typ)
		id := s.submitFreshWith(typ, `1`, keepField)
		w.wantJob(id)
		s.cancel(id)
		s.attachFails("unknown_id", id)
		b.submitter(t).attachFails("unknown_id", id)
		s.sendSubmit(id, typ, `1`, "")
		s.wantErrorFor("id_exists", id) // the run holds the id until its end
		w.respond(`2`)
		s.submit(id, typ, `1`)
		b.awaitLedger(t, typ, map[string]int64{"submitted": 2, "cancelled": 1, "running": 1})
	})
	t.Run("in the order of replies", func(t *testing.T) {
		typ := freshName("attach")
		id := b.makeOutcome(t, typ, `2`, "")
		s := b.submitter(t)
		s.writeRaw([]byte(string(packFrame(`{"action":"ping"}`)) + string(packFrame(`{"action":"attach","id":`+quote(id)+`}`)) + string(packFrame(`{"action":"ping"}`))))
		s.wantOK()
		s.wantAttached(id, "ended")
		s.wantResult(id, `2`)
		s.wantOK()
	})
	t.Run("many in one segment", func(t *testing.T) {
		typ := freshName("attach")
		s, w := b.submitter(t), b.worker(t)
		var ids []string
		var batch []byte
		for range 200 {
			id := s.submitFreshWith(typ, `1`, keepField)
			ids = append(ids, id)
			batch = append(batch, packFrame(`{"action":"attach","id":`+quote(id)+`}`)...)
		}
		b.loseSubmitter(t, s, (*conn).reset)
		w.join(typ)
		for i, id := range ids {
			w.wantJob(id)
			w.respond(fmt.Sprint(i))
		}
		successor := b.submitter(t)
		successor.writeRaw(batch)
		for i, id := range ids {
			successor.wantAttached(id, "ended")
			successor.wantResult(id, fmt.Sprint(i))
		}
		successor.wantQuiet()
	})
	t.Run("progress of the wrong kind", func(t *testing.T) {
		typ := freshName("attach")
		s, other := b.submitter(t), b.submitter(t)
		id := s.submitFreshWith(typ, `1`, keepField)
		for _, v := range nonBooleans {
			other.send(`{"action":"attach","id":%q,"progress":%s}`, id, v)
			checkReason(t, other.wantErrorFor("invalid_type", id), "progress")
		}
		s.wantQuiet() // no refused attach took the job from s
	})
	t.Run("with every answer crossing: nothing is lost", func(t *testing.T) {
		typ := freshName("attach")
		w := b.servingWorker(t, typ)
		wins := map[string]int{}
		for range 60 {
			s, successor := b.submitter(t), b.submitter(t)
			id := s.submitFreshWith(typ, `1`, keepField)
			w.wantJob(id)
			w.send(`{"action":"respond","body":"x"}`)
			successor.send(`{"action":"attach","id":%q}`, id)
			f := successor.recv()
			switch {
			case f.text("error") == "unknown_id":
				s.wantResult(id, `"x"`)
			case f.has("ok"):
				successor.wantResult(id, `"x"`)
			default:
				t.Fatalf("attach: %s", f)
			}
			wins[f.text("error")+f.text("state")]++
			w.wantOK()
			s.close()
			successor.close()
		}
		t.Logf("won by %v", wins)
	})
	t.Run("with every cut crossing: every answer once", func(t *testing.T) {
		typ := freshName("attach")
		w := b.servingWorker(t, typ)
		for i := range 60 {
			s := b.submitter(t)
			id := s.submitFreshWith(typ, `1`, keepField)
			w.wantJob(id)
			if i%2 == 0 {
				s.reset()
			}
			w.send(`{"action":"respond","body":"x"}`)
			if i%2 == 1 {
				s.halfClose() // s can still read: the result arrives here, or is kept, or both
			}
			w.wantOK()
			if i%2 == 1 {
				if f, err := s.next(patience); err == nil && f.kind() == "result" {
					continue
				}
			}
			successor := b.submitter(t)
			successor.send(`{"action":"attach","id":%q}`, id)
			f := successor.recv()
			if f.text("error") == "unknown_id" {
				continue // the result was written completely to the connection that was cut
			}
			successor.wantResult(id, `"x"`)
		}
	})
	t.Run("with tokens", func(t *testing.T) {
		b := start(t, "--token-file="+tokenFile(t, tokenLines))
		s, w := b.submitterAs(t, "all-1"), b.workerAs(t, "all-1")
		id := s.submitFreshWith("img-a", `1`, keepField)
		other := b.submitterAs(t, "img-1")
		other.attachFails("unknown_id", id)
		w.join("img-a")
		w.wantJob(id)
		other.attachFails("unknown_id", id)
		boundID := s.submitFresh("elsewhere", `1`)
		s.close()
		w.respond(`2`)
		waitFor(t, "its connection is gone", func() error {
			if status, body, err := b.request("GET", "/v1/jobs/"+boundID, "admin-1"); err != nil || status != 200 || !strings.Contains(body, `"discarded"`) {
				return fmt.Errorf("%d %s %v", status, body, err)
			}
			return nil
		})
		for _, verb := range []string{"attach", "cancel"} {
			other.send(`{"action":%q,"id":%q}`, verb, id)
			other.wantErrorFor("unknown_id", id)
		}
		successor := b.submitterAs(t, "all-1")
		successor.attach(id, "ended", "")
		successor.wantResult(id, `2`)
	})
}
