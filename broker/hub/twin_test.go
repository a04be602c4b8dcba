package hub_test

import (
	"bytes"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"gloom/broker"
	"gloom/broker/hub"
	"gloom/broker/wording"
	"gloom/wire"
)

var twinSeed = flag.Uint64("twin-seed", 0, "run this seed of the hub's twin alone")

// twin is a hub in its simplest form: a core of its own and, per peer, a slice that is never
// shared. The real hub must send a peer exactly the bytes in that slice.
type twin struct {
	core            *broker.Broker
	maxOutbound     int
	shadows         map[broker.Peer]*shadow
	lateRemovals    []*shadow
	droppedProgress uint64
	overflow        uint64
	credits         int
}

// shadow is a peer as the twin knows it.
type shadow struct {
	peer        broker.Peer
	out         []byte
	unsentBytes int
	knownEnd    uint64 // the length of the stream when the owner last took from it
	mustClose   bool   // too much waits for the peer, so it must be closed
	isRemoved   bool   // the core no longer knows the peer
	isClosed    bool   // by its owner
	sentBytes   uint64 // how many bytes of the stream the owner has taken
	// outcomes are the kept outcomes in the stream that are not completely written.
	outcomes    []twinOutcome
	jobs        []string // the jobs that this worker was sent and has not answered
	creditSpent bool     // this worker has used up its credit
}

// twinOutcome is a kept outcome in a peer's stream: whether the owner has taken it, and whether
// the owner has reported an unfinished write of it.
type twinOutcome struct {
	number, end         uint64
	isTaken, isReported bool
}

func (s *shadow) waitingBytes() int { return len(s.out) + s.unsentBytes }

func (tw *twin) appendFrame(s *shadow, frame []byte) {
	before := s.waitingBytes()
	s.out = append(s.out, frame...)
	if before > tw.maxOutbound && !s.mustClose {
		s.mustClose = true
		tw.overflow++
		tw.lateRemovals = append(tw.lateRemovals, s)
	}
}

func (tw *twin) applyEffects(effects []broker.Effect) {
	for i := range effects {
		e := &effects[i]
		s := tw.shadows[e.Peer]
		if s == nil || s.mustClose || s.isRemoved {
			continue
		}
		var f []byte
		switch e.Op {
		case broker.OpOK:
			switch {
			case e.State != 0:
				f = wire.AppendAttached(nil, e.ID, e.State.String())
			case e.ID != nil:
				f = wire.AppendOKID(nil, e.ID)
			default:
				f = wire.AppendOK(nil)
			}
		case broker.OpJob:
			f = wire.AppendJob(nil, e.ID, e.Type, e.Headers, e.Body)
			s.jobs, s.creditSpent = append(s.jobs, string(e.ID)), s.creditSpent || e.CreditSpent
		case broker.OpResult:
			f = wire.AppendResult(nil, e.ID, e.Body)
		case broker.OpProgress:
			if s.waitingBytes() > tw.maxOutbound/2 {
				tw.droppedProgress++
				continue
			}
			f = wire.AppendProgress(nil, e.ID, e.Body)
		case broker.OpCancel:
			f = wire.AppendCancel(nil, e.ID)
		case broker.OpRefuse, broker.OpEnd:
			reason := wording.Reason(e.Reason)
			f = wire.AppendError(nil, twinCodes[e.Code], reason, e.ID)
			switch e.Code {
			case broker.JobLost:
				f = wire.AppendJobFailed(nil, reason, wire.CauseLost, 0, e.ID)
			case broker.JobNoRetry:
				f = wire.AppendJobFailed(nil, reason, wire.CauseFinal, 0, e.ID)
			case broker.JobRetryLater:
				f = wire.AppendJobFailed(nil, reason, wire.CauseLater, e.Delay/1e6, e.ID)
			}
		}
		tw.appendFrame(s, f)
		if e.Outcome != 0 {
			s.outcomes = append(s.outcomes, twinOutcome{number: e.Outcome, end: s.sentBytes + uint64(len(s.out))})
		}
	}
}

