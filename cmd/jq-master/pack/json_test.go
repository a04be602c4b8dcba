package pack

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/tinylib/msgp/msgp"

	"gloom/cmd/jq-master/job"
)

// TestJSON: values are converted from MessagePack to JSON and back.
func TestJSON(t *testing.T) {
	for _, c := range []struct{ bytes, json string }{
		{"c0", `null`}, {"c2", `false`}, {"c3", `true`},
		{"00", `0`}, {"ff", `-1`}, {"cf ffffffffffffffff", `18446744073709551615`}, {"d3 8000000000000000", `-9223372036854775808`},
		{"cb 3ff0000000000000", `1.0`}, {"cb 3fb999999999999a", `0.1`}, {"cb 8000000000000000", `-0.0`},
		{"cb 7ff8000000000000", `{"$float":"NaN"}`}, {"cb 7ff0000000000000", `{"$float":"Inf"}`}, {"cb fff0000000000000", `{"$float":"-Inf"}`},
		{"a0", `""`}, {"a3 61 22 0a", `"a\"\n"`}, {"a2 c3a9", `"é"`}, {"a1 ff", `{"$str":"/w=="}`},
		{"c4 02 00ff", `{"$bin":"AP8="}`}, {"c4 00", `{"$bin":""}`},
		{"d4 05 01", `{"$ext":[5,"AQ=="]}`}, {"c7 03 80 010203", `{"$ext":[-128,"AQID"]}`}, {"c7 00 01", `{"$ext":[1,""]}`},
		{"90", `[]`}, {"92 01 90", `[1,[]]`}, {"80", `{}`}, {"82 a1 61 01 a1 62 80", `{"a":1,"b":{}}`},
		{"81 01 02", `{"$map":[[1,2]]}`}, {"82 c0 01 a1 61 81 c2 90", `{"$map":[[null,1],["a",{"$map":[[false,[]]]}]]}`},
		{"81 a1 ff 01", `{"$map":[[{"$str":"/w=="},1]]}`},
		{"81 a4 24 62 69 6e 01", `{"$map":[["$bin",1]]}`}, {"81 a4 24 73 74 72 01", `{"$map":[["$str",1]]}`},
		{"82 a4 24 62 69 6e 01 a1 61 02", `{"$bin":1,"a":2}`}, {"82 a1 61 01 a1 61 02", `{"a":1,"a":2}`},
	} {
		b := bytesOf(t, c.bytes)
		if got := AppendJSON(nil, b); string(got) != c.json || !json.Valid(got) {
			t.Errorf("%s is %s, want %s", c.bytes, got, c.json)
		}
		got, fault := FromJSON([]byte(c.json))
		if fault != nil || !bytes.Equal(got, b) {
			t.Errorf("%s is % x, %v, want %s", c.json, got, fault, c.bytes)
		}
	}
	for text, want := range map[string]string{ // one way only
		" [ 1 , \t{ } ,\r\n[ ] ] ":         "93 01 80 90",
		` { "a" : [ ] , "b" : "\u00e9\t"}`: "82 a1 61 90 a1 62 a3 c3a9 09",
		`-0`:                               "00", `1E2`: "cb 4059000000000000",
		` { "$map" : [ ] } `:           "80",
		`{"$map":[[ "a" , 1 ]]}`:       "81 a1 61 01",
		`{ "$ext" : [ 7 , "AQ==" ] } `: "d4 07 01",
		`{"\u0024bin":"AQ=="}`:         "c4 01 01",
		`{"$float":"+Inf"}`:            "cb 7ff0000000000000",
	} {
		if got, fault := FromJSON([]byte(text)); fault != nil || !bytes.Equal(got, bytesOf(t, want)) {
			t.Errorf("%s is % x, %v, want %s", text, got, fault, want)
		}
	}
}

