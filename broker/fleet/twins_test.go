package fleet_test

import (
	"fmt"
	"iter"
	"slices"
	"testing"
	"time"

	"github.com/tinylib/msgp/msgp"

	"gloom/broker"
	"gloom/broker/fleet"
)

// twins are two brokers, with submitters at the first one and workers at the second.
type twins struct {
	now          int64
	delay        int64 // of messages
	unreachable  [2]bool
	sendsLeft    [2]int // how many more messages it can send; negative: no limit
	noListener   bool   // NATS knows no listener on the second one's subject
	maxMessage   int    // bytes of a message; 0: no limit
	cores        [2]*broker.Broker
	machines     [2]*fleet.Machine
	sentMessages [2][]fleet.Message
	inFlight     []delivery

	submitter   broker.Peer
	assignments []assignment // jobs that workers were given
	answers     int
	progress    map[string][]byte // the latest report of each job, by id
}

// delivery is a message that the network has not delivered yet.
type delivery struct {
	at   int64
	to   int
	data []byte
}

// assignment is a job that a worker was given.
type assignment struct {
	to broker.Peer
	id []byte
}

func newTwins(delay time.Duration) *twins {
	return newTwinsApart(delay, 0, broker.Config{MaxUnusedTypes: 10})
}

// newTwinsApart starts the second broker by the given time later than the first.
func newTwinsApart(delay, startGap time.Duration, cfg broker.Config) *twins {
	w := &twins{progress: map[string][]byte{}, now: 1, delay: int64(delay), sendsLeft: [2]int{-1, -1}}
	starts := [2]int64{w.now, w.now + int64(startGap)}
	for i := range w.machines {
		w.cores[i] = broker.New(cfg)
		w.machines[i] = fleet.New(fleet.Config{Name: fmt.Sprint(i), Epoch: uint64(i + 1), MaxMessage: 256 << 10, MaxHeld: 16 << 20}, w.cores[i], starts[i], func(effects []broker.Effect) { w.applyEffects(i, effects) })
	}
	w.submitter = w.cores[0].AddSubmitter()
	w.letPass(3 * time.Second)
	return w
}

func (tw *twins) applyEffects(i int, effects []broker.Effect) {
	for k := range effects {
		switch e := &effects[k]; {
		case tw.machines[i].HandleEffect(e):
		case e.Op == broker.OpJob:
			tw.assignments = append(tw.assignments, assignment{e.Peer, e.ID})
		case e.Op == broker.OpResult:
			tw.answers++
		case e.Op == broker.OpProgress:
			tw.progress[string(e.ID)] = slices.Clone(e.Body)
		}
	}
}

// letPass lets time pass, and delivers messages.
func (tw *twins) letPass(d time.Duration) {
	for end := tw.now + int64(d); tw.now < end; tw.now += int64(time.Millisecond) {
		for i, m := range tw.machines {
			m.Tick(tw.now)
			tw.applyEffects(i, tw.cores[i].Tick(tw.now))
		}
		for progress := true; progress; {
			progress = false
			for i, m := range tw.machines {
				m.Step(tw.now)
				m.Events()
				if !m.HasPending() {
					continue
				}
				tw.sentMessages[i] = m.Messages(tw.sentMessages[i])
				for _, v := range tw.sentMessages[i] {
					if v.WantReply && tw.noListener && i == 0 && tw.sendsLeft[0] != 0 {
						m.OnNoListener(tw.now, v.To)
					}
					if tw.sendsLeft[i] == 0 || tw.maxMessage > 0 && len(v.Data) > tw.maxMessage {
						continue
					}
					tw.sendsLeft[i]--
					tw.inFlight = append(tw.inFlight, delivery{tw.now + tw.delay, 1 - i, slices.Clone(v.Data)})
				}
			}
			for len(tw.inFlight) > 0 && tw.inFlight[0].at <= tw.now {
				x := tw.inFlight[0]
				tw.inFlight = slices.Delete(tw.inFlight, 0, 1)
				if !tw.unreachable[x.to] {
					tw.machines[x.to].Receive(tw.now, x.data)
					progress = true
				}
			}
		}
	}
}

