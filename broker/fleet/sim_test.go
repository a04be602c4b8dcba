package fleet_test

import (
	"container/heap"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"gloom/broker"
	"gloom/broker/fleet"
)

var (
	seeds = flag.Int("seeds", 300, "how many worlds to try")
	seed  = flag.Uint64("seed", 1, "the first one")
)

// TestFaultyBusLosesNoJob runs three to five brokers on a bus that drops, repeats and delays
// messages, and is cut and heals. Every job of a living submitter ends exactly once, and no job
// runs more often than allowed. No job stays lent for 1.9 s across a cut, and at the end all
// ledgers balance and no broker holds anything. Progress is sent home only if somebody has asked
// for it, and then makes no stream long. Every fourth world has no faults: there, a worker with a
// run that is overdue at home gets nothing more before it has answered.
func TestFaultyBusLosesNoJob(t *testing.T) {
	n := *seeds
	if testing.Short() {
		n /= 10
	}
	var sum fleet.Stats
	for s := *seed; s < *seed+uint64(n); s++ {
		w := newWorld(t, s)
		w.run()
		for _, x := range w.nodes {
			st := x.machine.Info().Stats
			sum.TotalLent += st.TotalLent + x.statsBefore.TotalLent
			sum.ReturnedJobs += st.ReturnedJobs + x.statsBefore.ReturnedJobs
			sum.LostJobs += st.LostJobs + x.statsBefore.LostJobs
			sum.MissedMessages += st.MissedMessages + x.statsBefore.MissedMessages
		}
		if t.Failed() {
			t.Fatalf("seed %d: go test ./broker/fleet -run TestFaultyBusLosesNoJob -seed %d -seeds 1", s, s)
		}
	}
	if n >= 20 && (sum.TotalLent == 0 || sum.ReturnedJobs == 0 || sum.LostJobs == 0 || sum.MissedMessages == 0) {
		t.Errorf("of %d worlds nothing was lent, returned, lost or missed: %+v", n, sum)
	}
}

// world is a fleet on a faulty bus, in virtual time.
type world struct {
	t           *testing.T
	rng         *rand.Rand
	now         int64
	events      events
	eventNumber uint64
	nodes       []*node
	cutAt       map[[2]int]int64 // by sender and receiver
	loss        float64
	noFaults    bool
	isFinishing bool // no new jobs or faults
	lastID      int
}

// event is something that happens in the world at a given time.
type event struct {
	at     int64
	number uint64
	run    func()
}

// events is a heap of events, the earliest first.
type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].number < e[j].number
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any     { x := (*e)[len(*e)-1]; *e = (*e)[:len(*e)-1]; return x }

// after calls run after d, unless the node has been restarted meanwhile.
func (w *world) after(d int64, x *node, run func()) {
	lives := 0
	if x != nil {
		lives = x.lives
	}
	w.eventNumber++
	heap.Push(&w.events, event{w.now + d, w.eventNumber, func() {
		if x == nil || x.lives == lives {
			run()
		}
	}})
}

// node is one broker of the world, with its submitters and workers.
type node struct {
	*world
	number         int
	lives          int
	core           *broker.Broker
	machine        *fleet.Machine
	statsBefore    fleet.Stats
	frozenUntil    int64 // the node does nothing until this time
	thawedAt       int64 // when the node was last unfrozen
	disconnected   bool  // the node is not connected to NATS
	flushScheduled bool  // is scheduled
	sentMessages   []fleet.Message
	workers        map[broker.Peer]*worker
	submitters     map[broker.Peer]map[string]*job
	peers          []broker.Peer // peers of both kinds
}

// worker is a worker of a node, with the jobs that are out on it.
type worker struct {
	jobsOut    map[string]bool
	overdueIDs map[string]bool // the ids whose runs are overdue at home
}

// job is a job as its submitter sees it.
type job struct {
	retries       int
	runs          *int
	acked         bool
	ends          int
	mayRunAgain   bool // may be run again: cancelled, or its timeout passed
	wantsProgress bool // its progress is wanted
}

