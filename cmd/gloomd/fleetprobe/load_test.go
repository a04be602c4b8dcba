package fleetprobe

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

// load holds submitters and workers at all brokers of a fleet.
type load struct {
	book                *book
	fleet               *fleet
	stop                chan struct{} // when it is closed, nothing more is submitted
	done                chan struct{} // when it is closed, workers end, too
	submitters, workers sync.WaitGroup
	mu                  sync.Mutex // guards those below
	lives               map[*broker]*life
	conns               map[*broker][]*peer // of workers
	mustLeave           map[*broker]bool    // its submitters must disconnect
}

// life is one run of a broker, with the results of its submitters.
type life struct {
	broker      *broker
	endsByDrain bool // the run ends by a drain
	sessions    []*session
}

// session is a submitter's connection.
type session struct {
	*peer
	broker     *broker
	life       *life
	ackedCount int
	voidCount  int
	ends       map[string]int // guarded by the book's lock
}

func newLoad(f *fleet) *load {
	l := &load{book: newBook(), fleet: f, stop: make(chan struct{}), done: make(chan struct{}),
		lives: map[*broker]*life{}, conns: map[*broker][]*peer{}, mustLeave: map[*broker]bool{}}
	for _, b := range f.brokers {
		l.recordStart(b)
	}
	return l
}

func (l *load) recordStart(b *broker) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lives[b] = &life{broker: b}
}

func (l *load) lifeOf(b *broker) *life {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lives[b]
}

func (l *load) recordDrain(b *broker) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lives[b].endsByDrain = true
}

func (l *load) startClients(r *rand.Rand) {
	for _, b := range l.fleet.brokers {
		for range 2 {
			s := rand.New(rand.NewPCG(r.Uint64(), 1))
			l.submitters.Go(func() { l.submit(b, s) })
		}
		// Most jobs submitted to a broker are for workers at the other brokers.
		others := ""
		for _, o := range l.fleet.brokers {
			if o != b {
				others += fmt.Sprintf(`,"not-%s"`, o.name)
			}
		}
		for _, join := range []string{
			`"type":"any"`,
			fmt.Sprintf(`"types":["any","at-%s"%s],"prefetch":30,"cancel":true`, b.name, others),
			`"types":["a*"],"except":["at-*"],"prefetch":4`,
			fmt.Sprintf(`"types":["n*"],"except":["not-%s"],"prefetch":10`, b.name),
		} {
			l.workers.Go(func() { l.runWorker(b, join) })
		}
	}
}