func (tw *twins) submit(id, typ string, body []byte) {
	tw.applyEffects(0, tw.cores[0].Submit(tw.now, tw.submitter, &broker.Submission{ID: []byte(id), Type: []byte(typ), Body: body}))
}

func (tw *twins) join(q *broker.JoinRequest) broker.Peer {
	p := tw.cores[1].AddWorker()
	tw.applyEffects(1, tw.cores[1].Join(tw.now, p, q))
	return p
}

func (tw *twins) respond(p broker.Peer, id, body []byte) {
	tw.applyEffects(1, tw.cores[1].Respond(tw.now, p, id, body, false))
}

// answerJobs lets workers answer the jobs that they were given, until n jobs are answered.
func (tw *twins) answerJobs(t *testing.T, n int) {
	t.Helper()
	for end := tw.now + int64(time.Minute); tw.answers < n && tw.now < end; {
		tw.letPass(5 * time.Millisecond)
		jobs := tw.assignments
		tw.assignments = nil
		for _, j := range jobs {
			tw.respond(j.to, j.id, []byte("1"))
		}
	}
	if tw.answers != n {
		t.Fatalf("%d of %d jobs were answered in a minute", tw.answers, n)
	}
}

// TestLentWithinWants: no more jobs are lent than idle workers can take, whatever
// their types and however slow the network is.
func TestLentWithinWants(t *testing.T) {
	for _, v := range []struct {
		name    string
		delay   time.Duration
		types   int
		jobs    int
		joining []broker.JoinRequest
	}{
		{"one worker for all types", 0, 30, 300, []broker.JoinRequest{{Types: [][]byte{[]byte(`"*"`)}, Prefetch: 1}}},
		{"one worker for all types, far away", 40 * time.Millisecond, 30, 300, []broker.JoinRequest{{Types: [][]byte{[]byte(`"*"`)}, Prefetch: 1}}},
		{"sets that overlap", 10 * time.Millisecond, 3, 300, []broker.JoinRequest{
			{Type: []byte(`"0"`), Prefetch: 2}, {Types: [][]byte{[]byte(`"0"`), []byte(`"1"`)}, Prefetch: 3}, {Types: [][]byte{[]byte(`"*"`)}, Prefetch: 4},
		}},
		{"a burst, far away", 60 * time.Millisecond, 1, 3000, []broker.JoinRequest{{Type: []byte(`"0"`), Prefetch: 100}, {Type: []byte(`"0"`), Prefetch: 100}}},
	} {
		t.Run(v.name, func(t *testing.T) {
			w := newTwins(v.delay)
			for i := range v.joining {
				w.join(&v.joining[i])
			}
			w.letPass(time.Second)
			for i := range v.jobs {
				w.submit(fmt.Sprint(i), fmt.Sprintf(`"%d"`, i%v.types), []byte("1"))
			}
			w.answerJobs(t, v.jobs)
			if st := w.machines[0].Info().Stats; st.ReturnedJobs != 0 || st.TotalLent != uint64(v.jobs) {
				t.Errorf("%d jobs were lent %d times, %d came back without a run", v.jobs, st.TotalLent, st.ReturnedJobs)
			}
		})
	}
}