var types = []string{`"a"`, `"b"`, `"mail-1"`, `"mail-2"`}

func newWorld(t *testing.T, seed uint64) *world {
	w := &world{t: t, rng: rand.New(rand.NewPCG(seed, 1)), now: 1, cutAt: map[[2]int]int64{}, noFaults: seed%4 == 0}
	for i := range 3 + w.rng.IntN(3) {
		x := &node{world: w, number: i}
		w.nodes = append(w.nodes, x)
		x.start()
	}
	return w
}

func (x *node) start() {
	x.lives++
	if x.machine != nil {
		st := x.machine.Info().Stats
		x.statsBefore.TotalLent += st.TotalLent
		x.statsBefore.ReturnedJobs += st.ReturnedJobs
		x.statsBefore.LostJobs += st.LostJobs
		x.statsBefore.MissedMessages += st.MissedMessages
	}
	x.core = broker.New(broker.Config{MaxUnusedTypes: 10, Retries: 1, Seed: 1, MaxTypes: 100})
	x.workers, x.submitters, x.peers = map[broker.Peer]*worker{}, map[broker.Peer]map[string]*job{}, nil
	x.machine = fleet.New(fleet.Config{Name: x.name(), Epoch: x.rng.Uint64(), MaxMessage: 200, MaxInFlight: 2000}, x.core, x.now, x.applyEffects)
	x.flushScheduled, x.sentMessages, x.disconnected, x.frozenUntil, x.thawedAt = false, nil, false, 0, x.now
	for range 1 + x.rng.IntN(2) {
		x.addSubmitter()
	}
	x.tick()
}

func (x *node) name() string { return fmt.Sprintf("broker-%d", x.number) }

// tick drives timers of core and machine.
func (x *node) tick() {
	if x.frozenUntil <= x.now {
		if x.core.NextTick() <= x.now {
			x.handle(x.core.Tick(x.now))
		}
		if x.machine.NextTick() <= x.now {
			x.machine.Tick(x.now)
			x.flushSoon()
		}
	}
	x.after(max(int64(500*time.Microsecond), min(x.core.NextTick(), x.machine.NextTick())-x.now), x, x.tick)
}

// handle carries out the effects of a command.
func (x *node) handle(effects []broker.Effect) {
	x.applyEffects(effects)
	x.machine.Step(x.now)
	x.flushSoon()
}

func (x *node) flushSoon() {
	if x.flushScheduled || !x.machine.HasPending() {
		return
	}
	x.flushScheduled = true
	x.after(x.rng.Int64N(50_000), x, func() {
		x.flushScheduled = false
		x.machine.Events()
		x.sentMessages = x.machine.Messages(x.sentMessages)
		for _, m := range x.sentMessages {
			for _, y := range x.nodes {
				if y == x || x.disconnected || m.To != "" && m.To != y.name() {
					continue
				}
				if !y.disconnected {
					x.send(y, m.Data)
				} else if m.WantReply {
					x.after(50_000, x, func() {
						x.machine.OnNoListener(x.now, y.name())
						x.flushSoon()
					})
				}
			}
		}
	})
}

func (x *node) send(y *node, data []byte) {
	times := 1
	switch {
	case x.cutAt[[2]int{x.number, y.number}] != 0 || x.rng.Float64() < x.loss:
		return
	case x.rng.Float64() < x.loss:
		times = 2
	}
	for range times {
		delay := 30_000 + x.rng.Int64N(100_000)
		if x.noFaults {
			delay = 100_000 // all in order
		}
		if x.rng.Float64() < x.loss {
			delay *= 100
		}
		data := slices.Clone(data)
		x.after(delay, nil, func() { y.receive(data) })
	}
}

