package probe

import (
	"fmt"
	"strings"
	"testing"
)

// refusal is a request and the error that it must get.
type refusal struct {
	name, payload string
	code          string // alternatives split by "|"
	reason        string // must occur in the reason
	id            string // the id that the error must carry; "" for any
}

var submitRefusals = []refusal{
	{"empty object", `{}`, "missing_field", "action", ""},
	{"no action", `{"id":"r","type":"t","body":1}`, "missing_field", "action", ""},
	{"action null", `{"action":null}`, "missing_field|invalid_type", "action", ""},
	{"action a number", `{"action":5,"id":"r","type":"t","body":1}`, "invalid_type", "action", ""},
	{"action an array", `{"action":["submit"],"id":"r","type":"t","body":1}`, "invalid_type", "action", ""},
	{"action an object", `{"action":{}}`, "invalid_type", "action", ""},
	{"action a boolean", `{"action":true}`, "invalid_type", "action", ""},
	{"unknown action", `{"action":"frobnicate"}`, "unknown_action", "", ""},
	{"unknown action, long", `{"action":"` + strings.Repeat("long", 5000) + `"}`, "unknown_action", "", ""},
	{"a frame of ours as an action", `{"action":"job","id":"r","type":"t","body":1}`, "unknown_action", "", ""},
	{"action with a space", `{"action":"submit ","id":"r","type":"t","body":1}`, "unknown_action", "", ""},
	{"join", `{"action":"join","type":"t"}`, "invalid_action", "not_a_slave", ""},
	{"join without type", `{"action":"join"}`, "invalid_action", "not_a_slave", ""},
	{"respond", `{"action":"respond","body":1}`, "invalid_action", "not_a_slave", ""},
	{"no id", `{"action":"submit","type":"t","body":1}`, "missing_field", "id", ""},
	{"no body", `{"action":"submit","id":"r","type":"t"}`, "missing_field", "body", "r"},
	{"no body, no type", `{"action":"submit","id":"r"}`, "missing_field", "body", "r"},
	{"priority a string", `{"action":"submit","id":"r","type":"t","body":1,"priority":"5"}`, "invalid_type", "priority", "r"},
	{"priority a fraction", `{"action":"submit","id":"r","type":"t","body":1,"priority":1.5}`, "invalid_type", "priority", "r"},
	{"priority 5.0", `{"action":"submit","id":"r","type":"t","body":1,"priority":5.0}`, "invalid_type", "priority", "r"},
	{"priority with exponent", `{"action":"submit","id":"r","type":"t","body":1,"priority":1e2}`, "invalid_type", "priority", "r"},
	{"priority true", `{"action":"submit","id":"r","type":"t","body":1,"priority":true}`, "invalid_type", "priority", "r"},
	{"priority an array", `{"action":"submit","id":"r","type":"t","body":1,"priority":[]}`, "invalid_type", "priority", "r"},
	{"priority an object", `{"action":"submit","id":"r","type":"t","body":1,"priority":{}}`, "invalid_type", "priority", "r"},
	{"priority above int64", `{"action":"submit","id":"r","type":"t","body":1,"priority":9223372036854775808}`, "invalid_type", "priority", "r"},
	{"priority below int64", `{"action":"submit","id":"r","type":"t","body":1,"priority":-9223372036854775809}`, "invalid_type", "priority", "r"},
	{"priority that wraps to 5", `{"action":"submit","id":"r","type":"t","body":1,"priority":18446744073709551621}`, "invalid_type", "priority", "r"},
	{"priority of 400 digits", `{"action":"submit","id":"r","type":"t","body":1,"priority":1` + strings.Repeat("0", 400) + `}`, "invalid_type", "priority", "r"},
	{"array", `[]`, "invalid_type", "", ""},
	{"array with a submit", `[{"action":"submit","id":"r","type":"t","body":1}]`, "invalid_type", "", ""},
	{"string", `"submit"`, "invalid_type", "", ""},
	{"number", `5`, "invalid_type", "", ""},
	{"true", `true`, "invalid_type", "", ""},
	{"null", `null`, "invalid_type", "", ""},
	{"number with white space", " \n7\t", "invalid_type", "", ""},
}

