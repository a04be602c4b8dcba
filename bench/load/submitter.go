package load

// maxUnacked keeps a submitter that fills a queue from getting far ahead of its server, and keeps
// its buffers small.
const maxUnacked = 4096

// Submitter submits jobs and judges the answers. Its methods are called by its
// SubmitterSide, on the loop's thread.
type Submitter struct {
	Index int

	shard        *shard
	side         SubmitterSide
	traits       Traits
	jobs         outstanding
	ready        bool
	disconnected bool  // hung up on purpose
	budget       int64 // jobs that it may still submit in a closed loop
	submitted    int64 // jobs submitted
	unackedJobs  int   // jobs submitted and not acked
}

// Types returns the names of the run's job types.
func (s *Submitter) Types() []string {
	names := make([]string, s.shard.cfg.Types)
	for i := range names {
		names[i] = s.shard.cfg.typeName(i)
	}
	return names
}

// Groups returns the number of groups that the run's jobs are spread over, or 0 if the jobs have no
// groups.
func (s *Submitter) Groups() int { return s.shard.cfg.Groups }

// Body returns the maker of the run's bodies.
func (s *Submitter) Body() *Body { return s.shard.body }

// Addr returns the address that the submitter connects to.
func (s *Submitter) Addr() string { return s.shard.cfg.SubmitAddr }

// Arrived records when bytes were received. Everything that they cause gets this time, so the Data
// method of every side must call it first.
func (s *Submitter) Arrived(now int64) { s.shard.now = now }

// Ready records that the server has accepted the connection.
func (s *Submitter) Ready() {
	if !s.ready {
		s.ready = true
		s.shard.readySubmitters++
		s.fillWindow()
	}
}

func (s *Submitter) state() (index int, ready bool) { return s.Index, s.ready }

func (s *Submitter) dial() error {
	s.disconnected = false
	s.side = s.shard.cfg.Protocol.Submitter(s)
	return s.side.Dial(s.shard.loop)
}

// fillWindow submits the jobs that the window allows.
func (s *Submitter) fillWindow() {
	for s.budget > 0 && s.jobs.count < s.shard.window && s.unackedJobs < maxUnacked && s.ready {
		if !s.submit(s.shard.now) {
			return
		}
		s.budget--
	}
}

// submit sends one job whose latency counts from the given time.
func (s *Submitter) submit(intended int64) bool {
	n, ok := s.jobs.open(intended)
	if !ok {
		return false
	}
	cfg := s.shard.cfg
	typ, priority := 0, int64(0)
	if cfg.Types > 1 {
		typ = int((s.submitted + int64(s.Index)) % int64(cfg.Types))
	}
	if cfg.Priorities > 1 {
		priority = int64(mix64(uint64(n)) % uint64(cfg.Priorities))
	}
	s.submitted++
	if s.traits.Acks != NoAcks {
		s.unackedJobs++
	}
	s.shard.totals.Submitted++
	s.side.Submit(typ, priority, n)
	return true
}

// mix64 spreads numbers evenly (the finaliser of splitmix64).
func mix64(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// Acked records an ack that names its job.
func (s *Submitter) Acked(id []byte) {
	n, ok := ParseNumber(id)
	if !ok {
		s.fault(Unknown, "ack for id %.40q", id)
		return
	}
	if fault, ok := s.jobs.ack(n); !ok {
		s.fault(fault, "ack for id %s", id)
		return
	}
	s.countAck()
}

// AckedNext records an ack that names no job.
func (s *Submitter) AckedNext() {
	if s.unackedJobs == 0 {
		s.fault(Unknown, "more acks than submits")
		return
	}
	s.countAck()
}

func (s *Submitter) countAck() {
	s.unackedJobs--
	s.shard.totals.Acked++
	if s.budget > 0 {
		s.fillWindow()
	}
}

// Answered reports an answer. id is nil where the protocol has none.
func (s *Submitter) Answered(id, body []byte) {
	n, fromBody := s.shard.body.Number(body)
	if id != nil {
		fromID, ok := ParseNumber(id)
		switch {
		case !ok:
			s.fault(Unknown, "answer for id %.40q", id)
			return
		case !fromBody:
			s.fault(Damaged, "answer for id %s: body %.60q", id, body)
		case fromID != n:
			s.fault(Swapped, "answer for id %s with the body of %s", id, n.Append(nil))
		}
		n, fromBody = fromID, true
	}
	if !fromBody {
		s.fault(Damaged, "body %.60q", body)
		return
	}
	if sendTime, ok := s.closeJob(n); ok {
		s.shard.totals.Answered++
		if s.shard.recording {
			s.shard.recordLatency(s.shard.now - sendTime)
		}
	}
	if s.budget > 0 {
		s.fillWindow()
	}
}

func (s *Submitter) closeJob(n Number) (sendTime int64, ok bool) {
	sendTime, unacked, fault, ok := s.jobs.close(n)
	if !ok {
		s.fault(fault, "answer for %s", n.Append(nil))
		return 0, false
	}
	if unacked && s.traits.Acks == NamedAcks {
		s.unackedJobs--
		s.fault(Unacked, "%s was answered first", n.Append(nil))
	}
	return sendTime, true
}

// Refused reports an error of the server about a job or, if id is nil, about something unknown. If
// jobs may fail by the configuration, the error that ends an accepted job is no fault.
func (s *Submitter) Refused(id []byte, code, reason string) {
	n, ok := ParseNumber(id)
	if !ok {
		s.fault(Refused, "%s: %s", code, reason)
		return
	}
	if !s.shard.cfg.MayFail {
		s.fault(Refused, "%s: %s (id %s)", code, reason, id)
	}
	if _, ok := s.closeJob(n); ok {
		s.shard.totals.Failed++
	}
	s.fillWindow()
}

// Misbehaved reports bytes that the protocol does not allow.
func (s *Submitter) Misbehaved(format string, args ...any) { s.fault(Misbehaved, format, args...) }

// Lost reports that a connection is gone.
func (s *Submitter) Lost(err error) {
	if s.disconnected {
		return
	}
	s.fault(Disconnected, "submitter %d: %s", s.Index, lossText(err))
	s.ready, s.budget = false, 0
}

func (s *Submitter) fault(kind Fault, format string, args ...any) {
	s.shard.faults.add(kind, format, args...)
}

// hangup disconnects with jobs outstanding; they are counted as forgotten.
func (s *Submitter) hangup(abort bool) {
	s.disconnected = true
	if s.ready {
		s.shard.readySubmitters--
	}
	s.ready = false
	s.shard.totals.Forgotten += int64(s.jobs.count)
	s.jobs.forget()
	s.unackedJobs = 0
	s.side.Hangup(abort)
}

func lossText(err error) string {
	if err == nil {
		return "closed by the server"
	}
	return err.Error()
}