func (x *node) receive(data []byte) {
	if x.disconnected {
		return
	}
	if wait := x.frozenUntil - x.now; wait > 0 {
		x.after(wait, x, func() { x.receive(data) })
		return
	}
	x.machine.Receive(x.now, data)
	x.flushSoon()
}

func (x *node) applyEffects(effects []broker.Effect) {
	for i := range effects {
		e := &effects[i]
		if w := x.workers[e.Peer]; w != nil {
			x.deliverToWorker(e.Peer, w, e)
		} else if jobs := x.submitters[e.Peer]; jobs != nil {
			x.deliverToSubmitter(jobs, e)
		} else {
			x.checkForMachine(e)
			x.machine.HandleEffect(e)
		}
	}
}

// checkForMachine checks the core's effects for other brokers.
func (x *node) checkForMachine(e *broker.Effect) {
	id := string(e.ID)
	if id == `"the same"` {
		return
	}
	switch e.Op {
	case broker.OpProgress:
		if j := x.jobOf(id); j != nil && !j.wantsProgress {
			x.t.Errorf("nobody asked for progress of job %s, which is sent home", id)
		}
	case broker.OpOverdue:
		for _, y := range x.nodes {
			for _, p := range y.peers {
				if w := y.workers[p]; x.noFaults && w != nil && w.jobsOut[id] {
					w.overdueIDs[id] = false
					x.after(int64(20*time.Millisecond), x, func() {
						if _, wasOverdue := w.overdueIDs[id]; wasOverdue {
							w.overdueIDs[id] = true // long enough ago for the borrower to know
						}
					})
				}
			}
		}
	}
}

func (x *node) deliverToWorker(p broker.Peer, w *worker, e *broker.Effect) {
	id := string(e.ID)
	switch e.Op {
	case broker.OpCancel:
		x.after(1000, x, func() { x.answerJob(p, w, id) })
	case broker.OpJob:
		if w.jobsOut[id] {
			x.t.Errorf("a worker has two jobs with id %s", id)
		}
		for o := range w.overdueIDs {
			if w.overdueIDs[o] {
				x.t.Errorf("a worker is given job %s, and its run of %s is overdue at home", id, o)
			}
		}
		w.jobsOut[id] = true
		if r := x.runsOf(id); r != nil {
			*r++
		}
		x.after(x.rng.Int64N(int64(5*time.Millisecond)), x, func() { x.answerJob(p, w, id) })
	}
}

func (x *node) jobOf(id string) *job {
	for _, y := range x.nodes {
		for _, jobs := range y.submitters {
			if j := jobs[id]; j != nil {
				return j
			}
		}
	}
	return nil
}

func (x *node) runsOf(id string) *int {
	if j := x.jobOf(id); j != nil {
		return j.runs
	}
	return nil
}

func (x *node) answerJob(p broker.Peer, w *worker, id string) {
	if x.workers[p] != w || !w.jobsOut[id] || x.frozenUntil > x.now {
		if x.frozenUntil > x.now {
			x.after(x.frozenUntil-x.now, x, func() { x.answerJob(p, w, id) })
		}
		return
	}
	delete(w.jobsOut, id)
	delete(w.overdueIDs, id)
	name := []byte(id)
	switch n := x.rng.IntN(40); {
	case n == 0:
		x.handle(x.core.Fail(x.now, p, &broker.Failure{ID: name, Reason: "no", Delay: -1}))
	case n == 1:
		x.handle(x.core.Fail(x.now, p, &broker.Failure{ID: name, Reason: "never", NoRetry: true}))
	case n == 2:
		if r := x.runsOf(id); r != nil {
			*r--
		}
		x.handle(x.core.Release(x.now, p, &broker.ReleaseRequest{ID: name, Delay: time.Duration(x.rng.IntN(1000))}))
	case n == 3 && !x.isFinishing:
		delete(x.workers, p)
		x.handle(x.core.ExpelPeer(x.now, p, "garbage"))
		x.addWorker()
	case n == 4 && !x.isFinishing:
		w.jobsOut[id] = true // the worker answers a second later
		x.after(int64(time.Second), x, func() { x.answerJob(p, w, id) })
	default:
		reports := 1
		if n == 5 {
			reports = 100
		}
		for range reports {
			x.handle(x.core.Progress(x.now, p, name, make([]byte, x.rng.IntN(700)), false))
		}
		x.handle(x.core.Respond(x.now, p, name, []byte(fmt.Sprintf("%0*d", x.rng.IntN(500)+1, 0)), false))
	}
}

