package fleet

import (
	"cmp"
	"container/list"
	"maps"
	"slices"
	"time"

	"gloom/broker"
)

// home is the part of a machine that lends.
type home struct {
	types    map[string]*lending
	lines    map[broker.Peer]*line
	all      *list.List // of *line, by seen
	numbers  uint32     // of lines
	waiting  []*lending
	touched  []*line // lines on which jobs were lent since their borrowers last got the demand
	stalled  []*line
	held     []*line // lines that lend less than their room, because too much is on its way
	relieved bool    // that may have changed
	stirred  bool    // another broker wants sets of types that it did not want before
	heard    int     // counts changes of the wants of other brokers
	nextType int     // index in waiting from which to continue
}

// lending is a type with jobs that wait or are lent.
type lending struct {
	typ     []byte
	lines   []*line
	waiting bool
	listed  bool  // in home.waiting
	vain    int   // home.heard when last no broker wanted it, 0 for never
	offered int64 // pulse of the last offer
}

// line is a borrower for jobs of one type. To our core it is a worker.
type line struct {
	no   uint32
	peer *peer
	of   *lending
	core broker.Peer
	room int
	// allotted is the part of room that the core knows of.
	allotted int
	lent     int
	// seen is when a job was last lent on it, places were given, or unfilled places were
	// looked for. at is its element of home.all.
	seen int64
	at   *list.Element
	told int // how many waiting jobs its borrower knows of
	// retired: one of its runs has passed its timeout, so the line gets no more jobs; they
	// go to another line.
	retired, touched, held bool
	gone                   bool // it is no longer in the core
}

// reconsider looks for waiting jobs of a type that other brokers may run.
func (m *Machine) reconsider(typ []byte) {
	d := m.core.Demand(typ)
	l := m.home.types[string(typ)]
	if d.Jobs == 0 {
		if l != nil {
			l.waiting = false
			m.home.drop(l)
		}
		return
	}
	if l == nil { // the core bounds the number of types
		l = &lending{typ: slices.Clone(typ), offered: -1}
		m.home.types[string(l.typ)] = l
	}
	l.waiting = true
	if !l.listed {
		l.listed = true
		m.home.waiting = append(m.home.waiting, l)
	}
	m.offer(l, d)
}

// offer offers the waiting jobs of a type, once a pulse, to as many of the brokers that
// want it as are needed.
func (m *Machine) offer(l *lending, d broker.Demand) {
	if l.offered == m.pulses || l.vain == m.home.heard {
		return
	}
	const most = 4 // brokers that are offered the same jobs
	n := 0
	for i := range m.order {
		p := m.order[(m.turn+i)%len(m.order)]
		if !p.up || p.draining {
			continue
		}
		if room := p.wants.places(l.typ); room > 0 {
			m.sayOffer(p, l, d)
			if n++; n == most {
				break
			}
			if d.Jobs -= room; d.Jobs <= 0 {
				break
			}
		}
	}
	if n == 0 {
		l.vain = m.home.heard
		return
	}
	l.offered = m.pulses
	m.turn++
}

func (m *Machine) sayOffer(p *peer, l *lending, d broker.Demand) {
	b := m.blank()
	b.uint(itemOffer)
	b.bytes(l.typ)
	b.int(d.Priority)
	b.int(m.now - d.Since)
	b.int(int64(d.Jobs))
	m.put(p, b)
}

// offerAgain offers the jobs that still wait.
func (m *Machine) offerAgain() {
	h := &m.home
	h.waiting = slices.DeleteFunc(h.waiting, func(l *lending) bool {
		l.listed = l.waiting
		return !l.waiting
	})
	for range min(len(h.waiting), 1024) {
		h.nextType = (h.nextType + 1) % len(h.waiting)
		m.reconsider(h.waiting[h.nextType].typ)
	}
}

// tellDemand tells borrowers how many jobs of the types that they borrow still wait.
func (m *Machine) tellDemand() {
	for _, ln := range m.home.touched {
		ln.touched = false
		if ln.gone {
			continue
		}
		d := m.core.Demand(ln.of.typ)
		if ln.peer.up && (d.Jobs > 0 || ln.told > 0) {
			ln.told = d.Jobs
			m.sayOffer(ln.peer, ln.of, d)
		}
	}
	m.home.touched = m.home.touched[:0]
}

// drop forgets a type without waiting or lent jobs.
func (h *home) drop(l *lending) {
	if len(l.lines) == 0 && !l.waiting && h.types[string(l.typ)] == l {
		delete(h.types, string(l.typ))
	}
}

