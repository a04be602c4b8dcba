package probe

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

const tokenLines = `
# who may what
all-1      submit,work,admin
sub-1      submit
work-1     work          # a comment behind a line
admin-1    admin
img-1      submit,work   img-*,thumb
mid-1      submit,work   a*z,*.log

one-1      submit        default
`

func tokenFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func (d *daemon) dialWithToken(t tb, addr, token string) *conn {
	t.Helper()
	c := dial(t, addr)
	c.hello(`,"token":` + quote(token))
	return c
}

func (d *daemon) submitterAs(t tb, token string) submitter {
	t.Helper()
	return submitter{d.dialWithToken(t, d.submitAddr, token)}
}

func (d *daemon) workerAs(t tb, token string) worker {
	t.Helper()
	return worker{d.dialWithToken(t, d.workerAddr, token)}
}

func TestTokensLimitScopesAndTypes(t *testing.T) {
	t.Parallel()
	path := tokenFile(t, tokenLines)
	b := start(t, "--token-file="+path)
	t.Run("known", func(t *testing.T) {
		typ := freshName("token")
		s, w := b.submitterAs(t, "sub-1"), b.workerAs(t, "work-1")
		w.join(typ)
		checkServes(t, s, w, typ)
		s.ping()
		s.cancel(s.submitFresh(freshName("elsewhere"), `1`))
		s, w = b.submitterAs(t, "all-1"), b.workerAs(t, "all-1")
		w.join(typ + "2")
		checkServes(t, s, w, typ+"2")
	})
	for _, first := range []string{
		`{"action":"ping"}`, `{"action":"submit","id":"x","type":"t","body":1}`, `{"action":"join","type":"t"}`,
		`{"action":"frobnicate"}`, `{"action":"cancel","id":"x"}`, `{"action":"respond","body":1}`, `{"action":"leave"}`,
		`{"action":"hello"}`, `{"action":"hello","token":null}`, `{"action":"hello","token":"wrong"}`, `{"action":"hello","token":""}`,
		`{"action":"hello","token":"all-"}`, `{"action":"hello","token":"all-11"}`, `{"action":"hello","token":"#"}`,
		`{"action":"hello","token":"ALL-1"}`, `{"action":"hello","client":"all-1"}`,
		`{"action":"hello","token":"all-1      submit,work,admin"}`,
	} {
		t.Run("unauthorized: "+first, func(t *testing.T) {
			t.Parallel() // each refusal may be delayed by 2 s
			onBoth(t, b, func(t *testing.T, c *conn) {
				begin := time.Now()
				c.writeRaw(packFrame(first))
				c.wantError("unauthorized")
				checkSoonAfter(t, begin, 2*time.Second, "refused")
				c.wantEOF()
			})
		})
	}
	t.Run("nothing behind a refused frame is done", func(t *testing.T) {
		t.Parallel()
		stranger := b.submitter(t)
		stranger.writeRaw(append(packFrame(`{"action":"submit","id":"sneaky","type":"t","body":1}`),
			append(packFrame(`{"action":"hello","token":"all-1"}`), packFrame(`{"action":"submit","id":"sneaky","type":"t","body":1,"detach":true}`)...)...))
		stranger.wantError("unauthorized")
		stranger.wantEOF()
		b.submitterAs(t, "all-1").submit("sneaky", freshName("token"), `1`)
	})
	t.Run("scopes", func(t *testing.T) {
		typ := freshName("token")
		s := b.submitterAs(t, "work-1")
		s.sendSubmit("scope", typ, `1`, "")
		s.wantErrorFor("forbidden", "scope")
		s.sendSubmit("scope", typ, `1`, `,"ack":false`)
		s.wantErrorFor("forbidden", "scope")
		s.send(`{"action":"cancel","id":"scope"}`)
		s.wantError("forbidden")
		s.ping() // stays open
		w := b.workerAs(t, "sub-1")
		w.send(`{"action":"join","type":%q}`, typ)
		w.wantError("forbidden")
		w.ping()
		w.leave()
		both := b.submitterAs(t, "admin-1")
		both.sendSubmit("scope", typ, `1`, "")
		both.wantErrorFor("forbidden", "scope")
		b.submitterAs(t, "sub-1").submit("scope", typ, `1`) // the refused requests changed nothing
	})
	t.Run("types", func(t *testing.T) {
		s, w := b.submitterAs(t, "img-1"), b.workerAs(t, "img-1")
		for _, typ := range []string{"img-a", "img-", "thumb", "img-*", "img-ü/\n"} {
			w.join(typ)
			checkServes(t, s, w, typ)
		}
		for _, typ := range []string{"img", "IMG-a", "ximg-a", "thumbs", "other", "default", "*"} {
			s.sendSubmit("glob", typ, `1`, "")
			s.wantErrorFor("forbidden", "glob")
			w.send(`{"action":"join","type":%q}`, typ)
			w.wantError("forbidden")
		}
		checkServes(t, s, w, "img-ü/\n") // a refused join changes nothing
		s.send(`{"action":"submit","id":"glob","body":1}`)
		s.wantErrorFor("forbidden", "glob") // the default type counts too
		one := b.submitterAs(t, "one-1")
		one.send(`{"action":"submit","id":"glob","body":1}`)
		one.wantAck("glob")
	})
	t.Run("stars anywhere", func(t *testing.T) {
		s := b.submitterAs(t, "mid-1")
		for _, typ := range []string{"az", "abcz", "a*z", "azaz", "x.log", ".log"} {
			s.submit(freshName("glob"), typ, `1`)
		}
		for _, typ := range []string{"abc", "za", "xlog", "x.logs", "a", "z"} {
			s.sendSubmit("mid", typ, `1`, "")
			s.wantErrorFor("forbidden", "mid")
		}
	})
	t.Run("cancel of a type that is not ours", func(t *testing.T) {
		owner, other := b.submitterAs(t, "all-1"), b.submitterAs(t, "img-1")
		id := owner.submitFreshWith("private", `1`, `,"detach":true`)
		other.send(`{"action":"cancel","id":%q}`, id)
		other.wantError("forbidden|unknown_id")
		owner.cancel(id) // it still exists
	})
	t.Run("HTTP", func(t *testing.T) {
		for _, open := range []string{"/healthz", "/metrics", "/readyz"} {
			if status, _, err := b.get(open); err != nil || status != 200 {
				t.Errorf("%s: status %d, %v", open, status, err)
			}
		}
		id := b.submitterAs(t, "all-1").submitFresh(freshName("token"), `1`)
		for _, c := range []struct {
			token  string
			status int
		}{{"", 401}, {"wrong", 401}, {"all-", 401}, {"sub-1", 403}, {"work-1", 403}, {"admin-1", 200}, {"all-1", 200}} {
			for _, path := range []string{"/v1/jobs/" + id, "/v1/types/" + "x"} {
				status, body, err := b.request("GET", path, c.token)
				if path == "/v1/types/x" && status == 404 && c.status == 200 {
					continue // this type does not exist
				}
				if err != nil || status != c.status {
					t.Errorf("GET %s with %q: status %d, %v, %s; want %d", path, c.token, status, err, body, c.status)
				}
			}
		}
		for token, want := range map[string]int{"": 401, "sub-1": 403} {
			if status, _, err := b.request("DELETE", "/v1/jobs/"+id, token); err != nil || status != want {
				t.Errorf("DELETE with %q: status %d, %v; want %d", token, status, err, want)
			}
		}
	})
	t.Run("ten seconds without hello", func(t *testing.T) {
		t.Parallel()
		onBoth(t, b, func(t *testing.T, c *conn) {
			begin := time.Now()
			c.wantError("unauthorized")
			checkNotBefore(t, begin, 9*time.Second, "cut off")
			checkSoonAfter(t, begin, 12*time.Second, "cut off")
			c.wantEOF()
		})
	})
	t.Run("ten seconds, half a hello", func(t *testing.T) {
		t.Parallel()
		onBoth(t, b, func(t *testing.T, c *conn) {
			c.writeRaw(packFrame(`{"action":"hello","token":"all-1"}`)[:20])
			c.wantError("unauthorized")
			c.wantEOF()
		})
	})
	t.Run("a slowed refusal holds up nobody", func(t *testing.T) {
		t.Parallel()
		for range 20 {
			b.submitter(t).send(`{"action":"hello","token":"guess"}`)
		}
		typ := freshName("token")
		begin := time.Now()
		w := b.workerAs(t, "all-1")
		w.join(typ)
		checkServes(t, b.submitterAs(t, "all-1"), w, typ)
		checkSoonAfter(t, begin, 0, "served")
	})
	t.Run("tokens are not logged", func(t *testing.T) {
		c := b.submitter(t)
		c.send(`{"action":"hello","token":"a-very-secret-guess"}`)
		c.wantError("unauthorized")
		for _, secret := range []string{"a-very-secret-guess", "all-1", "admin-1"} {
			if strings.Contains(b.Log.String(), secret) {
				t.Errorf("the log has %q", secret)
			}
		}
	})
}

