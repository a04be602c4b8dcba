package probe_test

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"gloom/bench/throwaway"
	"gloom/bench/throwaway/natstest"
	"gloom/broker/admin/api"
	gloom "gloom/clients/go"
)

// TestLentJobsLookLikeHomeJobs: jobs that run at another broker look as if they ran at home.
func TestLentJobsLookLikeHomeJobs(t *testing.T) {
	t.Parallel()
	_, sites := startFleet(t, 1, 2)
	a, b := sites[0], sites[1]
	begun, release := make(chan string, 10), make(chan struct{})
	b.startWorker([]string{"echo", "mail-*"}, 4, b.answerWithName)
	b.startWorker([]string{"fails"}, 1, func(context.Context, *gloom.Job) (any, error) { return nil, errors.New("no good") })
	b.startWorker([]string{"slow"}, 2, func(ctx context.Context, j *gloom.Job) (any, error) {
		begun <- j.ID
		select {
		case <-release:
			return "done", nil
		case <-ctx.Done():
			begun <- "cancelled"
			return nil, ctx.Err()
		}
	})
	jobs := a.newSubmitter()
	for _, v := range []struct{ typ, body, want string }{
		{"echo", "1", `"b1"`}, {"mail-x", "2", `"b2"`}, {"echo", strings.Repeat("x", 3<<20), `"b` + strings.Repeat("x", 3<<20) + `"`},
	} {
		if got, err := submitOne(t, jobs, gloom.Job{Type: v.typ, Body: jsonBody(v.body)}); err != nil || got != v.want {
			t.Errorf("%s %.10s: %.20s, %v", v.typ, v.body, got, err)
		}
	}
	if _, err := submitOne(t, jobs, gloom.Job{Type: "fails", Retries: 1, Body: jsonBody("x")}); err == nil || !strings.Contains(err.Error(), "no good") {
		t.Errorf("fails: %v", err)
	}
	first, err := jobs.Submit(t.Context(), gloom.Job{ID: "first", Type: "slow", Body: jsonBody("x")})
	if err != nil {
		t.Fatal(err)
	}
	<-begun
	var j api.Job
	if a.getJSON("/v1/jobs/first", &j); j.State != "running" || j.Worker == nil || j.Worker.Broker != "b" {
		t.Errorf("a says of the job %+v %+v", j, j.Worker)
	}
	if b.getJSON("/v1/jobs/first", &j) {
		t.Error("b lists the job of a")
	}
	if f := a.fleet(); f.Lent != 1 || len(f.Brokers) != 1 || f.Brokers[0].Lent != 1 {
		t.Errorf("a has lent %+v", f)
	}
	if f := b.fleet(); f.Borrowed != 1 || f.Brokers[0].Borrowed != 1 {
		t.Errorf("b has borrowed %+v", f)
	}
	if err := jobs.Cancel(t.Context(), "first"); err != nil {
		t.Error(err)
	}
	if got := <-begun; got != "cancelled" {
		t.Errorf("the worker was told %q", got)
	}
	if _, err := first.Result(testContext(t)); err == nil {
		t.Error("a cancelled job has a result")
	}
	close(release)
	eventually(t, "the ledger of a counts all, that of b nothing", func() bool {
		x, y := a.status().Ledger, b.status().Ledger
		return x.Submitted == 5 && x.Answered == 3 && x.Failed == 1 && x.Cancelled == 1 && y == api.Ledger{}
	})
}