// TestBurstIsLentInSmallParts: however much is lent at once, little is in flight at any time, and
// no broker is lost on a network that carries 32 MiB a second.
func TestBurstIsLentInSmallParts(t *testing.T) {
	const jobs = 200
	body := fmt.Appendf(nil, `"%0*d"`, 256<<10, 0)
	w := newTwins(20 * time.Millisecond)
	for range 2 {
		w.join(&broker.JoinRequest{Type: []byte(`"t"`), Prefetch: jobs / 2})
	}
	w.letPass(time.Second)
	for i := range jobs {
		w.submit(fmt.Sprint(i), `"t"`, body)
	}
	limit, assignedJobs := 0, 0
	for end := w.now + int64(time.Minute); w.answers < jobs && w.now < end; {
		w.letPass(5 * time.Millisecond)
		inFlight := 0
		for _, x := range w.inFlight {
			inFlight += len(x.data)
		}
		limit = max(limit, inFlight)
		assignedJobs += len(w.assignments)
		for _, j := range w.assignments {
			w.respond(j.to, j.id, body)
		}
		w.assignments = w.assignments[:0]
	}
	st := w.machines[0].Info().Stats
	if w.answers != jobs || assignedJobs != jobs || st.LostJobs+st.ReturnedJobs+st.MissedMessages != 0 {
		t.Errorf("%d of %d jobs were answered, %d given to workers: %+v", w.answers, jobs, assignedJobs, st)
	}
	if limit > 10<<20 {
		t.Errorf("%d bytes were under way at a time", limit)
	}
}

// TestIdlePeerAcksMessages: a peer acks messages even if it has nothing else to send; otherwise the
// home would lend no more until the next heartbeat.
func TestIdlePeerAcksMessages(t *testing.T) {
	const jobs = 100
	w := newTwins(time.Millisecond)
	w.join(&broker.JoinRequest{Type: []byte(`"t"`), Prefetch: jobs})
	w.letPass(time.Second)
	for i := range jobs {
		w.submit(fmt.Sprint(i), `"t"`, fmt.Appendf(nil, `"%0*d"`, 256<<10, 0))
	}
	if w.letPass(100 * time.Millisecond); len(w.assignments) != jobs {
		t.Errorf("%d of %d jobs are with workers after 100 ms", len(w.assignments), jobs)
	}
}

// TestJobsOfLostPeerAreRequeued: jobs lent to a broker that is lost, in whatever way and at whatever moment,
// are requeued in time to run elsewhere within two seconds.
func TestJobsOfLostPeerAreRequeued(t *testing.T) {
	const ms = time.Millisecond
	for _, v := range []struct {
		name    string
		lose    func(w *twins)
		maxTime time.Duration
		flaps   time.Duration // how often the home connects to NATS again
	}{
		{"deaf", func(w *twins) { w.unreachable[1] = true }, 1850 * ms, 0},
		// The broker gets no TCP acks, so its system stops sending.
		{"deaf, then mute", func(w *twins) { w.unreachable[1], w.sendsLeft[1] = true, 1 }, 1850 * ms, 0},
		{"deaf, then mute, and NATS flaps", func(w *twins) { w.unreachable[1], w.sendsLeft[1] = true, 2 }, 1850 * ms, 700 * ms},
		{"mute", func(w *twins) { w.sendsLeft[1] = 0 }, 1650 * ms, 0},
		{"cut off", func(w *twins) { w.unreachable[1], w.sendsLeft[1] = true, 0 }, 1650 * ms, 0},
		{"killed", func(w *twins) { w.unreachable[1], w.sendsLeft[1], w.noListener = true, 0, true }, 1150 * ms, 0},
	} {
		var maxTime time.Duration
		for w := range lentAtAnyMoment(t) {
			v.lose(w)
			since := w.now
			for w.machines[0].Info().Stats.LostJobs == 0 && w.now-since < int64(10*time.Second) {
				w.letPass(time.Millisecond)
				if v.flaps != 0 && (w.now-since)%int64(v.flaps) == 0 {
					w.machines[0].OnConnected(w.now, 256<<10)
				}
			}
			maxTime = max(maxTime, time.Duration(w.now-since))
		}
		if maxTime > v.maxTime {
			t.Errorf("%s: it waits again after %s at the worst", v.name, maxTime)
		}
		t.Logf("%s: at the worst after %s", v.name, maxTime)
	}
}

