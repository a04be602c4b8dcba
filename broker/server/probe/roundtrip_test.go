package probe

import (
	"fmt"
	"strings"
	"testing"
)

func TestAnswerReachesSubmitter(t *testing.T) {
	t.Parallel()
	b := shared(t)
	t.Run("submit, then join", func(t *testing.T) {
		typ := freshName("echo")
		s := b.submitter(t)
		id := s.submitFresh(typ, `"Here"`)
		w := b.servingWorker(t, typ)
		f := w.want("job")
		if f.text("id") != id || f.text("type") != typ || string(f.keys["body"]) != `"Here"` {
			t.Fatalf("job %s", f)
		}
		w.respond(`"ohai!"`)
		s.wantResult(id, `"ohai!"`)
	})
	t.Run("join, then submit", func(t *testing.T) {
		typ := freshName("echo")
		w, s := b.servingWorker(t, typ), b.submitter(t)
		id := s.submitFresh(typ, `{"a":1}`)
		w.wantJob(id)
		w.respond(`{"b":2}`)
		s.wantResult(id, `{"b":2}`)
	})
	t.Run("many jobs on one pair", func(t *testing.T) {
		typ := freshName("echo")
		s, w := b.submitter(t), b.servingWorker(t, typ)
		for range 50 {
			checkServes(t, s, w, typ)
		}
	})
	t.Run("results in the order of the answers", func(t *testing.T) {
		typ := freshName("echo")
		w1, w2, s := b.servingWorker(t, typ), b.servingWorker(t, typ), b.submitter(t)
		id1, id2 := s.submitFresh(typ, `1`), s.submitFresh(typ, `2`)
		w1.wantJob(id1)
		w2.wantJob(id2)
		w2.respond(`"second"`)
		s.wantResult(id2, `"second"`)
		w1.respond(`"first"`)
		s.wantResult(id1, `"first"`)
	})
	t.Run("one job at a time per socket", func(t *testing.T) {
		typ := freshName("echo")
		w, s := b.servingWorker(t, typ), b.submitter(t)
		id1, id2 := s.submitFresh(typ, `1`), s.submitFresh(typ, `2`)
		w.wantJob(id1)
		w.wantQuiet()
		w.respond(`1`)
		w.wantJob(id2)
		w.respond(`2`)
	})
	t.Run("types are apart", func(t *testing.T) {
		a, z := freshName("a"), freshName("z")
		wa, wz, s := b.servingWorker(t, a), b.servingWorker(t, z), b.submitter(t)
		id := s.submitFresh(z, `1`)
		wz.wantJob(id)
		wa.wantQuiet()
	})
	t.Run("types are compared exactly", func(t *testing.T) {
		typ := freshName("Case")
		w, s := b.servingWorker(t, strings.ToLower(typ)), b.submitter(t)
		id := s.submitFresh(typ, `1`)
		w.wantQuiet()
		b.servingWorker(t, typ).wantJob(id)
	})
	t.Run("one socket may submit to many types", func(t *testing.T) {
		s := b.submitter(t)
		for range 5 {
			typ := freshName("echo")
			checkServes(t, s, b.servingWorker(t, typ), typ)
		}
	})
}

// TestFramesHaveExpectedKeys: frames have exactly the keys that existing clients expect.
func TestFramesHaveExpectedKeys(t *testing.T) {
	t.Parallel()
	b := shared(t)
	typ := freshName("shape")
	s, w := b.submitter(t), b.worker(t)
	check := func(name string, f frame, shape string) {
		t.Run(name, func(t *testing.T) {
			if f.sortedKeys() != shape {
				t.Errorf("%s: keys %q, want %q", f, f.sortedKeys(), shape)
			}
			if ok, has := f.keys["ok"]; has && string(ok) != "true" {
				t.Errorf("ok is %s, want the boolean true", ok)
			}
		})
	}
	w.send(`{"action":"join","type":%q}`, typ)
	check("join's ok", w.recv(), "ok")
	s.send(`{"action":"submit","id":"%s-1","type":%q,"body":{"x":[1]},"priority":5,"more":true}`, typ, typ)
	check("submit's ok", s.recv(), "id ok")
	check("job", w.recv(), "action body id type")
	w.send(`{"action":"respond","body":7}`)
	check("respond's ok", w.recv(), "ok")
	check("result", s.recv(), "body id")
	for _, e := range []struct{ name, payload string }{
		{"error without a job", `{"action":"frobnicate"}`},
		{"error about a job", fmt.Sprintf(`{"action":"submit","id":"%s-2","type":%q}`, typ, typ)},
	} {
		s.send("%s", e.payload)
		f := s.wantError("unknown_action|missing_field")
		t.Run(e.name, func(t *testing.T) {
			for _, key := range []string{"ok", "body", "action"} {
				if f.has(key) {
					t.Errorf("%s has key %q", f, key)
				}
			}
		})
	}
}

