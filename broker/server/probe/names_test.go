package probe

import (
	"fmt"
	"strings"
	"testing"
)

func TestIDsAreUnique(t *testing.T) {
	t.Parallel()
	b := shared(t)
	t.Run("taken while queued", func(t *testing.T) {
		typ := freshName("uniq")
		s := b.submitter(t)
		id := s.submitFresh(typ, `"first"`)
		s.sendSubmit(id, typ, `"second"`, "")
		s.wantErrorFor("id_exists", id)
		w := b.servingWorker(t, typ)
		if got, body := w.nextJob(); got != id || body != `"first"` {
			t.Fatalf("the refused one shows: job %q body %s", got, body)
		}
		w.respond(`1`)
		s.wantResult(id, `1`)
		w.wantQuiet()
	})
	t.Run("taken while running", func(t *testing.T) {
		typ := freshName("uniq")
		s, w := b.submitter(t), b.servingWorker(t, typ)
		id := s.submitFresh(typ, `1`)
		w.wantJob(id)
		s.sendSubmit(id, typ, `2`, "")
		s.wantErrorFor("id_exists", id)
		w.respond(`3`)
		s.wantResult(id, `3`)
	})
	t.Run("taken for everybody", func(t *testing.T) {
		s1, s2 := b.submitter(t), b.submitter(t)
		id := s1.submitFresh(freshName("uniq"), `1`)
		s2.sendSubmit(id, freshName("uniq"), `2`, "")
		s2.wantErrorFor("id_exists", id)
		s1.wantQuiet()
	})
	t.Run("free after the answer", func(t *testing.T) {
		typ := freshName("uniq")
		s1, s2, w := b.submitter(t), b.submitter(t), b.servingWorker(t, typ)
		id := freshName("again")
		for i := range 20 {
			s := s1
			if i%2 == 1 {
				s = s2
			}
			s.submit(id, typ, `1`)
			w.wantJob(id)
			w.respond(`2`)
			s.wantResult(id, `2`)
		}
	})
	t.Run("free once the worker has its ok", func(t *testing.T) {
		typ := freshName("uniq")
		s1, s2, w := b.submitter(t), b.submitter(t), b.servingWorker(t, typ)
		id := s1.submitFresh(typ, `1`)
		w.wantJob(id)
		w.respond(`2`)
		s2.submit(id, typ, `3`)
		s1.wantResult(id, `2`)
		w.wantJob(id)
		w.respond(`4`)
		s2.wantResult(id, `4`)
		s1.wantQuiet()
	})
	t.Run("a refused submit takes no id", func(t *testing.T) {
		s := b.submitter(t)
		id := freshName("free")
		s.send(`{"action":"submit","id":%q,"type":"t"}`, id)
		s.wantErrorFor("missing_field", id)
		s.send(`{"action":"submit","id":%q,"type":7,"body":1}`, id)
		s.wantErrorFor("invalid_type", id)
		s.submit(id, freshName("uniq"), `1`)
	})
}

// sameNames are pairs of spellings with the same value.
var sameNames = []struct{ name, spelling1, spelling2 string }{
	{"accent", `é`, `\u00e9`},
	{"hex case", `\u00E9`, `\u00e9`},
	{"plain letter escaped", `a`, `\u0061`},
	{"slash", `a/b`, `a\/b`},
	{"slash escaped by number", `a/b`, `a\u002fb`},
	{"surrogate pair", `😀`, `\ud83d\ude00`},
	{"tab", `\t`, `\u0009`},
	{"line feed", `\n`, `\u000A`},
	{"quote", `\"`, `\u0022`},
	{"backslash", `\\`, `\u005c`},
	{"backspace", `\b`, `\u0008`},
	{"nul", `\u0000`, `\u0000`},
	{"delete", "\x7f", `\u007f`},
	{"line separator", "\u2028", `\u2028`},
	{"html", `<&>`, `\u003c\u0026\u003e`},
}

func TestNamesAreComparedByValue(t *testing.T) {
	t.Parallel()
	b := shared(t)
	for _, c := range sameNames {
		t.Run("id "+c.name, func(t *testing.T) {
			t.Parallel()
			typ := freshName("value")
			s := b.submitter(t)
			spelling1, spelling2 := `"`+typ+c.spelling1+`"`, `"`+typ+c.spelling2+`"`
			value := frameOf(t, `{"id":`+spelling1+`}`).text("id")
			for _, turn := range [][2]string{{spelling1, spelling2}, {spelling2, spelling1}} {
				s.send(`{"action":"submit","id":%s,"type":%q,"body":1}`, turn[0], typ)
				s.wantAck(value)
				s.send(`{"action":"submit","id":%s,"type":%q,"body":1}`, turn[1], typ)
				s.wantErrorFor("id_exists", value)
				w := b.servingWorker(t, typ)
				w.wantJob(value)
				w.respond(`2`)
				s.wantResult(value, `2`)
				w.close()
			}
		})
		t.Run("type "+c.name, func(t *testing.T) {
			t.Parallel()
			base := freshName("value")
			s, w := b.submitter(t), b.worker(t)
			w.send(`{"action":"join","type":"%s%s"}`, base, c.spelling1)
			w.wantOK()
			s.send(`{"action":"submit","id":%q,"type":"%s%s","body":1}`, base, base, c.spelling2)
			s.wantAck(base)
			f := w.want("job")
			if want := frameOf(t, `{"id":"`+base+c.spelling1+`"}`).text("id"); f.text("type") != want {
				t.Errorf("type %q, want %q", f.text("type"), want)
			}
		})
	}
	t.Run("different values are different ids", func(t *testing.T) {
		typ := freshName("differ")
		s := b.submitter(t)
		for i, id := range []string{"a", "A", "á", "a\u0301", "a ", " a", "a\x00", "а", "\\u0061", "0", "00", "null"} {
			s.submit(typ+id, typ, fmt.Sprint(i))
		}
	})
}