func isClosed(c chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// submit keeps a broker busy with submits. submit opens one connection after another.
func (l *load) submit(b *broker, r *rand.Rand) {
	for n := 0; !isClosed(l.stop); n++ {
		c, err := b.dial("9998")
		if err != nil {
			time.Sleep(50 * time.Millisecond)
			continue
		}
		l.mu.Lock()
		s := &session{peer: newPeer(c), broker: b, life: l.lives[b], ends: map[string]int{}}
		s.life.sessions = append(s.life.sessions, s)
		l.mu.Unlock()
		l.converse(s, r, fmt.Sprintf("%s-%x-%d-", b.name, r.Uint32(), n))
	}
}

// request is a request without a reply.
type request struct{ verb, token string }

// converse submits and reads on one connection until it ends, or until all jobs are submitted and
// have ended.
func (l *load) converse(s *session, r *rand.Rand, prefix string) {
	defer s.close()
	pending, requests, leaving := 0, []request{}, false
	var recent []string
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for n := 0; ; {
		select {
		case f, ok := <-s.in:
			if !ok {
				leftIDs, voidCount := l.book.voidJobs(s)
				s.voidCount = voidCount
				l.mu.Lock()
				clean := s.life.endsByDrain
				l.mu.Unlock()
				if clean && len(leftIDs) > 0 && !leaving {
					l.book.addFault("%s drained, and said nothing of %d jobs: %.200s", s.broker.name, len(leftIDs), fmt.Sprint(leftIDs))
				}
				return
			}
			switch {
			case f.News != nil:
				l.onProgress(s, f)
			case f.isResult():
				l.book.recordEnd(s, f.ID, "answered", f)
				pending--
			case f.Error == "job_failed", f.Error == "expired",
				f.Error == "draining" && (len(requests) == 0 || requests[0] != request{"submit", f.ID}):
				l.book.recordEnd(s, f.ID, f.Error, f)
				pending--
			case len(requests) == 0:
				l.book.addFault("%s: nothing was asked, and comes %s", s.broker.name, f)
			default:
				q := requests[0]
				requests = requests[1:]
				switch {
				case f.ID != q.token:
					l.book.addFault("%s: to %v comes %s", s.broker.name, q, f)
				case q.verb == "submit" && f.OK:
					l.book.recordAck(q.token)
					s.ackedCount++
				case q.verb == "submit" && f.Error == "draining":
					l.book.recordRefusal(q.token)
					pending--
				case q.verb == "cancel" && f.OK:
					l.book.recordEnd(s, q.token, "cancelled", f)
					pending--
				case f.Error == "unknown_id" && q.verb != "submit", f.Error == "invalid_state" && q.verb == "change":
				case q.verb == "change" && f.OK:
				default:
					l.book.addFault("%s: to %v comes %s", s.broker.name, q, f)
				}
			}
			continue
		case <-tick.C:
		}
		if isClosed(l.stop) {
			if pending == 0 && len(requests) == 0 {
				return
			}
			continue
		}
		l.mu.Lock()
		leave := l.mustLeave[s.broker]
		delete(l.mustLeave, s.broker)
		l.mu.Unlock()
		if leave {
			leaving = true
			s.close()
			continue
		}
		for range min(8, 120-pending) {
			n++
			e := randomJob(r, prefix+fmt.Sprint(n), s)
			l.book.add(e)
			requests = append(requests, request{"submit", e.Token})
			pending++
			recent = append(recent, e.Token)
			if s.write(e.frame(r)) != nil {
				break
			}
		}
		if len(recent) > 20 {
			for _, verb := range []string{"cancel", "change"} {
				if r.IntN(6) != 0 {
					continue
				}
				token, fields := recent[r.IntN(len(recent))], ""
				if verb == "change" {
					fields = `,"priority":3`
				}
				requests = append(requests, request{verb, token})
				s.write(fmt.Sprintf(`{"action":%q,"id":%q%s}`, verb, token, fields))
			}
			recent = recent[10:]
		}
	}
}

func (l *load) onProgress(s *session, f frame) {
	l.book.mu.Lock()
	defer l.book.mu.Unlock()
	switch e := l.book.jobs[f.ID]; {
	case e == nil || e.home != s || e.Do != "report":
		l.book.appendFault("%s: progress that nobody asked for: %s", s.broker.name, f)
	case e.end != "":
		l.book.appendFault("%s: progress after the end by %s: %s", s.broker.name, e.end, f)
	default:
		e.progressCount++
	}
}

// randomJob returns a random job.
func randomJob(r *rand.Rand, token string, s *session) *jobRecord {
	e := &jobRecord{home: s, typ: []string{"any", "not-" + s.broker.name, "not-" + s.broker.name, "at-" + string(rune('a'+r.IntN(3)))}[r.IntN(4)], retries: []int{0, 1, 50, 50, 50}[r.IntN(5)],
		plan: plan{Token: token, Do: []string{"answer", "answer", "answer", "fail", "release", "report"}[r.IntN(6)], MS: r.IntN(20)}}
	switch r.IntN(6) {
	case 1:
		e.MS = 200 + r.IntN(1500) // so that jobs are lent whenever a broker is lost
	case 2:
		e.timeout = 1 + r.IntN(400)
	}
	e.hasDeadline = r.IntN(20) == 0
	if (e.Do == "fail" || e.timeout > 0) && e.retries > 1 { // more retries would take too long because of the backoff
		e.retries = 2
	}
	text, _ := json.Marshal(e.plan)
	e.body = string(text)
	return e
}

func (e *jobRecord) frame(r *rand.Rand) string {
	fields := ""
	if e.hasDeadline {
		fields += fmt.Sprintf(`,"expires_ms":%d`, 20+r.IntN(1000))
	} else if r.IntN(10) == 0 {
		fields += fmt.Sprintf(`,"delay_ms":%d`, 1+r.IntN(500))
	}
	if e.timeout > 0 {
		fields += fmt.Sprintf(`,"timeout_ms":%d`, e.timeout)
	}
	if e.Do == "report" {
		fields += `,"progress":true`
	}
	if r.IntN(4) == 0 {
		fields += fmt.Sprintf(`,"priority":%d,"groups":["g%d"],"headers":{"h":%d},"backoff_ms":%d`, r.IntN(5)-2, r.IntN(4), r.IntN(9), r.IntN(50))
	}
	return fmt.Sprintf(`{"action":"submit","id":%q,"type":%q,"body":%s,"retries":%d%s}`, e.Token, e.typ, e.body, e.retries, fields)
}

// runWorker runs a worker at a broker, on one connection after another.
func (l *load) runWorker(b *broker, join string) {
	for !isClosed(l.done) {
		c, err := b.dial("9999")
		if err != nil {
			time.Sleep(50 * time.Millisecond)
			continue
		}
		p := newPeer(c)
		p.at = b
		l.mu.Lock()
		l.conns[b] = append(l.conns[b], p)
		l.mu.Unlock()
		l.serveJobs(p, b, join)
	}
}

// hangUp closes the connections of all workers of a broker.
func (l *load) hangUp(b *broker) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range l.conns[b] {
		p.close()
	}
	l.conns[b] = nil
}