// lentAtAnyMoment yields twins with a job that has just been lent, at each of many moments of a
// heartbeat interval.
func lentAtAnyMoment(t *testing.T) iter.Seq[*twins] {
	const n, step = 7, 73 * time.Millisecond
	return func(yield func(*twins) bool) {
		for i := range time.Duration(n * n) {
			w := newTwinsApart(time.Millisecond, i/n*step, broker.Config{MaxUnusedTypes: 10})
			w.join(&broker.JoinRequest{Type: []byte(`"t"`)})
			w.letPass(i % n * step)
			w.submit("1", `"t"`, []byte("1"))
			if w.letPass(200 * time.Millisecond); len(w.assignments) != 1 {
				t.Fatal("the job is not lent")
			}
			if !yield(w) {
				return
			}
		}
	}
}

// TestReconnectLosesNothing: brokers lose nothing if their connection to NATS breaks and is
// restored.
func TestReconnectLosesNothing(t *testing.T) {
	for _, v := range []struct {
		name         string
		disconnected [2]bool
		outage       time.Duration
	}{
		{"home", [2]bool{true, false}, 400 * time.Millisecond},
		{"borrower", [2]bool{false, true}, 400 * time.Millisecond},
		{"both", [2]bool{true, true}, 800 * time.Millisecond},
	} {
		for w := range lentAtAnyMoment(t) {
			w.noListener, w.unreachable = v.disconnected[1], v.disconnected
			for i, disconnected := range v.disconnected {
				if disconnected {
					w.sendsLeft[i] = 0
				}
			}
			w.letPass(v.outage)
			w.noListener, w.unreachable, w.sendsLeft = false, [2]bool{}, [2]int{-1, -1}
			for i, disconnected := range v.disconnected {
				if disconnected {
					w.machines[i].OnConnected(w.now, 256<<10)
				}
			}
			w.answerJobs(t, 1)
			if st := w.machines[0].Info().Stats; st.LostJobs != 0 {
				t.Fatalf("%s away for %s: %+v", v.name, v.outage, st)
			}
		}
	}
}

// TestWantsAreSentRarely: the wants of workers are sent at most ten times a second, however
// often a worker comes and goes.
func TestWantsAreSentRarely(t *testing.T) {
	w := newTwins(0)
	countWants := func() (n int) {
		for _, x := range w.inFlight {
			if rest, err := msgp.Skip(x.data); err == nil && x.to == 0 {
				if kind, _, _ := msgp.ReadUint64Bytes(rest); kind == 'w' {
					n++
				}
			}
		}
		return n
	}
	w.delay = int64(time.Hour) // so that no message arrives
	for range 300 {
		p := w.join(&broker.JoinRequest{Type: []byte(`"t"`)})
		w.letPass(time.Millisecond)
		w.applyEffects(1, w.cores[1].RemovePeer(w.now, p))
		w.letPass(2 * time.Millisecond)
	}
	if n := countWants(); n == 0 || n > 11 {
		t.Errorf("in 0.9 s wants were said %d times", n)
	}
}

// TestWantsOfOtherWorkersArrive: if a worker has more type names than fit into one NATS message, the wants of
// another worker still arrive, whichever worker joined first.
func TestWantsOfOtherWorkersArrive(t *testing.T) {
	var patterns [][]byte
	for i := range 1000 {
		patterns = append(patterns, fmt.Appendf(nil, `"%0*d"`, 1000, i))
	}
	for _, order := range [][]*broker.JoinRequest{
		{{Type: []byte(`"near"`)}, {Types: patterns, Except: patterns[:500]}, {Type: []byte(`"far"`)}},
		{{Types: patterns, Except: patterns[:500]}, {Type: []byte(`"near"`)}, {Type: []byte(`"far"`)}},
	} {
		w := newTwins(0)
		w.maxMessage = 1 << 20
		for _, q := range order {
			w.join(q)
		}
		w.letPass(10 * time.Second)
		w.submit("1", `"near"`, []byte("1"))
		w.submit("2", `"far"`, []byte("1"))
		w.answerJobs(t, 2)
	}
}