func frameOf(t *testing.T, text string) frame {
	t.Helper()
	f, err := parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestNamesMustBeStrings(t *testing.T) {
	t.Parallel()
	b := shared(t)
	values := []string{`5`, `1.5`, `true`, `false`, `[]`, `["a"]`, `{}`, `""`,
		`"\ud800"`, `"\udc00"`, `"a\ud800b"`, `"\ude00\ud83d"`, `"\ud800\ud800"`, `"\ud83d\u0041"`}
	for _, v := range values {
		t.Run("id "+v, func(t *testing.T) {
			s := b.submitter(t)
			s.send(`{"action":"submit","id":%s,"type":"t","body":1}`, v)
			if f := s.wantError("invalid_type"); !strings.Contains(f.text("reason"), "id") {
				t.Errorf("reason %q does not name id", f.text("reason"))
			}
			s.wantQuiet()
		})
		t.Run("type of a submit "+v, func(t *testing.T) {
			s := b.submitter(t)
			id := freshName("kind")
			s.send(`{"action":"submit","id":%q,"type":%s,"body":1}`, id, v)
			if f := s.wantErrorFor("invalid_type", id); !strings.Contains(f.text("reason"), "type") {
				t.Errorf("reason %q does not name type", f.text("reason"))
			}
			s.submit(id, freshName("kind"), `1`)
		})
		t.Run("type of a join "+v, func(t *testing.T) {
			w := b.worker(t)
			w.send(`{"action":"join","type":%s}`, v)
			if f := w.wantError("invalid_type"); !strings.Contains(f.text("reason"), "type") {
				t.Errorf("reason %q does not name type", f.text("reason"))
			}
			typ := freshName("kind")
			w.join(typ)
			checkServes(t, b.submitter(t), w, typ)
		})
	}
	t.Run("id null", func(t *testing.T) {
		s := b.submitter(t)
		s.send(`{"action":"submit","id":null,"type":"t","body":1}`)
		s.wantError("invalid_type|missing_field")
		s.wantQuiet()
	})
}

// The value of a name has at most 1,024 bytes.
func TestNameLengthIsLimited(t *testing.T) {
	t.Parallel()
	b := shared(t)
	for _, c := range []struct {
		name, unit, wire string
		maxUnits         int
	}{
		{"ascii", "x", "x", 1024},
		{"two bytes", "é", "é", 512},
		{"two bytes, escaped", "é", `\u00e9`, 512},
		{"four bytes, escaped", "😀", `\ud83d\ude00`, 256},
	} {
		t.Run(c.name, func(t *testing.T) {
			typ := freshName("length")
			s := b.submitter(t)
			s.send(`{"action":"submit","id":"%s","type":%q,"body":1}`, strings.Repeat(c.wire, c.maxUnits), typ)
			s.wantAck(strings.Repeat(c.unit, c.maxUnits))
			w := b.servingWorker(t, typ)
			w.wantJob(strings.Repeat(c.unit, c.maxUnits))
			w.respond(`2`)
			s.wantResult(strings.Repeat(c.unit, c.maxUnits), `2`)

			s.send(`{"action":"submit","id":"%s","type":%q,"body":1}`, strings.Repeat(c.wire, c.maxUnits)+"y", typ)
			tooLong(t, s.conn, "id")
			id := freshName("length")
			s.send(`{"action":"submit","id":%q,"type":"%s","body":1}`, id, strings.Repeat(c.wire, c.maxUnits)+"y")
			tooLong(t, s.conn, "type")
			s.submit(id, strings.Repeat(c.unit, c.maxUnits), `1`)
			w.join(strings.Repeat(c.unit, c.maxUnits))
			w.wantJob(id)
			w.respond(`2`)
			s.wantResult(id, `2`)
			w.send(`{"action":"join","type":"%s"}`, strings.Repeat(c.wire, c.maxUnits)+"y")
			tooLong(t, w.conn, "type")
		})
	}
}

func tooLong(t *testing.T, c *conn, field string) {
	t.Helper()
	reason := c.wantError("invalid_type|invalid_value").text("reason")
	if !strings.Contains(reason, field) || !strings.Contains(strings.ReplaceAll(reason, ",", ""), "1024") {
		t.Errorf("reason %q does not name %s and its limit", reason, field)
	}
	if len(reason) > 1000 {
		t.Errorf("reason of %d bytes", len(reason))
	}
}

func TestKeysAreCaseSensitive(t *testing.T) {
	t.Parallel()
	b := shared(t)
	for _, c := range []struct{ name, payload, code string }{
		{"BODY", `{"action":"submit","id":"k","type":"t","BODY":1}`, "missing_field"},
		{"Body", `{"action":"submit","id":"k","type":"t","Body":1}`, "missing_field"},
		{"ID", `{"action":"submit","ID":"k","type":"t","body":1}`, "missing_field"},
		{"Action", `{"Action":"submit","id":"k","type":"t","body":1}`, "missing_field"},
		{"verb SUBMIT", `{"action":"SUBMIT","id":"k","type":"t","body":1}`, "unknown_action"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := b.submitter(t)
			s.writeRaw(packFrame(c.payload))
			s.wantError(c.code)
		})
	}
	t.Run("other case is an extra key", func(t *testing.T) {
		typ := freshName("case")
		s, w := b.submitter(t), b.servingWorker(t, typ)
		s.send(`{"action":"submit","Action":"x","id":%q,"ID":5,"type":%q,"Type":"y","body":1,"BODY":2,"Priority":"x"}`, typ, typ)
		s.wantAck(typ)
		if _, body := w.nextJob(); body != `1` {
			t.Errorf("body %s, want 1", body)
		}
	})
	t.Run("Type does not choose the type", func(t *testing.T) {
		w := b.worker(t)
		w.send(`{"action":"join","Type":"t"}`)
		w.wantError("missing_field")
	})
}

