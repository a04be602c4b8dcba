package eot

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"os"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

// golden is one line of testdata/golden.json: a message without its End, and the message's meaning.
// It has exactly one of kind, error (the text of the answer) and malformed (no answer).
type golden struct {
	What      string
	In        string
	Kind      *Kind
	No        string
	Type      string
	Password  string
	Data      string
	Answer    string // the error that a response carries
	Error     string
	Malformed bool
}

func loadGoldens(t testing.TB) (list []golden) {
	t.Helper()
	text, err := os.ReadFile("testdata/golden.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &list); err != nil {
		t.Fatal(err)
	}
	if len(list) < 70 {
		t.Fatalf("only %d golden messages", len(list))
	}
	return list
}

func TestDecodeGolden(t *testing.T) {
	for _, g := range loadGoldens(t) {
		m, err := Decode([]byte(g.In))
		var refused *Error
		switch {
		case g.Malformed:
			if !errors.Is(err, ErrMalformed) {
				t.Errorf("%s: %s: got %+v, error %v; want malformed", g.What, g.In, m, err)
			}
			continue
		case g.Kind == nil:
			if !errors.As(err, &refused) || refused.Text != g.Error {
				t.Errorf("%s: %s: got error %v, want %s", g.What, g.In, err, g.Error)
			}
			continue
		case err != nil:
			t.Errorf("%s: %s: %v", g.What, g.In, err)
			continue
		}
		want := Message{Kind: *g.Kind, Type: g.Type, Password: g.Password, Error: g.Answer}
		if g.Data != "" {
			want.Data = json.RawMessage(g.Data)
		}
		if want.Kind <= Response && m.Num.String() != g.No {
			t.Errorf("%s: %s: got number %s, want %s", g.What, g.In, m.Num, g.No)
		}
		want.Num = m.Num
		if diff := cmp.Diff(want, m); diff != "" {
			t.Errorf("%s: %s: %s", g.What, g.In, diff)
		}
	}
}

func TestBadUTF8IsReplaced(t *testing.T) {
	m, err := Decode([]byte("[0,{\"no\":1,\"type\":\"a\xffb\"}]"))
	if err != nil || m.Type != "a\ufffdb" {
		t.Errorf("got %q, error %v", m.Type, err)
	}
	if _, err := Decode([]byte("\xff")); !errors.Is(err, ErrMalformed) {
		t.Errorf("got error %v", err)
	}
}

// TestMessagesKeepTheirMemory: later input does not change a message that was returned.
func TestMessagesKeepTheirMemory(t *testing.T) {
	input := []byte(`[1,{"no":1,"data":{"a":"bcd"}}]` + "\x04")
	var s Splitter
	s.Feed(input)
	payload, ok, err := s.Next()
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	m, err := Decode(payload)
	if err != nil {
		t.Fatal(err)
	}
	clear(input)
	if string(m.Data) != `{"a":"bcd"}` {
		t.Errorf("data became %s", m.Data)
	}
}

func TestDecodeBoundsDepth(t *testing.T) {
	deepArray := strings.Repeat("[", 9999) + strings.Repeat("]", 9999)
	if _, err := Decode([]byte(deepArray)); err == nil || err.Error() != "unexpected type " {
		t.Errorf("9999 arrays: got error %v", err)
	}
	deeperArray := strings.Repeat("[", 1e6) + strings.Repeat("]", 1e6)
	if _, err := Decode([]byte(deeperArray)); !errors.Is(err, ErrMalformed) {
		t.Errorf("a million arrays: got error %v", err)
	}
}

