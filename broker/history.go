package broker

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"slices"
	"strings"
	"time"

	"gloom/broker/container"
	"gloom/wire"
)

// The history is a log of jobs that have ended, and of runs that did not end their jobs. It
// keeps no bodies. The oldest records are dropped to make room for new ones.

const (
	// minHistory is the smallest size of the history, in bytes; runs of jobs that have not
	// ended need it.
	minHistory = 4 * container.LogChunk
	// maxReasonText is how many bytes of a reason are kept.
	maxReasonText = 1 << 10
	// maxRuns bounds how many runs of a job are returned: the latest ones.
	maxRuns = 16
	// maxLosses bounds the lost runs that Losses examines.
	maxLosses = 4096
)

// EndKind is how a job or a run has ended.
type EndKind uint8

// The ways in which jobs end, followed by those in which only runs end.
const (
	EndAnswered EndKind = iota
	EndFailed
	EndCancelled
	EndExpired
	EndDiscarded
	EndLost
	EndTimedOut
	EndReleased
)

var endNames = []string{"answered", "failed", "cancelled", "expired", "discarded", "lost", "timed_out", "released"}

// JobEnds are the names of the ways in which jobs end.
var JobEnds = endNames[:EndLost]

func (o EndKind) String() string { return endNames[o] }

// endKindOf returns how a job has ended whose last frame has this code.
func endKindOf(c Code) EndKind {
	switch c {
	case 0:
		return EndAnswered
	case Cancelled:
		return EndCancelled
	case Expired:
		return EndExpired
	}
	return EndFailed
}

// noRun is the value of historyEntry.startedAt for a job that no run ended.
const noRun = -1

// historyEntry is a record of the history. Its text consists of the id, the name of the type,
// the name of the broker that the run was lent to, the names of the groups, each after its
// length in two bytes, and the reason's text.
type historyEntry struct {
	submittedAt, endedAt int64
	startedAt            int64 // when the run, or the run that ended the job, began; noRun if none ended it
	submitter            Peer
	worker               Peer
	// prevRunPos is the position of the job's previous record: its latest run that did not end it.
	// For a lost run, prevLostPos is the position of the previous lost run, of whatever job. 0
	// means none.
	prevRunPos, prevLostPos int64
	limit                   int64 // Reason.Limit
	job, arrival            uint32
	bodySize, answerSize    uint32 // bytes of the body and of the answer
	idLen, typeLen          uint16
	brokerLen               uint16
	attempts                uint16
	groupCount              uint8
	endKind                 EndKind
	why                     Why
	isRun                   bool
	brokerLost              bool // the broker that ran the job was lost, not only the run
}

// addRecord adds a record about job r. x has the fields that are not those of the job: started,
// worker, prevLostPos, answerSize, endKind, isRun and brokerLost.
func (b *Broker) addRecord(h *holding, r uint32, j *job, broker string, reason *Reason, x historyEntry) {
	id, name, reasonText := b.id(j), h.jobType.name, reason.Text
	if len(reasonText) > maxReasonText {
		reasonText = strings.ToValidUTF8(reasonText[:maxReasonText-len("…")], "") + "…"
	}
	n := len(id) + len(name) + len(broker) + len(reasonText)
	groups := h.queue.groupSet.allGroups()
	for _, g := range groups {
		n += 2 + len(g.name)
	}
	entry, text := b.history.Add(n)
	text = text[copy(text, id):]
	text = text[copy(text, name):]
	if len(text) > 0 {
		text = text[copy(text, broker):]
		for _, g := range groups {
			binary.LittleEndian.PutUint16(text, uint16(len(g.name)))
			text = text[2+copy(text[2:], g.name):]
		}
		copy(text, reasonText)
	}
	if x.submitter = h.origin; h.submitter != nil {
		x.submitter = h.submitter.id
	}
	if j.timing != 0 {
		x.prevRunPos = b.timing(j).lastRunPos
	}
	x.submittedAt, x.endedAt, x.job, x.arrival, x.attempts = j.submittedAt, b.now, r, j.arrival, b.attempts(j)
	x.idLen, x.typeLen, x.brokerLen, x.groupCount = uint16(len(id)), uint16(len(name)), uint16(len(broker)), uint8(len(groups))
	x.why, x.limit, x.bodySize = reason.Why, reason.Limit, uint32(len(b.body(r, j)))
	*entry = x
}

// recordEnd records the end of job j. answer is the length of its answer.
func (b *Broker) recordEnd(h *holding, r uint32, j *job, kind EndKind, reason *Reason, answer int) {
	if b.cfg.History <= 0 {
		return
	}
	x, broker := historyEntry{startedAt: noRun, endKind: kind, answerSize: uint32(answer)}, ""
	// The run of a job that expires while it runs has been recorded already.
	if j.state == stateRunning && kind != EndExpired {
		w := b.workerOf(j)
		x.startedAt, x.worker, broker = b.stateSince(j), w.id, w.name
	}
	b.addRecord(h, r, j, broker, reason, x)
}