// markWritten records that the owner of s has written n of the bytes that it took.
func (tw *twin) markWritten(s *shadow, n int) {
	s.unsentBytes -= n
	keptOutcomes := s.outcomes[:0]
	for _, o := range s.outcomes {
		if o.isTaken && o.end <= s.sentBytes-uint64(s.unsentBytes) {
			tw.applyEffects(tw.core.OutcomeWritten(0, o.number))
			continue
		}
		o.isReported = o.isTaken
		keptOutcomes = append(keptOutcomes, o)
	}
	s.outcomes = keptOutcomes
	if waitingBytes := s.waitingBytes(); s.creditSpent && n > 0 && waitingBytes <= tw.maxOutbound/2/2 && !s.isRemoved {
		s.creditSpent = false
		tw.credits++
		tw.applyEffects(tw.core.SetCredit(0, s.peer, int64(tw.maxOutbound/2-waitingBytes)))
		tw.settle()
	}
}

// markRead records that a submitter reuses an id: so the submitter has read the outcome being
// written.
func (tw *twin) markRead(id []byte) {
	no, peer := tw.core.OutcomeOf(id)
	if s := tw.shadows[peer]; s != nil && no != 0 {
		for _, o := range s.outcomes {
			if o.number == no && o.isTaken && !o.isReported {
				tw.applyEffects(tw.core.OutcomeWritten(0, no))
			}
		}
	}
}

var twinCodes = map[broker.Code]wire.Code{
	broker.IDExists: wire.IDExists, broker.UnknownID: wire.UnknownID, broker.NotProcessing: wire.InvalidState,
	broker.Overloaded: wire.Overloaded, broker.JobFailed: wire.JobFailed, broker.Cancelled: wire.Cancelled,
	broker.TakenOver: wire.TakenOver,
}

// step carries out a request of s. It supports only the verbs that the test sends.
func (tw *twin) step(s *shadow, req *wire.Request) {
	if s.isRemoved {
		return
	}
	switch req.Verb {
	case wire.Submit:
		if n := s.waitingBytes(); n > tw.maxOutbound/2 {
			if s.mustClose {
				return
			}
			tw.appendFrame(s, wire.AppendError(nil, wire.Overloaded, fmt.Sprintf("%d bytes wait for this client to read; above %d (half of --max-outbound) it cannot submit", n, tw.maxOutbound/2), req.ID))
			return
		}
		tw.markRead(req.ID)
		tw.applyEffects(tw.core.Submit(0, s.peer, &broker.Submission{Keep: time.Duration(req.KeepMS) * time.Millisecond, ID: req.ID, Type: req.Type, Body: req.Body, Priority: req.Priority, Retries: int32(req.Retries), Progress: req.WantProgress, Groups: req.Groups, Headers: req.Headers}))
	case wire.Join:
		tw.applyEffects(tw.core.Join(0, s.peer, &broker.JoinRequest{Type: req.Type, Types: req.Types, Except: req.Except, Prefetch: req.Prefetch, WantsNotices: req.WantCancels, WantsHeaders: req.WantHeaders}))
	case wire.Respond:
		tw.applyEffects(tw.core.Respond(0, s.peer, req.ID, req.Body, false))
	case wire.Attach:
		tw.applyEffects(tw.core.Attach(0, s.peer, req.ID, req.WantProgress, tw.maxOutbound-s.waitingBytes()))
	case wire.Progress:
		tw.applyEffects(tw.core.Progress(0, s.peer, req.ID, req.Body, false))
	case wire.Fail:
		tw.applyEffects(tw.core.Fail(0, s.peer, &broker.Failure{ID: req.ID, Reason: wire.DefaultFailReason, NoRetry: req.NoRetry, Delay: -1}))
	case wire.Cancel:
		tw.applyEffects(tw.core.Cancel(0, s.peer, req.ID))
	case wire.Change:
		tw.applyEffects(tw.core.Change(0, s.peer, &broker.ChangeRequest{ID: req.ID, Priority: req.Priority, SetPriority: true, Groups: req.Groups, SetGroups: true, Delay: -1}))
	case wire.Release:
		tw.applyEffects(tw.core.Release(0, s.peer, &broker.ReleaseRequest{ID: req.ID}))
	case wire.Ping:
		if !s.mustClose {
			tw.appendFrame(s, wire.AppendOK(nil))
		}
	}
}

