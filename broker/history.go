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

// The history is a log of jobs that have ended, and of runs that did not end their jobs. It keeps
// no bodies. The oldest records are dropped to make room for new records.

const (
	// minHistory is the smallest size of the history, in bytes; runs of jobs that have not
	// ended need it.
	minHistory = 4 * container.LogChunk
	// maxReasonText is how many bytes of a reason are kept.
	maxReasonText = 1 << 10
	// maxRuns bounds how many runs of a job are returned: the latest runs.
	maxRuns = 16
	// maxLosses bounds the lost runs that Losses examines.
	maxLosses = 4096
)

// EndKind is how a job or a run has ended.
type EndKind uint8

// Jobs end in the ways up to EndDiscarded. Only runs end in the other ways.
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

func (k EndKind) String() string { return endNames[k] }

// endKindOf returns how a job has ended, given the code of its last frame.
func endKindOf(code Code) EndKind {
	switch code {
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

// historyEntry is a record of the history. Its text consists of the id, the type's name, the name
// of the broker that the run was lent to, the group names, each after its length in two bytes, and
// the reason's text.
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

// addRecord adds a record about job j. entry has the fields that do not come from the job:
// startedAt, worker, prevLostPos, answerSize, endKind, isRun and brokerLost.
func (b *Broker) addRecord(h *holding, rec uint32, j *job, broker string, reason *Reason, entry historyEntry) {
	id, name, reasonText := b.id(j), h.jobType.name, reason.Text
	if len(reasonText) > maxReasonText {
		reasonText = strings.ToValidUTF8(reasonText[:maxReasonText-len("…")], "") + "…"
	}
	n := len(id) + len(name) + len(broker) + len(reasonText)
	groups := h.queue.groupSet.allGroups()
	for _, g := range groups {
		n += 2 + len(g.name)
	}
	record, text := b.history.Add(n)
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
	entry.submitter = h.origin
	if h.submitter != nil {
		entry.submitter = h.submitter.id
	}
	if j.timing != 0 {
		entry.prevRunPos = b.timing(j).lastRunPos
	}
	entry.submittedAt, entry.endedAt, entry.job, entry.arrival, entry.attempts = j.submittedAt, b.now, rec, j.arrival, b.attempts(j)
	entry.idLen, entry.typeLen, entry.brokerLen, entry.groupCount = uint16(len(id)), uint16(len(name)), uint16(len(broker)), uint8(len(groups))
	entry.why, entry.limit, entry.bodySize = reason.Why, reason.Limit, uint32(len(b.body(rec, j)))
	*record = entry
}

// recordEnd records the end of job j. answer is the length of its answer.
func (b *Broker) recordEnd(h *holding, rec uint32, j *job, kind EndKind, reason *Reason, answer int) {
	if b.cfg.History <= 0 {
		return
	}
	entry, broker := historyEntry{startedAt: noRun, endKind: kind, answerSize: uint32(answer)}, ""
	// The run of a job that expires while it runs has been recorded already.
	if j.state == stateRunning && kind != EndExpired {
		w := b.workerOf(j)
		entry.startedAt, entry.worker, broker = b.stateSince(j), w.id, w.name
	}
	b.addRecord(h, rec, j, broker, reason, entry)
}

// recordRun records a run of job j that has stopped without ending the job.
func (b *Broker) recordRun(h *holding, rec uint32, j *job, reason Reason, lost bool) {
	w := b.workerOf(j)
	entry := historyEntry{startedAt: b.stateSince(j), worker: w.id, endKind: EndFailed, isRun: true, brokerLost: w.isBorrower && w.jobType == nil}
	switch {
	case lost:
		entry.endKind, entry.prevLostPos = EndLost, b.lastLostPos
	case reason.Why == WhyTimedOut:
		entry.endKind = EndTimedOut
	case reason.Why == WhyGivenBack:
		entry.endKind = EndReleased
	}
	b.addRecord(h, rec, j, w.name, &reason, entry)
	b.ensureTiming(rec, j).lastRunPos = b.history.Last()
	if lost {
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
	// Broker is the broker to which it was lent, "" for none. BrokerLost reports that this broker
	// was lost.
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
func (e *historyEntry) reason(text []byte) Reason {
	reason := Reason{Why: e.why, Limit: e.limit, Text: string(text)}
	if e.why != WhySeeText {
		reason.Have = int64(e.attempts)
	}
	return reason
}

// run returns the record as a run. text is the record's text after id and type.
func (e *historyEntry) run(text []byte) RunInfo {
	return RunInfo{
		Run: int(e.attempts), Worker: e.worker, Broker: string(text[:e.brokerLen]), BrokerLost: e.brokerLost,
		StartedAt: e.startedAt, EndedAt: e.endedAt, EndKind: e.endKind, Reason: e.reason(e.eachGroup(text[e.brokerLen:], func([]byte) {})),
	}
}

// eachGroup calls fn with the name of each group at the beginning of text, and returns the rest
// of text.
func (e *historyEntry) eachGroup(text []byte, fn func(name []byte)) []byte {
	for range e.groupCount {
		n := 2 + int(binary.LittleEndian.Uint16(text))
		fn(text[2:n])
		text = text[n:]
	}
	return text
}

// runsAt appends a job's remembered runs to runs, newest first, up to maxRuns in all. pos is the
// newest run's position in the history.
func (b *Broker) runsAt(pos int64, runs []RunInfo) []RunInfo {
	for len(runs) < maxRuns {
		entry, text, _ := b.history.At(pos)
		if entry == nil {
			break
		}
		runs = append(runs, entry.run(text[entry.idLen+entry.typeLen:]))
		pos = entry.prevRunPos
	}
	return runs
}

// Runs returns the remembered runs, at most 16 and the oldest first, of the job with this
// id that has not ended.
func (b *Broker) Runs(id []byte) (runs []RunInfo) {
	if rec, j := b.findJob(id); rec != 0 && j.timing != 0 {
		runs = b.runsAt(b.timing(j).lastRunPos, nil)
		slices.Reverse(runs)
	}
	return runs
}

// endedInfo returns a copy of the record of an ended job.
func (b *Broker) endedInfo(entry *historyEntry, text []byte) EndedInfo {
	names := text[entry.idLen+entry.typeLen:]
	info := EndedInfo{
		ID: bytes.Clone(text[:entry.idLen]), Type: bytes.Clone(text[entry.idLen : entry.idLen+entry.typeLen]),
		Submitter: entry.submitter, EndKind: entry.endKind, SubmittedAt: entry.submittedAt, StartedAt: entry.startedAt, EndedAt: entry.endedAt,
		Attempts: int(entry.attempts), Size: int(entry.bodySize), AnswerSize: int(entry.answerSize),
	}
	info.Reason = entry.reason(entry.eachGroup(names[entry.brokerLen:], func(name []byte) {
		info.Groups = append(info.Groups, bytes.Clone(name))
	}))
	if entry.startedAt != noRun {
		run := entry.run(names)
		if run.EndKind == EndFailed {
			switch run.Reason.Why {
			case WhyWorkerLost, WhyWorkerClosed:
				run.EndKind = EndLost
			case WhyTimedOut:
				run.EndKind = EndTimedOut
			}
		}
		info.Runs = append(info.Runs, run)
	}
	info.Runs = b.runsAt(entry.prevRunPos, info.Runs)
	slices.Reverse(info.Runs)
	return info
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

func (f *EndedFilter) matches(entry *historyEntry, text []byte) bool {
	switch names := text[entry.idLen+entry.typeLen:]; {
	case entry.isRun,
		f.Submitter != 0 && entry.submitter != f.Submitter,
		f.Worker != 0 && entry.worker != f.Worker,
		f.EndKind != "" && entry.endKind.String() != f.EndKind,
		f.ID != nil && !bytes.Equal(text[:entry.idLen], f.ID),
		f.Type != nil && !bytes.Equal(text[entry.idLen:entry.idLen+entry.typeLen], f.Type),
		f.Group != nil && !entry.hasGroup(names[entry.brokerLen:], f.Group):
		return false
	}
	return f.IDPart == "" || strings.Contains(wire.Value(text[:entry.idLen]), f.IDPart)
}

// hasGroup reports whether the job is in this group.
func (e *historyEntry) hasGroup(text, group []byte) (found bool) {
	e.eachGroup(text, func(name []byte) { found = found || bytes.Equal(name, group) })
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
// from is 0 for the first piece; for each further piece it is the next of the previous call. A next
// of -1 means that there is no further piece. Jobs that end in the meantime are not listed.
func (b *Broker) Ended(now, from int64, limit int, filter *EndedFilter) (ended []EndedInfo, next int64) {
	b.now = max(b.now, now)
	if from == 0 {
		from = b.history.Last()
	}
	for n := 0; n < lookVisits && len(ended) < limit; n++ {
		entry, text, before := b.history.At(from)
		if entry == nil || filter.MaxTimeSinceEnd > 0 && b.Since(entry.endedAt) > filter.MaxTimeSinceEnd {
			return ended, -1
		}
		from = before
		if filter.matches(entry, text) {
			ended = append(ended, b.endedInfo(entry, text))
		}
	}
	if from == 0 {
		from = -1
	}
	return ended, from
}

// HistorySpan returns how far back the history reaches, and whether it still has everything.
func (b *Broker) HistorySpan(now int64) (span time.Duration, complete bool) {
	b.now = max(b.now, now)
	if entry := b.history.First(); entry != nil {
		span = b.Since(entry.endedAt)
	}
	return span, b.history.Complete()
}

// JobLosses counts the workers that were lost while they ran a job.
type JobLosses struct {
	Type, ID []byte
	Workers  int
}

// Losses returns the jobs that lost at least minWorkers workers within the given time before
// now, as far as their runs are remembered.
func (b *Broker) Losses(now int64, span time.Duration, minWorkers int) (losses []JobLosses) {
	b.now = max(b.now, now)
	type jobKey struct{ job, arrival uint32 }
	count := map[jobKey]int{}
	for pos, n := b.lastLostPos, 0; n < maxLosses; n++ {
		entry, _, _ := b.history.At(pos)
		if entry == nil || b.Since(entry.endedAt) > span {
			break
		}
		count[jobKey{entry.job, entry.arrival}]++
		pos = entry.prevLostPos
	}
	for key, n := range count {
		if n < minWorkers || !b.jobs.Has(key.job) {
			continue
		}
		if j := b.jobs.Get(key.job); j.arrival == key.arrival && j.state != stateFree && j.state <= stateRunning {
			losses = append(losses, JobLosses{bytes.Clone(b.holdingOf(j).jobType.name), bytes.Clone(b.id(j)), n})
		}
	}
	return losses
}