// recordRun records a run of job r that has stopped without ending the job.
func (b *Broker) recordRun(h *holding, r uint32, j *job, reason Reason, lost bool) {
	w := b.workerOf(j)
	x := historyEntry{startedAt: b.stateSince(j), worker: w.id, endKind: EndFailed, isRun: true, brokerLost: w.isBorrower && w.jobType == nil}
	switch {
	case lost:
		x.endKind, x.prevLostPos = EndLost, b.lastLostPos
	case reason.Why == WhyTimedOut:
		x.endKind = EndTimedOut
	case reason.Why == WhyGivenBack:
		x.endKind = EndReleased
	}
	b.addRecord(h, r, j, w.name, &reason, x)
	if b.ensureTiming(r, j).lastRunPos = b.history.Last(); lost {
		b.lastLostPos = b.history.Last()
	}
}

// LimitHistory sets how many bytes the history may occupy, Config.History at most.
func (b *Broker) LimitHistory(bytes int64) {
	b.history.Limit(max(minHistory, min(bytes, b.cfg.History)))
}

// RunInfo is a run that has ended.
type RunInfo struct {
	Run    int // from 1
	Worker Peer
	// Broker is the broker to which it was lent, "" for none. BrokerLost reports that that
	// broker was lost.
	Broker     string
	BrokerLost bool
	// StartedAt and EndedAt are times of the caller's clock.
	StartedAt, EndedAt int64
	EndKind            EndKind
	Reason             Reason
}

// EndedInfo describes a job that has ended.
type EndedInfo struct {
	ID, Type  []byte
	Groups    [][]byte
	Submitter Peer // 0 for a detached job
	EndKind   EndKind
	Reason    Reason
	// StartedAt is when the run that ended the job began, or -1 if no run did. SubmittedAt,
	// StartedAt and EndedAt are times of the caller's clock.
	SubmittedAt, StartedAt, EndedAt int64
	Attempts                        int
	Size, AnswerSize                int // bytes
	// Runs are the last runs that are remembered, the oldest first.
	Runs []RunInfo
}

// reason returns the reason in the record; text is the part of the record's text after
// the names.
func (x *historyEntry) reason(text []byte) Reason {
	reason := Reason{Why: x.why, Limit: x.limit, Text: string(text)}
	if x.why != WhySeeText {
		reason.Have = int64(x.attempts)
	}
	return reason
}

// run returns the record as a run. text is the record's text after id and type.
func (x *historyEntry) run(text []byte) RunInfo {
	return RunInfo{
		Run: int(x.attempts), Worker: x.worker, Broker: string(text[:x.brokerLen]), BrokerLost: x.brokerLost,
		StartedAt: x.startedAt, EndedAt: x.endedAt, EndKind: x.endKind, Reason: x.reason(x.eachGroup(text[x.brokerLen:], func([]byte) {})),
	}
}

// eachGroup calls fn with the name of each group at the beginning of text, and returns the rest
// of text.
func (x *historyEntry) eachGroup(text []byte, fn func(name []byte)) []byte {
	for range x.groupCount {
		n := 2 + int(binary.LittleEndian.Uint16(text))
		fn(text[2:n])
		text = text[n:]
	}
	return text
}

// runsAt appends a job's remembered runs to found, newest first, up to maxRuns in all. pos is the
// newest run's position in the history.
func (b *Broker) runsAt(pos int64, runs []RunInfo) []RunInfo {
	for len(runs) < maxRuns {
		x, text, _ := b.history.At(pos)
		if x == nil {
			break
		}
		runs = append(runs, x.run(text[x.idLen+x.typeLen:]))
		pos = x.prevRunPos
	}
	return runs
}

// Runs returns the remembered runs, at most 16 and the oldest first, of the job with this
// id that has not ended.
func (b *Broker) Runs(id []byte) (runs []RunInfo) {
	if r, j := b.findJob(id); r != 0 && j.timing != 0 {
		runs = b.runsAt(b.timing(j).lastRunPos, nil)
		slices.Reverse(runs)
	}
	return runs
}