// taken handles a broker's places for jobs of a type. 0 places withdraw its earlier unfilled
// places; noneHere means that it does not serve the type at all.
func (m *Machine) taken(p *peer, s *scan) {
	typ, n := s.name(), int(min(s.int(), maxPlaces))
	l := m.home.types[string(typ)]
	switch {
	case s.err != nil:
		return
	case n == noneHere:
		p.wants.refuse(typ)
		return
	case l == nil || n < 0:
		return
	}
	i := slices.IndexFunc(l.lines, func(ln *line) bool { return ln.peer == p })
	var ln *line
	if i >= 0 {
		ln = l.lines[i]
	} else if n > 0 {
		ln = m.open(p, l)
	}
	if ln == nil {
		return
	}
	if n == 0 {
		out, _ := m.core.Out(ln.core)
		n = out - ln.room
	}
	m.allot(ln, min(ln.room+n, maxPlaces))
}

// open adds a line. It returns nil if the type is no longer in use and there is no room for
// it: its last job has ended since it was offered.
func (m *Machine) open(p *peer, l *lending) *line {
	h := &m.home
	core, fx := m.core.AddBorrower(m.now, l.typ, p.name)
	m.apply(fx)
	if core == 0 {
		return nil
	}
	h.numbers++
	ln := &line{no: h.numbers, peer: p, of: l, core: core}
	l.lines = append(l.lines, ln)
	p.lines[ln.no] = ln
	h.lines[ln.core] = ln
	ln.at = h.all.PushBack(ln)
	return ln
}

// see records that a line is in use.
func (m *Machine) see(ln *line) {
	ln.seen = m.now
	m.home.all.MoveToBack(ln.at)
}

// allot sets how many jobs there is room for on a line.
func (m *Machine) allot(ln *line, room int) {
	ln.room = room
	m.see(ln)
	m.fill(ln)
}

// fill lets the core lend on a line until its room is used, in growing steps, and stops when
// too much is on its way to its broker.
func (m *Machine) fill(ln *line) {
	for more := 1; ln.allotted != ln.room; more *= 2 {
		if ln.allotted < ln.room && m.crowded(ln.peer) {
			m.hold(ln)
			return
		}
		ln.allotted = min(ln.room, ln.allotted+more)
		m.apply(m.core.Allot(m.now, ln.core, ln.allotted))
	}
}

// hold lists a line, to be filled when less is on its way to its broker.
func (m *Machine) hold(ln *line) {
	if !ln.held {
		ln.held = true
		m.home.held = append(m.home.held, ln)
	}
}

// relieve lets lines that were held lend again, or removes them.
func (m *Machine) relieve() {
	h := &m.home
	if !h.relieved {
		return
	}
	h.relieved = false
	held := h.held
	h.held = nil
	for _, ln := range held {
		ln.held = false
		if ln.gone {
			continue
		}
		if !m.crowded(ln.peer) {
			m.fill(ln)
		} else {
			if out, _ := m.core.Out(ln.core); out < ln.allotted {
				ln.allotted = out
				m.apply(m.core.Allot(m.now, ln.core, out))
			}
			m.hold(ln)
		}
	}
}

// close removes a line from the core.
func (m *Machine) close(ln *line) {
	m.unlist(ln)
	m.apply(m.core.Gone(m.now, ln.core))
}

// unlist forgets a line. Lists of touched, stalled or held lines that still name it skip
// it.
func (m *Machine) unlist(ln *line) {
	h := &m.home
	ln.gone = true
	delete(h.lines, ln.core)
	delete(ln.peer.lines, ln.no)
	h.all.Remove(ln.at)
	ln.of.lines = slices.DeleteFunc(ln.of.lines, func(o *line) bool { return o == ln })
	h.drop(ln.of)
}

// toBorrower sends a borrower an effect of the core.
func (m *Machine) toBorrower(ln *line, e *broker.Effect) {
	p := ln.peer
	b := m.blank()
	switch e.Op {
	case broker.OpJob:
		loan := m.core.Loan(e.Run)
		b.uint(itemLend)
		b.uint(uint64(ln.no))
		b.uint(e.Run)
		b.bytes(e.Type)
		b.bytes(e.ID)
		b.int(loan.Priority)
		b.int(loan.Age)
		b.bool(loan.Progress)
		b.bytes(e.Headers)
		b.bytes(e.Body)
		m.see(ln)
		ln.lent++
		p.lent++
		m.stats.Lent++
		m.stats.Lends++
		if !ln.touched {
			ln.touched = true
			m.home.touched = append(m.home.touched, ln)
		}
	case broker.OpCancel, broker.OpOverdue:
		b.uint(itemUnwant)
		b.uint(uint64(ln.no))
		b.uint(e.Run)
		b.bool(e.Op == broker.OpOverdue)
		if e.Op == broker.OpOverdue && !ln.retired {
			m.home.stalled = append(m.home.stalled, ln)
		}
	case broker.OpFollow:
		b.uint(itemFollow)
		b.uint(uint64(ln.no))
		b.uint(e.Run)
		b.bool(m.core.Loan(e.Run).Progress)
	case broker.OpClose:
		p.lent -= ln.lent
		m.stats.Lent -= ln.lent
		m.stats.Lost += uint64(ln.lent)
		m.unlist(ln)
		return
	default:
		return
	}
	m.put(p, b)
	if m.crowded(p) {
		m.hold(ln)
		m.home.relieved = true
	}
}

