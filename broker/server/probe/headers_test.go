package probe

import (
	"strings"
	"testing"
)

// wantJobHeaders reads the next frame, which must be this job with these headers ("" for none).
func (w worker) wantJobHeaders(id, headers string) {
	w.t.Helper()
	f := w.recv()
	shape := "action body headers id type"
	if headers == "" {
		shape = "action body id type"
	}
	if f.sortedKeys() != shape || f.text("action") != "job" || f.text("id") != id || string(f.keys["headers"]) != headers {
		w.t.Fatalf("got %s, want job %q with headers %.300s", f, id, headers)
	}
}

func TestHeadersReachWorkersThatAsk(t *testing.T) {
	t.Parallel()
	b := shared(t)
	full := `{"x":"` + strings.Repeat("h", 4096-8) + `"}`
	t.Run("verbatim", func(t *testing.T) {
		for _, h := range []string{
			`{"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01","tracestate":"a=1"}`,
			`{}`, `{ }`, `{"b" : 1 , "a":[1.0,1e400,-0]}`, `{"é":"\u00e9\n","😀":"\ud83d\ude00"}`, `{"a":{"b":{"c":null}}}`,
			`{"":""}`, `{"id":"fake","action":"respond","body":9}`, `{"n":123456789012345678901234567890}`, full,
		} {
			typ := freshName("head")
			s, w := b.submitter(t), b.worker(t)
			w.joinWith(typ, `,"headers":true`)
			id := s.submitFreshWith(typ, `1`, `,"headers":`+h)
			w.wantJobHeaders(id, h)
			w.respond(`2`)
			s.wantResult(id, `2`) // no result has headers
		}
	})
	t.Run("only when there", func(t *testing.T) {
		typ := freshName("head")
		s, w := b.submitter(t), b.worker(t)
		w.joinWith(typ, `,"headers":true`)
		for _, fields := range []string{``, `,"headers":null`} {
			id := s.submitFreshWith(typ, `1`, fields)
			w.wantJobHeaders(id, "")
			w.respond(`1`)
			s.wantResult(id, `1`)
		}
	})
	t.Run("only to who asked", func(t *testing.T) {
		for _, fields := range []string{``, `,"headers":false`, `,"headers":null`} {
			typ := freshName("head")
			s, w := b.submitter(t), b.worker(t)
			w.joinWith(typ, fields)
			id := s.submitFreshWith(typ, `1`, `,"headers":{"a":1}`)
			w.wantJobHeaders(id, "")
			w.respond(`1`)
		}
	})
	t.Run("set anew by each join", func(t *testing.T) {
		typ := freshName("head")
		s, w := b.submitter(t), b.worker(t)
		w.joinWith(typ, `,"headers":true`)
		w.join(typ)
		id := s.submitFreshWith(typ, `1`, `,"headers":{"a":1}`)
		w.wantJobHeaders(id, "")
		w.joinWith(typ, `,"headers":true`)
		w.respond(`1`)
		s.wantResult(id, `1`)
		id = s.submitFreshWith(typ, `1`, `,"headers":{"a":2}`)
		w.wantJobHeaders(id, `{"a":2}`)
	})
	t.Run("with types and prefetch", func(t *testing.T) {
		p := freshName("head")
		s, w := b.submitter(t), b.worker(t)
		w.joinTypes(jsonList(p+"*"), `,"headers":true,"prefetch":3`)
		first := s.submitFreshWith(p+"-a", `1`, `,"headers":{"a":1}`)
		second := s.submitFresh(p+"-b", `1`)
		third := s.submitFreshWith(p+"-c", `1`, `,"headers":{"a":3}`)
		w.wantJobHeaders(first, `{"a":1}`)
		w.wantJobHeaders(second, "")
		w.wantJobHeaders(third, `{"a":3}`)
	})
	t.Run("through loss, failure, release and delay", func(t *testing.T) {
		typ := freshName("head")
		s, w := b.submitter(t), b.worker(t)
		w.joinWith(typ, `,"headers":true`)
		const h = `{"k" : "v"}`
		id := s.submitFreshWith(typ, `1`, `,"delay_ms":20,"headers":`+h)
		w.wantJobHeaders(id, h)
		w.close()
		w = b.worker(t)
		w.joinWith(typ, `,"headers":true`)
		w.wantJobHeaders(id, h)
		w.fail(`,"delay_ms":10`)
		w.wantJobHeaders(id, h)
		w.release("")
		w.wantJobHeaders(id, h)
		w.release(`,"delay_ms":10`)
		w.wantJobHeaders(id, h)
	})
	t.Run("through change and attach", func(t *testing.T) {
		typ := freshName("head")
		s, w, successor := b.submitter(t), b.worker(t), b.submitter(t)
		id := s.submitFreshWith(typ, `1`, `,"delay_ms":60000,"keep_ms":60000,"headers":{"k":"v"}`)
		s.change(id, `"priority":5`)
		s.close()
		successor.attach(id, "delayed", "")
		successor.change(id, `"delay_ms":0`)
		w.joinWith(typ, `,"headers":true`)
		w.wantJobHeaders(id, `{"k":"v"}`)
		w.respond(`2`)
		successor.wantResult(id, `2`)
	})
	t.Run("in no progress and no error", func(t *testing.T) {
		typ := freshName("head")
		s, w := b.submitter(t), b.servingWorker(t, typ)
		id := s.submitFreshWith(typ, `1`, `,"headers":{"a":1},"progress":true,"retries":0`)
		w.wantJob(id)
		w.sendProgress(`1`)
		s.wantProgress(id, `1`)
		w.fail("")
		if f := s.wantErrorFor("job_failed", id); f.has("headers") {
			t.Errorf("headers in %s", f)
		}
	})
	t.Run("refused", func(t *testing.T) {
		s := b.submitter(t)
		for _, v := range []string{`"a"`, `[]`, `[{}]`, `5`, `true`, `false`, `""`} {
			id := freshName("head")
			s.sendSubmit(id, "t", `1`, `,"headers":`+v)
			checkReason(t, s.wantErrorFor("invalid_type", id), "headers")
		}
		for _, v := range []string{
			`{"x":"` + strings.Repeat("h", 4096-7) + `"}`, // 4097 bytes
			`{` + strings.Repeat(" ", 4095) + `}`,         // spaces count
			`{"x":"` + strings.Repeat(`\u0061`, 700) + `"}`,
			`{"x":"` + strings.Repeat("h", 1<<20) + `"}`,
		} {
			id := freshName("head")
			s.sendSubmit(id, "t", `1`, `,"headers":`+v)
			checkReason(t, s.wantErrorFor("invalid_value", id), "headers", "4096")
			s.sendSubmit(id, "t", `1`, `,"ack":false,"headers":`+v)
			s.wantErrorFor("invalid_value", id)
			s.submit(id, freshName("head"), `1`) // the refused requests changed nothing
		}
		s.submitFreshWith(freshName("head"), `1`, `,"headers":{`+strings.Repeat(" ", 4094)+`}`)
	})
}