// TestOtherVersionIsReported: a broker that speaks another version is reported by name, and nothing else
// happens.
func TestOtherVersionIsReported(t *testing.T) {
	w := newTwins(0)
	w.join(&broker.JoinRequest{Type: []byte(`"mail"`)})
	m := w.machines[0]
	for _, kind := range []byte{'b', 'w', 'd', 'a', 'x'} {
		msg := msgp.AppendUint64(msgp.AppendString(msgp.AppendUint64(msgp.AppendUint64(nil, 7), uint64(kind)), "new"), 9)
		m.Receive(w.now, append(msg, "what nobody here can read"...))
	}
	v := m.Info()
	if n := len(v.Peers); n != 2 || v.Peers[1].Name != "new" || v.Peers[1].State != "foreign" || v.Peers[1].Version != 7 || v.Stats.UnreadableMessages != 0 {
		t.Errorf("with a broker of another version: %+v", v)
	}
	w.submit("1", `"mail"`, []byte("1"))
	w.answerJobs(t, 1)
	w.letPass(3 * time.Second)
	if names := m.OtherVersions(); len(names) != 0 {
		t.Errorf("it is gone, and %v are named", names)
	}
}

// TestForbiddenTypesAreRarelyOffered: a worker's token forbids some of the types that the worker's
// pattern matches. Jobs of these types are offered to the worker's broker only now and then, and
// the broker does not count as wanting them.
func TestForbiddenTypesAreRarelyOffered(t *testing.T) {
	w := newTwins(0)
	w.join(&broker.JoinRequest{Types: [][]byte{[]byte(`"*"`)}, Prefetch: 1, AllowsID: 1, Allows: func(typ []byte) bool { return string(typ) == `"mail"` }})
	w.submit("1", `"print"`, []byte("1"))
	w.letPass(time.Second)
	before := w.machines[0].Info().Stats.Items
	w.letPass(10 * time.Second)
	if n := w.machines[0].Info().Stats.Items - before; n > 6 {
		t.Errorf("in 10 s it was offered a job that it may not have %d times", n)
	}
	if names := w.machines[0].BrokersWanting([]byte(`"print"`)); names != nil {
		t.Errorf("%q want it", names)
	}
	w.submit("2", `"mail"`, []byte("1"))
	w.answerJobs(t, 1)
}

// TestLostBrokerIsReported: a lost broker is reported, with the types that it had workers for,
// until it is back. A broker that was draining and held no jobs of others counts as having left
// instead.
func TestLostBrokerIsReported(t *testing.T) {
	for _, v := range []struct {
		name                  string
		drains, lends, leaves bool
	}{{"as it is", false, false, false}, {"drained", true, false, true}, {"with a job", false, true, false}, {"drained with a job", true, true, false}} {
		t.Run(v.name, func(t *testing.T) {
			w := newTwins(time.Millisecond)
			w.join(&broker.JoinRequest{Type: []byte(`"t"`), Prefetch: 1})
			if v.lends {
				w.submit("1", `"t"`, []byte("1"))
			}
			w.letPass(time.Second)
			if v.drains {
				w.cores[1].Drain()
				w.machines[1].Leave(w.now)
			}
			w.letPass(10 * time.Millisecond)
			w.unreachable = [2]bool{true, true}
			w.letPass(3 * time.Second)
			if w.machines[0].UpBrokers() != 0 {
				t.Fatal("it is not lost")
			}
			want := []string{"1"}
			if v.leaves {
				want = nil
			}
			if got := w.machines[0].LostBrokers(nil); !slices.Equal(got, want) {
				t.Errorf("lost: %q, want %q", got, want)
			}
			if got := w.machines[0].LostBrokers([]byte(`"t"`)); !slices.Equal(got, want) {
				t.Errorf("lost, with workers for it: %q, want %q", got, want)
			}
			if got := w.machines[0].LostBrokers([]byte(`"other"`)); got != nil {
				t.Errorf("lost, with workers for another type: %q", got)
			}
			w.unreachable = [2]bool{}
			w.letPass(3 * time.Second)
			if got := w.machines[0].LostBrokers(nil); got != nil {
				t.Errorf("it is back, and lost: %q", got)
			}
		})
	}
}
