package store

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"gloom/cmd/internal/boot"
)

// TestClockFollowsWithoutJumps: a store's clock follows the store's time without jumps.
func TestClockFollowsWithoutJumps(t *testing.T) {
	t.Parallel()
	const hour = time.Hour
	for _, set := range []time.Duration{-hour, hour, -20 * 365 * 24 * hour} {
		start := 400_000 * hour
		c := &clock{}
		c.start(start, hour)
		if got := c.at(hour + time.Second); got != (start + time.Second).Milliseconds() {
			t.Errorf("after a second it is %d", got-start.Milliseconds())
		}
		for s := range time.Duration(3600) { // the store's clock is set, and its time is read every second
			c.follow(start+set+(s+1)*time.Second, hour+(s+1)*time.Second)
		}
		if deviation := time.Duration(c.at(2*hour))*time.Millisecond - start - hour; deviation.Abs() > 2*time.Second || deviation.Abs() < time.Second || deviation > 0 != (set > 0) {
			t.Errorf("set by %v, it is off by %v an hour later", set, deviation)
		}
	}
	c := &clock{} // a clock of the store that runs too fast, but evenly, is followed
	c.start(0, 0)
	for s := range time.Duration(86400) {
		c.follow((s+1)*time.Second*10001/10000, (s+1)*time.Second)
	}
	if deviation := time.Duration(c.at(24*hour))*time.Millisecond - 24*hour*10001/10000; deviation.Abs() > 10*time.Millisecond {
		t.Errorf("it is off by %v after a day", deviation)
	}
}

// TestMastersUseClockOfRedis: all masters of a Redis use its clock. A master without Redis
// continues from the first time of this host's clock, even if the clock is set later.
func TestMastersUseClockOfRedis(t *testing.T) {
	t.Parallel()
	first := open(t, shared)
	first.clock.start(0, boot.Since()) // like the clock of a host whose time is wrong
	acquire(t, first)
	if deviation := time.Since(time.UnixMilli(first.At(boot.Since()))); deviation.Abs() > time.Second {
		t.Errorf("the clock is off by %v", deviation)
	}
	m := NewMemory()
	m.now = func() time.Time { return time.Now().Add(-time.Hour) }
	m.At(boot.Since())
	if deviation := time.Since(time.UnixMilli(m.At(boot.Since()))); deviation.Abs() > time.Second {
		t.Errorf("the clock of the memory is off by %v", deviation)
	}
}

// TestClockAtTakeover: the clock of Redis is set forward by two days. The master that then takes
// over does not follow the clock at once, whether the master began to wait before or after the
// jump: idempotency keys last as long as they should.
func TestClockAtTakeover(t *testing.T) {
	t.Parallel()
	const set = 48 * time.Hour
	isBehind := func(r *Redis) bool {
		deviation := time.Since(time.UnixMilli(r.At(boot.Since()))) - set
		return deviation.Abs() < 10*time.Second
	}
	first := open(t, shared)
	acquire(t, first)
	second := standby(t, secondClient(t, first))
	<-second.waitReasons
	// From now on, the stores' clocks run as if the clock of Redis had been set forward just now.
	for _, r := range []*Redis{first, second.Redis} {
		r.clock.start(since1970(time.Now())-set, boot.Since())
	}
	j, key := newJob(1), &Key{Name: "k", TTL: time.Hour}
	if e := await(t, enqueueing(first, key, j)); e.err != nil {
		t.Fatal(e.err)
	}
	again := func(r *Redis, name string) {
		t.Helper()
		if !isBehind(r) {
			t.Errorf("%s: its clock says %v", name, time.UnixMilli(r.At(boot.Since())))
		}
		if err := r.renew(t.Context(), r.current()); err != nil { // this removes keys that have ended
			t.Fatal(err)
		}
		if e := await(t, enqueueing(r, key, newJob(2))); e.err != nil || !e.replayed {
			t.Errorf("%s: the key has ended: %+v", name, e)
		}
	}
	if err := first.Resign(t.Context()); err != nil {
		t.Fatal(err)
	}
	second.acquired(t)
	third := standby(t, secondClient(t, first)) // perhaps before the second has renewed its lease
	<-third.waitReasons
	again(second.Redis, "the standby that waited")
	eventually(t, "the third knows the clock of the second", func() bool { return isBehind(third.Redis) })
	if err := second.Resign(t.Context()); err != nil {
		t.Fatal(err)
	}
	third.acquired(t)
	again(third.Redis, "the standby that began to wait later")
}

// TestClockOfOlderMaster: the clock of Redis is set back by two days, and a master that starts after
// that takes over. When the older master becomes active again, it does not continue from its own
// clock, which is ahead: idempotency keys last as long as they should.
func TestClockOfOlderMaster(t *testing.T) {
	t.Parallel()
	const set = 48 * time.Hour
	first := open(t, shared)
	acquire(t, first)
	first.clock.start(since1970(time.Now())+set, boot.Since()) // as if the clock of Redis had been set back just now
	if err := first.Resign(t.Context()); err != nil {
		t.Fatal(err)
	}
	second := secondClient(t, first)
	acquire(t, second)
	key := &Key{Name: "k", TTL: time.Hour}
	if e := await(t, enqueueing(second, key, newJob(1))); e.err != nil {
		t.Fatal(e.err)
	}
	again := standby(t, first)
	eventually(t, "the first knows the clock of the second", func() bool {
		return time.Until(time.UnixMilli(first.At(boot.Since()))).Abs() < 10*time.Second
	})
	if err := second.Resign(t.Context()); err != nil {
		t.Fatal(err)
	}
	again.acquired(t)
	if err := first.renew(t.Context(), first.current()); err != nil { // this removes keys that have ended
		t.Fatal(err)
	}
	if e := await(t, enqueueing(first, key, newJob(2))); e.err != nil || !e.replayed {
		t.Errorf("the key has ended: %+v", e)
	}
}

// TestClockUnderLease: the clock of Redis is set back by a minute while another master is active. A
// standby does not follow the clock before that master has renewed its lease.
func TestClockUnderLease(t *testing.T) {
	t.Parallel()
	const set = time.Minute
	first := open(t, shared)
	acquire(t, first)
	first.current().end() // it renews no more
	second := secondClient(t, first)
	second.clock.start(since1970(time.Now())+set, boot.Since())
	second.clockSet, second.clockKnown = true, true
	old := strings.Fields(lease(t, first))
	old[3] = strconv.FormatInt(time.Now().Add(leaseTerm+set).UnixMilli(), 10) // as if the clock had been set back just now
	shared.Do(t, "SET", first.keys.lease, strings.Join(old, " "))
	shared.Do(t, "SET", first.keys.clock, old[3]+" 0")
	if _, err := second.tryAcquire(t.Context(), true); err == nil {
		t.Fatal("it has the lease")
	}
	if deviation := time.Until(time.UnixMilli(second.At(boot.Since()))) - set; deviation.Abs() > 10*time.Second {
		t.Errorf("its clock was set by %v", deviation)
	}
}
