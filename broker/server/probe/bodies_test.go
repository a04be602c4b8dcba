package probe

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// bodies are JSON texts whose bytes would change if a parser decoded and encoded them.
var bodies = []struct{ name, body string }{
	{"null", `null`},
	{"true", `true`},
	{"false", `false`},
	{"zero", `0`},
	{"minus zero", `-0`},
	{"int beyond 53 bits", `9007199254740993`},
	{"int beyond 64 bits", `123456789012345678901234567890`},
	{"fraction with zeros", `1.000`},
	{"exponent kept", `1E+02`},
	{"float beyond double", `1e400`},
	{"long fraction", `3.14159265358979323846264338327950288`},
	{"tiny", `-1.5e-400`},
	{"empty string", `""`},
	{"string", `"plain"`},
	{"escape kept", `"\u00e9"`},
	{"raw non-ascii", `"é ü 漢字 😀"`},
	{"slash both ways", `"a/b\/c"`},
	{"surrogate pair", `"\ud83d\ude00"`},
	{"upper case escapes", `"\uD83D\uDE00\u00E9"`},
	{"lone surrogate", `"\ud800"`},
	{"control escapes", `"\b\f\n\r\t\"\\\u0000\u001f"`},
	{"delete and line separators", "\"\x7f\u2028\u2029\""},
	{"html", `"<script>&amp;</script>"`},
	{"empty array", `[]`},
	{"empty object", `{}`},
	{"array", `[1,"two",null,[3,[4,[]]],{"five":5}]`},
	{"key order", `{"z":1,"a":2,"m":3}`},
	{"duplicate keys", `{"a":1,"a":2,"a":3}`},
	{"our own keys inside", `{"action":"respond","id":"other","type":"x","body":{"body":1},"error":"no","ok":false}`},
	{"white space inside", "{ \"b\" :\t1 ,\r\n \"a\" : [ 1 , 2 ] }"},
	{"empty key", `{"":{"":""}}`},
	{"braces in strings", `{"a":"}]","b":"[{","c":"\"}\\"}`},
	{"backslashes at the end", `"\\\\"`},
	{"nested 100 deep", strings.Repeat("[", 100) + strings.Repeat("]", 100)},
	{"objects 100 deep", strings.Repeat(`{"a":`, 100) + "1" + strings.Repeat("}", 100)},
	{"string of 64 KiB", `"` + strings.Repeat("x", 64<<10) + `"`},
	{"object of 1 MiB", `{"data":"` + strings.Repeat("0123456789abcde\\n", 1<<16) + `"}`},
	{"array of 1 MiB", "[" + strings.Repeat("1.50, ", 175000) + "2]"},
}

func TestBodiesVerbatim(t *testing.T) {
	t.Parallel()
	b := shared(t)
	typ := freshName("body")
	s, w := b.submitter(t), b.servingWorker(t, typ)
	for _, c := range bodies {
		t.Run(c.name, func(t *testing.T) {
			s, w := submitter{&conn{t, s.net, s.in}}, worker{&conn{t, w.net, w.in}}
			id := s.submitFresh(typ, c.body)
			got, body := w.nextJob()
			if got != id || body != c.body {
				t.Fatalf("worker got %.200s, want %.200s", body, c.body)
			}
			w.respond(c.body)
			s.wantResult(id, c.body)
		})
	}
}

func TestBodyMayStandAnywhere(t *testing.T) {
	t.Parallel()
	b := shared(t)
	typ := freshName("place")
	s, w := b.submitter(t), b.servingWorker(t, typ)
	for i, c := range []struct{ name, submit, respond string }{
		{"first key", `{"body":{"x":1},"action":"submit","id":%s,"type":%s}`, `{"body":[1, 2],"action":"respond"}`},
		{"middle key", `{"id":%s,"body":{"x":1},"action":"submit","type":%s}`, `{"a":0,"body":[1, 2],"action":"respond"}`},
		{"white space around", " \t\r\n{ \"id\" : %s , \"type\" : %s , \"body\" : \n {\"x\":1} \t , \"action\" : \"submit\" } \n ",
			" { \"action\" : \"respond\" ,\n\"body\" :\t[1, 2]\r\n} "},
		{"extra keys ignored", `{"action":"submit","id":%s,"type":%s,"x":{"body":0},"body":{"x":1},"y":[{}],"":null}`,
			`{"action":"respond","id":5,"type":{},"body":[1, 2],"ok":false,"error":"no"}`},
		{"escaped keys", `{"\u0061ction":"submit","\u0069d":%s,"t\u0079pe":%s,"bod\u0079":{"x":1}}`,
			`{"acti\u006fn":"re\u0073pond","\u0062ody":[1, 2]}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, w := submitter{&conn{t, s.net, s.in}}, worker{&conn{t, w.net, w.in}}
			id := fmt.Sprintf("%s-%d", typ, i)
			s.send(c.submit, quote(id), quote(typ))
			s.wantAck(id)
			if got, body := w.nextJob(); got != id || body != `{"x":1}` {
				t.Fatalf("worker got id %q body %s", got, body)
			}
			w.writeRaw(packFrame(c.respond))
			w.wantOK()
			s.wantResult(id, `[1, 2]`)
		})
	}
}

// Random JSON from a seed, in both directions, through one submitter and one worker.
func TestRandomBodies(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	b := shared(t)
	typ := freshName("random")
	s, w := b.submitter(t), b.servingWorker(t, typ)
	for range 500 {
		sentBody, answer := randomJSON(r, 5), randomJSON(r, 5)
		id := s.submitFresh(typ, sentBody)
		if got, body := w.nextJob(); got != id || body != sentBody {
			t.Fatalf("worker got %s, want %s", body, sentBody)
		}
		w.respond(answer)
		s.wantResult(id, answer)
	}
}

func randomJSON(r *rand.Rand, depth int) string {
	space := func() string { return strings.Repeat(" ", r.IntN(8)/6) }
	kind := r.IntN(8)
	if depth == 0 {
		kind = r.IntN(6)
	}
	switch kind {
	case 0:
		return []string{"null", "true", "false"}[r.IntN(3)]
	case 1:
		return fmt.Sprint(r.Int64() - r.Int64())
	case 2:
		return fmt.Sprintf("%d.%de%+d", r.IntN(100), r.IntN(1e9), r.IntN(800)-400)
	case 3, 4, 5:
		var out strings.Builder
		out.WriteByte('"')
		pieces := []string{"a", "é", "😀", `\"`, `\\`, `\/`, `\u0000`, `\ud83d\ude00`, `\uD800`, "{", "}", "[", "]", ":", ",", " ", "\u2028", `\n`, "body"}
		for range r.IntN(12) {
			out.WriteString(pieces[r.IntN(len(pieces))])
		}
		out.WriteByte('"')
		return out.String()
	}
	var parts []string
	for range r.IntN(5) {
		value := space() + randomJSON(r, depth-1) + space()
		if kind == 7 {
			value = space() + quote(fmt.Sprintf("k%d", r.IntN(3))) + space() + ":" + value
		}
		parts = append(parts, value)
	}
	if kind == 7 {
		return "{" + strings.Join(parts, ",") + space() + "}"
	}
	return "[" + strings.Join(parts, ",") + space() + "]"
}