// TestBusyWorkersElsewhereAreNoFinding: if only another broker's workers serve a type and all of them are busy, there
// is no finding of a missing worker.
func TestBusyWorkersElsewhereAreNoFinding(t *testing.T) {
	t.Parallel()
	_, sites := startFleet(t, 1, 2)
	a, b := sites[0], sites[1]
	release := make(chan struct{})
	b.startWorker([]string{"t"}, 2, func(ctx context.Context, _ *gloom.Job) (any, error) {
		select {
		case <-release:
		case <-ctx.Done():
		}
		return "done", nil
	})
	t.Cleanup(func() { close(release) })
	jobs := a.newSubmitter()
	for range 6 {
		if _, err := jobs.Submit(t.Context(), gloom.Job{Type: "t", Body: jsonBody("")}); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "both places are lent to", func() bool { return a.status().Ledger.Running == 2 })
	eventually(t, "that all are at work is found", func() bool {
		var f api.Findings
		a.getJSON("/v1/findings?subject=t", &f)
		return len(f.Items) == 1 && f.Items[0].Cause == "all_busy" && strings.Contains(f.Items[0].Finding, "at other brokers")
	})
}

// TestIdleWorkersAtHomeGoFirst: no job is lent while a worker at home is idle.
func TestIdleWorkersAtHomeGoFirst(t *testing.T) {
	t.Parallel()
	_, sites := startFleet(t, 1, 2)
	a, b := sites[0], sites[1]
	b.startWorker([]string{"t"}, 4, b.answerWithName)
	jobs := a.newSubmitter()
	if got, err := submitOne(t, jobs, gloom.Job{Type: "t", Body: jsonBody("")}); got != `"b"` || err != nil {
		t.Fatalf("%s, %v", got, err)
	}
	a.startWorker([]string{"t"}, 1, a.answerWithName)
	eventually(t, "its own worker gets the job", func() bool {
		got, _ := submitOne(t, jobs, gloom.Job{Type: "t", Body: jsonBody("")})
		return got == `"a"`
	})
	for range 50 {
		if got, err := submitOne(t, jobs, gloom.Job{Type: "t", Body: jsonBody("")}); got != `"a"` || err != nil {
			t.Fatalf("a worker at home was idle, the answer is %s, %v", got, err)
		}
	}
}

// TestWorkerOfTooManyNamesIsUnknown: a worker with more names than fit into a message of NATS is not known to other
// brokers, and does not make its broker lose the connection.
func TestWorkerOfTooManyNamesIsUnknown(t *testing.T) {
	t.Parallel()
	_, sites := startFleet(t, 1, 2)
	a, b := sites[0], sites[1]
	names := func(n int, first string) (longNames []string) {
		for i := range n {
			longNames = append(longNames, fmt.Sprintf("%s%04d%s", first, i, strings.Repeat("n", 1000)))
		}
		return longNames
	}
	w := &gloom.Worker{Types: names(1000, "t"), Except: names(1000, "x"), Handler: b.answerWithName, Options: []gloom.Option{gloom.Addrs(b.worker)}}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = w.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	eventually(t, "it serves", func() bool { return b.status().Workers > 0 })
	b.startWorker([]string{"near"}, 1, b.answerWithName)
	jobs := a.newSubmitter()
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); { // in this time, all wants are sent again
		if _, err := submitOne(t, jobs, gloom.Job{Type: "near", Body: jsonBody("")}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(50 * time.Millisecond)
	}
	if n := strings.Count(b.Log.String(), "fleet: joined"); n != 1 {
		t.Errorf("it has joined %d times", n)
	}
}