// endedInfo returns a copy of the record of an ended job.
func (b *Broker) endedInfo(x *historyEntry, text []byte) EndedInfo {
	names := text[x.idLen+x.typeLen:]
	i := EndedInfo{
		ID: bytes.Clone(text[:x.idLen]), Type: bytes.Clone(text[x.idLen : x.idLen+x.typeLen]),
		Submitter: x.submitter, EndKind: x.endKind, SubmittedAt: x.submittedAt, StartedAt: x.startedAt, EndedAt: x.endedAt,
		Attempts: int(x.attempts), Size: int(x.bodySize), AnswerSize: int(x.answerSize),
	}
	i.Reason = x.reason(x.eachGroup(names[x.brokerLen:], func(name []byte) {
		i.Groups = append(i.Groups, bytes.Clone(name))
	}))
	if x.startedAt != noRun {
		run := x.run(names)
		if run.EndKind == EndFailed {
			switch run.Reason.Why {
			case WhyWorkerLost, WhyWorkerClosed:
				run.EndKind = EndLost
			case WhyTimedOut:
				run.EndKind = EndTimedOut
			}
		}
		i.Runs = append(i.Runs, run)
	}
	i.Runs = b.runsAt(x.prevRunPos, i.Runs)
	slices.Reverse(i.Runs)
	return i
}

// EndedFilter selects jobs that have ended. A field that is not set matches all.
type EndedFilter struct {
	ID, Type, Group []byte // canonical names
	IDPart          string // a part of the id's value
	// Submitter is the connection that the job belonged to, Worker the connection of its last
	// run.
	Submitter, Worker Peer
	EndKind           string // one of JobEnds
	// MaxTimeSinceEnd is the longest time since the job's end.
	MaxTimeSinceEnd time.Duration
}

func (q *EndedFilter) matches(x *historyEntry, text []byte) bool {
	switch names := text[x.idLen+x.typeLen:]; {
	case x.isRun,
		q.Submitter != 0 && x.submitter != q.Submitter,
		q.Worker != 0 && x.worker != q.Worker,
		q.EndKind != "" && x.endKind.String() != q.EndKind,
		q.ID != nil && !bytes.Equal(text[:x.idLen], q.ID),
		q.Type != nil && !bytes.Equal(text[x.idLen:x.idLen+x.typeLen], q.Type),
		q.Group != nil && !x.hasGroup(names[x.brokerLen:], q.Group):
		return false
	}
	return q.IDPart == "" || strings.Contains(wire.Value(text[:x.idLen]), q.IDPart)
}

// hasGroup reports whether the job is in this group.
func (x *historyEntry) hasGroup(text, group []byte) (found bool) {
	x.eachGroup(text, func(name []byte) { found = found || bytes.Equal(name, group) })
	return found
}

// ValidPosition turns a number from a client, which may be invalid, into a position from which
// Ended can continue.
func (b *Broker) ValidPosition(position int64) int64 {
	if position == 0 {
		return 0
	}
	return cmp.Or(b.history.Align(position), -1)
}

// Ended returns up to limit matching jobs that have ended, the latest end first, piece by piece.
// from is 0 for the first piece, and then the next that the call before returned; -1 means that
// there is no further piece. Jobs that end in the meantime are not listed.
func (b *Broker) Ended(now, from int64, limit int, q *EndedFilter) (ended []EndedInfo, next int64) {
	b.now = max(b.now, now)
	if from == 0 {
		from = b.history.Last()
	}
	for n := 0; n < lookVisits && len(ended) < limit; n++ {
		x, text, before := b.history.At(from)
		if x == nil || q.MaxTimeSinceEnd > 0 && b.Since(x.endedAt) > q.MaxTimeSinceEnd {
			return ended, -1
		}
		if from = before; q.matches(x, text) {
			ended = append(ended, b.endedInfo(x, text))
		}
	}
	if from == 0 {
		from = -1
	}
	return ended, from
}

// HistorySpan returns how far back the history reaches, and whether it still has everything.
func (b *Broker) HistorySpan(now int64) (back time.Duration, complete bool) {
	b.now = max(b.now, now)
	if x := b.history.First(); x != nil {
		back = b.Since(x.endedAt)
	}
	return back, b.history.Complete()
}

// Losses describes a job whose workers were lost.
type Losses struct {
	Type, ID []byte
	Workers  int
}

// Losses returns the jobs that lost at least minWorkers workers within the given time before
// now, as far as their runs are remembered.
func (b *Broker) Losses(now int64, within time.Duration, minWorkers int) (losses []Losses) {
	b.now = max(b.now, now)
	type jobKey struct{ job, seq uint32 }
	count := map[jobKey]int{}
	for pos, n := b.lastLostPos, 0; n < maxLosses; n++ {
		x, _, _ := b.history.At(pos)
		if x == nil || b.Since(x.endedAt) > within {
			break
		}
		count[jobKey{x.job, x.arrival}]++
		pos = x.prevLostPos
	}
	for x, n := range count {
		if n < minWorkers || !b.jobs.Has(x.job) {
			continue
		}
		if j := b.jobs.Get(x.job); j.arrival == x.seq && j.state != stateFree && j.state <= stateRunning {
			losses = append(losses, Losses{bytes.Clone(b.holdingOf(j).jobType.name), bytes.Clone(b.id(j)), n})
		}
	}
	return losses
}
