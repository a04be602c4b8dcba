package wire_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"gloom/wire"
)

// depthOf returns how deep a valid JSON text is nested.
func depthOf(text []byte) int {
	depth, maxDepth, quoted := 0, 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			depth++
			maxDepth = max(maxDepth, depth)
		case c == '}' || c == ']':
			depth--
		}
	}
	return maxDepth
}

// knownKeys are all keys that the scanner may know.
var knownKeys = func() (keys []wire.Key) {
	for k := wire.Key(0); k.String() != "none"; k++ {
		keys = append(keys, k)
	}
	return keys
}()

// longMessage is white space to put before a payload, which does not change its meaning. The
// scanner reads strings in long messages with other code.
var longMessage = bytes.Repeat([]byte(" "), 4<<10)

// checkScan compares the scanner with encoding/json: both must accept the same payloads and find
// the same value for each key.
func checkScan(t *testing.T, e *wire.Envelope, payload []byte) {
	valid := json.Valid(payload) && utf8.Valid(payload) && depthOf(payload) <= wire.MaxDepth
	object := valid && bytes.TrimLeft(payload, " \t\r\n")[0] == '{'
	// The values by key. Keys are compared by value and case, and the last one counts.
	var want map[string]json.RawMessage
	if object {
		if err := json.Unmarshal(payload, &want); err != nil {
			t.Fatalf("%q: %v", payload, err)
		}
	}
	for _, p := range [][]byte{slices.Concat(longMessage, payload), payload} {
		err := e.Scan(p)
		switch {
		case !valid:
			if err == nil || err.Code != wire.InvalidJSON {
				t.Fatalf("%q is not valid, but accepted (%v)", p, err)
			}
		case !object:
			if err == nil || err.Code != wire.InvalidType {
				t.Fatalf("%q is valid, but not an object: got %v, want InvalidType", p, err)
			}
		case err != nil:
			t.Fatalf("%q is an object, but %v", p, err)
		}
		if err != nil {
			checkReason(t, err.Reason)
			continue
		}
		for _, k := range knownKeys {
			got := e.Raw(p, k)
			raw, present := want[k.String()]
			if (got != nil) != present || string(got) != string(raw) {
				t.Fatalf("%q: %v is %q, want %q", p, k, got, raw)
			}
		}
	}
}

var scanSeeds = []string{
	``, ` `, `{}`, ` { } `, `[]`, `null`, `"x"`, `1`, `{"id":1}`, `{"id":1,"id":"2"}`, `{"\u0069d":[1,{"a":null}]}`,
	`{"ID":1,"Id":2,"iD":3}`, `{"id ":1," id":2,"id\u0000":3}`, `{"body":{"id":1},"id":{"body":2}}`,
	`{"heartbeat_ms":1,"heartbeat_msx":2,"heartbeat_m":3}`, `{"h\u0065artbeat_ms_and_more_of_it":1}`,
	`{"a":"é","body":"é"}`, `{"id":"é"}`, `{"é":1,"id":2}`, `{"id":"\ud83d\ude00","type":"\ud800"}`, `{"\ud800":1,"\ud800id":2}`,
	`{"x":[[[]],[{}],{"a":{"b":[1,2,3]}}],"id":-0.5e+10}`, `{"x":01}`, `{"x":-}`, `{"x":1.}`, `{"x":1e}`, `{"x":.1}`, `{"x":1.5E-3}`,
	`{"x":tru}`, `{"x":true,"y":false,"z":null}`, `{"x":nul`, `{"x":"\u12"}`, `{"x":"\u12G4"}`, `{"x":"\q"}`, `{"x":"\`,
	`{"x":"aaaaaaa` + "\x1f" + `"}`, `{"x":"aaaaaaaaaaaaaaaaaaaa\n` + "\t" + `"}`, "{\"x\":\"\x7f\x80\"}", "{\"x\":\"\xed\xa0\x80\"}",
	`{"x":1,}`, `{,}`, `{"x"}`, `{"x":}`, `{"x":1 "y":2}`, `{x:1}`, `{"x":1}}`, `{"x":[1}`, `{"x":{]}`, `[1,]`, `[,1]`, `{"x":1} {}`,
	"{\"x\":1}\x00", "\ufeff{}", "{\u00a0}", "{\"x\":1\v}", `{"x":"` + strings.Repeat("a", 64) + `\"","id":5}`,
	strings.Repeat("[", 256) + strings.Repeat("]", 256), strings.Repeat("[", 257) + strings.Repeat("]", 257),
	`{"a":` + strings.Repeat(`{"b":[`, 127) + `1` + strings.Repeat(`]}`, 127) + `}`,
	`{"a":` + strings.Repeat(`{"b":[`, 128) + `1` + strings.Repeat(`]}`, 128) + `}`,
	submitLine, `{"action":"hello","token":"t","client":"c","heartbeat_ms":100,"server":1,"limits":{"max_frame":1}}`,
}

const submitLine = `{"action":"submit","id":"a1","type":"echo","priority":5,"delay_ms":1,"body":{"text":"hello"}}`

func TestScanMatchesEncodingJSON(t *testing.T) {
	var e wire.Envelope // reused, so that nothing may be left over from earlier messages
	for _, seed := range scanSeeds {
		checkScan(t, &e, []byte(seed))
	}
	for _, c := range allGolden(t) {
		checkScan(t, &e, c.payload(t))
	}
}

// TestScanOfDamagedMessagesMatchesJSON changes each byte of a message that uses the whole grammar,
// and cuts it at each length.
func TestScanOfDamagedMessagesMatchesJSON(t *testing.T) {
	message := []byte(` {"action":"submit" , "id":"\u00e9\\\"é","body":[1,-0.5e+3,true,false,null,{"":[{}]},"\ud83d\ude00漢字 and so on"],"\u0074ype":"x"}`)
	var e wire.Envelope
	step := 1
	if testing.Short() {
		step = 17
	}
	for i := range message {
		checkScan(t, &e, message[:i])
		damagedMessage := bytes.Clone(message)
		for b := 0; b < 256; b += step {
			damagedMessage[i] = byte(b)
			checkScan(t, &e, damagedMessage)
		}
	}
}

// TestScanStringsAtEveryOffset puts every special byte at every place of a string: the scanner
// reads eight bytes at a time or, in long strings from the 64th byte on, 32.
func TestScanStringsAtEveryOffset(t *testing.T) {
	var e wire.Envelope
	lengths := []int{64, 71, 72, 73, 96, 104, 105, 140}
	for length := range 34 {
		lengths = append(lengths, length)
	}
	if testing.Short() {
		lengths = []int{9, 33, 73}
	}
	for _, length := range lengths {
		for at := range length + 1 {
			for _, token := range []string{`"`, `\"`, `\\`, `\`, "\x1f", "\x20", "\x21", "\x22", "\x23", "\x00", "\x5b", "\x5d", "\x7f", "\x80", "\xff", "é", "漢", "😀", "\xa2", "\xdc", `\u00e9`, "\x02"} {
				text := strings.Repeat("a", at) + token + strings.Repeat("b", length-at)
				checkScan(t, &e, fmt.Appendf(nil, `{"id":"%s","body":1}`, text))
				checkScan(t, &e, fmt.Appendf(nil, `{"%s":2,"body":[1,"%s"]}`, text, text))
				checkScan(t, &e, fmt.Appendf(nil, `{"body":"%s`, text))
			}
		}
	}
}

