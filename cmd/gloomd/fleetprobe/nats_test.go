package fleetprobe

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"gloom/bench/throwaway"
	"gloom/broker/admin/api"
)

// dialNATS connects to NATS from a site.
type dialNATS struct{ *site }

func (d dialNATS) Dial(network, addr string) (net.Conn, error) {
	return d.dial(context.Background(), network, addr)
}

// TestForeignMessagesDoNoHarm: a stranger sends on the fleet's subjects.
func TestForeignMessagesDoNoHarm(t *testing.T) {
	t.Parallel()
	f := ownFleet(t, 1)
	a, b := f.brokers[0], f.brokers[1]
	chosenSeed := *seed
	if chosenSeed == 0 {
		chosenSeed = rand.Uint64()
	}
	t.Logf("-seed %d", chosenSeed)
	r := rand.New(rand.NewPCG(chosenSeed, 7))
	nc, err := nats.Connect(f.nats[0].url(), nats.SetCustomDialer(dialNATS{f.nats[0].site}))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()

	var mu sync.Mutex
	var messages []*nats.Msg
	listener, err := nc.Subscribe("gloom.>", func(m *nats.Msg) {
		mu.Lock()
		defer mu.Unlock()
		if len(messages) < 3000 {
			messages = append(messages, m)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	typ := typeOfTest(t)
	w, s := newWorker(t, b, `"prefetch":50,"type":`+quote(typ)), newSubmitter(t, a)
	n := 0
	// jobs runs some jobs, each once.
	jobs := func(t *testing.T, count int) {
		t.Helper()
		want := map[string]bool{}
		for range count {
			n++
			id := fmt.Sprint("s", n)
			want[id] = true
			s.send(`{"action":"submit","id":"%s","type":%s,"body":%d,"ack":false}`, id, quote(typ), n)
		}
		end := time.After(patience)
		for len(want) > 0 {
			select {
			case g, ok := <-w.in:
				if !ok {
					t.Fatal("the worker's connection is closed")
				}
				if g.Action == "job" {
					w.send(`{"action":"respond","id":"%s","body":%s}`, g.ID, g.Body)
				}
			case g := <-s.in:
				if !g.isResult() || !want[g.ID] || "s"+string(g.Body) != g.ID {
					t.Fatalf("%s, want the result of one of %d jobs", g, len(want))
				}
				delete(want, g.ID)
			case <-end:
				t.Fatalf("%d jobs do not end", len(want))
			}
		}
	}
	jobs(t, 300)
	// The stranger's own messages do not come back to it: they would delay Flush.
	if err := listener.Unsubscribe(); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	var realMessages []*nats.Msg
	subjects := map[string]bool{}
	for _, m := range messages {
		subjects[m.Subject] = true
		realMessages = append(realMessages, m)
	}
	mu.Unlock()
	if len(subjects) == 0 {
		t.Fatal("nothing is heard on gloom.>")
	}
	for _, fields := range []string{"gloom.a", "gloom.x", "gloom.a.a", "gloom.want.x"} {
		subjects[fields] = true
	}
	publish := func(t *testing.T, subject string, data []byte) {
		t.Helper()
		if err := nc.Publish(subject, data); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name string
		do   func(t *testing.T)
	}{
		{"garbage", func(t *testing.T) {
			for subject := range subjects {
				for _, n := range []int{0, 1, 2, 3, 4, 7, 8, 16, 64, 1000} {
					data := make([]byte, n)
					publish(t, subject, data)
					for i := range data {
						data[i] = byte(r.UintN(256))
					}
					publish(t, subject, data)
				}
				for _, text := range []string{`{}`, `[]`, `null`, `{"from":"a"}`, `{"name":"a","epoch":1}`, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"} {
					publish(t, subject, []byte(text))
				}
			}
		}},
		{"huge", func(t *testing.T) {
			for subject := range subjects {
				data := make([]byte, 1<<20)
				copy(data, realMessages[r.IntN(len(realMessages))].Data)
				for range 3 {
					publish(t, subject, data)
				}
			}
		}},
		{"cut short and prolonged", func(t *testing.T) {
			for _, m := range realMessages[:min(len(realMessages), 100)] {
				publish(t, m.Subject, m.Data[:r.IntN(len(m.Data)+1)])
				publish(t, m.Subject, append(append([]byte(nil), m.Data...), m.Data[:r.IntN(len(m.Data)+1)]...))
			}
		}},
		{"replayed", func(t *testing.T) {
			for range 2 {
				for _, m := range realMessages {
					if err := nc.PublishMsg(&nats.Msg{Subject: m.Subject, Reply: m.Reply, Data: m.Data, Header: m.Header}); err != nil {
						t.Fatal(err)
					}
				}
			}
		}},
		{"to the wrong one", func(t *testing.T) {
			for _, m := range realMessages {
				for subject := range subjects {
					if subject != m.Subject && r.IntN(4) == 0 {
						publish(t, subject, m.Data)
					}
				}
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.do(t)
			if err := nc.FlushTimeout(patience); err != nil {
				t.Fatal(err)
			}
			jobs(t, 100)
			if err := f.awaitWhole(); err != nil {
				t.Fatal(err)
			}
		})
		if t.Failed() {
			break
		}
	}
	awaitCounts(t, a, typ, api.Ledger{Submitted: uint64(n), Answered: uint64(n)})

	// Flipped bits may form a valid message and end a job. Brokers continue, and afterwards
	// everything is as before.
	for _, m := range realMessages {
		data := append([]byte(nil), m.Data...)
		for range 1 + r.IntN(4) {
			if len(data) > 0 {
				data[r.IntN(len(data))] ^= 1 << r.UintN(8)
			}
		}
		publish(t, m.Subject, data)
	}
	if err := nc.FlushTimeout(patience); err != nil {
		t.Fatal(err)
	}
	if err := waitUntil("the fleet is as before", func() error {
		for _, x := range f.brokers {
			if v, err := x.fleet(); err != nil || len(v.Brokers) != 2 || v.Lent+v.Borrowed != 0 {
				return fmt.Errorf("%+v, %w", v, err)
			}
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	for len(w.in)+len(s.in) > 0 {
		select {
		case <-w.in:
		case <-s.in:
		}
	}
	jobs(t, 100)
	l, err := fetchLedger(t, a, typ)
	if err != nil {
		t.Fatal(err)
	}
	if l.Submitted != l.Ended() {
		t.Errorf("%+v", l)
	}
	var text string
	if err := a.ask("GET", "/metrics", nil, &text); err != nil || strings.Contains(text, "\ngloom_fleet_garbage_total 0\n") {
		t.Errorf("a counts no garbage: %v", err)
	}
	for _, x := range f.brokers {
		if lines := strings.Count(x.daemon().Log.String(), "\n"); lines > 2000 {
			t.Errorf("%s has said %d lines", x.name, lines)
		}
	}
}

// startAlone starts one broker. It checks that the broker serves its own clients without a fleet,
// and reports that it is alone.
func startAlone(t *testing.T, b *broker) {
	t.Helper()
	if err := b.start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(b.log())
		}
		if err := b.stop(); err != nil {
			t.Error(err)
		}
	})
	typ := typeOfTest(t)
	w, s := newWorker(t, b, `"type":`+quote(typ)), newSubmitter(t, b)
	s.wantOK(`{"action":"submit","id":"1","type":%s,"body":1}`, quote(typ))
	w.nextJob()
	w.wantOK(`{"action":"respond","body":1}`)
	s.wantEnd("1", "")
	if err := b.ask("GET", "/readyz", nil, nil); err != nil {
		t.Errorf("/readyz: %v", err)
	}
}

// waitUntilNATSIsAway waits until all of a broker's reports say that it has no NATS.
func waitUntilNATSIsAway(t *testing.T, b *broker) {
	t.Helper()
	if err := waitUntil(b.name+" says that NATS is away", func() error {
		v, err := b.fleet()
		if err == nil && (v.NATS == nil || v.NATS.Connected || len(v.Brokers) > 0) {
			err = fmt.Errorf("%+v, NATS %+v", v, v.NATS)
		}
		if err == nil && !strings.Contains(b.daemon().Log.String(), "NATS") {
			err = errors.New("its log says nothing of NATS")
		}
		var found api.Findings
		if err == nil {
			err = b.ask("GET", "/v1/findings", nil, &found)
		}
		if err == nil && !strings.Contains(fmt.Sprint(found), "NATS") {
			err = fmt.Errorf("findings: %+v", found)
		}
		return err
	}); err != nil {
		t.Error(err)
	}
	if lines := strings.Count(b.daemon().Log.String(), "\n"); lines > 200 {
		t.Errorf("its log has %d lines", lines)
	}
}

// TestBrokersJoinOnceNATSAccepts starts NATS servers that a broker cannot use at first, and can use
// later.
func TestBrokersJoinOnceNATSAccepts(t *testing.T) {
	t.Parallel()
	l, err := newLAN(3)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.close)
	dir := t.TempDir()
	if err := throwaway.WriteCerts(dir); err != nil {
		t.Fatal(err)
	}
	other := t.TempDir()
	if err := throwaway.WriteCerts(other); err != nil {
		t.Fatal(err)
	}
	serve := func(t *testing.T, conf string) *natsServer {
		t.Helper()
		path := filepath.Join(t.TempDir(), "nats.conf")
		if err := os.WriteFile(path, []byte(conf), 0o600); err != nil {
			t.Fatal(err)
		}
		n, err := newNATS(l.sites[0], "-c", path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(n.Close)
		return n
	}
	tls := fmt.Sprintf("tls { cert_file: %q, key_file: %q, ca_file: %q, verify: true }\n", dir+"/server.pem", dir+"/server.key", dir+"/ca.pem")
	// Brokers at the server's own site reach it as 127.0.0.1, which is the address in its
	// certificate.
	for _, c := range []struct{ name, conf, wrongFlags, rightFlags string }{
		{"password", `authorization { user: gloom, password: secret }`, "--fleet=nats://gloom:guess@127.0.0.1:4222", "--fleet=nats://gloom:secret@127.0.0.1:4222"},
		{"no user", `authorization { user: gloom, password: secret }`, "--fleet=nats://127.0.0.1:4222", "--fleet=nats://gloom:secret@127.0.0.1:4222"},
		{"may not publish", `authorization { users: [{user: none, password: n, permissions: {publish: "x", subscribe: "gloom.>"}}, {user: all, password: a}] }`,
			"--fleet=nats://none:n@127.0.0.1:4222", "--fleet=nats://all:a@127.0.0.1:4222"},
		{"may not subscribe", `authorization { users: [{user: none, password: n, permissions: {publish: ">", subscribe: "x"}}, {user: all, password: a}] }`,
			"--fleet=nats://none:n@127.0.0.1:4222", "--fleet=nats://all:a@127.0.0.1:4222"},
		{"another authority", tls, "--fleet=tls://127.0.0.1:4222 --fleet-ca=" + other + "/ca.pem --fleet-cert=" + dir + "/client.pem --fleet-key=" + dir + "/client.key",
			"--fleet=tls://127.0.0.1:4222 --fleet-ca=" + dir + "/ca.pem --fleet-cert=" + dir + "/client.pem --fleet-key=" + dir + "/client.key"},
		{"no certificate", tls, "--fleet=tls://127.0.0.1:4222 --fleet-ca=" + dir + "/ca.pem",
			"--fleet=tls://127.0.0.1:4222 --fleet-ca=" + dir + "/ca.pem --fleet-cert=" + dir + "/client.pem --fleet-key=" + dir + "/client.key"},
	} {
		t.Run(c.name, func(t *testing.T) {
			serve(t, c.conf)
			refusedBroker := newBroker(l.sites[0], "bad", strings.Fields(c.wrongFlags)...)
			refusedBroker.ports = 1
			startAlone(t, refusedBroker)
			if !strings.HasPrefix(c.name, "may not") {
				waitUntilNATSIsAway(t, refusedBroker)
			} else if err := waitUntil("it says what it may not", func() error {
				if log := refusedBroker.daemon().Log.String(); !strings.Contains(strings.ToLower(log), "permission") {
					return errors.New(log)
				}
				return nil
			}); err != nil {
				t.Error(err)
			}
			x, y := newBroker(l.sites[0], "x", strings.Fields(c.rightFlags)...), newBroker(l.sites[0], "y", strings.Fields(c.rightFlags)...)
			x.ports, y.ports = 2, 3
			startAlone(t, x)
			startAlone(t, y)
			awaitHeartbeats(t, x, 1)
			awaitHeartbeats(t, y, 1)
			if log := refusedBroker.daemon().Log.String(); strings.Contains(log, "guess") || strings.Contains(x.daemon().Log.String(), "secret") {
				t.Errorf("a password is in the log: %s", throwaway.Tail([]byte(log)))
			}
			for _, v := range []*broker{refusedBroker, x} {
				if got, err := v.fleet(); err == nil && got.NATS != nil && (strings.Contains(got.NATS.URL, "guess") || strings.Contains(got.NATS.URL, "secret")) {
					t.Errorf("a password is in /v1/fleet: %s", got.NATS.URL)
				}
			}
			if lines := strings.Count(refusedBroker.daemon().Log.String(), "\n"); lines > 200 {
				t.Errorf("its log has %d lines: %s", lines, throwaway.Tail([]byte(refusedBroker.daemon().Log.String())))
			}
		})
	}
	for _, c := range []struct{ name, certs, authority, reason string }{
		{"another certificate", other, dir, "unknown authority"},
		{"it trusts another authority", dir, other, "fleet-cert"},
	} {
		t.Run(c.name+" after a restart", func(t *testing.T) {
			first := serve(t, tls)
			x := newBroker(l.sites[0], "x", "--fleet=tls://127.0.0.1:4222", "--fleet-ca="+dir+"/ca.pem", "--fleet-cert="+dir+"/client.pem", "--fleet-key="+dir+"/client.key")
			x.ports = 1
			startAlone(t, x)
			awaitConnected := func(reason string) {
				t.Helper()
				if err := waitUntil(x.name+" knows its connection with NATS", func() error {
					v, err := x.fleet()
					if err == nil && (v.NATS == nil || v.NATS.Connected != (reason == "") || !strings.Contains(v.NATS.Reason, reason)) {
						err = fmt.Errorf("%+v, NATS %+v", v, v.NATS)
					}
					return err
				}); err != nil {
					t.Error(err)
				}
			}
			awaitConnected("")
			first.Close()
			serve(t, fmt.Sprintf("tls { cert_file: %q, key_file: %q, ca_file: %q, verify: true }\n", c.certs+"/server.pem", c.certs+"/server.key", c.authority+"/ca.pem"))
			awaitConnected(c.reason)
			if log := x.daemon().Log.String(); strings.Contains(log, "NATS reports an error") || strings.Contains(log, "EOF") {
				t.Errorf("its log: %s", throwaway.Tail([]byte(log)))
			}
		})
	}
	t.Run("away at start", func(t *testing.T) {
		x, y := newBroker(l.sites[1], "x", "--insecure", "--fleet=nats://"+l.sites[0].ip+":4222"), newBroker(l.sites[2], "y", "--insecure", "--fleet=nats://"+l.sites[0].ip+":4222")
		startAlone(t, x)
		startAlone(t, y)
		waitUntilNATSIsAway(t, x)
		serve(t, "")
		awaitHeartbeats(t, x, 1)
		awaitHeartbeats(t, y, 1)
		w, s := newWorker(t, y, `"type":"joined"`), newSubmitter(t, x)
		s.wantOK(`{"action":"submit","id":"j","type":"joined","body":1}`)
		w.nextJob()
		w.wantOK(`{"action":"respond","body":1}`)
		s.wantEnd("j", "")
	})
	t.Run("another fleet", func(t *testing.T) {
		serve(t, "")
		x := newBroker(l.sites[0], "x", "--fleet=nats://127.0.0.1:4222", "--fleet-prefix=one.fleet")
		y := newBroker(l.sites[0], "x", "--fleet=nats://127.0.0.1:4222", "--fleet-prefix=another")
		z := newBroker(l.sites[0], "z", "--fleet=nats://127.0.0.1:4222", "--fleet-prefix=one.fleet")
		x.ports, y.ports, z.ports = 1, 2, 3
		startAlone(t, x)
		startAlone(t, y)
		startAlone(t, z)
		awaitHeartbeats(t, x, 1)
		awaitHeartbeats(t, z, 1)
		if v, err := y.fleet(); err != nil || v.Alone || len(v.Brokers) != 0 {
			t.Errorf("%+v, %v", v, err)
		}
	})
}

// TestInvalidOptionsAreRefused: invalid values are refused at the start, with a message that names
// the option.
func TestInvalidOptionsAreRefused(t *testing.T) {
	t.Parallel()
	bin, err := gloomd()
	if err != nil {
		t.Fatal(err)
	}
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	const good = "--fleet=nats://127.0.0.1:4222"
	for _, c := range []struct {
		args []string
		text string
	}{
		{[]string{"--fleet=x"}, "fleet"},
		{[]string{"--fleet= "}, "fleet"},
		{[]string{"--fleet=,"}, "fleet"},
		{[]string{"--fleet=127.0.0.1:4222"}, "fleet"},
		{[]string{"--fleet=http://127.0.0.1:1"}, "fleet"},
		{[]string{"--fleet=nats://"}, "fleet"},
		{[]string{"--fleet=nats://127.0.0.1:x"}, "fleet"},
		{[]string{"--fleet=nats://[::1"}, "fleet"},
		{[]string{good + ","}, "fleet"},
		{[]string{good + ",http://x"}, "fleet"},
		{[]string{"--fleet=nats://10.0.0.1:4222"}, "insecure"},
		{[]string{good + ",nats://10.0.0.1:4222"}, "insecure"},
		{[]string{good, "--fleet-creds=" + empty + ".none"}, "fleet-creds"},
		{[]string{good, "--fleet-ca=" + empty + ".none"}, "fleet-ca"},
		{[]string{good, "--fleet-ca=" + empty}, "certificate"},
		{[]string{good, "--fleet-cert=" + empty}, "fleet-key"},
		{[]string{good, "--fleet-key=" + empty}, "fleet-cert"},
		{[]string{good, "--fleet-cert=" + empty, "--fleet-key=" + empty}, "fleet-cert"},
		{[]string{good, "--fleet-prefix="}, "fleet-prefix"},
		{[]string{good, "--fleet-prefix=a b"}, "fleet-prefix"},
		{[]string{good, "--fleet-prefix=a.>"}, "fleet-prefix"},
		{[]string{good, "--fleet-prefix=*"}, "fleet-prefix"},
		{[]string{good, "--fleet-prefix=a..b"}, "fleet-prefix"},
		{[]string{good, "--fleet-prefix=$SYS"}, "fleet-prefix"},
		{[]string{good, "--fleet-name=" + strings.Repeat("n", 5000)}, "fleet-name"},
	} {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		out, err := exec.CommandContext(ctx, bin, append([]string{"--submit-addr=127.0.0.1:0", "--worker-addr=127.0.0.1:0", "--http-addr=127.0.0.1:0"}, c.args...)...).CombinedOutput()
		cancel()
		if e := (*exec.ExitError)(nil); !errors.As(err, &e) || e.ExitCode() != 2 || !strings.Contains(string(out), c.text) {
			t.Errorf("%.200v: %v, want exit status 2 and a word of %s: %.500s", c.args, err, c.text, out)
		}
	}
}