// TestBrokersContinueWithoutNATS: without NATS each broker continues alone; with it they find each
// other.
func TestBrokersContinueWithoutNATS(t *testing.T) {
	t.Parallel()
	nats, sites := startFleet(t, 1, 2)
	a, b := sites[0], sites[1]
	b.startWorker([]string{"there"}, 1, b.answerWithName)
	a.startWorker([]string{"here"}, 1, a.answerWithName)
	jobs := a.newSubmitter()
	nats[0].Kill()
	eventually(t, "it is seen that NATS is away", func() bool { f := a.fleet(); return !f.NATS.Connected && len(f.Brokers) == 0 })
	if got, err := submitOne(t, jobs, gloom.Job{Type: "here", Body: jsonBody("1")}); got != `"a1"` || err != nil {
		t.Errorf("a job at home: %s, %v", got, err)
	}
	a.awaitFinding("fleet_away")
	var ready map[string]any
	if !a.getJSON("/readyz", &ready) {
		resp, err := http.Get("http://" + a.http + "/readyz")
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Errorf("without NATS it is not ready: %v, %v", resp, err)
		}
	}
	waits, err := jobs.Submit(t.Context(), gloom.Job{ID: "waits", Type: "there", Body: jsonBody("2")})
	if err != nil {
		t.Fatal(err)
	}
	var reason api.Job
	eventually(t, "explained that the fleet is away", func() bool {
		return a.getJSON("/v1/jobs/waits", &reason) && strings.Contains(reason.Holds, "NATS does not answer")
	})
	if err := nats[0].Launch(); err != nil {
		t.Fatal(err)
	}
	if r, err := waits.Result(testContext(t)); err != nil || string(r.Body) != `"b2"` {
		t.Errorf("when NATS is back: %s, %v", r.Body, err)
	}
}

// TestJobsOfKilledBrokerRunElsewhere: jobs at a broker that is killed soon run elsewhere.
func TestJobsOfKilledBrokerRunElsewhere(t *testing.T) {
	t.Parallel()
	_, sites := startFleet(t, 1, 3)
	a, b, c := sites[0], sites[1], sites[2]
	begun := make(chan struct{}, 100)
	b.startWorker([]string{"t"}, 1, func(ctx context.Context, _ *gloom.Job) (any, error) {
		begun <- struct{}{}
		<-ctx.Done()
		return nil, ctx.Err()
	})
	job, err := a.newSubmitter().Submit(t.Context(), gloom.Job{Type: "t", Body: jsonBody("1")})
	if err != nil {
		t.Fatal(err)
	}
	<-begun
	c.startWorker([]string{"t"}, 1, c.answerWithName)
	b.Kill()
	killTime := time.Now()
	r, err := job.Result(testContext(t))
	if err != nil || string(r.Body) != `"c1"` {
		t.Errorf("%s, %v", r.Body, err)
	}
	t.Logf("it ran elsewhere after %v", time.Since(killTime))
	a.awaitFinding("fleet_lost")
	if x := a.status(); x.Ledger.Answered != 1 || x.Imbalance != 0 {
		t.Errorf("ledger %+v", x.Ledger)
	}
	if f := a.fleet(); f.Lost != 1 || f.Lent != 0 {
		t.Errorf("fleet %+v", f)
	}
}

// TestShortHangLosesNoBroker: one of two brokers hangs for less than a lease, as home and as
// borrower. No broker is lost, and no run is timed out or repeated.
func TestShortHangLosesNoBroker(t *testing.T) {
	t.Parallel()
	_, sites := startFleet(t, 1, 2)
	a, b := sites[0], sites[1]
	var runs atomic.Int64
	b.startWorker([]string{"t"}, 4, func(_ context.Context, j *gloom.Job) (any, error) {
		runs.Add(1)
		time.Sleep(500 * time.Millisecond)
		return "done", nil
	})
	jobs := a.newSubmitter()
	for i, s := range []*site{a, b, a, b} {
		timeout := 700 * time.Millisecond // which home measures
		if s == b {
			timeout = 0
		}
		var out []*gloom.Pending
		for n := range 4 {
			job, err := jobs.Submit(t.Context(), gloom.Job{ID: fmt.Sprint(i, "-", n), Type: "t", Timeout: timeout, Body: jsonBody("")})
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, job)
		}
		eventually(t, "all are lent", func() bool { return a.fleet().Lent == 4 })
		s.Signal(syscall.SIGSTOP)
		time.Sleep(900 * time.Millisecond)
		s.Signal(syscall.SIGCONT)
		for _, job := range out {
			if _, err := job.Result(testContext(t)); err != nil {
				t.Errorf("after a pause of %s: %v", s.name, err)
			}
		}
	}
	if x, y := a.fleet(), b.fleet(); runs.Load() != 16 || x.Lost+y.Lost+x.Late+y.Late != 0 {
		t.Errorf("16 jobs ran %d times: %+v, %+v", runs.Load(), x, y)
	}
}