// settle removes the peers that must be closed, as the hub does when its lock is released.
func (tw *twin) settle() {
	for len(tw.lateRemovals) > 0 {
		s := tw.lateRemovals[len(tw.lateRemovals)-1]
		tw.lateRemovals = tw.lateRemovals[:len(tw.lateRemovals)-1]
		tw.removePeer(s)
	}
}

func (tw *twin) removePeer(s *shadow) {
	if !s.isRemoved {
		s.isRemoved = true
		tw.applyEffects(tw.core.RemovePeer(0, s.peer))
	}
}

// twinPeer is a peer of both hubs. Several pairs share one owner.
type twinPeer struct {
	conn    *hub.Conn
	port    wire.Port
	shadow  *shadow
	owner   *owner
	decoder wire.Decoder
}

// owner writes the output of its connections. A write may be in progress.
type owner struct {
	sink          *hub.Sink
	pendingWrites []pendingWrite
}

// pendingWrite is output that is being written, and a copy made when it was taken.
type pendingWrite struct {
	peer *twinPeer
	want []byte
}

// twins are a real hub and its twin, with the peers of both.
type twins struct {
	t           *testing.T
	rng         *rand.Rand
	realHub     *hub.Hub
	twin        *twin
	peers       []*twinPeer
	peersByConn map[*hub.Conn]*twinPeer
	owners      []*owner
	next        int
}

// TestHubMatchesTwin drives a hub and its naive twin with the same random requests, slow
// readers, half-written output and closes, and compares every byte.
func TestHubMatchesTwin(t *testing.T) {
	seeds := uint64(60)
	if testing.Short() {
		seeds = 15
	}
	from, to := uint64(1), seeds
	if *twinSeed != 0 {
		from, to = *twinSeed, *twinSeed
	}
	credits := 0
	for seed := from; seed <= to && !t.Failed(); seed++ {
		credits += runTwins(t, seed)
		if t.Failed() {
			t.Logf("seed %d; again with: go test ./broker/hub -run TestHubMatchesTwin -twin-seed %d", seed, seed)
		}
	}
	if credits == 0 && *twinSeed == 0 {
		t.Error("no worker ever used up its credit")
	}
}

func runTwins(t *testing.T, seed uint64) int {
	rng := rand.New(rand.NewPCG(seed, 1))
	limit := []int{16 << 10, 128 << 10, 1 << 20}[rng.IntN(3)]
	cfg := broker.Config{Retries: 2, MaxUnusedTypes: 10, MaxGroups: 4}
	creditConfig := cfg
	creditConfig.Credit = int64(limit / 2)
	x := &twins{
		t: t, rng: rng, peersByConn: map[*hub.Conn]*twinPeer{},
		realHub: hub.New(hub.Config{Core: cfg, MaxOutbound: limit, Clock: func() int64 { return 0 }}),
		twin:    &twin{core: broker.New(creditConfig), maxOutbound: limit, shadows: map[broker.Peer]*shadow{}},
	}
	defer x.realHub.Close()
	rules := func(core *broker.Broker, _ int64) []broker.Effect {
		fair := true
		effects, refusal := core.Configure(0, &broker.Settings{
			Types: []broker.TypeSetting{{Name: []byte("u"), Fair: &fair}},
			Rules: []broker.RuleInfo{{Pattern: []byte("g*"), Rule: broker.Rule{Concurrency: 2}}},
		})
		if refusal != nil {
			t.Error(refusal)
		}
		return effects
	}
	x.realHub.Do(rules)
	rules(x.twin.core, 0)
	for range 3 {
		x.owners = append(x.owners, &owner{sink: x.realHub.NewSink(hub.SinkOwner{Wake: func() {}})})
	}
	for range 400 {
		x.playTurn()
		if t.Failed() {
			return 0
		}
	}
	for more := true; more && !t.Failed(); { // a write may cause more output
		for _, o := range x.owners {
			x.finish(o)
			x.take(o)
			x.finish(o)
		}
		more = false
		for _, p := range x.peers {
			if n := p.shadow.unsentBytes; n > 0 {
				more = true
				x.write(p, n)
			}
		}
	}
	for _, p := range x.peers {
		if n := len(p.shadow.out); n > 0 && !p.shadow.mustClose {
			t.Errorf("peer %d is not given %d bytes more", p.shadow.peer, n)
		}
	}
	if s := x.realHub.Stats(); s.DroppedProgress != x.twin.droppedProgress || s.Overflows != x.twin.overflow {
		t.Errorf("%d progress frames dropped and %d peers given up, want %d and %d", s.DroppedProgress, s.Overflows, x.twin.droppedProgress, x.twin.overflow)
	}
	return x.twin.credits
}