func (x *node) deliverToSubmitter(jobs map[string]*job, e *broker.Effect) {
	j := jobs[string(e.ID)]
	switch e.Op {
	case broker.OpProgress:
		if j == nil || !j.wantsProgress || j.ends > 0 {
			x.t.Errorf("of job %s progress is told that nobody asked for, or that comes too late", e.ID)
		}
	case broker.OpOK:
		j.acked = true
	case broker.OpResult, broker.OpEnd:
		if j == nil || !j.acked {
			x.t.Errorf("job %s was not accepted and ends", e.ID)
			return
		}
		if j.ends++; j.ends > 1 {
			x.t.Errorf("job %s ends twice", e.ID)
		}
	case broker.OpRefuse:
		if j != nil && !j.acked {
			j.ends++
		}
	}
}

func (x *node) addSubmitter() {
	p := x.core.AddSubmitter()
	x.submitters[p] = map[string]*job{}
	x.peers = append(x.peers, p)
}

func (x *node) addWorker() {
	p := x.core.AddWorker()
	x.workers[p] = &worker{map[string]bool{}, map[string]bool{}}
	x.peers = append(x.peers, p)
	q := &broker.JoinRequest{Prefetch: x.rng.IntN(4), WantsNotices: x.rng.IntN(2) == 0}
	switch n := x.rng.IntN(8); {
	case n < 4:
		q.Type = []byte(types[n])
	case n < 6:
		q.Types = [][]byte{[]byte(types[2*x.rng.IntN(2)]), []byte(`"b"`)}
	default:
		q.Types, q.Except = [][]byte{[]byte(`"mail-*"`)}, [][]byte{[]byte(`"mail-2"`)}
	}
	q.Prefetch = max(1, q.Prefetch)
	x.handle(x.core.Join(x.now, p, q))
}

// pick returns one of the peers that are still alive.
func pick[T any](x *node, peers map[broker.Peer]T) (broker.Peer, bool) {
	x.peers = slices.DeleteFunc(x.peers, func(p broker.Peer) bool { return x.workers[p] == nil && x.submitters[p] == nil })
	var livePeers []broker.Peer
	for _, p := range x.peers {
		if _, known := peers[p]; known {
			livePeers = append(livePeers, p)
		}
	}
	if len(livePeers) == 0 {
		return 0, false
	}
	return livePeers[x.rng.IntN(len(livePeers))], true
}

func (x *node) submit() {
	p, ok := pick(x, x.submitters)
	if !ok {
		return
	}
	for range 1 + x.rng.IntN(20) {
		x.lastID++
		id := fmt.Sprintf(`"%d"`, x.lastID)
		if x.rng.IntN(20) == 0 {
			id = `"the same"`
			if x.submitters[p][id] != nil {
				continue
			}
		}
		s := &broker.Submission{
			ID: []byte(id), Type: []byte(types[x.rng.IntN(4)]), Retries: int32(x.rng.IntN(3)), Body: make([]byte, x.rng.IntN(700)),
			Progress: x.rng.IntN(2) == 0, Priority: int64(x.rng.IntN(3)),
		}
		switch x.rng.IntN(6) {
		case 0:
			s.Groups = [][]byte{[]byte(`"g"`)}
		case 1:
			s.Timeout = 100 * time.Millisecond
		case 2:
			s.Headers = []byte(`{"a":"b"}`)
		}
		j := &job{retries: int(s.Retries), runs: new(int), mayRunAgain: s.Timeout > 0 || id == `"the same"`, wantsProgress: s.Progress}
		x.submitters[p][id] = j
		x.handle(x.core.Submit(x.now, p, s))
	}
}