// TestDuplicateKeysAreConsistent: if a key occurs twice, the same one of the two counts,
// whichever key it is.
func TestDuplicateKeysAreConsistent(t *testing.T) {
	t.Parallel()
	b := shared(t)
	base := freshName("twice")
	one, two := base+"-1", base+"-2"
	s := b.submitter(t)
	s.send(`{"action":"submit","id":%q,"id":%q,"type":%q,"body":1}`, one, two, base+"-id")
	f := s.want("ack")
	last := f.text("id") == two
	if !last && f.text("id") != one {
		t.Fatalf("ack %s", f)
	}
	pick := func(first, second string) string {
		if last {
			return second
		}
		return first
	}
	t.Run("type", func(t *testing.T) {
		id := freshName("twice")
		s.send(`{"action":"submit","id":%q,"type":%q,"type":%q,"body":1}`, id, one, two)
		s.wantAck(id)
		b.servingWorker(t, pick(one, two)).wantJob(id)
	})
	t.Run("body", func(t *testing.T) {
		w := b.servingWorker(t, base+"-body")
		s.send(`{"action":"submit","id":%q,"type":%q,"body":1,"body":{"a":2}}`, base+"-body", base+"-body")
		s.wantAck(base + "-body")
		if _, body := w.nextJob(); body != pick(`1`, `{"a":2}`) {
			t.Errorf("body %s, want %s", body, pick(`1`, `{"a":2}`))
		}
		w.send(`{"action":"respond","body":1,"body":2}`)
		w.wantOK()
		s.wantResult(base+"-body", pick(`1`, `2`))
	})
	t.Run("escaped key is the same key", func(t *testing.T) {
		w := b.servingWorker(t, base+"-esc")
		s.send(`{"action":"submit","id":%q,"type":%q,"body":1,"\u0062ody":2}`, base+"-esc", base+"-esc")
		s.wantAck(base + "-esc")
		if _, body := w.nextJob(); body != pick(`1`, `2`) {
			t.Errorf("body %s, want %s", body, pick(`1`, `2`))
		}
	})
	t.Run("priority", func(t *testing.T) {
		typ := base + "-priority"
		for i, p := range []string{`"priority":1,"priority":3`, `"priority":2`} {
			s.send(`{"action":"submit","id":"%s-%d","type":%q,"body":1,%s}`, typ, i, typ, p)
			s.wantAck(fmt.Sprintf("%s-%d", typ, i))
		}
		b.servingWorker(t, typ).wantJob(pick(typ+"-1", typ+"-0"))
	})
	t.Run("action", func(t *testing.T) {
		s.send(`{"action":"frobnicate","action":"submit","id":%q,"type":"t","body":1}`, base+"-action")
		if f := s.recv(); last != (f.kind() == "ack") {
			t.Errorf("got %s, against the rule of id", f)
		}
	})
	t.Run("join's type", func(t *testing.T) {
		w := b.worker(t)
		w.send(`{"action":"join","type":%q,"type":%q}`, base+"-j1", base+"-j2")
		w.wantOK()
		checkServes(t, s, w, pick(base+"-j1", base+"-j2"))
	})
	t.Run("a bad one among them", func(t *testing.T) {
		s.send(`{"action":"submit","id":%q,"type":5,"type":%q,"body":1}`, base+"-bad", base+"-x")
		if f := s.recv(); last != (f.kind() == "ack") {
			t.Errorf("got %s, against the rule of id", f)
		}
	})
}
