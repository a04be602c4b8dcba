package server

import (
	"crypto/sha256"
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestParseTokens(t *testing.T) {
	const file = "# comment\n\n" +
		"s3cret\tsubmit   mail,thumb-*\r\n" +
		"  w0rker work # behind\n" +
		"0wner submit,work,admin *\n" +
		"to#ken work mail#1 #behind\n"
	got, err := parseTokens([]byte(file))
	if err != nil || len(got) != 4 {
		t.Fatalf("%d grants, %v", len(got), err)
	}
	for i, c := range []struct {
		scopes      scope
		fits, fails string
	}{
		{submit, "mail thumb-x thumb-", "mail2 other"}, {work, "mail other", ""},
		{submit | work | admin, "mail other", ""}, {work, "mail#1", "mail mail#2"},
	} {
		g := got[i]
		if g.scopes != c.scopes || g.all != (c.fails == "") {
			t.Errorf("grant %d has the scopes %b; of any type: %t", i, g.scopes, g.all)
		}
		for _, typ := range strings.Fields(c.fits) {
			if !g.covers(typ) {
				t.Errorf("grant %d does not cover %s", i, typ)
			}
		}
		for _, typ := range strings.Fields(c.fails) {
			if g.covers(typ) {
				t.Errorf("grant %d covers %s", i, typ)
			}
		}
	}
	if got[3].hash != sha256.Sum256([]byte("to#ken")) {
		t.Error("a token with # is cut")
	}
	for _, c := range []struct{ file, says string }{
		{"token\n", "line 1: want TOKEN SCOPES [TYPES], got 1 fields"},
		{"\n\ntoken submit a b\n", "line 3: want TOKEN SCOPES [TYPES], got 4 fields"},
		{"token read\n", `line 1: unknown scope "read", want submit, work or admin`},
		{"token submit,\n", `line 1: unknown scope "", want submit, work or admin`},
		{"token Submit\n", `unknown scope "Submit"`},
		{"token #submit\n", "got 1 fields"},
		{"token submit " + strings.Repeat("x", 1<<17), "too long"},
	} {
		if g, err := parseTokens([]byte(c.file)); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%.30q gives %d grants and %v, want an error with %q", c.file, len(g), err, c.says)
		}
	}
}

func TestGlobs(t *testing.T) {
	for _, c := range []struct {
		glob  string
		fits  string // space between
		fails string
	}{
		{"mail", "mail", "Mail mails xmail -"},
		{"*", "mail * é", ""},
		{"thumb-*", "thumb- thumb-1 thumb-*", "thumb xthumb-1"},
		{"*-fast", "-fast a-fast a-fast-fast", "a-faster fast"},
		{"**", "a", ""},
		{"a.c", "a.c", "abc"},
		{"[a]?", "[a]?", "ab"},
		{`\"`, `\"`, `\ "`},
	} {
		grants, err := parseTokens([]byte("token work " + c.glob))
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range strings.Fields(c.fits) {
			if !grants[0].covers(s) {
				t.Errorf("%q does not fit %q", s, c.glob)
			}
		}
		for _, s := range strings.Fields(c.fails) {
			if grants[0].covers(s) {
				t.Errorf("%q fits %q", s, c.glob)
			}
		}
	}
}

// TestReloadTokens: a file that cannot be read changes nothing.
func TestReloadTokens(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tokens")
	write := func(s string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(s), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("one submit a\ntwo work\n")
	k := tokens{file: file}
	if err := k.load(); err != nil {
		t.Fatal(err)
	}
	one := k.find([]byte("one"))
	if one == nil || !one.covers("a") || one.covers("b") || k.find([]byte("three")) != nil || k.find(nil) != nil {
		t.Fatalf("one is granted %+v", one)
	}
	write("three submit\none\n")
	if err := k.load(); err == nil || !strings.Contains(err.Error(), file+": line 2") {
		t.Errorf("a bad file: %v", err)
	}
	_ = os.Remove(file)
	if err := k.load(); err == nil {
		t.Error("a missing file was read")
	}
	if k.find([]byte("one")) != one || k.find([]byte("three")) != nil {
		t.Error("a file that cannot be read changed the tokens")
	}
	write("three submit\n")
	if err := k.load(); err != nil || k.find([]byte("one")) != nil || k.find([]byte("three")) == nil {
		t.Errorf("after a good file: %v", err)
	}
}

// TestUnauthorized: missing and wrong tokens are counted, and the connection is
// closed; a token says what its bearer may do.
func TestUnauthorized(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(file, []byte("good submit mail\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := begin(t, func(o *Options) { o.TokenFile = file })
	for i, first := range []string{
		`{"action":"ping"}`, `{"action":"hello"}`, `{"action":"hello","token":"bad"}`, `no json`,
		`{"action":"hello","token":"good","client":"` + strings.Repeat("x", strangerFrame) + `"}`,
	} {
		p := dial(t, s.SubmitAddr())
		p.send("%s", first)
		p.want("error", "unauthorized")
		if _, err := p.next(); err == nil {
			t.Errorf("%.80s: the connection is still open", first)
		}
		if n := s.Counts().Unauthorized; n != uint64(i+1) {
			t.Errorf("%.80s: %d are counted, want %d", first, n, i+1)
		}
	}
	// Nor may a stranger fill the memory that others need for their frames.
	stranger := dial(t, s.SubmitAddr())
	_, _ = stranger.Write(binary.BigEndian.AppendUint32(nil, strangerFrame+1))
	stranger.want("error", "unauthorized")
	p := dial(t, s.SubmitAddr())
	p.send(`{"action":"hello","token":"good"}`)
	p.want("ok", true)
	p.send(`{"action":"submit","id":"a","type":"mail","body":1}`)
	p.want("ok", true)
	p.send(`{"action":"submit","id":"b","type":"other","body":1}`)
	p.want("error", "forbidden")
	w := dial(t, s.WorkerAddr())
	w.send(`{"action":"hello","token":"good"}`)
	w.want("ok", true)
	w.send(`{"action":"join","type":"mail"}`)
	w.want("error", "forbidden")
}