func (l *load) serveJobs(p *peer, b *broker, join string) {
	defer p.close()
	p.write(`{"action":"join",` + join + `}`)
	cancelled := map[string]chan struct{}{} // closed when the worker hears that its job was cancelled
	var mu sync.Mutex
	var runs sync.WaitGroup
	stop := make(chan struct{})
	defer func() { close(stop); runs.Wait() }()
	for {
		var f frame
		select {
		case <-l.done:
			return
		case v, ok := <-p.in:
			if !ok {
				return
			}
			f = v
		}
		switch {
		case f.OK:
		case f.Action == "cancel":
			mu.Lock()
			if c := cancelled[f.ID]; c != nil {
				close(c)
				delete(cancelled, f.ID)
			}
			mu.Unlock()
		case f.Action == "job":
			e, ok := l.book.recordRun(f, b)
			if !ok {
				continue
			}
			heard := make(chan struct{})
			mu.Lock()
			cancelled[f.ID] = heard
			mu.Unlock()
			runs.Go(func() {
				l.runPlan(p, e, heard, stop)
				mu.Lock()
				if cancelled[f.ID] == heard {
					delete(cancelled, f.ID)
				}
				mu.Unlock()
			})
		default:
			l.book.addFault("a worker at %s (%s) gets %s", b.name, join, f)
		}
	}
}

// runPlan does what a job's plan says.
func (l *load) runPlan(p *peer, e *jobRecord, heard, stop chan struct{}) {
	b := p.at
	select {
	case <-time.After(time.Duration(e.MS) * time.Millisecond):
	case <-heard:
	case <-stop:
		l.book.endRun(e, b, false)
		return
	}
	id := fmt.Sprintf(`"id":%q`, e.Token)
	first := func() bool { l.book.mu.Lock(); defer l.book.mu.Unlock(); return e.releases == 0 }
	switch {
	case e.Do == "fail":
		l.book.endRun(e, b, false)
		p.write(`{"action":"fail",` + id + `,"reason":"as planned"}`)
	case e.Do == "release" && first():
		l.book.endRun(e, b, true)
		p.write(`{"action":"release",` + id + `}`)
	default:
		if e.Do == "report" {
			p.write(`{"action":"progress",` + id + `,"body":1}`)
		}
		l.book.endRun(e, b, false)
		p.write(`{"action":"respond",` + id + `,"body":` + e.body + `}`)
	}
}