var workerRefusals = []refusal{
	{"empty object", `{}`, "missing_field", "action", ""},
	{"action a number", `{"action":5}`, "invalid_type", "action", ""},
	{"unknown action", `{"action":"frobnicate"}`, "unknown_action", "", ""},
	{"submit", `{"action":"submit","id":"r","type":"t","body":1}`, "invalid_action", "not_a_master", ""},
	{"submit that lacks all", `{"action":"submit"}`, "invalid_action", "not_a_master", ""},
	{"join without type", `{"action":"join"}`, "missing_field", "type", ""},
	{"join with type null", `{"action":"join","type":null}`, "missing_field", "type", ""},
	{"array", `[1,2]`, "invalid_type", "", ""},
	{"string", `"join"`, "invalid_type", "", ""},
	{"number", `-0.5`, "invalid_type", "", ""},
	{"null", `null`, "invalid_type", "", ""},
	{"respond without a job", `{"action":"respond","body":1}`, "invalid_state", "not_processing", ""},
	{"respond without a job, null", `{"action":"respond","body":null}`, "invalid_state", "not_processing", ""},
}

func (r refusal) check(t *testing.T, c *conn) {
	t.Helper()
	c.writeRaw(packFrame(r.payload))
	f := c.wantError(r.code)
	if !strings.Contains(f.text("reason"), r.reason) {
		t.Errorf("reason %q does not name %q", f.text("reason"), r.reason)
	}
	if r.id != "" && f.text("id") != r.id {
		t.Errorf("%s: id %q, want %q", f, f.text("id"), r.id)
	}
	if len(f.raw) > 4096 {
		t.Errorf("an error frame of %d bytes", len(f.raw))
	}
}

func TestInvalidSubmitsAreRefused(t *testing.T) {
	t.Parallel()
	b := shared(t)
	typ := freshName("after")
	s, w := b.submitter(t), b.servingWorker(t, typ) // all cases use one connection, which none of them may close
	for _, r := range submitRefusals {
		t.Run(r.name, func(t *testing.T) {
			s := submitter{&conn{t, s.net, s.in}}
			r.check(t, s.conn)
			checkServes(t, s, w, typ)
		})
	}
}

func TestInvalidWorkerFramesAreRefused(t *testing.T) {
	t.Parallel()
	b := shared(t)
	typ := freshName("after")
	w, s := b.servingWorker(t, typ), b.submitter(t)
	for _, r := range workerRefusals {
		t.Run("idle: "+r.name, func(t *testing.T) {
			w := worker{&conn{t, w.net, w.in}}
			r.check(t, w.conn)
			checkServes(t, s, w, typ)
		})
		t.Run("before join: "+r.name, func(t *testing.T) {
			r.check(t, b.worker(t).conn)
		})
	}
	for _, r := range append(workerRefusals[:len(workerRefusals)-2:len(workerRefusals)-2],
		refusal{"respond without body", `{"action":"respond"}`, "missing_field", "body", "*"},
		refusal{"respond with BODY", `{"action":"respond","BODY":1}`, "missing_field", "body", "*"}) {
		t.Run("at work: "+r.name, func(t *testing.T) {
			w, s := worker{&conn{t, w.net, w.in}}, submitter{&conn{t, s.net, s.in}}
			id := s.submitFresh(typ, `1`)
			w.wantJob(id)
			w.writeRaw(packFrame(r.payload))
			if f := w.wantError(r.code); !strings.Contains(f.text("reason"), r.reason) {
				t.Errorf("reason %q does not name %q", f.text("reason"), r.reason)
			}
			// the worker still has the job, and no other peer got a frame
			s.sendSubmit(id, typ, `1`, "")
			s.wantErrorFor("id_exists", id)
			w.respond(`"still mine"`)
			s.wantResult(id, `"still mine"`)
		})
	}
	t.Run("a failed rejoin changes nothing", func(t *testing.T) {
		for _, payload := range []string{`{"action":"join"}`, `{"action":"join","type":5}`, `{"action":"join","type":""}`} {
			w.writeRaw(packFrame(payload))
			w.wantError("missing_field|invalid_type")
			checkServes(t, s, w, typ)
		}
	})
	t.Run("respond twice", func(t *testing.T) {
		id := s.submitFresh(typ, `1`)
		w.wantJob(id)
		w.respond(`1`)
		w.send(`{"action":"respond","body":2}`)
		w.wantError("invalid_state")
		s.wantResult(id, `1`)
		s.wantQuiet()
		checkServes(t, s, w, typ)
	})
}