// TestCutBrokersGiveEachOtherUp: if messages from or to one broker are lost, this broker and the
// others give each other up. When messages arrive again, the brokers lend to each other again.
func TestCutBrokersGiveEachOtherUp(t *testing.T) {
	t.Parallel()
	_, sites := startFleet(t, 1, 2)
	a, b := sites[0], sites[1]
	b.startWorker([]string{"t"}, 1, b.answerWithName)
	jobs := a.newSubmitter()
	for _, v := range []struct {
		name     string
		up, down bool
	}{{"not heard", true, false}, {"does not hear", false, true}, {"neither", true, true}} {
		b.cable.set(v.up, v.down)
		for _, s := range sites {
			eventually(t, fmt.Sprintf("%s: %s has nobody", v.name, s.name), func() bool {
				f := s.fleet()
				return len(f.Brokers) == 0 || f.Brokers[0].State == "joining"
			})
		}
		job, err := jobs.Submit(t.Context(), gloom.Job{Type: "t", Body: jsonBody("1")})
		if err != nil {
			t.Fatal(err)
		}
		b.cable.set(false, false)
		if r, err := job.Result(testContext(t)); err != nil || string(r.Body) != `"b1"` {
			t.Errorf("%s, healed: %s, %v", v.name, r.Body, err)
		}
	}
}