func (tw *twins) playTurn() {
	switch n := tw.rng.IntN(100); {
	case len(tw.peers) < 4 || n < 4 && len(tw.peers) < 10:
		tw.addPeer()
	case n < 75:
		tw.sendFrames(tw.peers[tw.rng.IntN(len(tw.peers))])
	case n < 84:
		if o := tw.owners[tw.rng.IntN(len(tw.owners))]; len(o.pendingWrites) == 0 {
			tw.take(o)
		}
	case n < 96:
		tw.finish(tw.owners[tw.rng.IntN(len(tw.owners))])
	case n < 98:
		p := tw.peers[tw.rng.IntN(len(tw.peers))]
		if n := p.shadow.unsentBytes; n > 0 && len(p.owner.pendingWrites) == 0 {
			tw.write(p, n-tw.rng.IntN(n+1))
		}
	default:
		tw.close(tw.peers[tw.rng.IntN(len(tw.peers))])
	}
}

func (tw *twins) addPeer() {
	p := &twinPeer{port: wire.SubmitPort, owner: tw.owners[tw.rng.IntN(len(tw.owners))]}
	if len(tw.peers)%2 == 1 {
		p.port = wire.WorkerPort
	}
	p.decoder = wire.Decoder{DefaultType: "t"}
	p.conn = tw.realHub.Open(p.port, p.owner.sink, nil, "twin")
	p.shadow = &shadow{}
	if p.port == wire.SubmitPort {
		p.shadow.peer = tw.twin.core.AddSubmitter()
	} else {
		p.shadow.peer = tw.twin.core.AddWorker()
	}
	if p.shadow.peer != p.conn.Peer {
		tw.t.Fatalf("peer %d, the twin's %d", p.conn.Peer, p.shadow.peer)
	}
	tw.twin.shadows[p.shadow.peer] = p.shadow
	tw.peers = append(tw.peers, p)
	tw.peersByConn[p.conn] = p
	if p.port == wire.WorkerPort {
		tw.step(p, tw.joinFrame())
	}
}

// joinFrame returns a join for one type or for several.
func (tw *twins) joinFrame() string {
	types := []string{`"type":"t"`, `"type":"u"`, `"types":["t","u","u"]`, `"types":["*"]`, `"types":["*"],"except":["t*"]`}[tw.rng.IntN(5)]
	return fmt.Sprintf(`{"action":"join",%s,"prefetch":%d,"cancel":true,"headers":%t}`, types, 1+tw.rng.IntN(4), tw.rng.IntN(2) == 0)
}

// groupList returns up to two of five groups. That is more groups than may exist at a time.
func (tw *twins) groupList() string {
	return []string{`[]`, `["g1"]`, `["h"]`, `["g2","g1"]`, `["h","g1"]`, `["g3","i"]`}[tw.rng.IntN(6)]
}

// step lets both hubs carry out frames in one step.
func (tw *twins) step(p *twinPeer, frames ...string) {
	cmds := make([]hub.Command, len(frames))
	decs := make([]wire.Decoder, len(frames))
	for i, f := range frames {
		decs[i] = p.decoder
		if err := decs[i].Decode([]byte(f), p.port, true, &cmds[i].Req); err != nil {
			tw.t.Fatalf("%.200s: %v", f, err)
		}
		cmds[i].StableBody = len(cmds[i].Req.Body) > 100<<10
	}
	for i := range cmds {
		cmds[i].From = p.conn
	}
	p.owner.sink.Step(cmds, nil)
	for i := range cmds {
		tw.twin.step(p.shadow, &cmds[i].Req)
	}
	tw.twin.settle()
}