// causeRandomEvent causes one random event.
func (w *world) causeRandomEvent() {
	x := w.nodes[w.rng.IntN(len(w.nodes))]
	if x.frozenUntil > w.now {
		return
	}
	n := w.rng.IntN(100)
	if w.noFaults {
		n %= 78
	}
	switch {
	case n < 50:
		x.submit()
	case n < 65 && len(x.workers) < 4:
		x.addWorker()
	case n < 70:
		if p, ok := pick(x, x.workers); ok {
			delete(x.workers, p)
			x.handle(x.core.RemovePeer(w.now, p))
		}
	case n < 73:
		if p, ok := pick(x, x.submitters); ok {
			delete(x.submitters, p)
			x.handle(x.core.RemovePeer(w.now, p))
			x.addSubmitter()
		}
	case n < 78:
		if p, ok := pick(x, x.submitters); ok {
			for _, id := range sortedIDs(x.submitters[p]) {
				if j := x.submitters[p][id]; j.acked && j.ends == 0 {
					// A cancel ends the job, and its submitter gets no frame but the ok.
					j.mayRunAgain = true
					effects := x.core.Cancel(w.now, p, []byte(id))
					if effects[0].Op == broker.OpOK {
						delete(x.submitters[p], id)
					}
					x.handle(effects[1:])
					break
				}
			}
		}
	case n < 82:
		typ := []byte(types[w.rng.IntN(4)])
		effects, _ := x.core.Configure(w.now, pauseOf(string(typ), w.rng.IntN(3) == 0))
		x.handle(effects)
	case n < 84:
		effects, _ := x.core.Configure(w.now, limitOf(types[w.rng.IntN(4)], broker.TypeLimits{Concurrency: w.rng.IntN(4)}))
		x.handle(effects)
	case n < 88:
		a, b := w.rng.IntN(len(w.nodes)), w.rng.IntN(len(w.nodes))
		w.cutLink([2]int{a, b}, w.rng.Int64N(int64(4*time.Second)))
		if w.rng.IntN(2) == 0 {
			x.disconnect()
		}
	case n < 90:
		x.freeze()
	case n < 91:
		x.start()
	case n < 92:
		x.lives++ // the node is killed, and started again later
		x.disconnected = true
		x.freeze()
		x.after(x.frozenUntil-w.now, x, x.start)
	case n < 93:
		x.disconnected = true // the node's connection to NATS breaks
		x.after(w.rng.Int64N(int64(time.Second)), x, func() {
			x.disconnected = false
			x.machine.OnConnected(x.now, 200)
			x.flushSoon()
		})
	case n < 94:
		w.loss = []float64{0, 0.01, 0.2}[w.rng.IntN(3)]
	}
}

// cutLink cuts the path from one broker to another, in that direction only.
func (w *world) cutLink(link [2]int, d int64) {
	if w.cutAt[link] == 0 {
		w.cutAt[link] = w.now
		w.after(d, nil, func() { delete(w.cutAt, link) })
	}
}

// disconnect cuts the path from NATS to x. Since x no longer gets TCP acks either, x's system soon
// stops sending.
func (x *node) disconnect() {
	d := x.rng.Int64N(int64(4 * time.Second))
	sendDelay := x.rng.Int64N(int64(500 * time.Millisecond))
	for _, y := range x.nodes {
		x.cutLink([2]int{y.number, x.number}, d+sendDelay)
		x.after(sendDelay, nil, func() { x.cutLink([2]int{x.number, y.number}, d) })
	}
}

func (x *node) freeze() {
	x.frozenUntil = x.now + x.rng.Int64N(int64(4*time.Second))
	x.thawedAt = x.frozenUntil
}

