package probe

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestStartUpLineHasBoundAddresses(t *testing.T) {
	t.Parallel()
	t.Run("the start-up line has what was bound", func(t *testing.T) {
		t.Parallel()
		b := start(t)
		for _, addr := range []string{b.submitAddr, b.workerAddr, b.httpAddr} {
			host, port, err := net.SplitHostPort(addr)
			if err != nil || host != "127.0.0.1" || port == "0" || port == "" {
				t.Errorf("address %q in %s", addr, b.Ready)
			}
		}
	})
	t.Run("default ports", func(t *testing.T) {
		// The default ports may be in use on this machine. Then the error must name one of
		// them.
		d, err := launch(daemonSpec{withoutFreePorts: true, flags: []string{"--log-format=json"}})
		if err != nil {
			if d == nil || !strings.Contains(d.Log.String(), "999") {
				t.Fatal(err)
			}
			t.Logf("default ports are taken here: %v", err)
			return
		}
		defer func() {
			if err := d.end(); err != nil {
				t.Error(err)
			}
		}()
		if d.submitAddr != "127.0.0.1:9998" || d.workerAddr != "127.0.0.1:9999" || d.httpAddr != "127.0.0.1:9997" {
			t.Errorf("bound %s, %s, %s", d.submitAddr, d.workerAddr, d.httpAddr)
		}
		d.checkAlive(t)
	})
	t.Run("port in use", func(t *testing.T) {
		t.Parallel()
		b := start(t)
		for _, c := range []struct{ flag, addr string }{
			{"--submit-addr=", b.submitAddr}, {"--worker-addr=", b.workerAddr}, {"--http-addr=", b.httpAddr},
		} {
			text := refusedWith(t, 0, daemonSpec{flags: []string{c.flag + c.addr}})
			if !strings.Contains(text, c.addr) || !strings.Contains(text, "in use") {
				t.Errorf("%s%s: the error does not say what is in use:\n%s", c.flag, c.addr, text)
			}
		}
		b.checkAlive(t)
	})
	t.Run("a foreign address is refused", func(t *testing.T) {
		t.Parallel()
		for _, flag := range []string{"--submit-addr=0.0.0.0:0", "--worker-addr=0.0.0.0:0", "--worker-addr=:0", "--submit-addr=[::]:0"} {
			if text := refusedWith(t, 2, daemonSpec{flags: []string{flag}}); !strings.Contains(text, "insecure") {
				t.Errorf("%s: the error does not name --insecure:\n%s", flag, text)
			}
		}
	})
	t.Run("unless --insecure is given", func(t *testing.T) {
		t.Parallel()
		b := start(t, "--submit-addr=0.0.0.0:0", "--worker-addr=0.0.0.0:0", "--insecure")
		for _, addr := range []*string{&b.submitAddr, &b.workerAddr} {
			_, port, err := net.SplitHostPort(*addr)
			if err != nil {
				t.Fatal(err)
			}
			*addr = "127.0.0.1:" + port
		}
		b.checkAlive(t)
	})
	t.Run("more loops", func(t *testing.T) {
		t.Parallel()
		b := start(t, "--loops=3")
		typ := freshName("loops")
		for range 8 {
			checkServes(t, b.submitter(t), b.servingWorker(t, typ), typ)
			typ = freshName("loops")
		}
	})
	t.Run("debug logs", func(t *testing.T) {
		t.Parallel()
		b := start(t, "--log-level=debug")
		b.checkAlive(t)
	})
	t.Run("console logs", func(t *testing.T) {
		t.Parallel()
		text := refusedWith(t, 2, daemonSpec{flags: []string{"--log-format=console", "--submit-addr=127.0.0.1:1", "--worker-addr=nowhere:x"}})
		if strings.HasPrefix(strings.TrimSpace(text), "{") {
			t.Errorf("console format wrote JSON:\n%s", text)
		}
	})
}

func TestBadFlagsAreRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ flag, names string }{
		{"--max-frame=banana", "max-frame"},
		{"--max-frame=0", "max-frame"},
		{"--max-frame=-1", "max-frame"},
		{"--max-frame=8GiB", "max-frame"},
		{"--max-jobs=-1", "max-jobs"},
		{"--max-jobs=many", "max-jobs"},
		{"--max-bytes=-1", "max-bytes"},
		{"--max-bytes=1XiB", "max-bytes"},
		{"--max-type-jobs=-1", "max-type-jobs"},
		{"--max-submitter-jobs=x", "max-submitter-jobs"},
		{"--max-conns=-5", "max-conns"},
		{"--max-outbound=-1", "max-outbound"},
		{"--max-inbound=nothing", "max-inbound"},
		{"--retries=-1", "retries"},
		{"--retries=1001", "retries"},
		{"--retries=1.5", "retries"},
		{"--drain-timeout=-1s", "drain-timeout"},
		{"--drain-timeout=soon", "drain-timeout"},
		{"--loops=-1", "loops"},
		{"--log-level=loud", "log-level"},
		{"--log-format=xml", "log-format"},
		{"--submit-addr=nonsense", "submit-addr"},
		{"--worker-addr=127.0.0.1:99999", "worker-addr"},
		{"--http-addr=127.0.0.1", "http-addr"},
		{"--submit-addr=", "submit-addr"},
		{"--worker-addr=", "worker-addr"},
		{"--submit-addr=unix:", "submit-addr"},
		{"--default-type=" + strings.Repeat("x", 2000), "default-type"},
		{"--config=/no/such/file", "/no/such/file"},
		{"--no-such-flag", "no-such-flag"},
		{"stray", "stray"},
	} {
		name := c.flag
		if len(name) > 60 {
			name = name[:60]
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if text := refusedWith(t, 2, daemonSpec{flags: []string{c.flag}}); !strings.Contains(text, c.names) {
				t.Errorf("the error does not name %s:\n%.1000s", c.names, text)
			}
		})
	}
	for _, c := range []struct{ env, names string }{
		{"GLOOM_MAX_FRAME=banana", "max"},
		{"GLOOM_RETRIES=1001", "retries"},
		{"GLOOM_LOG_LEVEL=loud", "level"},
	} {
		t.Run(c.env, func(t *testing.T) {
			t.Parallel()
			if text := refusedWith(t, 2, daemonSpec{env: []string{c.env}}); !strings.Contains(strings.ToLower(text), c.names) {
				t.Errorf("the error does not name %s:\n%s", c.names, text)
			}
		})
	}
}

func TestFlagOverridesEnvironmentAndFile(t *testing.T) {
	t.Parallel()
	// the worker that gets the job shows which setting won
	winner := func(t *testing.T, b *daemon) string {
		t.Helper()
		got := make(chan string, 4)
		for _, typ := range []string{"default", "from-file", "from-env", "from-flag"} {
			w := b.servingWorker(t, typ)
			go func() {
				if f, err := w.next(patience); err == nil {
					got <- f.text("type")
				}
			}()
		}
		s := b.submitter(t)
		s.send(`{"action":"submit","id":"typeless","body":0}`)
		s.wantAck("typeless")
		return <-got
	}
	file := filepath.Join(t.TempDir(), "gloomd.toml")
	if err := os.WriteFile(file, []byte("default-type = \"from-file\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	config, env, flag := "--config="+file, []string{"GLOOM_DEFAULT_TYPE=from-env"}, "--default-type=from-flag"
	for _, c := range []struct {
		name string
		spec daemonSpec
		want string
	}{
		{"nothing", daemonSpec{}, "default"},
		{"file", daemonSpec{flags: []string{config}}, "from-file"},
		{"environment", daemonSpec{env: env}, "from-env"},
		{"flag", daemonSpec{flags: []string{flag}}, "from-flag"},
		{"environment over file", daemonSpec{flags: []string{config}, env: env}, "from-env"},
		{"flag over file", daemonSpec{flags: []string{config, flag}}, "from-flag"},
		{"flag over environment", daemonSpec{flags: []string{flag}, env: env}, "from-flag"},
		{"flag over both", daemonSpec{flags: []string{config, flag}, env: env}, "from-flag"},
		{"file named by the environment", daemonSpec{env: []string{"GLOOM_CONFIG=" + file}}, "from-file"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if got := winner(t, startSpec(t, c.spec)); got != c.want {
				t.Errorf("a submit without type went to %q, want %q", got, c.want)
			}
		})
	}
	t.Run("addresses by environment", func(t *testing.T) {
		t.Parallel()
		b := startSpec(t, daemonSpec{withoutFreePorts: true, env: []string{"GLOOM_SUBMIT_ADDR=127.0.0.1:0",
			"GLOOM_WORKER_ADDR=127.0.0.1:0", "GLOOM_HTTP_ADDR=127.0.0.1:0", "GLOOM_LOG_FORMAT=json"}})
		b.checkAlive(t)
	})
	for _, c := range []struct{ name, text, names string }{
		{"unknown key in the file", `no-such-key = 1`, "no-such-key"},
		{"bad value in the file", `retries = "many"`, "retries"},
		{"no configuration at all", `not [ a { file`, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "bad.toml")
			if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
			if text := refusedWith(t, 2, daemonSpec{flags: []string{"--config=" + path}}); !strings.Contains(text, c.names) {
				t.Errorf("the error does not name %s:\n%s", c.names, text)
			}
		})
	}
}