// TestBadJSON: an invalid text is refused, with the reason.
func TestBadJSON(t *testing.T) {
	nested := func(n int, open, end string) string { return strings.Repeat(open, n) + "1" + strings.Repeat(end, n) }
	for _, c := range []struct {
		text   string
		code   job.Code
		reason string
	}{
		{``, job.InvalidBody, "unexpected end"}, {`{"a":1`, job.InvalidBody, "at byte 6"}, {`{} {}`, job.InvalidBody, "after top-level"},
		{`{"a":01}`, job.InvalidBody, "at byte"}, {"\"\xff\"", job.InvalidBody, "not UTF-8"}, {"[NaN]", job.InvalidBody, "at byte"},
		{nested(101, "[", "]"), job.InvalidBody, "deeper than 100 at byte 100"},
		{nested(101, `{"a":`, "}"), job.InvalidBody, "deeper than 100"},
		{nested(101, `{"$map":[["a",`, "]]}"), job.InvalidBody, "deeper than 100"},
		{nested(9000, "[", "]"), job.InvalidBody, "deeper than 100"},
		{`18446744073709551616`, job.InvalidValue, "the integer 18446744073709551616 at byte 0 is beyond 64 bits"},
		{`[-9223372036854775809]`, job.InvalidValue, "beyond 64 bits"}, {`1e999`, job.InvalidValue, "does not fit into a 64-bit float"},
		{`{"$bin":1}`, job.InvalidValue, "$bin at byte 8 must be base64"}, {`{"$bin":"?"}`, job.InvalidValue, "base64"}, {`{"$bin":"AQ"}`, job.InvalidValue, "base64"},
		{`{"$str":null}`, job.InvalidValue, "base64"}, {`{"$float":"1"}`, job.InvalidValue, `"NaN"`}, {`{"$float":1}`, job.InvalidValue, `"NaN"`},
		{`{"$map":{}}`, job.InvalidValue, "two values"}, {`{"$map":[1]}`, job.InvalidValue, "two values"}, {`{"$map":[[1]]}`, job.InvalidValue, "two values"}, {`{"$map":[[1,2,3]]}`, job.InvalidValue, "two values"},
		{`{"$ext":1}`, job.InvalidValue, "-128 to 127"}, {`{"$ext":[]}`, job.InvalidValue, "-128"}, {`{"$ext":[128,""]}`, job.InvalidValue, "-128"}, {`{"$ext":[1.0,""]}`, job.InvalidValue, "-128"},
		{`{"$ext":[18446744073709551615,""]}`, job.InvalidValue, "-128"},
		{`{"$ext":["1",""]}`, job.InvalidValue, "-128"}, {`{"$ext":[[1,2],""]}`, job.InvalidValue, "-128"}, {`{"$ext":[1,2]}`, job.InvalidValue, "-128"},
	} {
		got, fault := FromJSON([]byte(c.text))
		if fault == nil || fault.Code != c.code || !strings.Contains(fault.Reason, c.reason) {
			t.Errorf("%.40s: % x, %v, want %s with %q", c.text, got, fault, c.code, c.reason)
		}
	}
	if _, fault := FromJSON([]byte(nested(100, `{"$map":[["a",`, "]]}"))); fault != nil {
		t.Errorf("100 deep: %v", fault)
	}
}

// TestDeepReply: the deepest reply becomes MessagePack and JSON again.
func TestDeepReply(t *testing.T) {
	const depth = MaxDepth + replyDepth
	for open, end := range map[string]string{"[": "]", `{"a":`: "}"} {
		text := strings.Repeat(open, depth) + "1" + strings.Repeat(end, depth)
		b, fault := ReplyFromJSON([]byte(text))
		if fault != nil {
			t.Fatal(fault)
		}
		if got := AppendJSON(nil, b); string(got) != text {
			t.Errorf("%s became %s", text, got)
		}
	}
}

// appendRandomValue appends a value of any kind.
func appendRandomValue(r *rand.Rand, dst []byte, depth int) []byte {
	text := func() []byte {
		b := make([]byte, r.IntN(40))
		for i := range b {
			b[i] = byte(r.IntN(256) & (0xff >> r.IntN(3)))
		}
		return b
	}
	kind := r.IntN(11)
	if depth == 0 {
		kind = r.IntN(8)
	}
	switch kind {
	case 0:
		return msgp.AppendNil(dst)
	case 1:
		return msgp.AppendBool(dst, r.IntN(2) == 0)
	case 2:
		return msgp.AppendInt64(dst, -1-int64(r.Uint64()>>1>>r.IntN(63)))
	case 3:
		return msgp.AppendUint64(dst, r.Uint64()>>r.IntN(64))
	case 4:
		f := math.Float64frombits(r.Uint64())
		if f != f {
			f = nonFinite["NaN"]
		}
		return msgp.AppendFloat64(dst, f)
	case 5:
		return msgp.AppendStringFromBytes(dst, text())
	case 6:
		return msgp.AppendBytes(dst, text())
	case 7:
		dst, _ = msgp.AppendExtension(dst, &msgp.RawExtension{Data: text(), Type: int8(r.Uint32())})
		return dst
	case 8:
		n := r.IntN(20)
		dst = msgp.AppendArrayHeader(dst, uint32(n))
		for range n {
			dst = appendRandomValue(r, dst, depth-1)
		}
		return dst
	}
	n := r.IntN(20)
	dst = msgp.AppendMapHeader(dst, uint32(n))
	for range n {
		switch r.IntN(8) {
		case 0:
			dst = appendRandomValue(r, dst, depth-1)
		case 1:
			dst = msgp.AppendString(dst, []string{"$bin", "$ext", "$map", "$float", "$str"}[r.IntN(5)])
		default:
			dst = msgp.AppendString(dst, fmt.Sprint("key ", r.IntN(100)))
		}
		dst = appendRandomValue(r, dst, depth-1)
	}
	return dst
}

