package wire_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"gloom/wire"
)

func TestCanonicalEscapesName(t *testing.T) {
	for _, c := range []struct{ value, canonical string }{
		{"", ""}, {"a1", "a1"}, {"é漢😀", "é漢😀"}, {`say "hi"`, `say \"hi\"`}, {`c:\x`, `c:\\x`}, {"a/b", "a/b"},
		{"\b\t\n\f\r", `\b\t\n\f\r`}, {"\x00\x01\x0b\x1f\x7f", `\u0000\u0001\u000b\u001f` + "\x7f"},
		{"<>&\u2028", "<>&\u2028"}, {"\uFFFD", "\uFFFD"}, {"\xffa\xc3", "\uFFFDa\uFFFD"},
	} {
		got := wire.Canonical([]byte("before"), c.value)
		if string(got) != "before"+c.canonical {
			t.Errorf("%q becomes %q, want %q", c.value, got, c.canonical)
		}
		if !utf8.ValidString(c.value) {
			continue
		}
		if value := wire.Value([]byte(c.canonical)); value != c.value {
			t.Errorf("%q has the value %q, want %q", c.canonical, value, c.value)
		}
	}
}

// TestSpellingsHaveOneCanonicalForm: all spellings of an id must decode to the same bytes.
func TestSpellingsHaveOneCanonicalForm(t *testing.T) {
	value := "a\"\\/\b\f\n\r\t\x00é漢😀z"
	encodedName, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	var escaped, upper strings.Builder
	for _, r := range value {
		if r < 0x10000 {
			fmt.Fprintf(&escaped, `\u%04x`, r)
			fmt.Fprintf(&upper, `\u%04X`, r)
			continue
		}
		r -= 0x10000
		fmt.Fprintf(&escaped, `\u%04x\u%04x`, 0xd800+r>>10, 0xdc00+r&0x3ff)
		fmt.Fprintf(&upper, `\u%04X\u%04X`, 0xd800+r>>10, 0xdc00+r&0x3ff)
	}
	want := wire.Canonical(nil, value)
	for _, spelling := range []string{string(encodedName[1 : len(encodedName)-1]), escaped.String(), upper.String(), string(want), `a\"\\\/\b\f\n\r\t\u0000é\u6f22😀\u007a`} {
		var d wire.Decoder
		var r wire.Request
		payload := fmt.Appendf(nil, `{"action":"submit","id":"%s","type":"%s","body":1}`, spelling, spelling)
		if err := d.Decode(payload, wire.SubmitPort, false, &r); err != nil {
			t.Fatalf("%s: %v", payload, err)
		}
		if string(r.ID) != string(want) || string(r.Type) != string(want) {
			t.Errorf("%s: id %q, type %q, want %q", spelling, r.ID, r.Type, want)
		}
		if wire.Value(r.ID) != value {
			t.Errorf("%s: value %q, want %q", spelling, wire.Value(r.ID), value)
		}
	}
}

func TestCheckNameMatchesDecoder(t *testing.T) {
	for _, value := range []string{"", "a", " ", "\x00", "é", strings.Repeat("x", 1024), strings.Repeat("x", 1025), strings.Repeat("é", 512), strings.Repeat("é", 513), strings.Repeat("\n", 1024), strings.Repeat("\n", 1025), "\xff", "a\xc3"} {
		err := wire.CheckName("id", value)
		if err != nil {
			checkReason(t, err.Reason)
		}
		if !utf8.ValidString(value) {
			if err == nil {
				t.Errorf("%q is accepted", value)
			}
			continue
		}
		var d wire.Decoder
		var r wire.Request
		refusal := d.Decode(wire.AppendCancel(nil, wire.Canonical(nil, value))[wire.HeaderLen:], wire.SubmitPort, false, &r)
		if (refusal == nil) != (err == nil) {
			t.Errorf("%.20q: %v, but the decoder says %v", value, err, refusal)
		}
	}
}