// unstall moves the places of lines that get no more jobs to other lines.
func (m *Machine) unstall() {
	for _, ln := range m.home.stalled {
		out, overdue := m.core.Out(ln.core)
		if overdue == 0 || ln.retired || ln.gone {
			continue
		}
		ln.retired = true
		ln.of.lines = slices.DeleteFunc(ln.of.lines, func(o *line) bool { return o == ln })
		free := ln.room - out
		m.allot(ln, 0)
		if free > 0 {
			m.allot(m.open(ln.peer, ln.of), free) // the type is in use: the old line is there
		}
	}
	m.home.stalled = m.home.stalled[:0]
}

// ran handles a borrower's report about a run.
func (m *Machine) ran(p *peer, kind uint64, s *scan) {
	no := uint32(s.uint())
	keep := kind == itemProgress || s.bool()
	id := s.bytes()
	ln := p.lines[no]
	begun := true
	var do func(w broker.Peer) []broker.Effect
	switch kind {
	case itemProgress:
		body := s.bytes()
		do = func(w broker.Peer) []broker.Effect { return m.core.Progress(m.now, w, id, body, false) }
	case itemResult:
		body := s.bytes()
		do = func(w broker.Peer) []broker.Effect { return m.core.Respond(m.now, w, id, body, pins(body)) }
	case itemReturn:
		q := &broker.Releasing{ID: id, Delay: time.Duration(s.int())}
		if begun = s.bool(); begun {
			do = func(w broker.Peer) []broker.Effect { return m.core.Release(m.now, w, q) }
		} else {
			do = func(w broker.Peer) []broker.Effect { return m.core.Return(m.now, w, q) }
		}
	case itemFail:
		how, delay, reason := s.uint(), s.int(), s.str()
		f := &broker.Failure{ID: id, Reason: reason, NoRetry: how == failFinal || how == failExpelled, Lost: how == failLost, Expelled: how == failExpelled, Delay: -1}
		if how == failLater {
			f.Delay = delay
		}
		do = func(w broker.Peer) []broker.Effect { return m.core.Fail(m.now, w, f) }
	}
	switch {
	case s.err != nil:
		return
	case ln == nil:
		if kind != itemProgress {
			m.stats.Late++
		}
		return
	case kind == itemProgress:
		m.apply(do(ln.core))
		return
	case ln.lent == 0:
		return // no job is lent on it
	case !begun:
		m.stats.Returned++
	}
	ln.lent--
	p.lent--
	m.stats.Lent--
	if keep && ln.retired {
		if i := slices.IndexFunc(ln.of.lines, func(o *line) bool { return o.peer == p }); i >= 0 {
			m.allot(ln.of.lines[i], min(ln.of.lines[i].room+1, maxPlaces))
		}
	} else if !keep && !ln.retired {
		m.allot(ln, max(0, ln.room-1))
	}
	m.apply(do(ln.core))
	if ln.retired {
		if out, _ := m.core.Out(ln.core); out == 0 {
			m.close(ln)
		}
	}
}

// pins reports whether a body may stay in the buffer of its message, because it is most of
// that message.
func pins(body []byte) bool { return cap(body) < 2*len(body) }

// atOnce bounds how many lines are checked in one pulse.
const atOnce = 1024

// withdraw gives up places that have been unfilled for a long time, and forgets lines
// without places.
func (m *Machine) withdraw() {
	for range atOnce {
		first := m.home.all.Front()
		if first == nil || m.now-first.Value.(*line).seen < idlePlaces {
			break
		}
		ln := first.Value.(*line)
		switch out, _ := m.core.Out(ln.core); {
		case out == 0 && ln.lent == 0:
			m.close(ln)
		case out < ln.room:
			m.allot(ln, out)
		default:
			m.see(ln)
		}
	}
	m.forgetAsking()
}

// partHome gives up the jobs lent to p.
func (m *Machine) partHome(p *peer) {
	all := slices.SortedFunc(maps.Values(p.lines), func(x, y *line) int { return cmp.Compare(x.no, y.no) })
	for _, ln := range all {
		m.allot(ln, 0) // else p would get the jobs that the others give up
	}
	m.stats.Lost += uint64(p.lent)
	m.stats.Lent -= p.lent
	p.lent = 0
	p.wants = newWants()
	for _, ln := range all {
		if !ln.gone {
			m.close(ln)
		}
	}
}