func TestAppendEncodesMessages(t *testing.T) {
	for _, tc := range []struct {
		message Message
		want    string
	}{
		{Message{Kind: Request, Num: 1, Type: "poll"}, `[0,{"no":1,"type":"poll"}]`},
		{Message{Kind: Request, Num: -7, Type: "a\x04\"\n", Data: json.RawMessage(`{"a":1}`), Password: "ü"},
			`[0,{"no":-7,"type":"a\u0004\"\n","data":{"a":1},"password":"ü"}]`},
		{Message{Kind: Response, Num: 3, Data: json.RawMessage(`"ok"`)}, `[1,{"no":3,"data":"ok"}]`},
		{Message{Kind: Response, Num: 0, Error: "bad\xff"}, `[1,{"no":0,"error":"bad` + "\ufffd" + `"}]`},
		{Message{Kind: Response, Num: 3, Data: json.RawMessage(`null`)}, `[1,{"no":3}]`},
		{Message{Kind: Response, Num: 3, Data: json.RawMessage(` true`)}, `[1,{"no":3,"data":1}]`},
		{Message{Kind: Response, Num: 3, Data: json.RawMessage(`false`)}, `[1,{"no":3,"data":0}]`},
		{Message{Kind: Response, Num: 3}, `[1,{"no":3}]`},
		{Message{Kind: Ping}, `[2]`},
		{Message{Kind: Pong}, `[3]`},
	} {
		if got := string(tc.message.Append([]byte("x"))); got != "x"+tc.want+"\x04" {
			t.Errorf("got %q, want %q", got, tc.want)
		}
	}
}

func TestSplitterAcceptsEveryCut(t *testing.T) {
	messages := []string{`[2]`, ``, `[0,{"no":1,"type":"é\u0004"}]`, `nonsense`, ``, `[3]`}
	stream := strings.Join(messages, "\x04") + "\x04[2"
	for first := range len(stream) + 1 {
		for second := first; second <= len(stream); second++ {
			var s Splitter
			var got []string
			for _, part := range []string{stream[:first], stream[first:second], stream[second:]} {
				s.Feed([]byte(part))
				for {
					m, ok, err := s.Next()
					if err != nil {
						t.Fatal(err)
					}
					if !ok {
						break
					}
					got = append(got, string(m))
				}
			}
			if diff := cmp.Diff(messages, got); diff != "" {
				t.Fatalf("cut at %d and %d: %s", first, second, diff)
			}
			if s.heldBytes != 2 {
				t.Fatalf("cut at %d and %d: %d bytes are left, want 2", first, second, s.heldBytes)
			}
		}
	}
}

func TestSplitterAcceptsSingleBytes(t *testing.T) {
	long := strings.Repeat("a", 1<<20)
	var s Splitter
	for i := range len(long) {
		s.Feed([]byte{long[i]})
		if _, ok, err := s.Next(); ok || err != nil {
			t.Fatal(ok, err)
		}
		if s.HeldBytes() < i+1 || s.HeldBytes() > max(2*(i+1), i+1+maxPiece, minPiece) {
			t.Fatalf("%d bytes are held for %d", s.HeldBytes(), i+1)
		}
	}
	s.Feed([]byte{End})
	if m, ok, err := s.Next(); !ok || err != nil || string(m) != long {
		t.Fatalf("got %d bytes, %v, %v", len(m), ok, err)
	}
	if _, ok, _ := s.Next(); ok {
		t.Fatal("a message out of nothing")
	}
	if s.HeldBytes() > 0 {
		t.Errorf("%d bytes are held after a long message", s.HeldBytes())
	}
}

func TestSplitterRefusesLongMessage(t *testing.T) {
	const want = "message is longer than 4 bytes"
	s := Splitter{MaxMessage: 4}
	s.Feed([]byte("1234\x04123"))
	if m, ok, err := s.Next(); !ok || err != nil || string(m) != "1234" {
		t.Fatalf("got %q, %v, %v", m, ok, err)
	}
	if _, ok, err := s.Next(); ok || err != nil {
		t.Fatal(ok, err)
	}
	s.Feed([]byte("45"))
	if _, ok, err := s.Next(); ok || err == nil || err.Error() != want {
		t.Errorf("unfinished: got %v, %v", ok, err)
	}
	s = Splitter{MaxMessage: 4}
	s.Feed([]byte("12345\x04"))
	if _, ok, err := s.Next(); ok || err == nil || err.Error() != want {
		t.Errorf("finished: got %v, %v", ok, err)
	}
}

