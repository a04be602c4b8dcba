package fleetprobe

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"gloom/broker/admin/api"
)

// ownFleet starts a fleet for one test; at the end of the test it is stopped and checked.
func ownFleet(t *testing.T, servers int, options ...string) *fleet {
	t.Helper()
	f, err := newFleet(servers, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			for _, b := range f.brokers {
				t.Log(b.log())
			}
		}
		if err := f.close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

// awaitHeartbeats waits until a broker gets heartbeats from that many other brokers.
func awaitHeartbeats(t *testing.T, b *broker, n int) {
	t.Helper()
	if err := waitUntil(fmt.Sprint(b.name, " hears ", n), func() error {
		v, err := b.fleet()
		count := 0
		for _, o := range v.Brokers {
			if o.State == "up" {
				count++
			}
		}
		if err == nil && count != n {
			err = fmt.Errorf("%+v", v)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

// awaitBorrowed waits until a broker has that many jobs of other brokers.
func awaitBorrowed(t *testing.T, b *broker, n int) {
	t.Helper()
	if err := waitUntil(fmt.Sprint(b.name, " has borrowed ", n), func() error {
		v, err := b.fleet()
		if err == nil && v.Borrowed != n {
			err = fmt.Errorf("%+v", v)
		}
		return err
	}); err != nil {
		t.Error(err)
	}
}

// awaitEnd waits until a broker that is stopping has ended, and checks its run.
func awaitEnd(t *testing.T, b *broker) {
	t.Helper()
	select {
	case <-b.markDown().Exited():
	case <-time.After(patience):
		t.Errorf("%s goes on", b.name)
	}
	if err := b.stop(); err != nil {
		t.Error(err)
	}
	if d := b.daemon(); !d.State().Success() {
		t.Errorf("%s ended with %s", b.name, d.State())
	}
}

// faultTest is a fleet of three brokers for one test that causes one fault after another.
type faultTest struct {
	t       *testing.T
	fleet   *fleet
	a, b, c *broker
}

func newFaultTest(t *testing.T) *faultTest {
	t.Helper()
	f := ownFleet(t, 1)
	return &faultTest{t: t, fleet: f, a: f.brokers[0], b: f.brokers[1], c: f.brokers[2]}
}

// causeFault causes one fault. When the fault is over, the fleet must be complete.
func (o *faultTest) causeFault(name string, do func(t *testing.T, typ string)) {
	if o.t.Failed() {
		return
	}
	o.t.Run(name, func(t *testing.T) { do(t, typeOfTest(t)) })
	if err := o.fleet.awaitWhole(); err != nil {
		o.t.Fatalf("after %s: %v", name, err)
	}
}

// lendJob makes a worker at b run a job of a.
func (o *faultTest) lendJob(t *testing.T, typ, id, fields string) (s, w *peer) {
	t.Helper()
	s, w = newSubmitter(t, o.a), newWorker(t, o.b, `"cancel":true,"type":`+quote(typ))
	s.wantOK(`{"action":"submit","id":"%s","type":%s,"body":1%s}`, id, quote(typ), fields)
	w.nextJob()
	return s, w
}

// runElsewhere connects a worker at c, which must get the job.
func (o *faultTest) runElsewhere(t *testing.T, typ, id string, since time.Time) {
	t.Helper()
	w := newWorker(t, o.c, `"type":`+quote(typ))
	if g := w.nextJob(); g.ID != id {
		t.Errorf("%s, want %s", g, id)
	}
	t.Logf("elsewhere after %s", time.Since(since).Round(time.Millisecond))
	w.wantOK(`{"action":"respond","body":"c"}`)
}

// TestLostBorrowerComesBack: a borrower is lost, and comes back, in every possible way.
func TestLostBorrowerComesBack(t *testing.T) {
	t.Parallel()
	o := newFaultTest(t)
	a, b, nats := o.a, o.b, o.fleet.nats[0]
	for _, way := range []struct {
		name          string
		lose, restore func() error
	}{
		{"killed", func() error { b.kill(); return nil }, b.start},
		{"frozen", func() error { b.daemon().Signal(syscall.SIGSTOP); return nil }, func() error { b.daemon().Signal(syscall.SIGCONT); return nil }},
		{"cut off", b.site.cut, b.site.heal},
		{"mute", func() error { return b.site.mute(nats.site) }, func() error { return b.site.unmute(nats.site) }},
		{"deaf", func() error { return nats.site.mute(b.site) }, func() error { return nats.site.unmute(b.site) }},
	} {
		o.causeFault("borrower "+way.name, func(t *testing.T, typ string) {
			s, w := o.lendJob(t, typ, "moves", `,"retries":9`)
			singleRunJob, _ := o.lendJob(t, typ+"-once", "once", `,"retries":0`)
			if err := way.lose(); err != nil {
				t.Fatal(err)
			}
			since := time.Now()
			o.runElsewhere(t, typ, "moves", since)
			if g := s.wantEnd("moves", ""); string(g.Body) != `"c"` {
				t.Errorf("%s", g)
			}
			singleRunJob.wantEnd("once", "job_failed")
			if v, err := a.fleet(); err != nil || v.Lost < 2 {
				t.Errorf("lost are %d, want 2 at the least: %v", v.Lost, err)
			}
			if err := way.restore(); err != nil {
				t.Fatal(err)
			}
			if way.name != "killed" { // the late answer is discarded, and its worker gets an error
				if g := w.next(); g.Action != "cancel" {
					t.Errorf("the worker of a run that was given up gets %s", g)
				}
				w.wantOK(`{"action":"respond","body":"late"}`)
			}
			s.wantQuiet(100 * time.Millisecond)
			awaitCounts(t, a, typ, api.Ledger{Submitted: 1, Answered: 1})
			awaitCounts(t, a, typ+"-once", api.Ledger{Submitted: 1, Failed: 1})
		})
	}
	// NATS knows that the broker has disconnected, and tells the other brokers if they ask in time.
	// This depends on the machine's load.
	o.causeFault("borrower gone from NATS", func(t *testing.T, typ string) {
		if err := waitUntil("a says that b left NATS", func() error {
			b.kill()
			awaitHeartbeats(t, a, 1)
			if err := errors.Join(b.start(), o.fleet.awaitWhole()); err != nil {
				return err
			}
			if !strings.Contains(a.daemon().Log.String(), "it left NATS") {
				return errors.New(a.log())
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
	})
}

// TestJobsSurviveEachFault causes one fault after another, and follows single jobs.
func TestJobsSurviveEachFault(t *testing.T) {
	t.Parallel()
	o := newFaultTest(t)
	f, a, b, c, nats := o.fleet, o.a, o.b, o.c, o.fleet.nats[0]
	o.causeFault("home killed", func(t *testing.T, typ string) {
		_, w := o.lendJob(t, typ, "orphan", "")
		a.kill()
		if g := w.next(); g.Action != "cancel" || g.ID != "orphan" {
			t.Errorf("%s, want cancel of orphan", g)
		}
		w.wantOK(`{"action":"respond","body":1}`)
		awaitBorrowed(t, b, 0)
		if err := a.start(); err != nil {
			t.Fatal(err)
		}
		if err := f.awaitWhole(); err != nil {
			t.Fatal(err)
		}
		// After the restart the id can be used again, and so can the worker.
		s := newSubmitter(t, a)
		s.wantOK(`{"action":"submit","id":"orphan","type":%s,"body":2}`, quote(typ))
		if g := w.nextJob(); string(g.Body) != "2" {
			t.Errorf("%s", g)
		}
		w.wantOK(`{"action":"respond","body":2}`)
		s.wantEnd("orphan", "")
	})

	o.causeFault("home restarted at once", func(t *testing.T, typ string) {
		_, w := o.lendJob(t, typ, "orphan", "")
		a.kill()
		if err := a.start(); err != nil {
			t.Fatal(err)
		}
		s := newSubmitter(t, a)
		s.wantOK(`{"action":"submit","id":"orphan","type":%s,"body":2}`, quote(typ))
		if g := w.next(); g.Action != "cancel" {
			t.Errorf("%s, want cancel", g)
		}
		w.wantOK(`{"action":"respond","body":"of the life before"}`)
		if g := w.nextJob(); string(g.Body) != "2" {
			t.Errorf("%s", g)
		}
		w.wantOK(`{"action":"respond","body":2}`)
		if g := s.wantEnd("orphan", ""); string(g.Body) != "2" {
			t.Errorf("%s", g)
		}
	})

	o.causeFault("borrower drains", func(t *testing.T, typ string) {
		s, w := o.lendJob(t, typ, "stays", `,"retries":0`)
		s.wantOK(`{"action":"submit","id":"waits","type":%s,"body":1,"retries":0}`, quote(typ))
		b.daemon().Signal(syscall.SIGTERM)
		if err := b.daemon().Log.Await("drain"); err != nil {
			t.Fatal(err)
		}
		w.wantOK(`{"action":"respond","body":"in time"}`)
		if g := s.wantEnd("stays", ""); string(g.Body) != `"in time"` {
			t.Errorf("%s", g)
		}
		w.awaitClose()
		awaitEnd(t, b)
		o.runElsewhere(t, typ, "waits", time.Now())
		s.wantEnd("waits", "")
		if err := b.start(); err != nil {
			t.Fatal(err)
		}
	})

	o.causeFault("home drains", func(t *testing.T, typ string) {
		s, w := o.lendJob(t, typ, "first", "")
		for i := range 3 {
			s.wantOK(`{"action":"submit","id":"d%d","type":%s,"body":1}`, i, quote(typ))
		}
		s.wantOK(`{"action":"submit","id":"nobody","type":%s,"body":1}`, quote(typ+"-none"))
		a.daemon().Signal(syscall.SIGTERM)
		if err := waitUntil("it refuses", func() error {
			if err := a.ask("GET", "/readyz", nil, nil); err == nil {
				return errors.New("it is ready")
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
		// Waiting jobs are lent while the drain lasts.
		w.wantOK(`{"action":"respond","body":1}`)
		s.wantEnd("first", "")
		for i := range 3 {
			id := fmt.Sprint("d", i)
			if g := w.nextJob(); g.ID != id {
				t.Errorf("%s, want %s", g, id)
			}
			w.wantOK(`{"action":"respond","body":1}`)
			s.wantEnd(id, "")
		}
		s.wantEnd("nobody", "draining")
		s.awaitClose()
		awaitEnd(t, a)
		if err := a.start(); err != nil {
			t.Fatal(err)
		}
	})

	o.causeFault("NATS away", func(t *testing.T, typ string) {
		s, w := o.lendJob(t, typ, "back", `,"retries":1`)
		nats.Kill()
		// Home continues alone: lent jobs wait again, and a worker at home gets them.
		if err := waitUntil("it says so", func() error {
			v, err := a.fleet()
			if err == nil && v.NATS.Connected {
				err = fmt.Errorf("%+v", v.NATS)
			}
			return err
		}); err != nil {
			t.Error(err)
		}
		if err := a.ask("GET", "/readyz", nil, nil); err != nil {
			t.Errorf("/readyz: %v", err)
		}
		var text string
		if err := a.ask("GET", "/metrics", nil, &text); err != nil || !strings.Contains(text, "\ngloom_fleet_connected 0\n") {
			t.Errorf("gloom_fleet_connected is not 0: %v", err)
		}
		local := newWorker(t, a, `"type":`+quote(typ))
		local.nextJob()
		local.wantOK(`{"action":"respond","body":"home"}`)
		if g := s.wantEnd("back", ""); string(g.Body) != `"home"` {
			t.Errorf("%s", g)
		}
		if g := w.next(); g.Action != "cancel" {
			t.Errorf("%s, want cancel", g)
		}
		w.wantOK(`{"action":"respond","body":"late"}`)
		local.close()
		if err := nats.Launch(); err != nil {
			t.Fatal(err)
		}
		s.wantOK(`{"action":"submit","id":"again","type":%s,"body":1}`, quote(typ))
		w.nextJob()
		w.wantOK(`{"action":"respond","body":1}`)
		s.wantEnd("again", "")
	})

	o.causeFault("one name twice", func(t *testing.T, typ string) {
		if err := c.stop(); err != nil {
			t.Fatal(err)
		}
		twin := newBroker(c.site, "a", c.options...)
		if err := twin.start(); err != nil {
			t.Fatal(err)
		}
		if err := waitUntil("the later one is alone", func() error {
			v, err := twin.fleet()
			if err == nil && !v.Alone {
				err = fmt.Errorf("%+v", v)
			}
			return err
		}); err != nil {
			t.Error(err)
		}
		if v, err := a.fleet(); err != nil || v.Alone {
			t.Errorf("the first one is alone: %+v, %v", v, err)
		}
		if !strings.Contains(twin.daemon().Log.String(), `name`) {
			t.Error("it says nothing of its name")
		}
		// It works alone.
		w, s := newWorker(t, twin, `"type":`+quote(typ)), newSubmitter(t, twin)
		s.wantOK(`{"action":"submit","id":"alone","type":%s,"body":1}`, quote(typ))
		w.nextJob()
		w.wantOK(`{"action":"respond","body":1}`)
		s.wantEnd("alone", "")
		remote, home := newSubmitter(t, b), newSubmitter(t, a)
		remote.wantOK(`{"action":"submit","id":"not","type":%s,"body":1}`, quote(typ))
		w.wantQuiet(300 * time.Millisecond)
		remote.wantOK(`{"action":"cancel","id":"not"}`)
		home.wantOK(`{"action":"ping"}`)
		// When the name is free it joins.
		if err := a.stop(); err != nil {
			t.Fatal(err)
		}
		awaitHeartbeats(t, twin, 1)
		remote.wantOK(`{"action":"submit","id":"now","type":%s,"body":1}`, quote(typ))
		w.nextJob()
		w.wantOK(`{"action":"respond","body":1}`)
		remote.wantEnd("now", "")
		if err := twin.stop(); err != nil {
			t.Error(err)
		}
		for _, x := range []*broker{a, c} {
			if err := x.start(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// A cluster of three NATS servers loses a server and keeps the fleet.
func TestClusterThatLosesOneKeepsFleet(t *testing.T) {
	t.Parallel()
	f := ownFleet(t, 3)
	typ := typeOfTest(t)
	w, s := newWorker(t, f.brokers[1], `"type":`+quote(typ)), newSubmitter(t, f.brokers[0])
	for i, n := range f.nats {
		n.Kill()
		for k := range 3 {
			id := fmt.Sprint("n", i, k)
			s.wantOK(`{"action":"submit","id":"%s","type":%s,"body":1,"retries":9}`, id, quote(typ))
			for ended := false; !ended; {
				select {
				case g := <-w.in:
					if g.Action == "job" {
						w.send(`{"action":"respond","body":1}`)
					}
				case g := <-s.in:
					if !g.isResult() || g.ID != id {
						t.Fatal(g)
					}
					ended = true
				case <-time.After(patience):
					t.Fatalf("without server %d of the cluster %s does not end", i, id)
				}
			}
		}
		if err := n.Launch(); err != nil {
			t.Fatal(err)
		}
		if err := f.awaitWhole(); err != nil {
			t.Fatal(err)
		}
	}
	awaitCounts(t, f.brokers[0], typ, api.Ledger{Submitted: 9, Answered: 9})
}

// Bodies are cut into parts of the size that NATS carries, even if this size is small.
func TestBodiesAreCutToPayload(t *testing.T) {
	t.Parallel()
	l, err := newLAN(3)
	if err != nil {
		t.Fatal(err)
	}
	defer l.close()
	conf := scratchDir + "/small.conf"
	if err := os.WriteFile(conf, []byte("max_payload: 4KB\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	n, err := newNATS(l.sites[2], "-c", conf)
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	f := &fleet{brokers: []*broker{newBroker(l.sites[0], "a", "--insecure", "--fleet="+n.url()), newBroker(l.sites[1], "b", "--insecure", "--fleet="+n.url())}}
	for _, b := range f.brokers {
		if err := b.start(); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if t.Failed() {
				t.Log(b.log())
			}
			if err := b.stop(); err != nil {
				t.Error(err)
			}
		}()
	}
	if err := f.awaitWhole(); err != nil {
		t.Fatal(err)
	}
	w, s := newWorker(t, f.brokers[1], `"types":["*"],"prefetch":50`), newSubmitter(t, f.brokers[0])
	long := strings.Repeat("t", 1000) // name and type are parts of a message too
	for _, size := range []int{1, 2000, 4000, 4096, 5000, 100_000} {
		body := quote(strings.Repeat("b", size))
		for i := range 5 {
			s.wantOK(`{"action":"submit","id":%s,"type":%s,"body":%s,"groups":[%s],"headers":{"h":%s}}`,
				quote(fmt.Sprint(i, long[1:])), quote(long), body, quote(long), quote(long+long+long))
		}
		for n := 0; n < 5; {
			select {
			case g := <-w.in:
				if g.Action == "job" {
					if string(g.Body) != body {
						t.Errorf("%d bytes: %s", size, g)
					}
					w.send(`{"action":"respond","id":%s,"body":%s}`, quote(g.ID), body)
				}
			case g := <-s.in:
				if n++; !g.isResult() || string(g.Body) != body {
					t.Fatalf("%d bytes: %s", size, g)
				}
			case <-time.After(patience):
				t.Fatalf("%d bytes: %d of 5 jobs end", size, n)
			}
		}
	}
	if err := f.brokers[1].ask("GET", "/v1/none", nil, nil); err == nil {
		t.Error("a page that does not exist was answered")
	} else if e := (*api.Error)(nil); !errors.As(err, &e) || e.Status != http.StatusNotFound {
		t.Error(err)
	}
}