func sortedIDs(jobs map[string]*job) (ids []string) {
	for id := range jobs {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

func (w *world) runUntil(at int64) {
	for len(w.events) > 0 && w.events[0].at <= at && !w.t.Failed() {
		e := heap.Pop(&w.events).(event)
		w.now = max(w.now, e.at)
		e.run()
	}
	w.now = max(w.now, at)
}

func (w *world) run() {
	for range 100 + w.rng.IntN(200) {
		w.causeRandomEvent()
		w.runUntil(w.now + w.rng.Int64N(int64(40*time.Millisecond)))
		w.check()
	}
	// All faults end, and all types get workers.
	w.isFinishing, w.loss, w.cutAt = true, 0, map[[2]int]int64{}
	lastNode := w.nodes[w.rng.IntN(len(w.nodes))]
	for _, x := range w.nodes {
		if x.disconnected {
			x.start()
		}
		x.frozenUntil = 0
		for _, typ := range types {
			effects, _ := x.core.Configure(w.now, pauseOf(typ, false))
			x.handle(effects)
			effects, _ = x.core.Configure(w.now, limitOf(typ, broker.TypeLimits{}))
			x.handle(effects)
		}
	}
	p := lastNode.core.AddWorker()
	lastNode.workers[p] = &worker{map[string]bool{}, map[string]bool{}}
	lastNode.handle(lastNode.core.Join(w.now, p, &broker.JoinRequest{Types: [][]byte{[]byte(`"*"`)}, Prefetch: 8}))
	for range 300 {
		w.runUntil(w.now + int64(time.Second))
		jobs := 0
		for _, x := range w.nodes {
			jobs += int(x.core.JobCount()) + x.core.BorrowedRuns()
		}
		if jobs == 0 {
			break
		}
	}
	w.runUntil(w.now + int64(10*time.Second))
	w.check()
	for _, x := range w.nodes {
		st := x.machine.Info().Stats
		if x.core.JobCount() != 0 || x.core.BorrowedRuns() != 0 || st.Lent != 0 || st.Borrowed != 0 {
			w.t.Errorf("broker %d holds %d jobs and %d borrowed ones at the end: %+v, %+v", x.number, x.core.JobCount(), x.core.BorrowedRuns(), x.core.Totals(), st)
		}
		for _, jobs := range x.submitters {
			for id, j := range jobs {
				if j.ends != 1 {
					w.t.Errorf("broker %d: job %s ended %d times", x.number, id, j.ends)
				}
				if !j.mayRunAgain && *j.runs > j.retries+1 {
					w.t.Errorf("broker %d: job %s ran %d times, %d are allowed", x.number, id, *j.runs, j.retries+1)
				}
			}
		}
	}
}

// maxHeldPerPeer limits the bytes that a broker may hold for another broker: jobs, progress, some
// answers, and offers while the other broker is silent. 2,000 of these bytes may be in flight.
const maxHeldPerPeer = 20_000

func (w *world) check() {
	for _, x := range w.nodes {
		if l := x.core.Totals(); l.Imbalance() != 0 {
			w.t.Errorf("broker %d: the ledger is out of balance: %+v", x.number, l)
		}
		if n := x.machine.Memory(); n > int64(len(w.nodes))*maxHeldPerPeer {
			w.t.Errorf("broker %d holds %d bytes for others", x.number, n)
		}
		for _, v := range x.machine.Info().Peers {
			y := w.nodes[v.Name[len(v.Name)-1]-'0']
			for _, link := range [][2]int{{x.number, y.number}, {y.number, x.number}} {
				since := w.cutAt[link]
				if since != 0 && v.Lent > 0 && w.now-max(since, x.thawedAt) > int64(1900*time.Millisecond) {
					w.t.Errorf("broker %d: %d jobs are lent to %s, and from %d to %d all is lost since %s", x.number, v.Lent, v.Name, link[0], link[1], time.Duration(w.now-since))
				}
			}
		}
	}
}