func (tw *twins) bodyText() string {
	n := []int{5, 100, 900, tw.twin.maxOutbound / 50, tw.twin.maxOutbound / 8, tw.twin.maxOutbound / 4}[tw.rng.IntN(6)]
	return `"` + strings.Repeat(string(rune('a'+tw.rng.IntN(26))), tw.rng.IntN(n)) + `"`
}

// sendFrames lets both hubs carry out one to six requests of p in one step.
func (tw *twins) sendFrames(p *twinPeer) {
	var list []string
	for range 1 + tw.rng.IntN(6) {
		if tw.rng.IntN(20) == 0 {
			list = append(list, `{"action":"ping"}`)
			continue
		}
		if p.port == wire.SubmitPort {
			if tw.rng.IntN(8) == 0 && tw.next > 0 {
				list = append(list, fmt.Sprintf(`{"action":"cancel","id":"j%d"}`, tw.rng.IntN(tw.next)))
				continue
			}
			if tw.rng.IntN(6) == 0 && tw.next > 0 {
				list = append(list, fmt.Sprintf(`{"action":"attach","id":"j%d"}`, max(0, tw.next-tw.rng.IntN(10))))
				continue
			}
			if tw.rng.IntN(8) == 0 && tw.next > 0 {
				list = append(list, fmt.Sprintf(`{"action":"change","id":"j%d","priority":%d,"groups":%s}`,
					max(0, tw.next-tw.rng.IntN(20)), tw.rng.IntN(3), tw.groupList()))
				continue
			}
			extraFields := ""
			if groups := tw.groupList(); groups != "[]" {
				extraFields = `,"groups":` + groups + `,"headers":{"trace": 1}`
			}
			list = append(list, fmt.Sprintf(`{"action":"submit","id":"j%d","type":%q,"body":%s,"progress":%t,"keep_ms":%d%s}`,
				tw.next, []string{"t", "u"}[tw.rng.IntN(2)], tw.bodyText(), tw.rng.IntN(3) > 0, tw.rng.IntN(2)*1000, extraFields))
			tw.next += tw.rng.IntN(20) / 2 % 2 // sometimes the same id again
			continue
		}
		if tw.rng.IntN(20) == 0 {
			list = append(list, tw.joinFrame())
			continue
		}
		jobs := p.shadow.jobs
		if len(jobs) == 0 {
			continue
		}
		i := tw.rng.IntN(len(jobs))
		id := jobs[i]
		switch n := tw.rng.IntN(10); {
		case n < 4:
			list = append(list, fmt.Sprintf(`{"action":"progress","id":%q,"body":%s}`, id, tw.bodyText()))
			continue
		case n < 5:
			list = append(list, fmt.Sprintf(`{"action":"release","id":%q}`, id))
		case n < 9:
			list = append(list, fmt.Sprintf(`{"action":"respond","id":%q,"body":%s}`, id, tw.bodyText()))
		default:
			list = append(list, fmt.Sprintf(`{"action":"fail","id":%q,"retry":%t}`, id, n == 9))
		}
		p.shadow.jobs = slices.Delete(jobs, i, i+1)
	}
	tw.step(p, list...)
}

// take takes an owner's output and compares it with the twin's.
func (tw *twins) take(o *owner) {
	for _, out := range o.sink.Take() {
		p := tw.peersByConn[out.Conn]
		if p.shadow.isClosed {
			continue
		}
		if out.Abort != p.shadow.mustClose {
			tw.t.Errorf("%d: to be closed at once is %t, want %t", p.shadow.peer, out.Abort, p.shadow.mustClose)
		}
		if out.Abort {
			tw.dropPeer(p)
			continue
		}
		p.shadow.knownEnd = p.shadow.sentBytes + uint64(len(p.shadow.out))
		if p.shadow.unsentBytes == 0 {
			o.pendingWrites = append(o.pendingWrites, pendingWrite{p, tw.compareTaken(p)})
		}
	}
}