// brokenPayloads are not JSON, or not UTF-8.
var brokenPayloads = []struct{ name, payload string }{
	{"open brace", `{`},
	{"no value", `{"action":}`},
	{"word", `nope`},
	{"two objects", `{"action":"ping"}{"action":"ping"}`},
	{"rubbish behind", `{"action":"ping"}x`},
	{"single quotes", `{'action':'ping'}`},
	{"trailing comma", `{"action":"ping",}`},
	{"comma in array", `{"action":"ping","body":[1,]}`},
	{"comment", `{"action":"ping"/**/}`},
	{"NaN", `{"action":"ping","body":NaN}`},
	{"leading zero", `{"action":"ping","body":01}`},
	{"plus sign", `{"action":"ping","body":+1}`},
	{"dot without digits", `{"action":"ping","body":1.}`},
	{"dot first", `{"action":"ping","body":.5}`},
	{"bare minus", `{"action":"ping","body":-}`},
	{"exponent without digits", `{"action":"ping","body":1e}`},
	{"True", `{"action":"ping","body":True}`},
	{"cut literal", `{"action":"ping","body":tru}`},
	{"unquoted key", `{action:"ping"}`},
	{"key without value", `{"action"}`},
	{"open string", `{"action":"ping}`},
	{"open array", `{"action":"ping","body":[1}`},
	{"crossed brackets", `{"action":"ping","body":[}]`},
	{"bad escape", `{"action":"ping","body":"\x"}`},
	{"short escape", `{"action":"ping","body":"\u12"}`},
	{"no hex", `{"action":"ping","body":"\u12G4"}`},
	{"raw line feed in a string", "{\"action\":\"ping\",\"body\":\"\n\"}"},
	{"raw nul in a string", "{\"action\":\"ping\",\"body\":\"\x00\"}"},
	{"nul behind", "{\"action\":\"ping\"}\x00"},
	{"byte order mark", "\ufeff{\"action\":\"ping\"}"},
	{"no-break space", "{\u00a0\"action\":\"ping\"}"},
	{"white space only", "  \n"},
	{"a length within", "\x00\x00\x00\x03foo"},
	{"0xff in a string", "{\"action\":\"ping\",\"body\":\"\xff\"}"},
	{"0xff in a key", "{\"action\":\"ping\",\"\xff\":1}"},
	{"0xff in the id", "{\"action\":\"submit\",\"id\":\"\xff\",\"type\":\"t\",\"body\":1}"},
	{"0xff in the type", "{\"action\":\"submit\",\"id\":\"i\",\"type\":\"\xff\",\"body\":1}"},
	{"0xff in the action", "{\"action\":\"\xff\"}"},
	{"overlong slash", "{\"action\":\"ping\",\"body\":\"\xc0\xaf\"}"},
	{"surrogate in UTF-8", "{\"action\":\"ping\",\"body\":\"\xed\xa0\x80\"}"},
	{"above U+10FFFF", "{\"action\":\"ping\",\"body\":\"\xf4\x90\x80\x80\"}"},
	{"cut sequence", "{\"action\":\"ping\",\"body\":\"\xe6\xbc\"}"},
	{"lone continuation", "{\"action\":\"ping\",\"body\":\"\x80\"}"},
	{"UTF-16", "{\x00\"\x00a\x00\"\x00}\x00"},
	{"0xff outside of strings", "{\"action\":\"ping\"}\xff"},
}

// invalid_json may close the connection, but must not affect others.
func TestInvalidJSONHarmsNoOther(t *testing.T) {
	t.Parallel()
	b := shared(t)
	typ := freshName("bystander")
	s, w := b.submitter(t), b.servingWorker(t, typ)
	for _, c := range brokenPayloads {
		for _, port := range []string{"submit", "work"} {
			t.Run(fmt.Sprintf("%s: %s", port, c.name), func(t *testing.T) {
				rogue := dial(t, map[string]string{"submit": b.submitAddr, "work": b.workerAddr}[port])
				rogue.writeRaw(packFrame(c.payload))
				rogue.wantError("invalid_json")
				staysOrCloses(t, rogue)
				checkServes(t, s, w, typ)
			})
		}
	}
}