// TestRoundTrip: any value that is converted to JSON and back has the same bytes.
func TestRoundTrip(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 2))
	for range 2000 {
		b := appendRandomValue(r, nil, r.IntN(4))
		if fault := Check(b); fault != nil {
			t.Fatalf("%x: %v", b, fault)
		}
		text := AppendJSON(nil, b)
		if !json.Valid(text) {
			t.Fatalf("%x is not JSON: %s", b, text)
		}
		got, fault := FromJSON(text)
		if fault != nil || !bytes.Equal(got, b) {
			t.Fatalf("%s\nis   %x, %v\nwant %x", text, got, fault, b)
		}
	}
}

// TestDeepJSON: deep nesting does not make it slower to convert a long value, in either direction.
func TestDeepJSON(t *testing.T) {
	long := "[" + strings.Repeat("0,", 1<<17) + "0]"
	measure := func(text string) (from, to time.Duration) {
		from, to = time.Hour, time.Hour
		for range 3 {
			start := time.Now()
			b, fault := FromJSON([]byte(text))
			if fault != nil {
				t.Fatal(fault)
			}
			from, start = min(from, time.Since(start)), time.Now()
			if output := AppendJSON(nil, b); string(output) != text {
				t.Fatalf("%.30s… became %.30s…", text, output)
			}
			to = min(to, time.Since(start))
		}
		return from, to
	}
	flatFrom, flatTo := measure(long)
	for open, end := range map[string]string{"[": "]", `{"a":`: "}", `{"$map":[[0,`: "]]}"} {
		if from, to := measure(strings.Repeat(open, MaxDepth-1) + long + strings.Repeat(end, MaxDepth-1)); from > 20*flatFrom || to > 20*flatTo {
			t.Errorf("in %d %s: %v and %v, alone %v and %v", MaxDepth-1, open, from, to, flatFrom, flatTo)
		}
	}
}

// FuzzJSON: no text causes a panic, and a text that is accepted can be converted to MessagePack and
// back.
func FuzzJSON(f *testing.F) {
	for _, seed := range []string{`{"a":[1,-2.5e3,"\ud83d\ude00",{"$bin":"AQ=="}]}`, `{"$map":[[{"$ext":[1,"AQ=="]},{"$float":"NaN"}]]}`, `[[],{},[{}]]`, `{"$ext":[1,"A`, ` "\\\"" `} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		b, fault := FromJSON(text)
		if fault != nil {
			return
		}
		if fault := Check(b); fault != nil {
			t.Fatalf("%s became %x: %v", text, b, fault)
		}
		again := AppendJSON(nil, b)
		if back, fault := FromJSON(again); fault != nil || !bytes.Equal(back, b) {
			t.Fatalf("%s became %x, then %s, then %x, %v", text, b, again, back, fault)
		}
	})
}

func BenchmarkCheck(b *testing.B) {
	v := appendRandomValue(rand.New(rand.NewPCG(1, 2)), nil, 4)
	b.SetBytes(int64(len(v)))
	for b.Loop() {
		if Check(v) != nil {
			b.Fatal("refused")
		}
	}
}

func BenchmarkFromJSON(b *testing.B) {
	text := []byte(`{"name":"thumbnail","argument":{"url":"https://example.org/picture.jpg","width":640,"height":480,"tags":["a","b"]},"priority":5}`)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		if _, fault := FromJSON(text); fault != nil {
			b.Fatal(fault)
		}
	}
}