// TestBrokersNeedTrustedCertificates: a NATS server that requires certificates accepts brokers that
// have them. If the server does not trust a broker, or the broker does not trust the server, the
// broker names the option. NATS's first message is without TLS, whatever the URL's scheme.
func TestBrokersNeedTrustedCertificates(t *testing.T) {
	t.Parallel()
	dir, other := t.TempDir(), t.TempDir()
	if err := errors.Join(throwaway.WriteCerts(dir), throwaway.WriteCerts(other)); err != nil {
		t.Fatal(err)
	}
	inDir := func(name string) string { return filepath.Join(dir, name) }
	nats, err := natstest.Cluster(1, "--tlsverify", "--tlscert", inDir("server.pem"), "--tlskey", inDir("server.key"), "--tlscacert", inDir("ca.pem"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { natstest.Close(nats) })
	plain, err := natstest.Cluster(1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { natstest.Close(plain) })
	secure := strings.Replace(nats[0].URL, "nats:", "tls:", 1)
	join := func(name, url, ca, cert string) *site {
		var flags []string
		if ca != "" {
			flags = append(flags, "--fleet-ca", filepath.Join(ca, "ca.pem"))
		}
		if cert != "" {
			flags = append(flags, "--fleet-cert", filepath.Join(cert, "client.pem"), "--fleet-key", filepath.Join(cert, "client.key"))
		}
		s := &site{t: t, name: name, nats: url, flags: flags, submit: "127.0.0.1:0", worker: "127.0.0.1:0", http: "127.0.0.1:0"}
		s.start()
		return s
	}
	a, b := join("a", secure, dir, dir), join("b", nats[0].URL, dir, dir)
	b.startWorker([]string{"t"}, 1, b.answerWithName)
	if got, err := submitOne(t, a.newSubmitter(), gloom.Job{Type: "t", Body: jsonBody("1")}); err != nil || got != `"b1"` {
		t.Errorf("with certificates: %s, %v", got, err)
	}
	for _, v := range []struct{ name, url, ca, cert, text string }{
		{"no certificate", secure, dir, "", "fleet-cert"},
		{"another authority's certificate", secure, dir, other, "fleet-cert"},
		{"another authority", secure, other, dir, "fleet-ca"},
		{"no authority", nats[0].URL, "", "", "fleet-ca"},
		{"NATS without TLS", plain[0].URL, dir, "", "NATS has no TLS"},
	} {
		x := join(v.name, v.url, v.ca, v.cert)
		eventually(t, v.name+": it says "+v.text, func() bool {
			f := x.fleet()
			return f.NATS != nil && strings.Contains(f.NATS.Reason, v.text) && strings.Contains(x.Log.String(), v.text)
		})
		x.awaitFinding("fleet_away")
		if err := x.Stop(); err != nil {
			t.Error(err)
		}
	}
}

// TestRefusedSubjectsCountAsAway: a NATS server that accepts brokers but refuses the fleet's
// subjects counts as away until it accepts the subjects.
func TestRefusedSubjectsCountAsAway(t *testing.T) {
	t.Parallel()
	conf := filepath.Join(t.TempDir(), "nats.conf")
	allowSubjects := func(subjects string) {
		t.Helper()
		text := fmt.Sprintf("authorization { users = [ { user: u, password: p, permissions: { publish: [%q], subscribe: [%[1]q] } } ] }\n", subjects)
		if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	allowSubjects("other.>")
	nats, err := natstest.Cluster(1, "-c", conf)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { natstest.Close(nats) })
	var sites []*site
	for _, name := range []string{"a", "b"} {
		s := &site{t: t, name: name, nats: strings.Replace(nats[0].URL, "//", "//u:p@", 1), submit: "127.0.0.1:0", worker: "127.0.0.1:0", http: "127.0.0.1:0"}
		s.start()
		sites = append(sites, s)
	}
	for _, s := range sites {
		eventually(t, "told that subjects are refused", func() bool {
			f := s.fleet()
			return f.NATS != nil && !f.NATS.Connected && strings.Contains(f.NATS.Reason, "fleet-prefix") && strings.Contains(s.Log.String(), "refuses subjects")
		})
		s.awaitFinding("fleet_away")
	}
	allowSubjects("gloom.>")
	nats[0].Reload()
	for _, s := range sites {
		s.awaitPeers(1)
		eventually(t, "told that NATS is there", func() bool { return s.fleet().NATS.Connected })
	}
	sites[1].startWorker([]string{"t"}, 1, sites[1].answerWithName)
	if got, err := submitOne(t, sites[0].newSubmitter(), gloom.Job{Type: "t", Body: jsonBody("1")}); err != nil || got != `"b1"` {
		t.Errorf("a job: %s, %v", got, err)
	}
}

// TestBrokersAreAloneWithTinyPayload: if NATS takes only messages that are too short for a fleet,
// brokers run alone, lose no jobs, and name the limit. The brokers join when the limit is raised.
func TestBrokersAreAloneWithTinyPayload(t *testing.T) {
	t.Parallel()
	conf := filepath.Join(t.TempDir(), "nats.conf")
	set := func(maxPayload int) {
		t.Helper()
		if err := os.WriteFile(conf, fmt.Appendf(nil, "max_payload: %d\n", maxPayload), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	set(200)
	nats, err := natstest.Cluster(1, "-c", conf)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { natstest.Close(nats) })
	var brokers []*site
	for _, name := range []string{"a", "b"} {
		s := &site{t: t, name: name, nats: nats[0].URL, submit: "127.0.0.1:0", worker: "127.0.0.1:0", http: "127.0.0.1:0"}
		s.start()
		brokers = append(brokers, s)
	}
	const limit = "at most 200 bytes (its max_payload), but a fleet needs 1536"
	for _, s := range brokers {
		eventually(t, "told of the limit", func() bool {
			f := s.fleet()
			return f.NATS != nil && !f.NATS.Connected && strings.Contains(f.NATS.Reason, limit)
		})
		s.awaitFinding("fleet_away")
	}
	brokers[1].startWorker([]string{"t"}, 1, brokers[1].answerWithName)
	long := strings.Repeat("1", 5000)
	job, err := brokers[0].newSubmitter().Submit(t.Context(), gloom.Job{ID: "waits", Type: "t", Body: jsonBody(long)})
	if err != nil {
		t.Fatal(err)
	}
	var reason api.Job
	eventually(t, "explained", func() bool {
		return brokers[0].getJSON("/v1/jobs/waits", &reason) && strings.Contains(reason.Holds, limit)
	})

	set(4096)
	nats[0].Stop()
	if err := nats[0].Launch(); err != nil {
		t.Fatal(err)
	}
	if r, err := job.Result(testContext(t)); err != nil || string(r.Body) != `"b`+long+`"` {
		t.Errorf("the job: %.20s, %v", r.Body, err)
	}
}

// TestBrokerRejoinsAfterError: a broker joins again after NATS has ended its connection with an
// error, and after NATS did not admit it for some time.
func TestBrokerRejoinsAfterError(t *testing.T) {
	t.Parallel()
	conf := filepath.Join(t.TempDir(), "nats.conf")
	set := func(text string) {
		t.Helper()
		if err := os.WriteFile(conf, []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	set("")
	nats, err := natstest.Cluster(1, "-c", conf)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { natstest.Close(nats) })
	var sites []*site
	for _, name := range []string{"a", "b"} {
		s := &site{t: t, name: name, nats: nats[0].URL, submit: "127.0.0.1:0", worker: "127.0.0.1:0", http: "127.0.0.1:0"}
		s.start()
		sites = append(sites, s)
	}
	a, b := sites[0], sites[1]
	b.startWorker([]string{"t"}, 1, b.answerWithName)
	jobs := a.newSubmitter()
	a.awaitPeers(1)

	set("max_payload: 8192") // NATS does not tell its clients of a lower limit
	nats[0].Reload()
	eventually(t, "NATS takes less", func() bool {
		c, err := net.Dial("tcp", strings.TrimPrefix(nats[0].URL, "nats://"))
		if err != nil {
			return false
		}
		defer c.Close()
		info, _ := bufio.NewReader(c).ReadString('\n')
		return strings.Contains(info, `"max_payload":8192`)
	})
	long := strings.Repeat("1", 64<<10)
	if got, err := submitOne(t, jobs, gloom.Job{Type: "t", Body: jsonBody(long)}); err != nil || got != `"b`+long+`"` {
		t.Errorf("a job after max_payload was lowered: %.20s, %v", got, err)
	}

	set("authorization { user: u, password: p }")
	nats[0].Reload()
	for _, s := range sites {
		eventually(t, "told that NATS does not admit the broker", func() bool {
			f := s.fleet()
			return !f.NATS.Connected && strings.Contains(f.NATS.Reason, "fleet-creds")
		})
	}
	set("")
	nats[0].Reload()
	for _, s := range sites {
		s.awaitPeers(1)
	}
	if got, err := submitOne(t, jobs, gloom.Job{Type: "t", Body: jsonBody("2")}); err != nil || got != `"b2"` {
		t.Errorf("a job after NATS admitted the brokers again: %s, %v", got, err)
	}
}

// TestLaterNamesakeWorksAlone: of two brokers with one name the later broker works alone, and
// reports this.
func TestLaterNamesakeWorksAlone(t *testing.T) {
	t.Parallel()
	_, sites := startFleet(t, 1, 2)
	a, b := sites[0], sites[1]
	lateSite := &site{t: t, name: "a", nats: a.nats, submit: "127.0.0.1:0", worker: "127.0.0.1:0", http: "127.0.0.1:0"}
	lateSite.start()
	eventually(t, "the later one is alone", func() bool { return lateSite.fleet().Alone })
	if f := a.fleet(); f.Alone || len(f.Brokers) != 1 {
		t.Errorf("the first one: %+v", f)
	}
	if f := b.fleet(); len(f.Brokers) != 1 || f.Brokers[0].Epoch != a.fleet().Epoch {
		t.Errorf("the other one hears %+v", f.Brokers)
	}
	if !strings.Contains(lateSite.Log.String(), "has this name") {
		t.Errorf("its log does not say so: %s", &lateSite.Log)
	}
	a.Stop()
	eventually(t, "it joins when the name is free", func() bool { f := lateSite.fleet(); return !f.Alone && len(f.Brokers) == 1 })
}

// TestDrainingBrokerLendsItsJobs: a broker that drains finishes the jobs that it borrowed, and
// lends its waiting jobs.
func TestDrainingBrokerLendsItsJobs(t *testing.T) {
	t.Parallel()
	_, sites := startFleet(t, 1, 2)
	a, b := sites[0], sites[1]
	jobs := a.newSubmitter()
	// If the machine stalls for so long that a gives up b, the job waits until b has joined
	// again, and the test repeats this step.
	for lost, again := uint64(0), true; again; {
		begun, release := make(chan struct{}, 100), make(chan struct{})
		stop := b.startWorker([]string{"slow"}, 1, func(context.Context, *gloom.Job) (any, error) {
			begun <- struct{}{}
			<-release
			return "done", nil
		})
		job, err := jobs.Submit(t.Context(), gloom.Job{Type: "slow", Body: jsonBody("")})
		if err != nil {
			t.Fatal(err)
		}
		<-begun
		b.Signal(syscall.SIGTERM)
		var f api.Fleet
		eventually(t, "it is known to drain", func() bool {
			f = a.fleet()
			return f.Lost > lost || len(f.Brokers) == 1 && f.Brokers[0].State == "draining"
		})
		close(release)
		<-b.Exited()
		stop()
		eventually(t, "what it borrowed is answered, or lost with it", func() bool {
			f = a.fleet()
			return f.Lost > lost || a.status().Ledger.Answered == 1
		})
		if again = f.Lost > lost; again {
			t.Logf("b was lost to a: %+v", f)
			lost = f.Lost
			if err := jobs.Cancel(t.Context(), job.ID()); err != nil {
				t.Fatal(err)
			}
			b.start()
			b.awaitPeers(1)
		} else if r, err := job.Result(testContext(t)); err != nil || string(r.Body) != `"done"` {
			t.Errorf("%s, %v", r.Body, err)
		}
	}
	// In the other direction, a has jobs that only the new b can run.
	b.start()
	b.awaitPeers(1)
	last, err := a.newSubmitter().Submit(t.Context(), gloom.Job{Type: "echo", Body: jsonBody("1")})
	if err != nil {
		t.Fatal(err)
	}
	if err := last.Ack(t.Context()); err != nil {
		t.Fatal(err)
	}
	a.Signal(syscall.SIGTERM)
	eventually(t, "a drains", func() bool { return a.status().Draining })
	b.startWorker([]string{"echo"}, 1, b.answerWithName)
	if r, err := last.Result(testContext(t)); err != nil || string(r.Body) != `"b1"` {
		t.Errorf("of a drain: %s, %v", r.Body, err)
	}
	<-a.Exited()
}

// TestFleetSurvivesLossOfNATSServer: the fleet continues when one of three NATS servers is lost.
func TestFleetSurvivesLossOfNATSServer(t *testing.T) {
	t.Parallel()
	nats, sites := startFleet(t, 3, 2)
	a, b := sites[0], sites[1]
	b.startWorker([]string{"t"}, 1, b.answerWithName)
	jobs := a.newSubmitter()
	for i := range nats {
		nats[i].Kill()
		for n := range 5 {
			if got, err := submitOne(t, jobs, gloom.Job{Type: "t", Body: jsonBody(fmt.Sprint(n))}); err != nil || got != fmt.Sprintf(`"b%d"`, n) {
				t.Errorf("without server %d: %s, %v", i, got, err)
			}
		}
		if err := nats[i].Launch(); err != nil {
			t.Fatal(err)
		}
	}
}

var (
	faultCount = flag.Int("faults", 8, "how many faults TestKills causes")
	seed       = flag.Uint64("seed", uint64(time.Now().UnixNano()), "of TestKills")
)

// TestKillsLoseNoJob: brokers and NATS are killed, frozen and restarted under load. Every job whose
// submitter lives ends once, and at the end all ledgers balance and no broker has jobs.
func TestKillsLoseNoJob(t *testing.T) {
	t.Parallel()
	t.Logf("seed %d: go test ./cmd/gloomd/probe -run Kills -seed %d -faults %d", *seed, *seed, *faultCount)
	rng := rand.New(rand.NewPCG(*seed, 1))
	nats, sites := startFleet(t, 1, 3)
	types := []string{"0", "1", "2"}
	for i, s := range sites {
		s.startWorker(types[i:i+1], 2, s.answerWithName)
		s.startWorker([]string{"*"}, 1, s.answerWithName)
	}
	var load sync.WaitGroup
	stop := make(chan struct{})
	var answered, lost atomic.Int64
	for i, s := range sites {
		jobs := s.newSubmitter() // before the first kill
		load.Go(func() {
			rng := rand.New(rand.NewPCG(*seed, uint64(i)+2))
			var open sync.WaitGroup
			room := make(chan struct{}, 32)
			for {
				select {
				case <-stop:
					open.Wait()
					return
				case room <- struct{}{}:
				}
				open.Add(1)
				err := jobs.SubmitFunc(context.Background(), gloom.Job{Type: types[rng.IntN(3)], Body: jsonBody("x"), Retries: 1000}, func(r gloom.Result, err error) {
					var lostErr *gloom.LostError
					switch {
					case err == nil:
						answered.Add(1)
					case errors.As(err, &lostErr):
						lost.Add(1) // with its home
					default:
						t.Errorf("a job of broker %s: %v", s.name, err)
					}
					<-room
					open.Done()
				})
				if err != nil {
					<-room
					open.Done()
					time.Sleep(10 * time.Millisecond) // the broker may be away: wait before the next submit
				}
			}
		})
	}
	if testing.Short() {
		*faultCount = min(*faultCount, 4)
	}
	for range *faultCount {
		s, n := sites[rng.IntN(3)], nats[0]
		rest := func() { time.Sleep(time.Duration(rng.Int64N(int64(2 * time.Second)))) }
		switch rng.IntN(5) {
		case 0:
			s.Kill()
			rest()
			s.start()
		case 1:
			s.Signal(syscall.SIGSTOP)
			rest()
			s.Signal(syscall.SIGCONT)
		case 2:
			n.Kill()
			rest()
			if err := n.Launch(); err != nil {
				t.Fatal(err)
			}
		case 3:
			n.Freeze()
			rest()
			n.Thaw()
		case 4:
			victim := rng.IntN(3)
			s.cable.set(victim != 0, victim != 1)
			rest()
			rest()
			s.cable.set(false, false)
		}
		rest()
	}
	close(stop)
	done := make(chan struct{})
	go func() { load.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(timeout):
		for _, s := range sites {
			t.Logf("broker %s: %+v, %+v", s.name, s.status().Ledger, s.fleet())
		}
		t.Fatal("some jobs do not end")
	}
	for _, s := range sites {
		eventually(t, fmt.Sprintf("broker %s holds nothing", s.name), func() bool {
			x, f := s.status(), s.fleet()
			return x.Imbalance == 0 && x.Ledger.Queued+x.Ledger.Running+x.Ledger.Delayed == 0 && f.Lent+f.Borrowed == 0
		})
	}
	t.Logf("%d jobs were answered, %d lost with their home", answered.Load(), lost.Load())
}