// compareTaken compares the output that p's owner has just taken with the twin's.
func (tw *twins) compareTaken(p *twinPeer) []byte {
	got := unwrittenOutput(p.conn)
	if !bytes.Equal(got, p.shadow.out) {
		tw.t.Errorf("peer %d is sent\n  %.300q\nwant\n  %.300q", p.shadow.peer, got, p.shadow.out)
	}
	p.shadow.unsentBytes += len(p.shadow.out)
	p.shadow.sentBytes += uint64(len(p.shadow.out))
	p.shadow.out = nil
	for i := range p.shadow.outcomes {
		p.shadow.outcomes[i].isTaken = true
	}
	return got
}

// finish completes an owner's write. The output must not have changed meanwhile.
func (tw *twins) finish(o *owner) {
	for _, w := range o.pendingWrites {
		if got := unwrittenOutput(w.peer.conn); !bytes.Equal(got, w.want) {
			tw.t.Errorf("what was taken for peer %d changed before it was written:\n  %.300q\nwas\n  %.300q", w.peer.conn.Peer, got, w.want)
		}
		n := w.peer.shadow.unsentBytes
		if tw.rng.IntN(2) == 0 {
			n = tw.rng.IntN(n + 1)
		}
		tw.write(w.peer, n)
	}
	o.pendingWrites = o.pendingWrites[:0]
}

// write writes n bytes of the output that p's owner has taken. If that was all of it, the owner
// takes more.
func (tw *twins) write(p *twinPeer, n int) {
	tw.twin.markWritten(p.shadow, n)
	p.conn.MarkWritten(n)
	if p.shadow.unsentBytes == 0 && p.shadow.knownEnd > p.shadow.sentBytes && !p.shadow.mustClose {
		tw.compareTaken(p)
	}
}

func (tw *twins) close(p *twinPeer) {
	if len(p.owner.pendingWrites) > 0 {
		return
	}
	tw.realHub.Remove(p.conn)
	tw.twin.removePeer(p.shadow)
	tw.twin.settle()
	tw.dropPeer(p)
	p.shadow.isClosed = true
}

func (tw *twins) dropPeer(p *twinPeer) {
	for i, q := range tw.peers {
		if q == p {
			tw.peers = append(tw.peers[:i], tw.peers[i+1:]...)
			return
		}
	}
}

// TestDroppedProgressLeavesOutputAlone: a progress frame that a slow reader does not get must not
// touch the reader's output, even if the frame would have needed a larger buffer. Otherwise the
// next frames for another peer might end up in that output.
func TestDroppedProgressLeavesOutputAlone(t *testing.T) {
	h := newHub(1 << 20)
	defer h.Close()
	slowReader, other, w := stateOpen(t, h, wire.SubmitPort), stateOpen(t, h, wire.SubmitPort), stateOpen(t, h, wire.WorkerPort)
	slowReader.step(h, `{"action":"submit","id":"s0","body":1}`, `{"action":"submit","id":"s1","body":1}`, `{"action":"submit","id":"s2","body":1,"progress":true}`)
	other.step(h, `{"action":"submit","id":"o","body":1}`)
	slowReader.expectOutput(`{"ok":true,"id":"s0"}`, `{"ok":true,"id":"s1"}`, `{"ok":true,"id":"s2"}`)
	other.expectOutput(`{"ok":true,"id":"o"}`)
	w.namesJobs = true
	w.step(h, `{"action":"join","type":"default","prefetch":9}`)
	w.sink.Take()
	bigText := strings.Repeat("y", 600<<10) // more than half of what may wait for the slow reader
	w.step(h, `{"action":"respond","id":"s0","body":"`+bigText+`"}`)
	w.step(h, `{"action":"respond","id":"s1","body":"for the slow one"}`,
		`{"action":"progress","id":"s2","body":"`+strings.Repeat("x", 120_000)+`"}`,
		`{"action":"respond","id":"o","body":"for another"}`)
	slowReader.expectOutput(`{"id":"s0","body":"`+bigText+`"}`, `{"id":"s1","body":"for the slow one"}`)
	other.expectOutput(`{"id":"o","body":"for another"}`)
}