func TestTokensAreReloaded(t *testing.T) {
	t.Parallel()
	path := tokenFile(t, "old-1 submit,work\nkept-1 submit\n")
	b := start(t, "--token-file="+path)
	typ := freshName("reload")
	s, w := b.submitterAs(t, "old-1"), b.workerAs(t, "old-1")
	w.join(typ)
	checkServes(t, s, w, typ)
	kept := b.submitterAs(t, "kept-1")
	if err := os.WriteFile(path, []byte("new-1 submit,work\nkept-1 work\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	b.Signal(syscall.SIGHUP)
	waitFor(t, "the new token is known", func() error {
		c, err := dialTry(b.submitAddr)
		if err != nil {
			return err
		}
		defer c.close()
		_ = c.write(packFrame(`{"action":"hello","token":"new-1"}`))
		f, err := c.next(patience)
		if err == nil && f.has("error") {
			err = errNotYet
		}
		return err
	})
	oldSubmitter := b.submitter(t)
	oldSubmitter.send(`{"action":"hello","token":"old-1"}`)
	oldSubmitter.wantError("unauthorized")
	checkServes(t, s, w, typ) // open connections keep their scopes
	kept.submitFresh(typ, `1`)
	changed := b.submitterAs(t, "kept-1")
	changed.sendSubmit("x", typ, `1`, "")
	changed.wantErrorFor("forbidden", "x")

	// after an invalid file, tokens must still be required, and the old ones must still be
	// valid
	if err := os.WriteFile(path, []byte("new-1 fly\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	b.Signal(syscall.SIGHUP)
	for range 3 {
		b.submitterAs(t, "new-1").submitFresh(typ, `1`)
		stranger := b.submitter(t)
		stranger.send(`{"action":"ping"}`)
		stranger.wantError("unauthorized")
	}
	if !b.Running() {
		t.Fatal("a bad token file ended the daemon")
	}
}

func TestBadTokenFilesAreRefused(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"a line without scopes": "lonely\n",
		"an unknown scope":      "tok fly\n",
		"too many fields":       "tok submit a b\n",
		"an empty scope":        "tok submit,\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := tokenFile(t, text)
			out := refusedWith(t, 0, daemonSpec{flags: []string{"--token-file=" + path}})
			if !strings.Contains(out, "token-file") && !strings.Contains(out, path) {
				t.Errorf("the error names neither flag nor file:\n%s", out)
			}
			if strings.Contains(out, "lonely") {
				t.Errorf("the error shows a token:\n%s", out)
			}
		})
	}
	t.Run("no file", func(t *testing.T) {
		t.Parallel()
		refusedWith(t, 0, daemonSpec{flags: []string{"--token-file=/no/such/tokens"}})
	})
	t.Run("a foreign address with tokens needs no --insecure", func(t *testing.T) {
		t.Parallel()
		start(t, "--submit-addr=0.0.0.0:0", "--worker-addr=0.0.0.0:0", "--token-file="+tokenFile(t, "t submit,work\n"))
	})
}