// staysOrCloses checks that the connection either works as before or is closed.
func staysOrCloses(t *testing.T, c *conn) (open bool) {
	t.Helper()
	if err := c.write(packFrame(`{"action":"still there?"}`)); err != nil {
		return false
	}
	f, err := c.next(patience)
	if err == nil && f.text("error") == "unknown_action" {
		return true
	}
	if err == nil || !isEnd(err) {
		t.Fatalf("got %s, %v: want unknown_action or the end", f, err)
	}
	return false
}

// An empty frame is an error and changes nothing.
func TestEmptyFrameIsRefused(t *testing.T) {
	t.Parallel()
	b := shared(t)
	typ := freshName("empty")
	s, w := b.submitter(t), b.servingWorker(t, typ)
	t.Run("submitter", func(t *testing.T) {
		for range 3 {
			s.writeRaw(announceFrame(0))
			s.wantError("invalid_json")
		}
		checkServes(t, s, w, typ)
	})
	t.Run("idle worker", func(t *testing.T) {
		for range 3 {
			w.writeRaw(announceFrame(0))
			w.wantError("invalid_json")
		}
		checkServes(t, s, w, typ)
	})
	t.Run("worker at work", func(t *testing.T) {
		id := s.submitFresh(typ, `1`)
		w.wantJob(id)
		w.writeRaw(announceFrame(0))
		w.wantError("invalid_json")
		w.respond(`2`)
		s.wantResult(id, `2`)
	})
	t.Run("between other frames in one segment", func(t *testing.T) {
		id := freshName("job")
		batch := append(announceFrame(0), packFrame(fmt.Sprintf(`{"action":"submit","id":%q,"type":%q,"body":1}`, id, typ))...)
		s.writeRaw(append(batch, announceFrame(0)...))
		s.wantError("invalid_json")
		s.wantAck(id)
		s.wantError("invalid_json")
		w.wantJob(id)
		w.respond(`2`)
		s.wantResult(id, `2`)
	})
}

func TestNestingBombsAreRefused(t *testing.T) {
	t.Parallel()
	b := start(t)
	typ := freshName("bystander")
	s, w := b.submitter(t), b.servingWorker(t, typ)
	const depth = 1_000_000
	for _, c := range []struct{ name, body string }{
		{"arrays", strings.Repeat("[", depth) + strings.Repeat("]", depth)},
		{"objects", strings.Repeat(`{"a":`, depth) + "1" + strings.Repeat("}", depth)},
		{"arrays never closed", strings.Repeat("[", depth)},
		{"objects never closed", strings.Repeat(`{"":`, depth)},
	} {
		t.Run("body: "+c.name, func(t *testing.T) {
			rogue := b.submitter(t)
			rogue.send(`{"action":"submit","id":"bomb","type":"bomb","body":%s}`, c.body)
			rogue.wantError("invalid_json")
			staysOrCloses(t, rogue.conn)
			checkServes(t, s, w, typ)
		})
		t.Run("answer: "+c.name, func(t *testing.T) {
			bomb := freshName("bomb")
			rogue, owner := b.servingWorker(t, bomb), b.submitter(t)
			id := owner.submitFresh(bomb, `1`)
			rogue.wantJob(id)
			rogue.send(`{"action":"respond","body":%s}`, c.body)
			rogue.wantError("invalid_json")
			if staysOrCloses(t, rogue.conn) {
				rogue.respond(`1`)
				owner.wantResult(id, `1`)
			} else {
				owner.wantErrorFor("job_failed", id)
			}
			checkServes(t, s, w, typ)
		})
		t.Run("whole frame: "+c.name, func(t *testing.T) {
			rogue := b.submitter(t)
			rogue.writeRaw(packFrame(c.body))
			rogue.wantError("invalid_json|invalid_type")
			staysOrCloses(t, rogue.conn)
			checkServes(t, s, w, typ)
		})
	}
}