func TestScanBoundsDepth(t *testing.T) {
	var e wire.Envelope
	for _, c := range []struct{ open, close string }{{"[", "]"}, {`{"a":`, "}"}, {`[{"a":`, "}]"}} {
		perRepeat := depthOf([]byte(c.open + "1" + c.close))
		for _, body := range []int{wire.MaxDepth - 2, wire.MaxDepth - 1, wire.MaxDepth, wire.MaxDepth + 1} {
			n := body / perRepeat
			value := strings.Repeat(c.open, n) + "1" + strings.Repeat(c.close, n)
			err := e.Scan([]byte(`{"body":` + value + `}`))
			deep := 1+n*perRepeat > wire.MaxDepth
			if deep != (err != nil) || deep != (wire.CheckBody("body", []byte(value)) != nil) {
				t.Errorf("%d levels of %s: %v", 1+n*perRepeat, c.open, err)
			}
			if err != nil && (err.Code != wire.InvalidJSON || !strings.Contains(err.Reason, fmt.Sprint(wire.MaxDepth))) {
				t.Errorf("%d levels of %s: %v", 1+n*perRepeat, c.open, err)
			}
		}
	}
	// Many elements on one level do not count as depth.
	if err := e.Scan([]byte(`{"body":[` + strings.Repeat(`{"a":[]},`, 2000) + `1]}`)); err != nil {
		t.Error(err)
	}
}

func TestCheckBody(t *testing.T) {
	for text, want := range map[string]bool{
		"": false, " ": false, "1": true, " {\"a\":[null]}\t": true, `"ä"`: true, `"\ud800"`: true,
		"\"\xff\"": false, "01": false, "nul": false, "1,2": false, `1,"type":"x"`: false, "1}": false, "\"\n\"": false,
	} {
		err := wire.CheckBody("body", []byte(text))
		if (err == nil) != want {
			t.Errorf("%q: %v", text, err)
		}
		if err != nil && (err.Code != wire.InvalidJSON || !strings.HasPrefix(err.Reason, "body: not one JSON value: ")) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestKeysAreComparedByValue(t *testing.T) {
	var e wire.Envelope
	keys := knownKeys
	if len(keys) < 24 {
		t.Fatalf("only %d keys", len(keys))
	}
	for _, k := range keys {
		name := k.String()
		for at := range len(name) {
			escapedName := name[:at] + fmt.Sprintf(`\u%04x`, name[at]) + name[at+1:]
			for _, spelling := range []string{name, escapedName} {
				payload := fmt.Appendf(nil, `{"%s":[%d]}`, spelling, at)
				checkScan(t, &e, payload)
				if want := fmt.Sprintf("[%d]", at); string(e.Raw(payload, k)) != want {
					t.Errorf("%s: %s is %q, want %s", payload, name, e.Raw(payload, k), want)
				}
			}
			upper := name[:at] + strings.ToUpper(name[at:at+1]) + name[at+1:]
			for _, other := range []string{upper, name[:at] + name[at+1:], name + "x", "x" + name, name + `\u0000`} {
				payload := fmt.Appendf(nil, `{"%s":1}`, other)
				checkScan(t, &e, payload)
				if other != name && e.Raw(payload, k) != nil {
					t.Errorf("%q was taken for %s", other, name)
				}
			}
		}
	}
	if e.Raw([]byte(`{}`), wire.Key(200)) != nil {
		t.Error("a key beyond the table has a value")
	}
}