func TestDefaultTypeApplies(t *testing.T) {
	t.Parallel()
	t.Run("named default", func(t *testing.T) {
		b := start(t)
		w, s := b.servingWorker(t, "default"), b.submitter(t)
		for _, key := range []string{``, `,"type":null`, `,"type":"default"`} {
			id := freshName("job")
			s.send(`{"action":"submit","id":%q%s,"body":1}`, id, key)
			s.wantAck(id)
			f := w.want("job")
			if f.text("id") != id || f.text("type") != "default" {
				t.Errorf("with %q: job %s, want type default", key, f)
			}
			w.respond(`2`)
			s.wantResult(id, `2`)
		}
	})
	t.Run("renamed", func(t *testing.T) {
		b := start(t, "--default-type=misc")
		w, s := b.servingWorker(t, "misc"), b.submitter(t)
		s.send(`{"action":"submit","id":"d","body":1}`)
		s.wantAck("d")
		if f := w.want("job"); f.text("type") != "misc" {
			t.Errorf("job %s, want type misc", f)
		}
	})
	t.Run("empty refuses", func(t *testing.T) {
		b := start(t, "--default-type=")
		s := b.submitter(t)
		for _, key := range []string{``, `,"type":null`} {
			s.send(`{"action":"submit","id":"d"%s,"body":1}`, key)
			if f := s.wantErrorFor("missing_field", "d"); !strings.Contains(f.text("reason"), "type") {
				t.Errorf("reason %q does not name type", f.text("reason"))
			}
		}
		s.submit("d", "named", `1`)
	})
}

// TestReplyComesBeforeItsEffects: the reply to a request comes before any frame that the request causes, as
// clients expect.
func TestReplyComesBeforeItsEffects(t *testing.T) {
	t.Parallel()
	b := shared(t)
	t.Run("ack before the result", func(t *testing.T) {
		typ := freshName("fast")
		w, s := b.servingWorker(t, typ), b.submitter(t)
		const rounds = 300
		done := make(chan struct{})
		go func() {
			defer close(done)
			f := &parallelT{t}
			w := worker{&conn{f, w.net, w.in}}
			for range rounds {
				if fr, err := w.next(patience); err != nil || fr.kind() != "job" {
					t.Errorf("worker got %s, %v", fr, err)
					return
				}
				if err := w.write(packFrame(`{"action":"respond","body":0}`)); err != nil {
					t.Errorf("respond: %v", err)
					return
				}
				if fr, err := w.next(patience); err != nil || fr.kind() != "ok" {
					t.Errorf("worker got %s, %v, want ok", fr, err)
					return
				}
			}
		}()
		for range rounds {
			id := s.submitFresh(typ, `0`) // reads the ack first
			s.wantResult(id, `0`)
		}
		<-done
	})
	t.Run("join's ok before a waiting job", func(t *testing.T) {
		typ := freshName("waiting")
		s := b.submitter(t)
		for range 50 {
			id := s.submitFresh(typ, `0`)
			w := b.servingWorker(t, typ) // takes the ok first
			w.wantJob(id)
			w.respond(`0`)
			s.wantResult(id, `0`)
			w.close()
		}
	})
	t.Run("respond's ok before the next job", func(t *testing.T) {
		typ := freshName("next")
		s := b.submitter(t)
		var ids []string
		for range 100 {
			ids = append(ids, s.submitFresh(typ, `0`))
		}
		w := b.servingWorker(t, typ)
		for _, id := range ids {
			w.wantJob(id)
			w.respond(`0`) // takes the ok first
		}
	})
	t.Run("rejoin's ok before the next job", func(t *testing.T) {
		one, two := freshName("one"), freshName("two")
		s, w := b.submitter(t), b.servingWorker(t, one)
		id := s.submitFresh(two, `0`)
		w.join(two)
		w.wantJob(id)
	})
	t.Run("replies in the order of the requests", func(t *testing.T) {
		typ := freshName("pipeline")
		s := b.submitter(t)
		var batch []byte
		for i := range 100 {
			id := fmt.Sprintf("%s-%d", typ, i)
			batch = append(batch, packFrame(fmt.Sprintf(`{"action":"submit","id":%q,"type":%q,"body":%d}`, id, typ, i))...)
			batch = append(batch, packFrame(fmt.Sprintf(`{"action":"submit","id":%q,"type":%q,"body":%d}`, id, typ, i))...)
			batch = append(batch, packFrame(`{"action":"frobnicate"}`)...)
		}
		s.writeRaw(batch)
		for i := range 100 {
			id := fmt.Sprintf("%s-%d", typ, i)
			s.wantAck(id)
			s.wantErrorFor("id_exists", id)
			s.wantError("unknown_action")
		}
	})
	t.Run("a refused submit gets an error and nothing else", func(t *testing.T) {
		typ := freshName("dup")
		s := b.submitter(t)
		id := s.submitFresh(typ, `0`)
		s.sendSubmit(id, typ, `0`, "")
		s.wantErrorFor("id_exists", id)
		s.wantQuiet()
	})
}
