package main

import (
	"bytes"
	"strings"
	"testing"
)

func TestToBody(t *testing.T) {
	for _, c := range []struct{ in, form, want, err string }{
		{"hello", formAuto, `"hello"`, ""},
		{"hello\n", formAuto, `"hello"`, ""},
		{"hello\r\n\r\n", formAuto, `"hello\r\n"`, ""},
		{" 1 \n", formAuto, `1`, ""},
		{"1\n2\n", formAuto, `"1\n2"`, ""},
		{"1", formText, `"1"`, ""},
		{"", formAuto, `""`, ""},
		{"", formJSON, "", "is not JSON"},
		{"{\"a\":<}", formJSON, "", "is not JSON: invalid character '<' looking for beginning of value, at byte 6"},
		{"<&>\x00\u2028\"\\", formText, `"<&>\u0000\u2028\"\\"`, ""},
		{"1e999999", formJSON, `1e999999`, ""},
		{"\xff", formAuto, "", "is not UTF-8"},
		{"\"\xff\"", formJSON, "", "is not UTF-8"},
		{`"\ud800"`, formJSON, `"\ud800"`, ""},
	} {
		got, err := toBody([]byte(c.in), c.form)
		message := ""
		if err != nil {
			message = err.Error()
		}
		if string(got) != c.want || !strings.HasPrefix(message, c.err) || (message == "") != (c.err == "") {
			t.Errorf("toBody(%q, %s) = %s, %q; want %s, %q", c.in, c.form, got, message, c.want, c.err)
		}
	}
}

// Text that is encoded and decoded is the same.
func FuzzText(f *testing.F) {
	for _, s := range []string{"", "a", "\x00\x1f\x7f", "<>&\u2028\u2029", "\"\\/", "\U0001f600", "a\n"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if strings.ToValidUTF8(s, "") != s {
			t.Skip()
		}
		body, err := toBody([]byte(s), formText)
		if err != nil {
			t.Fatal(err)
		}
		if got := bodyText(body); !bytes.Equal(got, trimLineEnd([]byte(s))) {
			t.Errorf("%q became %s became %q", s, body, got)
		}
	})
}

func TestTailKeepsLastBytes(t *testing.T) {
	b := &tailBuffer{limit: 100}
	for i := range 1000 {
		if _, err := b.Write([]byte(strings.Repeat("x", i%7) + "\n")); err != nil {
			t.Fatal(err)
		}
	}
	b.Write([]byte("the end\xff\n\n"))
	if len(b.buf) > 2*b.limit+12 {
		t.Errorf("%d bytes kept, at most %d expected", len(b.buf), 2*b.limit)
	}
	if got := b.text(); !strings.HasPrefix(got, "… ") || !strings.HasSuffix(got, "the end�") {
		t.Errorf("told %q", got)
	}
	if got := (&tailBuffer{limit: 100, buf: []byte(" one\n")}).text(); got != "one" {
		t.Errorf("told %q, want one", got)
	}
}
