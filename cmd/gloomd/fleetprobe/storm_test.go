package fleetprobe

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

func TestStormLosesNoJob(t *testing.T) {
	t.Parallel()
	runStorm(t, 1, *faultCount)
}

func TestStormOnClusterLosesNoJob(t *testing.T) {
	t.Parallel()
	runStorm(t, 3, (*faultCount+1)/2)
}

// runStorm causes random faults in a fleet under load. The answers to its submitters must be complete,
// and so must the brokers' ledgers.
func runStorm(t *testing.T, servers, n int) {
	chosenSeed := *seed
	if chosenSeed == 0 {
		chosenSeed = rand.Uint64()
	}
	t.Logf("-seed %d -faults %d", chosenSeed, *faultCount)
	r := rand.New(rand.NewPCG(chosenSeed, uint64(servers)))
	f, err := newFleet(servers)
	if err != nil {
		t.Fatal(err)
	}
	l := newLoad(f)
	defer func() {
		if t.Failed() {
			for _, b := range f.brokers {
				t.Log(b.log())
			}
		}
		if err := f.close(); err != nil {
			t.Error(err)
		}
	}()
	l.startClients(r)
	w := &faultInjector{t: t, load: l, locks: map[any]*sync.Mutex{}}
	for _, b := range f.brokers {
		w.locks[b] = new(sync.Mutex)
	}
	for _, s := range f.nats {
		w.locks[s] = new(sync.Mutex)
	}
	start := time.Now()
	var underway sync.WaitGroup
	for i := range n {
		w.injectFault(i, r, &underway)
		w.pause(r, 1500)
	}
	underway.Wait()
	t.Logf("%d faults in %s", n, time.Since(start).Round(time.Second))
	if err := f.awaitWhole(); err != nil {
		t.Error(err)
	}
	w.pause(r, 1000)
	close(l.stop)
	if err := waitUntil("all jobs of living submitters have ended", func() error {
		if open := l.book.openJobs(); len(open) > 0 {
			return fmt.Errorf("%d are open: %.500s", len(open), fmt.Sprint(open))
		}
		return nil
	}); err != nil {
		t.Error(err)
		l.logUnfinished(t)
		for _, b := range f.brokers { // so that submitters do not wait forever
			l.mu.Lock()
			for _, s := range l.lives[b].sessions {
				s.close()
			}
			l.mu.Unlock()
		}
	}
	l.submitters.Wait()
	l.awaitSettled(t)
	close(l.done)
	l.workers.Wait()
	t.Log(l.book.summary())
	for _, fault := range l.book.faults {
		t.Error(fault)
	}
}

// logUnfinished logs some unfinished jobs, each as its home describes it.
func (l *load) logUnfinished(t *testing.T) {
	for i, token := range l.book.openJobs() {
		if i == 5 {
			break
		}
		l.book.mu.Lock()
		e := l.book.jobs[token]
		l.book.mu.Unlock()
		v, err := fetchJob(t, e.home.broker, token)
		t.Logf("%s of %s at %s: runs %d, %+v, worker %+v, %v", token, e.typ, e.home.broker.name, e.runs, v, v.Worker, err)
	}
	for _, b := range l.fleet.brokers {
		v, err := b.fleet()
		t.Logf("%s: %+v %v", b.name, v, err)
	}
}

// awaitSettled waits until no broker has jobs and compares the ledgers with the submitters' answers.
func (l *load) awaitSettled(t *testing.T) {
	for _, b := range l.fleet.brokers {
		if err := waitUntil(b.name+" has nothing left", func() error {
			v, err := b.status()
			if err != nil {
				return err
			}
			w, err := b.fleet()
			if err != nil {
				return err
			}
			if v.Imbalance != 0 || v.Ledger.Submitted != v.Ledger.Ended() {
				return fmt.Errorf("the ledger is off by %d: %+v", v.Imbalance, v.Ledger)
			}
			for _, o := range w.Brokers {
				w.Lent += o.Lent
				w.Borrowed += o.Borrowed
			}
			if w.Lent+w.Borrowed > 0 {
				return fmt.Errorf("lent and borrowed: %+v", w)
			}
			return nil
		}); err != nil {
			t.Error(err)
			continue
		}
		v, err := b.status()
		if err != nil {
			t.Error(err)
			continue
		}
		life := l.lifeOf(b)
		ackedCount, voidCount := uint64(0), uint64(0)
		seen := map[string]uint64{}
		l.book.mu.Lock()
		for _, s := range life.sessions {
			ackedCount += uint64(s.ackedCount)
			voidCount += uint64(s.voidCount)
			for kind, n := range s.ends {
				seen[kind] += uint64(n)
			}
		}
		l.book.mu.Unlock()
		if n := v.Ledger.Submitted; n < ackedCount || n > ackedCount+voidCount {
			t.Errorf("%s counts %d submitted jobs; submitters had the ok of %d, and %d had gone", b.name, n, ackedCount, voidCount)
		}
		for kind, n := range map[string]uint64{"answered": v.Ledger.Answered, "job_failed": v.Ledger.Failed, "expired": v.Ledger.Expired, "cancelled": v.Ledger.Cancelled} {
			if n < seen[kind] || n > seen[kind]+voidCount {
				t.Errorf("%s counts %d %s, submitters saw %d, and %d had gone", b.name, n, kind, seen[kind], voidCount)
			}
		}
		w, _ := b.fleet()
		t.Logf("%s: ledger %+v; lends %d, borrows %d, returned %d, lost %d, late %d", b.name, v.Ledger, w.Lends, w.Borrows, w.Returned, w.Lost, w.Late)
	}
}