func TestMembersKeepOrder(t *testing.T) {
	got := Members(json.RawMessage(` { "b" : 1 , "a" : [ "}" , {"x":"\\\"]"} ] , "1":null,"b": -2e3 } `))
	want := []Member{{"b", json.RawMessage("-2e3")}, {"a", json.RawMessage(`[ "}" , {"x":"\\\"]"} ]`)}, {"1", json.RawMessage("null")}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for _, other := range []string{`[1]`, `"{}"`, `1`, `null`, ``} {
		if got := Members(json.RawMessage(other)); got != nil {
			t.Errorf("members of %s: %v", other, got)
		}
	}
}

func TestTypeOfMatchesJavaScript(t *testing.T) {
	for raw, want := range map[string]string{`{}`: "object", `[]`: "object", `null`: "object", ` "x"`: "string",
		`-1`: "number", `0`: "number", `true`: "boolean", `false`: "boolean", ``: "undefined"} {
		if got := TypeOf(json.RawMessage(raw)); got != want {
			t.Errorf("%s: got %s, want %s", raw, got, want)
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, g := range loadGoldens(f) {
		f.Add([]byte(g.In))
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		m, err := Decode(payload)
		if err != nil {
			if diff := cmp.Diff(Message{}, m); diff != "" {
				t.Fatalf("a message beside an error: %s", diff)
			}
			return
		}
		wire := m.Append(nil)
		if n := bytes.IndexByte(wire, End); n != len(wire)-1 {
			if bytes.IndexByte(payload, End) < 0 {
				t.Fatalf("an End inside %q", wire)
			}
			return
		}
		second, err := Decode(wire[:len(wire)-1])
		if err != nil {
			t.Fatalf("%q was made %q: %v", payload, wire, err)
		}
		if diff := cmp.Diff(m, second); diff != "" {
			t.Fatalf("%q was made %q: %s", payload, wire, diff)
		}
	})
}

// FuzzEachValue: Members and Elements find the same as encoding/json.
func FuzzEachValue(f *testing.F) {
	f.Add([]byte(`{"a":[1,{"b":"\"}"}],"c":null, "a" : -1.5e3}`))
	f.Add([]byte(`[[],{},"",[["]"]],true]`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if !json.Valid(raw) || !utf8.Valid(raw) {
			return
		}
		_ = jsString(raw)
		_ = nilIfNull(raw)
		var object map[string]json.RawMessage
		if json.Unmarshal(raw, &object) == nil && object != nil {
			members := Members(raw)
			if len(members) != len(object) {
				t.Fatalf("%s: %d members, want %d", raw, len(members), len(object))
			}
			for _, m := range members {
				if !bytes.Equal(m.Value, object[m.Name]) {
					t.Fatalf("%s: %q is %s, want %s", raw, m.Name, m.Value, object[m.Name])
				}
			}
		}
		var array []json.RawMessage
		if json.Unmarshal(raw, &array) == nil && array != nil {
			if diff := cmp.Diff(array, Elements(raw)); diff != "" {
				t.Fatalf("%s: %s", raw, diff)
			}
		}
	})
}

func FuzzAppendString(f *testing.F) {
	f.Add("a\"\\\x00\x04\n\u2028é\xff😀")
	f.Fuzz(func(t *testing.T, text string) {
		var decoded string
		if err := json.Unmarshal(AppendString(nil, text), &decoded); err != nil {
			t.Fatal(err)
		}
		if want := string([]rune(text)); decoded != want {
			t.Fatalf("got %q, want %q", decoded, want)
		}
		length, size := FitString(text, 7)
		if all, allSize := FitString(text, math.MaxInt); all != len(text) || allSize != len(AppendString(nil, text))-2 || (allSize <= 7) != (length == len(text)) {
			t.Fatalf("%d of %d bytes take %d, and %d take 7", all, len(text), allSize, length)
		}
		if got := len(AppendString(nil, text[:length])) - 2; got != size || size > 7 || !utf8.ValidString(text[:length]) && utf8.ValidString(text) {
			t.Fatalf("%q takes %d bytes, not %d", text[:length], got, size)
		}
	})
}
