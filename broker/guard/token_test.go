package guard

import (
	"crypto/sha256"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

const (
	submitScope Scope = 1 << iota
	workScope
	adminScope
)

func brokerTokens() *Tokens {
	return &Tokens{Scopes: []string{"submit", "work", "admin"}, AllowTypes: true, UntypedScopes: adminScope}
}

func TestTokenFileIsParsed(t *testing.T) {
	const file = "# comment\n\n" +
		"s3cret\tsubmit   mail,thumb-*\r\n" +
		"  w0rker work # behind\n" +
		"0wner submit,work,admin *\n" +
		"to#ken work mail#1 #behind\n"
	got, err := brokerTokens().parse([]byte(file))
	if err != nil || len(got) != 4 {
		t.Fatalf("%d grants, %v", len(got), err)
	}
	for i, c := range []struct {
		scopes                     Scope
		allowedTypes, refusedTypes string
	}{
		{submitScope, "mail thumb-x thumb-", "mail2 other"}, {workScope, "mail other", ""},
		{submitScope | workScope | adminScope, "mail other", ""}, {workScope, "mail#1", "mail mail#2"},
	} {
		g := got[i]
		if g.Scopes != c.scopes || g.AllTypes != (c.refusedTypes == "") {
			t.Errorf("grant %d has the scopes %b; of any type: %t", i, g.Scopes, g.AllTypes)
		}
		for _, typ := range strings.Fields(c.allowedTypes) {
			if !g.Covers(typ) {
				t.Errorf("grant %d does not cover %s", i, typ)
			}
		}
		for _, typ := range strings.Fields(c.refusedTypes) {
			if g.Covers(typ) {
				t.Errorf("grant %d covers %s", i, typ)
			}
		}
	}
	if got[3].Hash != sha256.Sum256([]byte("to#ken")) {
		t.Error("a token with # is cut")
	}
	for _, c := range []struct{ file, wantError string }{
		{"token\n", "line 1: want TOKEN SCOPES [TYPES], got 1 fields"},
		{"\n\ntoken submit a b\n", "line 3: want TOKEN SCOPES [TYPES], got 4 fields"},
		{"token submit mail\n# more\ntoken work mail\n", "line 3: this token is on line 1 already"},
		{"token read\n", `line 1: unknown scope "read", want submit, work or admin`},
		{"token submit,\n", `line 1: unknown scope "", want submit, work or admin`},
		{"token Submit\n", `unknown scope "Submit"`},
		{"all admin *\ntoken admin mail-*\n", `line 2: admin applies to all types and cannot be limited to "mail-*"`},
		{"token #submit\n", "got 1 fields"},
		{"token submit " + strings.Repeat("x", 1<<17), "too long"},
	} {
		if g, err := brokerTokens().parse([]byte(c.file)); err == nil || !strings.Contains(err.Error(), c.wantError) {
			t.Errorf("%.30q gives %d grants and %v, want an error with %q", c.file, len(g), err, c.wantError)
		}
	}
}

func TestPatternsMatchTypes(t *testing.T) {
	for _, c := range []struct {
		glob    string
		matches string // space between
		fails   string
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
		grants, err := brokerTokens().parse([]byte("token work " + c.glob))
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range strings.Fields(c.matches) {
			if !grants[0].Covers(s) {
				t.Errorf("%q does not fit %q", s, c.glob)
			}
		}
		for _, s := range strings.Fields(c.fails) {
			if grants[0].Covers(s) {
				t.Errorf("%q fits %q", s, c.glob)
			}
		}
	}
}

// TestUntypedTokensRejectTypes: a program whose tokens are not limited to types rejects a token file that
// names types.
func TestUntypedTokensRejectTypes(t *testing.T) {
	k := Tokens{Scopes: []string{"push", "pull"}}
	if g, err := k.parse([]byte("token push,pull\n")); err != nil || len(g) != 1 || g[0].Scopes != 3 || !g[0].Covers("any") {
		t.Errorf("got %+v, %v", g, err)
	}
	for file, wantError := range map[string]string{
		"token push mail":  "want TOKEN SCOPES, got 3 fields",
		"token push,admin": `unknown scope "admin", want push or pull`,
	} {
		if _, err := k.parse([]byte(file)); err == nil || !strings.Contains(err.Error(), wantError) {
			t.Errorf("%s: %v, want %q", file, err, wantError)
		}
	}
}

// TestFailedReloadKeepsTokens: a file that cannot be read changes nothing.
func TestFailedReloadKeepsTokens(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tokens")
	write := func(s string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(s), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("one submit a\ntwo work\n")
	k := brokerTokens()
	k.File = file
	if err := k.Load(); err != nil {
		t.Fatal(err)
	}
	grant := k.Find([]byte("one"))
	if grant == nil || !grant.Covers("a") || grant.Covers("b") || k.Find([]byte("three")) != nil || k.Find(nil) != nil {
		t.Fatalf("one is granted %+v", grant)
	}
	write("three submit\none\n")
	if err := k.Load(); err == nil || !strings.Contains(err.Error(), file+": line 2") {
		t.Errorf("a bad file: %v", err)
	}
	_ = os.Remove(file)
	if err := k.Load(); err == nil {
		t.Error("a missing file was read")
	}
	if err := syscall.Mkfifo(file, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := k.Load(); err == nil || !strings.Contains(err.Error(), "pipe") {
		t.Errorf("a pipe: %v", err)
	}
	_ = os.Remove(file)
	if k.Find([]byte("one")) != grant || k.Find([]byte("three")) != nil {
		t.Error("a file that cannot be read changed the tokens")
	}
	write("three submit\n")
	if err := k.Load(); err != nil || k.Find([]byte("one")) != nil || k.Find([]byte("three")) == nil {
		t.Errorf("after a good file: %v", err)
	}
}