// faultInjector injects the faults of the storm.
type faultInjector struct {
	t      *testing.T
	load   *load
	locks  map[any]*sync.Mutex // held during an action on a broker or a NATS server
	natsMu sync.Mutex          // held while a NATS server is away, so at most one of them is
}

func (w *faultInjector) pause(r *rand.Rand, ms int) {
	time.Sleep(time.Duration(r.IntN(ms)) * time.Millisecond)
}

// injectFault begins one fault. The fault may last while the next fault begins.
func (w *faultInjector) injectFault(i int, r *rand.Rand, underway *sync.WaitGroup) {
	b := w.load.fleet.brokers[r.IntN(3)]
	s := w.load.fleet.nats[r.IntN(len(w.load.fleet.nats))]
	for_ := time.Duration(100+r.IntN(3900)) * time.Millisecond
	last := func() { time.Sleep(for_) }
	kinds := []struct {
		name   string
		target any
		do     func() error
	}{
		{"kill " + b.name, b, func() error {
			underway.Wait() // so that jobs that are lent to the broker can run elsewhere
			if err := w.load.fleet.awaitWhole(); err != nil {
				return err
			}
			w.load.book.recordLoss(b) // recorded before the broker's workers notice
			b.kill()
			time.Sleep(2 * time.Second)
			last()
			w.load.book.endLoss()
			return w.restart(b)
		}},
		{"kill, and at once start " + b.name, b, func() error {
			b.kill()
			return w.restart(b)
		}},
		{"drain and start " + b.name, b, func() error {
			w.load.recordDrain(b)
			if err := b.stop(); err != nil {
				return err
			}
			last()
			return w.restart(b)
		}},
		{"freeze " + b.name, b, func() error {
			b.daemon().Signal(syscall.SIGSTOP)
			last()
			b.daemon().Signal(syscall.SIGCONT)
			return nil
		}},
		{"cut " + b.name, b, func() error { return w.between(b.site.cut, last, b.site.heal) }},
		{"mute " + b.name, b, func() error {
			return w.between(func() error { return b.site.mute(s.site) }, last, func() error { return b.site.unmute(s.site) })
		}},
		{"deafen " + b.name, b, func() error {
			return w.between(func() error { return s.site.mute(b.site) }, last, func() error { return s.site.unmute(b.site) })
		}},
		{"slow down " + b.name, b, func() error {
			discipline, err := b.site.makeSlow()
			if err != nil {
				w.t.Logf("NOT TRIED: a slow link: this kernel has neither netem nor tbf: %v", err)
				return nil
			}
			w.t.Logf("%s: %s", b.name, discipline)
			last()
			return b.site.makeFast()
		}},
		{"hang up on workers of " + b.name, b, func() error { w.load.hangUp(b); return nil }},
		{"submitters of " + b.name + " go", b, func() error {
			w.load.mu.Lock()
			defer w.load.mu.Unlock()
			w.load.mustLeave[b] = true
			return nil
		}},
		{"kill NATS " + s.site.ip, s, func() error { s.Kill(); last(); return s.Launch() }},
		{"restart NATS " + s.site.ip, s, func() error { s.Stop(); return s.Launch() }},
		{"freeze NATS " + s.site.ip, s, func() error { s.Freeze(); last(); s.Thaw(); return nil }},
		{"cut NATS " + s.site.ip, s, func() error { return w.between(s.site.cut, last, s.site.heal) }},
	}
	k := kinds[r.IntN(len(kinds))]
	aside := r.IntN(3) == 0 && k.name != "kill "+b.name
	do := func() {
		if k.target == any(s) {
			w.natsMu.Lock()
			defer w.natsMu.Unlock()
		}
		w.locks[k.target].Lock()
		defer w.locks[k.target].Unlock()
		start := time.Now()
		if err := k.do(); err != nil {
			w.t.Errorf("fault %d, %s: %v", i, k.name, err)
		}
		w.t.Logf("fault %d, %s: %s to %s", i, k.name, start.Format("15:04:05.000"), time.Now().Format("05.000"))
	}
	if aside {
		underway.Go(do)
		return
	}
	do()
}

func (w *faultInjector) between(begin func() error, last func(), end func() error) error {
	err := begin()
	last()
	return errors.Join(err, end())
}

// restart restarts a broker, and checks the log of its last run.
func (w *faultInjector) restart(b *broker) error {
	log := b.daemon().Log.String()
	for _, symptom := range []string{"DATA RACE", "panic:", "fatal error:"} {
		if _, after, found := strings.Cut(log, symptom); found {
			w.t.Errorf("%s said %s%.3000s", b.name, symptom, after)
		}
	}
	w.load.recordStart(b)
	return b.start()
}
